"""Which torch the code under analysis is meant for, from what its project says of its dependencies."""

from __future__ import annotations

import ast
import glob
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Version = tuple[int, int]

_NUMBER = re.compile(r"v?(\d+)(?:\.(\d+))?")
_CLAUSE = re.compile(r"(===|==|~=|>=|<=|!=|>|<|\^|~|=)?\s*v?(\d+(?:\.(?:\d+|\*))*)")
_REQUIREMENT = re.compile(
    r"^\s*['\"]?(?:pytorch::)?(?:torch|pytorch)(?:\[[^\]]*\])?\s*(?:\(\s*)?"
    r"(?P<clauses>(?:(?:===|==|~=|>=|<=|!=|>|<|=)\s*[\w.*+]+\s*,?\s*)+|(?=['\"\s;#)]|$))",
    re.IGNORECASE,
)
_COMMAND = re.compile(
    r"(?:pip3?|conda|mamba)\s+install\b[^\n`]*?[\s'\"](?:torch|pytorch)(?P<clauses>(?:==|=|~=|>=)\s*\d[\w.]*)",
    re.IGNORECASE,
)


_HEADER = re.compile(
    r"^[ \t*-]*(?:py)?torch[ \t]*(?::|==?)[ \t]*v?(\d+\.\d+)\b(?![ \t]*(?:\+|or newer|and))", re.I | re.M
)


@dataclass(frozen=True, slots=True)
class Target:
    """The range of torch versions, as (major, minor), that code may meet. None: open on that side."""

    low: Version | None = None
    high: Version | None = None

    def before(self, version: str) -> bool:
        """Whether even the newest torch allowed is older than ``version``. Unknown is new, so False."""
        return self.high is not None and self.high < _version(version)

    def at_least(self, version: str) -> bool:
        """Whether the oldest torch allowed is ``version`` or newer. Unknown is new, so True."""
        return self.low is None or self.low >= _version(version)

    def __str__(self) -> str:
        low, high = (".".join(map(str, v)) if v else "" for v in (self.low, self.high))
        return low if low == high and low else f"{low}-{high}" if low or high else "unknown"


UNKNOWN = Target()


def parse(text: str) -> Target:
    """A target as a user writes it: ``2.1``, ``1.8.0`` or clauses such as ``>=1.7,<2``. Raises ValueError."""
    if re.fullmatch(r"\s*\d+(\.\d+)*(\+\w+)?\s*", text):
        return Target(_version(text.strip()), _version(text.strip()))
    if not re.fullmatch(r"\s*((===|==|~=|>=|<=|!=|>|<)\s*\d+(\.(\d+|\*))*\s*(,\s*|$))+", text):
        raise ValueError(f"{text!r} is no torch version such as 2.1 or >=1.7,<2")
    return from_clauses(text)


def of_header(docstring: str) -> Target:
    """The target that a script's docstring states in a list of what it depends on: ``torch: 0.4``, ``torch==1.2``."""
    match = _HEADER.search(docstring)
    return Target(_version(match[1]), _version(match[1])) if match else UNKNOWN


def from_clauses(clauses: str) -> Target:
    """The range that version clauses leave: pins give one version, ranges their ends."""
    low: Version | None = None
    high: Version | None = None
    for operator, number in _CLAUSE.findall(clauses):
        version = _version(number)
        if operator in ("==", "===", "=", ""):
            wild = "." not in number or number.split(".")[1] == "*"  # "==1.*", and conda's "=1"
            return Target(version, (version[0], 999) if wild and operator else version)
        if operator in (">=", ">", "~=", "^", "~"):
            low = max(low or version, version)
        if operator in ("<=", "<"):
            # "<2.0" and "<2" allow 1.x at most; "<1.8.1" still allows 1.8.
            whole = operator == "<" and not any(int(p) for p in number.split(".")[2:] if p.isdigit())
            top = version if not whole else (version[0], version[1] - 1) if version[1] else (version[0] - 1, 999)
            high = min(high or top, top)
        if operator in ("~=", "^", "~"):
            tight = operator == "~" or (operator == "~=" and number.count(".") >= 2)
            top = version if tight else (version[0], 999)
            high = min(high or top, top)
    return Target(low, high)


class Finder:
    """Targets by file: the nearest folder upward that names torch wins, up to the repository's or the disk's root."""

    def __init__(self) -> None:
        self._folders: dict[str, Target] = {}

    def of(self, path: str) -> Target:
        """The target of the project that the file ``path`` belongs to; open on both sides where nothing says."""
        return self._of_folder(os.path.dirname(os.path.abspath(path)))

    def _of_folder(self, folder: str) -> Target:
        known = self._folders.get(folder)
        if known is None:
            known = self._read(folder)
            if known is None:
                parent = os.path.dirname(folder)
                stop = parent == folder or os.path.exists(os.path.join(folder, ".git"))
                known = UNKNOWN if stop else self._of_folder(parent)
            self._folders[folder] = known
        return known

    def _read(self, folder: str) -> Target | None:
        try:
            names = set(os.listdir(folder))
        except OSError:
            return None
        ranges: list[Target] = []
        for matches, reader in _READERS:
            if reader is _readme and ranges:
                break
            for name in sorted(n for n in names if re.fullmatch(matches, n)):
                for found in _guarded(reader, os.path.join(folder, name)):
                    if found.low is not None and found.low == found.high:
                        return found  # pins beat ranges
                    ranges.append(found)
        return ranges[0] if ranges else None


def _version(text: str) -> Version:
    match = _NUMBER.match(text)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


def _guarded(reader: Callable[[str], Iterator[Target]], path: str) -> list[Target]:
    """What a reader finds; nothing where the file has another form than it should: others may still say."""
    try:
        found = list(reader(path))
    except (OSError, ValueError, SyntaxError, RecursionError, AttributeError, TypeError, KeyError):
        return []
    return [target for target in found if target != UNKNOWN]


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _toml(path: str) -> dict[str, Any]:
    from memlint.toml import loads

    return loads(_text(path))


def _requirement(line: str) -> Iterator[Target]:
    if match := _REQUIREMENT.match(line):
        yield from_clauses(match["clauses"] or "")


def _table(table: Any) -> Iterator[Target]:
    """A table of name → version, as poetry and Pipfile have it."""
    for name, value in table.items() if isinstance(table, dict) else ():
        if name.lower() in ("torch", "pytorch"):
            for each in value if isinstance(value, list) else [value]:
                text = each.get("version", "") if isinstance(each, dict) else each
                if isinstance(text, str):
                    # A bare number is a caret range to poetry and a pin to everybody else; take the stricter reading.
                    yield from_clauses(text)


def _pyproject(path: str) -> Iterator[Target]:
    if "torch" not in _text(path):
        return
    data = _toml(path)
    project = data.get("project", {})
    groups = [project.get("dependencies", []), *project.get("optional-dependencies", {}).values()]
    groups += data.get("dependency-groups", {}).values()
    for line in (line for group in groups for line in group if isinstance(line, str)):
        yield from _requirement(line)
    poetry = data.get("tool", {}).get("poetry", {})
    tables = [poetry.get("dependencies", {}), poetry.get("dev-dependencies", {})]
    tables += [group.get("dependencies", {}) for group in poetry.get("group", {}).values()]
    for table in tables:
        yield from _table(table)
    pixi = data.get("tool", {}).get("pixi", {})
    yield from _table(pixi.get("dependencies", {}))


def _requirements(path: str) -> Iterator[Target]:
    if os.path.isdir(path):
        for inner in sorted(glob.glob(os.path.join(glob.escape(path), "*.txt"))):
            yield from _requirements(inner)
        return
    for line in _text(path).splitlines():
        yield from _requirement(line)


def _setup_cfg(path: str) -> Iterator[Target]:
    for line in _text(path).splitlines():
        yield from _requirement(re.sub(r"^\s*\w+\s*=\s*(?=torch\b)", "", line))


def _setup_py(path: str) -> Iterator[Target]:
    text = _text(path)
    if "torch" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 2000:
            for line in node.value.splitlines():
                yield from _requirement(line)


def _environment(path: str) -> Iterator[Target]:
    """A conda environment: its list items, conda's and pip's alike. A list of names needs no YAML parser."""
    for line in _text(path).splitlines():
        if item := re.match(r"\s*-\s+(.*)", line):
            yield from _requirement(item[1])


def _pipfile(path: str) -> Iterator[Target]:
    data = _toml(path)
    for section in ("packages", "dev-packages"):
        yield from _table(data.get(section, {}))


def _toml_lock(path: str) -> Iterator[Target]:
    text = _text(path)
    for match in re.finditer(r'^name = "torch"\s*\nversion = "([^"]+)"', text, re.MULTILINE):
        yield from_clauses("==" + match[1])


def _pipfile_lock(path: str) -> Iterator[Target]:
    import json

    data = json.loads(_text(path))
    for section in ("default", "develop"):
        yield from _table(data.get(section, {}))


def _conda_lock(path: str) -> Iterator[Target]:
    pattern = r"^\s*-?\s*name: (?:pytorch|torch)\s*\n(?:\s+.*\n){0,2}?\s+version: ['\"]?([\d.]+)"
    for match in re.finditer(pattern, _text(path), re.MULTILINE):
        yield from_clauses("==" + match[1])


def _readme(path: str) -> Iterator[Target]:
    for match in _COMMAND.finditer(_text(path)):
        yield from_clauses(match["clauses"])


_READERS: tuple[tuple[str, Callable[[str], Iterator[Target]]], ...] = (
    (r"pyproject\.toml", _pyproject),
    (r"setup\.cfg", _setup_cfg),
    (r"setup\.py", _setup_py),
    (r"[\w.-]*requirements[\w.-]*\.(?:txt|in)|requirements", _requirements),
    (r"(?:conda[\w.-]*|env[\w.-]*|environment[\w.-]*)\.ya?ml", _environment),
    (r"Pipfile", _pipfile),
    (r"poetry\.lock|uv\.lock|pdm\.lock|pylock\.toml", _toml_lock),
    (r"Pipfile\.lock", _pipfile_lock),
    (r"conda-lock[\w.-]*\.yml", _conda_lock),
    (r"(?i:README|INSTALL)[\w.-]*", _readme),
)
