"""Check whole trees of real code, repair copies of them, and see that nothing else changed.

    python tests/benchmarks/sweep.py [--write[=FILE]] [NAME=]FOLDER …

A folder is a package as PyPI gives it, or a repository; or the word ``stdlib`` (the running Python's), or ``pages``
(what the rules' pages show). Of each: files, findings, CPU seconds and peak memory of one `memlint check` without a
cache; then, with safe fixes and again with unsafe ones, on a copy: `memlint check --fix`, over the files that have
something to repair (over all, where a file checked by itself shows less), and the same once more. What is held:

* the check ends without an internal error, and so does every fix;
* every repaired file parses, and a second ``--fix`` changes nothing;
* no line changes but those that the fixes of the findings speak of, round by round;
* statements that no such line belongs to mean the same as before, in the same order;
* new blocks are indented as others of the file are;
* no comment is lost but those that silence something; encoding, byte-order mark, line ends and mode stay;
* nothing but Python files and notebooks changes.

``--write`` puts the rows into a file, ``fixtures/sweep.json`` unless another is named, beside those of other trees.
Every breach is printed, and makes the exit status 1. Code is read and copied into a temporary folder, never run.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from memlint import page  # noqa: E402
from memlint.apply import ROUNDS, apply_fixes, chosen  # noqa: E402
from memlint.check import Options, applicable, check_paths  # noqa: E402
from memlint.registry import rules_folder  # noqa: E402
from memlint.rule import Edit  # noqa: E402
from memlint.source import Source, SourceError, lines_of  # noqa: E402

RESULTS = ROOT / "fixtures" / "sweep.json"
SUFFIXES = (".py", ".ipynb")
_SILENCES = re.compile(r"#\s*(?:memlint|noqa|type|pylint|pyright|mypy|ruff|fmt|isort|yapf|pragma|nosec|noinspection)\b")
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases", "decorator_list")

Lines = list[tuple[int, int]]  # from the first to before the last, from 0; of an insertion both are the same


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("trees", nargs="*", metavar="[NAME=]FOLDER", default=["pages", "stdlib"])
    parser.add_argument("--write", nargs="?", type=Path, const=RESULTS, metavar="FILE", help="keep the rows there")
    parser.add_argument("--no-fix", action="store_true", help="check only")
    parser.add_argument("--rounds", metavar="FOLDER", help=argparse.SUPPRESS)  # a child's: repair a copy step by step
    parser.add_argument("--unsafe", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.write and given.write.suffix != ".json":
        parser.error(f"--write={given.write}: not a JSON file; a tree goes before --write")
    if given.rounds:
        json.dump(in_rounds(Path(given.rounds), given.trees, given.unsafe), sys.stdout)
        return 0
    rows: dict[str, Any] = {}
    for tree in given.trees:
        with tempfile.TemporaryDirectory(prefix="memlint-sweep-") as scratch:
            name, folder = located(tree, Path(scratch))
            rows[name] = row = swept(folder, Path(scratch), fix=not given.no_fix)
        print(f"{name}: {json.dumps(row)}", flush=True)
        if given.write:
            written(rows, given.write)
    breaches = sum(len(row["breaches"]) for row in rows.values())
    print(f"{len(rows)} trees, {sum(row['files'] for row in rows.values())} files, {breaches} breaches")
    return 1 if breaches else 0


def located(tree: str, scratch: Path) -> tuple[str, Path]:
    """What a tree is called, and where it lies: a wheel's metadata say which release it is."""
    if tree == "stdlib":
        return f"Python {platform.python_version()}, standard library", Path(sysconfig.get_path("stdlib"))
    if tree == "pages":
        return "what the rules' pages show", shown_by_pages(scratch / "pages")
    name, _, path = tree.rpartition("=")
    folder = Path(path)
    info = next(iter(sorted(folder.glob("*.dist-info"))), None)
    if not name and info is not None:
        name = "==".join(info.stem.rsplit("-", 1))
    return name or folder.name, folder


def shown_by_pages(folder: Path) -> Path:
    """The code of all rules' pages, a folder a block."""
    for path in sorted(rules_folder().glob("*.md")):
        read = page.read(path)
        blocks = [*read.finds, *(before for before, _ in read.fixes), *read.leaves, *read.trials]
        for number, block in enumerate(blocks):
            for name, text in block.files.items():
                file = folder / path.stem / f"block{number}" / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
    return folder


def copied(folder: Path, to: Path) -> Path:
    """A copy to repair, as the root of a project: without libraries that lie within, and without links."""
    others = ("site-packages", "__pycache__", ".git", ".memlint_cache")

    def ignored(inside: str, names: list[str]) -> set[str]:
        return {
            n for n in names if n in others or os.path.islink(os.path.join(inside, n)) or n.endswith((".so", ".pyc"))
        }

    shutil.copytree(folder, to, ignore=ignored)
    (to / ".git").mkdir()
    return to


def swept(folder: Path, scratch: Path, fix: bool = True) -> dict[str, Any]:
    """The row of one tree."""
    origin = copied(folder, scratch / "origin")
    status, report, cpu, peak = memlint(origin)
    levels = Counter(finding["level"] for finding in report.get("findings", ()))
    row: dict[str, Any] = {
        "files": report.get("summary", {}).get("files", 0),
        "unreadable": sum(finding["code"] == "MEM000" for finding in report.get("findings", ())),
        "findings": {level: levels[level] for level in ("error", "warning", "note")},
        "cpu_seconds": round(cpu, 1),
        "peak_mib": round(peak),
        "breaches": [] if status in (0, 1) else [f"check ends with {status}: {report.get('said', '')}"],
    }
    wanted: dict[str, list[str]] = {"safe": [], "unsafe": [], "hint": []}
    for finding in report.get("findings", ()):
        if finding["fix"] and finding["fix"]["edits"]:
            wanted[finding["fix"]["applicability"]].append(finding["path"])
    for mode in ("safe", "unsafe") if fix else ():
        repairable = wanted["safe"] + (wanted["unsafe"] if mode == "unsafe" else [])
        if not wanted[mode]:
            continue
        row[mode], breaches = repaired(origin, sorted(set(repairable)), scratch, mode == "unsafe")
        if not breaches and row[mode]["fixes"] < len(repairable):
            row[mode], breaches = repaired(origin, ["."], scratch, mode == "unsafe")
        row[mode] = {"repairable": len(repairable), **row[mode]}
        row["breaches"] += [f"{mode}: {breach}" for breach in breaches]
    shutil.rmtree(origin)
    return row


def memlint(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], float, float]:
    """Exit status and report of `memlint check` in a folder, its CPU seconds and its peak memory in MiB."""
    command = [sys.executable, "-m", "memlint", "check", "--no-cache", "--output-format", "json", *(arguments or ["."])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=err, env=environment)
        _, waited, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(waited)
        out.seek(0), err.seek(0)
        try:
            report = json.load(io.TextIOWrapper(out, encoding="utf-8"))
        except ValueError:
            report = {}
        report["said"] = err.read().decode(errors="replace").strip()[-300:]
    unit = 1024 if sys.platform != "darwin" else 1024 * 1024
    return process.returncode, report, used.ru_utime + used.ru_stime, used.ru_maxrss / unit


def repaired(origin: Path, paths: list[str], scratch: Path, unsafe: bool) -> tuple[dict[str, int], list[str]]:
    """Counts and breaches of repairing files of two copies: by the command, and round by round, which must agree."""
    options = ("--fix", *["--unsafe-fixes"] * unsafe, *paths)
    at_once, stepwise = (copied(origin, scratch / name) for name in ("at_once", "stepwise"))
    try:
        status, report, _, _ = memlint(at_once, *options)
        breaches = [] if status in (0, 1) else [f"--fix ends with {status}: {report['said']}"]
        first = held(at_once)
        status, _, _, _ = memlint(at_once, *options)
        breaches += [] if status in (0, 1) else [f"a second --fix ends with {status}"]
        second = held(at_once)
        breaches += [f"a second --fix changes {path}" for path in sorted(first) if first[path] != second.get(path)]
        command = [sys.executable, __file__, "--rounds", str(stepwise), *["--unsafe"] * unsafe, "--", *paths]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        if child.returncode:
            return {}, [*breaches, f"the rounds end with {child.returncode}: {child.stderr[-300:]}"]
        told = json.loads(child.stdout)
        breaches += told["breaches"]
        steps = held(stepwise)
        breaches += [
            f"the command leaves {path} otherwise than its rounds" for path in first if first[path] != steps[path]
        ]
        before = held(origin)
        changed = [path for path in first if before.get(path) != first[path]]
        breaches += [f"{path} is new" for path in first if path not in before]
        breaches += [f"{path} is gone" for path in before if path not in first]
        for path in changed:
            breaches += [f"{path}: {breach}" for breach in kept(origin / path, at_once / path)]
        counts = {"fixes": report.get("summary", {}).get("fixed", 0), "files": len(changed), "lines": told["lines"]}
        counts |= {"comments": told["comments"], "statements": told["statements"]}
        return counts, breaches
    finally:
        shutil.rmtree(at_once)
        shutil.rmtree(stepwise)


def held(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and mode of every file."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mode) for path in files}


def kept(before: Path, after: Path) -> Iterator[str]:
    """What a repaired file lacks of the file that it was, as far as bytes tell."""
    if not before.name.endswith(SUFFIXES):
        yield "is no code and changed"
        return
    if before.stat().st_mode != after.stat().st_mode:
        yield "has another mode"
    old, new = Source.read(str(before)), Source.read(str(after))
    if (old.encoding, old.bom) != (new.encoding, new.bom):
        yield "has another encoding"
    ends = [{line[len(line.rstrip("\r\n")) :] for line in lines_of(source.raw)} - {""} for source in (old, new)]
    if ends[0] and not ends[1] <= ends[0]:
        yield f"has line ends {sorted(ends[1])} where there were {sorted(ends[0])}"
    if lines_of(old.raw)[-1:] and old.raw.endswith(("\n", "\r")) is not new.raw.endswith(("\n", "\r")):
        yield "ends otherwise"
    try:
        _ = new.tree
    except SourceError as error:
        yield f"does not parse: {error.reason}"


def in_rounds(folder: Path, paths: list[str], unsafe: bool) -> dict[str, Any]:
    """Repair files in a folder as `memlint.apply.fix_paths` does, but on the disk, and hold each step against what
    the findings said."""
    os.chdir(folder)
    breaches: list[str] = []
    counted = Counter[str]()
    for _ in range(ROUNDS):
        report = check_paths(paths, Options(cache=False))
        changed = False
        for path, source in report.sources.items():
            mine = [f for f in report.findings if f.path == path and applicable(f.fix, unsafe)]
            text, count = apply_fixes(source, mine)
            if not count or text == source.raw:
                continue
            changed = True
            edits, _ = chosen(source, mine)
            with open(path, "wb") as file:
                file.write(source.to_bytes(text))
            breaches += [f"{path}: {breach}" for breach in one_step(source, Source.read(path), edits, counted)]
        if not changed:
            return {"breaches": breaches, **{key: counted[key] for key in ("lines", "comments", "statements")}}
    return {"breaches": [*breaches, f"{ROUNDS} rounds do not end"], "lines": 0, "comments": 0, "statements": 0}


def one_step(old: Source, new: Source, edits: Sequence[Edit], counted: Counter[str]) -> Iterator[str]:
    """What changed beyond the lines of the edits."""
    touched = lines_of_edits(edits)
    counted["lines"] += sum(end - start for start, end in touched)
    written = where(old.file, new.file, touched, edits)
    if written is None:
        yield "lines changed that no fix speaks of"
        return
    counted["comments"] += sum(comments(old.text).values())
    lost = comments(old.text) - comments(new.text)
    if gone := [comment for comment in lost if not _SILENCES.match(comment)]:
        yield f"lost {gone}"
    if old.is_notebook:
        data, other = (json.loads(source.raw) for source in (old, new))
        for cell, twin in zip(data["cells"], other["cells"], strict=True):
            if {**cell, "source": ""} != {**twin, "source": ""}:
                yield "a cell changed beside its source"
        return
    if strange := steps(new) - steps(old) - {"    "}:
        yield f"blocks are indented by {sorted(strange)}"
    mine, theirs = statements(old.tree, touched), statements(new.tree, written)
    counted["statements"] += len(mine)
    if mine != theirs:
        yield "statements mean something else that no fix speaks of"


def lines_of_edits(edits: Sequence[Edit]) -> Lines:
    """The lines that edits touch, in order, neighbours as one."""
    found: Lines = []
    for span, text in sorted(edits):
        start, end = span.line - 1, span.end_line
        if (
            span.end_column == 1
            and (not text or text[-1] in "\r\n")
            and (span.column == 1 or span.end_line > span.line)
        ):
            end -= 1  # up to the start of a line, which stays
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def where(old: Source, new: Source, touched: Lines, edits: Sequence[Edit]) -> Lines | None:
    """The lines of ``new`` that stand for those of ``old`` that were touched; None where others differ."""
    written: Lines = []
    at = place = 0  # in the one text and in the other
    for start, end in touched:
        first, last = old.offset(start + 1, 1), old.offset(end + 1, 1)
        stays = old.text[at:first]
        inside = [edit for edit in edits if first <= begin(old, edit) and finish(old, edit) <= last]
        grown = sum(len(edit.text) - (finish(old, edit) - begin(old, edit)) for edit in inside)
        if new.text[place : place + len(stays)] != stays:
            return None
        place += len(stays)
        head = len(lines_of(new.text[:place]))
        place, at = place + last - first + grown, last
        written.append((head, len(lines_of(new.text[:place]))))
    return written if new.text[place:] == old.text[at:] else None


def begin(source: Source, edit: Edit) -> int:
    return source.offset(edit.span.line, edit.span.column)


def finish(source: Source, edit: Edit) -> int:
    return source.offset(edit.span.end_line, edit.span.end_column)


def comments(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


def statements(tree: ast.Module, touched: Lines) -> list[str]:
    """What statements say whose own lines are not touched, in order; of a compound one, its header and decorators."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        decorators = getattr(node, "decorator_list", [])
        for each in [*decorators, node]:
            said = [ast.dump(part) if isinstance(part, ast.AST) else repr(part) for part in parts(each)]
            whole = each is not node or not hasattr(node, "body")
            ends = [each.end_lineno] if whole else [getattr(part, "end_lineno", 0) for part in parts(node)]
            first, last = each.lineno - 1, max(each.lineno, *(end or 0 for end in ends), 0)
            if not any(
                (start < last and first < end) or (start == end and first < start < last) for start, end in touched
            ):
                found.append((first, each.col_offset, type(each).__name__, said))
    return [f"{kind} {said}" for _, _, kind, said in sorted(found)]


def steps(source: Source) -> set[str]:
    """By what blocks are indented deeper than their owners."""
    found = set()
    for node in ast.walk(source.tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.stmt) and body and body[0].lineno > node.lineno:
            inner, outer = (source.line(n.lineno) for n in (body[0], node))
            found.add(inner[len(outer) - len(outer.lstrip()) : len(inner) - len(inner.lstrip())])
    return found


def parts(node: ast.AST) -> Iterator[Any]:
    """What a node consists of, without blocks and decorators."""
    for name, value in ast.iter_fields(node):
        if name not in _BLOCKS or (name == "body" and isinstance(node, ast.Lambda | ast.IfExp)):
            yield from value if isinstance(value, list) else [value]


def written(rows: dict[str, Any], file: Path) -> None:
    """Put rows beside those that are kept."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"trees": {}}
    known["machine"] = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    today = time.strftime("%Y-%m-%d")
    known["trees"] |= {name: {"date": today, **row} for name, row in rows.items()}
    known["trees"] = dict(sorted(known["trees"].items()))
    file.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
