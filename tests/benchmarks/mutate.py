"""Change memlint in small ways, one at a time, and see that a test notices.

    python tests/benchmarks/mutate.py [--sample N] [--seed N] [--jobs N] [--again [NAME]] [--write FILE.json] [FILE …]

A mutant is a file of `rules/` (all of them, where none is named) or of `memlint/` with one change: mutmut's operators
(it must be installed), and those of `OPERATORS` here. Each is loaded into a fork of this process and held against what
the file as it stands gives, until something differs:

- a rule: its page's blocks word for word (`tests/told.py`), its page as a test, its cases where they lie beside this
  checkout, the folders of `fixtures/projects`, and the other rules' pages, on which it must not speak;
- another module: the same of every page, case and project that runs the changed line, its own `tests/test_NAME.py`, and
  the tests of what is kept from one edit to the next; or, where no page can tell, the tests that `TESTS` names.

A mutant that nothing tells from the original survived. `--write` keeps the counts and the survivors; a survivor that
somebody has judged, with a ``reason`` in the file, keeps it when the command runs again, and the exit status is 1 as
long as one has none. `--again` tries only the survivors, after tests were added; with a NAME, only against what is
called so (`tests`, say), where all the rest has been held against them before.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import contextlib
import gc
import importlib
import importlib.machinery
import importlib.metadata
import io
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

SECONDS = 60  # that a mutant may take; more, and it counts as noticed: several times what all that is looked at takes
TESTS = {
    "baseline": ["test_baseline.py"],
    "config": ["test_config.py"],
    "earlier": ["test_earlier.py"],
    "grounds": ["test_earlier.py"],
    "outline": ["test_outline.py", "test_earlier.py"],
    "suppress": ["test_suppress.py"],
    "target": ["test_target.py"],
}
"""What is held against a module that no page can tell anything of, by its name."""

KEPT = ["test_room.py", "test_workspace.py"]
"""What is held against the other modules beside pages: facts that are dropped for room, or when a file is edited."""

MEMBERS = {
    "Level": ("NOTE", "WARNING", "ERROR"),
    "Answer": ("YES", "NO", "MAYBE"),
    "Claim": ("PEAK", "GROWTH"),
}


@dataclass(frozen=True)
class Mutant:
    """One change: the file's whole text with it, the line it begins on, and the changed syntax before and after."""

    text: str
    line: int
    end: int
    function: str
    before: str
    after: str


def one_side(node: cst.BooleanOperation) -> Iterator[cst.BaseExpression]:
    """`a and b` as `a`, and as `b`."""
    for side in (node.left, node.right):
        yield side.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def other_way(node: cst.If | cst.While | cst.CompIf) -> Iterator[cst.CSTNode]:
    """A condition that is turned round, and for a comprehension one that always holds."""
    inner = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(
        test=cst.UnaryOperation(cst.Not(), inner, lpar=[cst.LeftParen()], rpar=[cst.RightParen()]),
    )
    if isinstance(node, cst.CompIf):
        yield node.with_changes(test=cst.Name("True"))


def other_member(node: cst.Attribute) -> Iterator[cst.CSTNode]:
    """Another level, answer or claim."""
    if isinstance(node.value, cst.Name):
        for member in MEMBERS.get(node.value.value, ()):
            if member != node.attr.value:
                yield node.with_changes(attr=cst.Name(member))


def other_text(node: cst.FormattedStringText) -> Iterator[cst.CSTNode]:
    """The text between an f-string's values."""
    yield node.with_changes(value=f"XX{node.value}")


OPERATORS: list[tuple[Any, Callable[[Any], Iterable[cst.CSTNode]]]] = [
    (cst.BooleanOperation, one_side),
    ((cst.If, cst.While, cst.CompIf), other_way),
    (cst.Attribute, other_member),
    (cst.FormattedStringText, other_text),
]
"""What mutmut does not do: rules are questions joined by `and`, and answers that are members of enumerations."""


class _Visitor(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        mutators = importlib.import_module("mutmut.mutation.mutators")
        self.found: list[tuple[cst.CSTNode, cst.CSTNode, int, int, str]] = []
        self._operators = [*mutators.mutation_operators, *OPERATORS]
        self._names: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, (cst.Annotation, cst.Import, cst.ImportFrom, cst.Assert)):
            return False  # nothing to notice when it runs
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in ("len", "isinstance"):
            return False  # as mutmut has it
        if isinstance(node, cst.If) and "TYPE_CHECKING" in cst.Module([]).code_for_node(node.test):
            return False
        if isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString):
            return False  # a docstring
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            self._names.append(node.name.value)
        for kind, operator in self._operators:
            if isinstance(node, kind):
                where = self.get_metadata(PositionProvider, node, None)
                if where is not None:
                    name = ".".join(self._names)
                    new_ones = list(operator(node))
                    if isinstance(node, cst.SimpleString) and " " in node.value:
                        new_ones = new_ones[:1]  # prose in capitals is noticed where any other prose is
                    self.found += [(node, new, where.start.line, where.end.line, name) for new in new_ones]
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, (cst.FunctionDef, cst.ClassDef)):
            self._names.pop()


def mutants(text: str) -> list[Mutant]:
    """The mutants of a file that compile, and that differ from it and from each other."""
    wrapper = MetadataWrapper(cst.parse_module(text))
    visitor = _Visitor()
    wrapper.visit(visitor)
    seen = {ast.dump(ast.parse(text))}
    found = []
    for old, new, line, end, function in visitor.found:
        changed = wrapper.module.deep_replace(old, new).code  # type: ignore[attr-defined]
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                key = ast.dump(ast.parse(changed))
                compile(changed, "mutant", "exec")
        except (SyntaxError, ValueError):
            continue
        if key not in seen:
            seen.add(key)
            code = wrapper.module.code_for_node
            found.append(Mutant(changed, line, end, function, code(old).strip(), code(new).strip()))
    return found


def load_instead(path: Path, text: str) -> None:
    """Have Python take ``text`` for the code of a file, whoever imports it."""
    plain = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> types.CodeType | None:
        if os.path.realpath(self.get_filename(fullname)) == str(path):
            return compile(text, str(path), "exec", dont_inherit=True)
        return plain(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]


Probe = tuple[str, Callable[[], object]]
"""Something to look at, by name: what it gives must not change."""


def rule_probes(path: Path) -> list[Probe]:
    """What is looked at for a rule, which runs without the others."""
    from told import told

    from memlint import registry
    from memlint.testing import run_case, run_page

    registry._load_file.cache_clear()
    only = registry.Registry(registry._load_file(str(path)))
    registry.load = lambda folders=(): only
    page = path.with_suffix(".md")
    probes: list[Probe] = [("told", lambda: told(page)), ("page", lambda: run_page(page))]
    probes.append(("tests", lambda: told(page, "tests/")))
    probes += [(f"cases {case.name}", lambda case=case: run_case(case)) for case in cases(path.stem)]  # type: ignore[misc]
    probes += [(f"projects {folder.name}", lambda folder=folder: run_case(folder)) for folder in projects()]  # type: ignore[misc]
    words = [word for rule in only for word in rule.triggers]
    others = [
        other
        for other in sorted(registry.rules_folder().glob("*.md"))
        if other != page and (not words or any(word in other.read_text(encoding="utf-8") for word in words))
    ]
    probes += [(f"others {other.stem}", lambda other=other: run_page(other)) for other in others]  # type: ignore[misc]
    return probes


def cases(stem: str = "*") -> list[Path]:
    """The cases of a rule, or of all of them, where they lie beside this checkout."""
    return sorted((ROOT / ".." / "shared" / "cases").glob(f"{stem.replace('_', '-')}/[0-9]*"))


def projects() -> list[Path]:
    """The folders of several files that are tests."""
    folders = (ROOT / "fixtures" / "projects").iterdir()
    return sorted(folder for folder in folders if folder.is_dir() and folder.name[0] != ".")


def keep_projects() -> None:
    """Read and interpret each block once: a rule's mutants put other questions to the same facts."""
    import told

    from memlint import check, testing

    projects: dict[object, Any] = {}
    folders: dict[str, Path] = {}
    plain = check.Run.project

    def project(self: Any, sources: Any, near: Any, library: Any, module: Any = None, outlines: Any = None) -> Any:
        given = (tuple((s.path, s.digest) for s in sources), tuple(near), self._options.target)
        if given not in projects:
            projects[given] = plain(self, sources, near, library, module, outlines)
        return projects[given]

    class Kept(testing.Project):
        def __enter__(self) -> Path:
            given = repr((sorted(self._files.items()), self._rules))
            if not self._files:
                return super().__enter__()  # a case, whose files are copied into it
            if given not in folders:
                folders[given] = super().__enter__()
            return folders[given]

        def __exit__(self, *exception: object) -> None:
            if not self._files:
                super().__exit__(*exception)

    check.Run.project = project  # type: ignore[method-assign]
    check.with_deep_stack = lambda work: work()
    testing.Project = Kept  # type: ignore[misc]
    told.Project = Kept  # type: ignore[attr-defined]


def module_probes(path: Path) -> list[Probe]:
    """What is looked at for any other module."""
    from told import told

    from memlint import registry
    from memlint.testing import run_case, run_page

    if path.stem in TESTS:
        return [(f"tests {name}", lambda name=name: tested(name)) for name in TESTS[path.stem]]  # type: ignore[misc]
    pages = sorted(registry.rules_folder().glob("*.md"))
    probes: list[Probe] = [(f"told {page.stem}", lambda page=page: told(page)) for page in pages]  # type: ignore[misc]
    probes += [(f"page {page.stem}", lambda page=page: run_page(page)) for page in pages]  # type: ignore[misc]
    probes += [(f"cases {case}", lambda case=case: run_case(case)) for case in cases()]  # type: ignore[misc]
    probes += [(f"projects {folder.name}", lambda folder=folder: run_case(folder)) for folder in projects()]  # type: ignore[misc]
    own = [f"test_{path.stem}.py"] if (ROOT / "tests" / f"test_{path.stem}.py").exists() else []
    probes += [(f"tests {name}", lambda name=name: tested(name)) for name in own]  # type: ignore[misc]
    return probes + [(f"kept {name}", lambda name=name: tested(name)) for name in KEPT]


def tested(name: str) -> bool:
    """Whether a file of tests passes."""
    import pytest

    quietly = ["-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile=ci"]  # the same examples every time
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return pytest.main([*quietly, str(ROOT / "tests" / name)]) == 0


def forked(work: Callable[[], object], seconds: float) -> tuple[str, Any]:
    """What ``work`` gives in a fork of this process, as JSON: "ended" with it, or "failed" or "timeout" with None."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        signal.alarm(int(seconds) + 1)
        status = 1
        try:
            with open(os.devnull, "w") as nothing, contextlib.redirect_stderr(nothing):
                data = json.dumps(work())
            with os.fdopen(write, "w") as pipe:
                pipe.write(data)
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return "timeout" if os.WTERMSIG(status) == signal.SIGALRM else "failed", None
    return ("ended", json.loads(text)) if os.WEXITSTATUS(status) == 0 else ("failed", None)


def baseline(path: Path, probes_of: Callable[[Path], list[Probe]], lines: bool) -> list[tuple[str, str, list[int]]]:
    """Each probe of a file with what it gives and, where ``lines`` are wanted, the lines of the file that it runs."""
    given = []
    for name, probe in probes_of(path):
        if lines and not name.startswith(("tests ", "kept ")):
            measured = importlib.import_module("coverage").Coverage(
                data_file=None, include=[str(path)], config_file=False
            )
            with measured.collect():
                text = repr(probe())
            given.append((name, text, sorted(measured.get_data().lines(str(path)) or ())))
        else:
            given.append((name, repr(probe()), []))
    return given


def noticed(
    path: Path, mutant: Mutant, probes_of: Callable[[Path], list[Probe]], wanted: dict[str, str], seconds: float
) -> str:
    """The probe that notices a mutant, "error" or "timeout" where it cannot even run, or "" where it survives."""

    def work() -> str:
        load_instead(path, mutant.text)
        for name, probe in probes_of(path):
            if name in wanted and repr(probe()) != wanted[name]:
                return name
        return ""

    fate, name = forked(work, seconds)
    return {"ended": str(name), "failed": "error", "timeout": "timeout"}[fate]


def run_file(
    path: Path, sample: int | None, seed: int, old: dict[str, Any] | None, only: str, part: slice
) -> dict[str, Any]:
    """Counts and survivors of a ``part`` of the mutants of one file; with an ``old`` entry, only its survivors are
    tried again."""
    with tempfile.TemporaryDirectory(prefix="memlint-mutate-") as scratch:
        tempfile.tempdir = scratch
        return _run_file(path, sample, seed, old, only, part)


def _run_file(
    path: Path, sample: int | None, seed: int, old: dict[str, Any] | None, only: str, part: slice
) -> dict[str, Any]:
    started = time.perf_counter()
    is_rule = path.parent.name == "rules"

    def probes_of(path: Path) -> list[Probe]:
        return [probe for probe in (rule_probes if is_rule else module_probes)(path) if probe[0].startswith(only)]

    if is_rule:
        keep_projects()
    else:
        for name in ("click", "libcst", "pathspec", "pytest", "_pytest.config", "difflib", "tomllib"):
            importlib.import_module(name)  # once, for all forks
    all_ = mutants(path.read_text(encoding="utf-8"))
    tried = all_
    if old is not None:
        tried = once_more(all_, old["survivors"])
    elif sample is not None and len(all_) > sample:
        tried = sorted(random.Random(f"{seed}{path.name}").sample(all_, sample), key=lambda m: m.line)
    if is_rule:
        fate, first = "ended", baseline(path, probes_of, False)  # here, so that the forks find all read
    else:
        fate, first = forked(lambda: baseline(path, probes_of, True), 600)
    if fate != "ended":
        raise SystemExit(f"{path}: the file as it stands does not run: {fate}")
    loads = set(range(1, 1 + path.read_text(encoding="utf-8").count("\n"))) - {
        n for _, _, lines in first for n in lines
    }
    by = Counter[str]()
    gc.freeze()
    survivors = []
    for mutant in tried[part]:
        span = range(mutant.line, mutant.end + 1)
        wanted = {
            name: text
            for name, text, lines in first
            if is_rule
            or name.startswith(("tests ", "kept "))
            or not loads.isdisjoint(span)
            or not set(lines).isdisjoint(span)
        }
        name = noticed(path, mutant, probes_of, wanted, SECONDS)
        by[name.split()[0] if name else "survived"] += 1
        if not name:
            survivors.append(
                {"function": mutant.function, "line": mutant.line, "before": mutant.before, "after": mutant.after}
            )
    if old is not None and not part.start:
        by.update({name: number for name, number in old["by"].items() if name != "survived"})
    return {
        "file": path.relative_to(ROOT).as_posix(),
        "possible": len(all_),
        "tried": by.total(),
        "by": dict(sorted(by.items())),
        "survivors": survivors,
        "seconds": round(time.perf_counter() - started, 1),
    }


def joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What was found of the parts of a file's mutants as one."""
    by = sum((Counter(part["by"]) for part in parts), Counter[str]())
    survivors = sorted((s for part in parts for s in part["survivors"]), key=lambda s: s["line"])
    seconds = max(part["seconds"] for part in parts)
    return {**parts[0], "tried": by.total(), "by": dict(sorted(by.items())), "survivors": survivors, "seconds": seconds}


def once_more(all_: list[Mutant], survivors: list[dict[str, Any]]) -> list[Mutant]:
    """The mutants that survived before, wherever their lines are now: of several alike, the nearest."""
    found: list[Mutant] = []
    for survivor in survivors:
        alike = [m for m in all_ if ("", m.function, m.before, m.after) == key("", survivor) and m not in found]
        if alike:
            found.append(min(alike, key=lambda m: abs(m.line - survivor["line"])))
    return sorted(found, key=lambda m: m.line)


def key(file: str, survivor: dict[str, Any]) -> tuple[str, ...]:
    """What a survivor is told by when lines have moved."""
    return file, survivor["function"], survivor["before"], survivor["after"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a line a file, and give the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sample", type=int, help="mutants of each file at most (all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--again", nargs="?", const="", metavar="NAME", help="only the survivors that the file to write knows of"
    )
    parser.add_argument("--write", type=Path, metavar="FILE.json")
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args(arguments)
    files = [f.resolve() for f in options.files] or sorted((ROOT / "rules").glob("*.py"))
    old: dict[str, Any] = {}
    if options.write and options.write.exists():
        old = {entry["file"]: entry for entry in json.loads(options.write.read_text(encoding="utf-8"))["files"]}
    reasons = {
        key(name, survivor): survivor["reason"]
        for name, entry in old.items()
        for survivor in entry["survivors"]
        if survivor.get("reason")
    }
    open_ = 0
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, context, max_tasks_per_child=1) as pool:
        known = [old.get(f.relative_to(ROOT).as_posix()) if options.again is not None else None for f in files]
        shares = max(1, options.jobs // len(files))  # processes for the mutants of each file
        settings = options.sample, options.seed
        running = [
            [
                pool.submit(run_file, f, *settings, kept, options.again or "", slice(n, None, shares))
                for n in range(shares)
            ]
            for f, kept in zip(files, known, strict=True)
        ]
        for each in running:
            entry = joined([part.result() for part in each])
            survived = entry["survivors"]
            print(f"{entry['file']}: {entry['tried']} mutants, {len(survived)} survived, {entry['seconds']} s")
            for survivor in survived:
                reason = reasons.get(key(entry["file"], survivor))
                if reason:
                    survivor["reason"] = reason
                    continue
                open_ += 1
                print(f"  {survivor['line']} {survivor['function']}: {survivor['before']!r} -> {survivor['after']!r}")
            sys.stdout.flush()
            old[entry["file"]] = entry
            if options.write:
                options.write.write_text(json.dumps(summed(old), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{open_} survivors without a reason")
    return 1 if open_ else 0


def summed(entries: dict[str, Any]) -> dict[str, Any]:
    """The document that is kept."""
    files = [entries[name] for name in sorted(entries)]
    survivors = [survivor for entry in files for survivor in entry["survivors"]]
    return {
        "mutmut": importlib.metadata.version("mutmut"),
        "tried": sum(entry["tried"] for entry in files),
        "killed": sum(entry["tried"] - len(entry["survivors"]) for entry in files),
        "survived": len(survivors),
        "by reason": dict(sorted(Counter(s.get("reason", "not judged").split(":")[0] for s in survivors).items())),
        "files": files,
    }


if __name__ == "__main__":
    sys.exit(main())
