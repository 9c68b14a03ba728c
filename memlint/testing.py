"""Tests that are documents: runs a rule's page, and folders of cases, against the rules. For rules of one's own, too.

A line that ends in ``# want: name`` (or several names) must get exactly one finding of each; every other line none, of
any rule at any level.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from memlint import page
from memlint.apply import fix_paths
from memlint.check import Options, check_paths
from memlint.files import shown
from memlint.page import Block
from memlint.registry import rules_folder
from memlint.source import Source
from memlint.target import parse

_WANT = re.compile(r"#\s*want:\s*([a-z0-9-]+(?:\s*,\s*[a-z0-9-]+)*)\s*$")
_WANTS = re.compile(rb"[ \t]*#[ \t]*want:[ \t]*[a-z0-9-]+(?:[ \t]*,[ \t]*[a-z0-9-]+)*[ \t]*(?=\r?$)", re.M)
_TARGET = re.compile(r"#\s*target-torch:\s*(\S+)")

Place = tuple[str, int, str]
"""A finding as tests compare it: file below the project's folder, line, rule."""


def run_page(path: Path) -> list[str]:
    """What is wrong with a page: one line for every finding missed or not wanted, and for every fix that differs.

    Raises `memlint.page.PageError` where the page does not have the fixed form.
    """
    read = page.read(path)
    problems: list[str] = []
    for block in (*read.finds, *read.leaves):
        with Project(block.files, path.parent) as folder:
            problems += [f"{path}:{block.line}: {each}" for each in compare(folder, block.target)]
    problems += [
        f"{path}:{block.line}: a block of 'What it leaves alone' wants a finding"
        for block in read.leaves
        if wants_in(block.files)
    ]
    if not any(rule == read.name for block in read.finds for _, _, rule in wants_in(block.files)):
        problems.append(f"{path}: no block of 'What it finds' wants {read.name}")
    for before, after in read.fixes:
        problems += [f"{path}:{before.line}: {each}" for each in _run_fix(read.name, before, after, path.parent)]
    return problems


def run_case(path: Path, rules: Collection[str] | None = None) -> list[str]:
    """What is wrong with a case: a file, or a folder that is one project. ``rules``: those that count; None: all.

    The line ``# target-torch: X.Y`` of a file is handed to the check; ``project`` or none leaves it to be found out.
    """
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    found = (_TARGET.search("\n".join(file.read_text(encoding="utf-8").splitlines()[:3])) for file in files)
    target = next((match[1] for match in found if match), "project")
    with Project({}) as folder:
        if path.is_file():
            shutil.copy(path, folder)
        else:
            shutil.copytree(path, folder, dirs_exist_ok=True)
        return [f"{path}: {each}" for each in compare(folder, None if target == "project" else target, rules)]


def compare(folder: Path, target: str | None = None, rules: Collection[str] | None = None) -> list[str]:
    """Check a folder as one project and hold the findings against its wants. One line a difference.

    What is checked is the code without its wants: the names of rules in them are words that memlint looks for.
    """
    plain = {shown(str(file)): _WANTS.sub(b"", file.read_bytes()) for file in folder.rglob("*.py") if file.is_file()}
    options = Options(select=("ALL",), target=parse(target) if target else None, cache=False, overlay=plain)
    report = check_paths([str(folder)], options)
    texts = {file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8") for file in folder.rglob("*.py")}
    wanted = sorted(place for place in wants_in(texts) if rules is None or place[2] in rules)
    got = sorted(
        (Path(f.path).relative_to(folder).as_posix(), f.span.line, f.name)
        for f in report.findings
        if rules is None or f.name in rules or f.code in ("MEM000", "MEM099")
    )
    messages = {(Path(f.path).relative_to(folder).as_posix(), f.span.line, f.name): f.message for f in report.findings}
    problems = list(report.errors)
    for place in sorted({*wanted, *got}):
        missed, extra = wanted.count(place) - got.count(place), got.count(place) - wanted.count(place)
        where = f"{place[0]}:{place[1]}"
        if missed > 0:
            problems.append(f"{where}: missed {place[2]}")
        if extra > 0:
            problems.append(f"{where}: not wanted: {place[2]}: {messages[place]}")
    return problems


def wants_in(files: Mapping[str, str]) -> list[Place]:
    """The wants of some files' texts."""
    return [
        (name, number, rule.strip())
        for name, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if (match := _WANT.search(line))
        for rule in match[1].split(",")
    ]


def _run_fix(rule: str, before: Block, after: Block, rules: Path) -> list[str]:
    options = Options(select=("ALL",), target=parse(before.target) if before.target else None, cache=False)
    with Project(before.files, rules) as folder:
        fixed = fix_paths([str(folder)], options, unsafe="unsafe" in before.words + after.words)
        texts = {Path(path).relative_to(folder).as_posix(): text for path, (_, text) in fixed.changes.items()}
        problems = [*fixed.before.errors, *fixed.errors]
        if not any(f.name == rule for f in fixed.before.findings):
            problems.append(f"the 'before' block has no finding of {rule}")
        problems += [
            f"{rule} is still found on line {f.span.line} after the fix" for f in fixed.after.findings if f.name == rule
        ]
    for name, expected in after.files.items():
        got = texts.get(name, before.files.get(name, ""))
        if got != expected:
            from memlint.apply import diff

            difference = diff(Source(name, expected), got).rstrip()
            problems.append(f"the fix gives another text than the 'after' block (-wanted +given):\n{difference}")
    return problems


class Project:
    """A folder for the time of a check, closed off from whatever lies above it."""

    def __init__(self, files: Mapping[str, str], rules: Path | None = None) -> None:
        self._files = files
        self._rules = rules if rules is not None and rules.resolve() != rules_folder().resolve() else None

    def __enter__(self) -> Path:
        self._folder = Path(tempfile.mkdtemp(prefix="memlint-")).resolve()
        (self._folder / ".git").mkdir()
        if self._rules is not None:
            folder = str(self._rules.resolve()).replace("\\", "\\\\").replace('"', '\\"')
            (self._folder / "memlint.toml").write_text(f'rule-folders = ["{folder}"]\n', encoding="utf-8")
        for name, text in self._files.items():
            file = self._folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode())
        return self._folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
