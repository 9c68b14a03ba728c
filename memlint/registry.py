"""The rules: files found in a folder, loaded by path as ``memlint.rules.NAME``, and picked by name or code."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from memlint.rule import Rule

if TYPE_CHECKING:
    from pathlib import Path

BUILT_IN = {"MEM000": "cannot-read", "MEM099": "unused-suppression"}
"""Findings that are memlint's own and no rule's."""

BUILT_IN_PAGES = {
    "MEM000": "# cannot-read (MEM000)\n\nA file that cannot be read, decoded or parsed: nothing in it was checked.\n\n"
    "Or a place where memlint itself failed; the message then begins with `internal error`. All else was checked, and "
    "the exit status is 2. The lines under the finding say where in memlint it was: please report them.\n",
    "MEM099": "# unused-suppression (MEM099)\n\nA comment `# memlint: ignore…` that suppresses no finding. `--fix` "
    "removes it.\n",
}
"""What `memlint rule` says of them."""


class RegistryError(Exception):
    """A rule file that cannot be loaded, or a selector that names no rule. The message is one line for the user."""


class Registry:
    """Rules by name and by code, in the order of their codes."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules: tuple[Rule, ...] = tuple(sorted(rules, key=lambda rule: rule.code))
        self._by_word: dict[str, Rule] = {}
        for rule in self.rules:
            for word in (rule.name, rule.code):
                if word in self._by_word or word in BUILT_IN or word in BUILT_IN.values():
                    raise RegistryError(f"two rules are called {word}")
            self._by_word |= {rule.name: rule, rule.code: rule}

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def find(self, word: str) -> Rule:
        """The rule of that name or code. Raises `RegistryError`, which names the nearest one."""
        try:
            return self._by_word[word if word in self._by_word else word.upper()]
        except KeyError:
            raise RegistryError(f"unknown rule {word!r}{_alike(word, self._by_word)}") from None

    def codes(self, selectors: Iterable[str]) -> frozenset[str]:
        """Codes that the selectors mean: names, codes, beginnings of codes (``MEM1``), or ``ALL``."""
        known = {**{rule.code: rule.name for rule in self.rules}, **BUILT_IN}
        names = {name: code for code, name in known.items()}
        chosen: set[str] = set()
        for selector in selectors:
            begin = selector.upper()
            found = {code for code in known if begin and (begin == "ALL" or code.startswith(begin))}
            if selector in names:
                found = {names[selector]}
            if not found:
                raise RegistryError(f"unknown rule {selector!r}{_alike(selector, [*names, *known])}")
            chosen |= found
        return frozenset(chosen)


def _alike(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown rule. A code's first figure is its group: no code of another is meant."""
    known = list(known)
    match = re.match(r"([A-Z]+)[0-9](?=[0-9]*$)", word.upper())
    own = [each for each in known if match and re.fullmatch(f"{match[1]}[0-9]+", each)]
    if match is None or not own:
        return nearest(word, known)
    if group := [code for code in own if code.startswith(match[0])]:
        return nearest(word, group)
    return f"; codes begin with {', '.join(sorted({code[: len(match[0])] for code in own}))}"


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the known one it looks like, or nothing."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), 1, 0.5) or get_close_matches(word.upper(), list(known), 1, 0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def rules_folder() -> Path:
    """Where memlint's own rules lie: inside the installed package, or beside it in a checkout."""
    from pathlib import Path  # not at the top: a run whose findings are kept has no need of it

    return Path(_own_rules())


def _own_rules() -> str:
    package = os.path.dirname(os.path.abspath(__file__))
    inside = os.path.join(package, "rules")
    return inside if os.path.isdir(inside) else os.path.join(os.path.dirname(package), "rules")


def load(folders: Sequence[str] = ()) -> Registry:
    """memlint's rules and those in the user's ``folders``. Raises `RegistryError`."""
    rules: list[Rule] = []
    for folder in (_own_rules(), *folders):
        if not os.path.isdir(folder):
            raise RegistryError(f"no rule folder {folder!r}")
        for path in _files(folder):
            rules += _load_file(path)
    return Registry(rules)


def signature(folders: Sequence[str] = ()) -> str:
    """A digest that changes whenever a rule or memlint itself does: name, size and time of each of their files."""
    digest = hashlib.sha256()
    package = os.path.dirname(os.path.abspath(__file__))
    for folder in (package, os.path.join(package, "library"), _own_rules(), *folders):
        for entry in sorted(os.scandir(folder), key=lambda e: e.name) if os.path.isdir(folder) else ():
            if entry.name.endswith((".py", ".toml")):
                stat = entry.stat()
                digest.update(f"{entry.path}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _files(folder: str) -> list[str]:
    names = sorted(os.listdir(folder))
    return [os.path.join(folder, name) for name in names if name.endswith(".py") and not name.startswith("_")]


@cache
def _load_file(path: str) -> tuple[Rule, ...]:
    from pathlib import Path

    stem = os.path.basename(path)[:-3]
    name = f"memlint.rules.{stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RegistryError(f"cannot load the rule file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise RegistryError(f"cannot load the rule file {path}: {type(error).__name__}: {error}") from error
    page = Path(path).with_suffix(".md")
    found = [value for value in vars(module).values() if isinstance(value, Rule)]
    return tuple(replace(rule, page=page if page.is_file() else None) for rule in found)


def page_of(name: str, folders: Sequence[str] = ()) -> Path | None:
    """The page of the rule of that name, among memlint's own and those in ``folders``; none of it is loaded."""
    from pathlib import Path

    stem = name.replace("-", "_")
    pages = (Path(folder, f"{stem}.md") for folder in (_own_rules(), *folders))
    return next((page for page in pages if page.is_file()), None)
