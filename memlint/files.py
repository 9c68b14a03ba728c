"""Which files a run reads: those asked for, and their neighbours that they may import or be called from."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from memlint.config import Config
from memlint.source import Source, SourceError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

SUFFIXES = (".py", ".ipynb")

# fmt: off
USUAL_FOLDERS = frozenset({
    "__pycache__", "__pypackages__", "_build", "build", "dist", "node_modules", "site-packages", "venv",
    "env", "buck-out", ".bzr", ".direnv", ".eggs", ".git", ".hg", ".ipynb_checkpoints", ".memlint_cache",
    ".mypy_cache", ".nox", ".pants.d", ".pyenv", ".pytest_cache", ".pytype", ".ruff_cache", ".svn", ".tox",
    ".venv", ".vscode",
})
# fmt: on
"""Folders that nobody wants checked, unless named outright or an ``exclude`` of one's own stands in their place."""

ROOT_MARKS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")
NEIGHBOURS = 2_000
"""At most so many other files of a project are looked at for callers."""


class MissingPath(Exception):
    """A path that was asked for does not exist; the message is one line for the user."""


def shown(path: str) -> str:
    """``path`` as users see it: relative to the working folder where it lies in it, with forward slashes."""
    here = os.getcwd()
    full = os.path.normpath(os.path.join(here, path))
    inside = full == here or full.startswith(here.rstrip(os.sep) + os.sep)
    return (os.path.relpath(full, here) if inside else full).replace(os.sep, "/")


def discover(paths: Sequence[str], config_of: Callable[[str], Config]) -> list[str]:
    """The files under ``paths``, as shown, each once and in order. Files named outright need no suffix.

    ``config_of`` gives the configuration of an absolute folder. Raises `MissingPath`.
    """
    found: dict[str, None] = {}
    for path in paths:
        if os.path.isdir(path):
            for file in _walk(os.path.abspath(path), config_of):
                found[shown(file)] = None
        elif os.path.lexists(path):
            found[shown(path)] = None
        else:
            raise MissingPath(f"no such file or folder: {path}")
    return sorted(found)


def root_of(path: str) -> str:
    """The absolute folder of the project that ``path`` belongs to, or of the file itself where nothing marks one."""
    own = folder = os.path.dirname(os.path.abspath(path))
    home = os.path.expanduser("~")
    while folder not in (home, os.path.dirname(folder)):
        if any(os.path.exists(os.path.join(folder, mark)) for mark in ROOT_MARKS):
            return folder
        folder = os.path.dirname(folder)
    return own


def neighbours(asked: Sequence[str], config_of: Callable[[str], Config]) -> list[str]:
    """Other Python files of the projects that ``asked`` belong to, as shown; nearest to the root first."""
    known = {os.path.abspath(path) for path in asked}
    found: dict[str, None] = {}
    folders = {os.path.dirname(path) for path in known}
    roots = {root_of(os.path.join(folder, "x")) for folder in folders}
    for root in sorted(roots):
        if any(root != other and root.startswith(other.rstrip(os.sep) + os.sep) for other in roots):
            continue  # lies in another root, which is walked
        alone = not any(os.path.exists(os.path.join(root, mark)) for mark in ROOT_MARKS)
        for path in _walk(root, config_of, deep=not alone):
            if path not in known and path.endswith(".py"):
                found[shown(path)] = None
                if len(found) >= NEIGHBOURS:
                    return list(found)
    return list(found)


class Loader:
    """Reads the file that an import means, from the importing file's folder up to its project's root."""

    def __init__(self, known: Iterable[Source] = ()) -> None:
        self._sources: dict[str, Source | None] = {source.path: source for source in known}
        self._roots: dict[str, str] = {}

    def __call__(self, module: str, importer: str) -> Source | None:
        """The source of ``module``, dotted, as the file ``importer`` imports it; None for a library's."""
        folder = os.path.dirname(os.path.abspath(importer))
        dots = len(module) - len(module.lstrip("."))
        relative = os.path.join(*module.split(".")) if not dots else os.path.join("", *module[dots:].split("."))
        if dots:
            for _ in range(dots - 1):
                folder = os.path.dirname(folder)
            return self._find(folder, relative)
        if folder not in self._roots:
            self._roots[folder] = root_of(importer)
        root = self._roots[folder]
        while True:
            inside = os.path.isfile(os.path.join(folder, "__init__.py"))  # a package's folder is on nobody's path
            if not inside and (source := self._find(folder, relative)):
                return source
            if folder == root or not folder.startswith(root):
                return self._find(os.path.join(root, "src"), relative)
            folder = os.path.dirname(folder)

    def _find(self, folder: str, relative: str) -> Source | None:
        for candidate in (f"{relative}.py", os.path.join(relative, "__init__.py")):
            path = os.path.join(folder, candidate)
            if os.path.isfile(path):
                return self.read(shown(path))
        return None

    def read(self, path: str) -> Source | None:
        """The source at ``path``, as shown; None where it cannot be read."""
        if path not in self._sources:
            try:
                self._sources[path] = Source.read(path)
            except SourceError:
                self._sources[path] = None
        return self._sources[path]


def _walk(top: str, config_of: Callable[[str], Config], deep: bool = True) -> Iterator[str]:
    """Files below ``top``, an absolute folder, breadth first; only its own where not ``deep``."""
    ignored = _Ignored(top, config_of(top))
    queue = deque([top])
    seen: set[str] = set()
    while queue:
        folder = queue.popleft()
        real = os.path.realpath(folder)
        if real in seen:  # links in a circle
            continue
        seen.add(real)
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        ignored.enter(folder, any(entry.name == ".gitignore" for entry in entries))
        wanted = [entry for entry in entries if entry.name.endswith(SUFFIXES) or _is_folder(entry)]
        for entry in sorted(wanted, key=lambda entry: entry.name):
            if _is_folder(entry):
                if deep and not ignored(entry.path, entry.name, folder=True):
                    queue.append(entry.path)
            elif _is_file(entry) and not ignored(entry.path, entry.name):
                yield entry.path


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False


class _Ignored:
    """Whether a walk passes a path over: the usual folders, ``exclude``, and every ``.gitignore`` on the way."""

    def __init__(self, top: str, config: Config) -> None:
        self._usual = USUAL_FOLDERS if config.exclude is None else frozenset()
        self._specs: dict[str, GitIgnoreSpec] = {}
        patterns = (*(config.exclude or ()), *config.extend_exclude)
        self._excludes: tuple[str, GitIgnoreSpec] | None = None
        if patterns:
            excludes = (config.folder, _spec(patterns))
            # What is named outright is checked: patterns that would hide the named folder itself do not count.
            self._excludes = None if self._hides(*excludes, top, True) else excludes
        for folder in _upward(top):
            self.enter(folder, True)
        if any(self._hides(base, spec, top, True) for base, spec in self._specs.items()):
            self._specs.clear()

    def enter(self, folder: str, has_gitignore: bool) -> None:
        """Take up the ``.gitignore`` of ``folder``, where it has one."""
        if not has_gitignore:
            return
        try:
            with open(os.path.join(folder, ".gitignore"), encoding="utf-8", errors="replace") as file:
                self._specs[folder] = _spec(file.read().splitlines())
        except OSError:
            return

    def __call__(self, path: str, name: str, folder: bool = False) -> bool:
        if folder and (name in self._usual or name.endswith(".egg-info")):
            return True
        if self._excludes and self._hides(*self._excludes, path, folder):
            return True
        if not self._specs:
            return False
        for base in reversed([b for b in self._specs if path.startswith(b.rstrip(os.sep) + os.sep)]):
            verdict = self._specs[base].check_file(_below(base, path, folder)).include
            if verdict is not None:  # the nearest file that speaks of the path decides
                return verdict
        return False

    @staticmethod
    def _hides(base: str, spec: GitIgnoreSpec, path: str, folder: bool) -> bool:
        inside = path.startswith(base.rstrip(os.sep) + os.sep)
        return inside and bool(spec.match_file(_below(base, path, folder)))


def _upward(folder: str) -> list[str]:
    """Parents of ``folder`` whose ``.gitignore`` holds in it, outermost first: up to the repository's root, if any."""
    parents: list[str] = []
    while not os.path.exists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return []
        folder = parent
        parents.append(folder)
    return parents[::-1]


def _below(base: str, path: str, folder: bool) -> str:
    return os.path.relpath(path, base).replace(os.sep, "/") + ("/" if folder else "")


def _spec(patterns: Iterable[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(patterns)
