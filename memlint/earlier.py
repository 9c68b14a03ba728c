"""What an earlier run over the same paths found, and which of it no change has touched."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from memlint import wire
from memlint.extract import Module
from memlint.files import Loader
from memlint.grounds import SHARED, Ground, Grounds, parts, root
from memlint.knowledge import of_tensors
from memlint.outline import Outline, outline
from memlint.project import Project
from memlint.rule import Finding
from memlint.source import Source, SourceError
from memlint.trace import tracing

_HEAD = struct.Struct("!IQ")  # checksum of what follows it, and the length of the first part
MANY = 40  # changed files: beyond that, most findings rest on one of them


class File(NamedTuple):
    """A file as it was: the digest of its bytes, its name as a module, what is configured for it, its `Outline`, and
    its text, compressed."""

    digest: str
    name: str
    setting: str
    outline: Outline
    text: bytes


@dataclass
class Earlier:
    """A run: its ``files``, and of each that was checked what was ``found`` and what that rests on, its ``grounds``.

    ``brought`` are the files beyond those of the run, and under which name they were imported; ``near`` are size and
    time of those that might have been, by path.
    """

    files: dict[str, File] = field(default_factory=dict)
    found: dict[str, list[Finding]] = field(default_factory=dict)
    grounds: dict[str, Ground] = field(default_factory=dict)
    brought: dict[str, str] = field(default_factory=dict)
    near: dict[str, list[int]] = field(default_factory=dict)

    def dump(self) -> bytes:
        """All of it, to be kept: a head; the first part; the texts, one after the other."""
        own = sorted(set().union(*(ground.parts for ground in self.grounds.values())))
        common = sorted(set().union(*(ground.common for ground in self.grounds.values())))
        place = {part: number for number, part in enumerate(own)}
        where = {what: number for number, what in enumerate(common)}
        data = {
            "parts": own,
            "common": common,
            "files": {path: [*file[:-1], len(file.text)] for path, file in self.files.items()},
            "found": {path: list(map(wire.pack, found)) for path, found in self.found.items()},
            "grounds": {
                path: [[place[each] for each in ground.parts], [where[each] for each in ground.common]]
                for path, ground in self.grounds.items()
            },
            "brought": self.brought,
            "near": self.near,
        }
        first = zlib.compress(json.dumps(data, separators=(",", ":")).encode("ascii"), 1)
        rest = b"".join([first, *(file.text for file in self.files.values())])
        return _HEAD.pack(zlib.crc32(rest), len(first)) + rest

    @classmethod
    def load(cls, kept: object) -> Earlier | None:
        """What `dump` gave; None for anything else."""
        if not isinstance(kept, bytes):
            return None
        try:
            checksum, length = _HEAD.unpack_from(kept)
            if zlib.crc32(memoryview(kept)[_HEAD.size :]) != checksum:
                return None
            at = _HEAD.size + length
            data: dict[str, Any] = json.loads(zlib.decompress(kept[_HEAD.size : at]))
            listed, common = data["parts"], [(kind, about) for kind, about in data["common"]]
            files = {}
            for path, (digest, name, setting, facts, length) in data["files"].items():
                files[path] = File(digest, name, setting, facts, kept[at : at + length])
                at += length
            if at != len(kept) or data["found"].keys() != data["grounds"].keys():
                return None
            return cls(
                files,
                {path: list(map(wire.unpack, found)) for path, found in data["found"].items()},
                {
                    path: Ground(tuple(listed[n] for n in own), tuple(common[n] for n in shared))
                    for path, (own, shared) in data["grounds"].items()
                },
                data["brought"],
                data["near"],
            )
        except (zlib.error, struct.error, ValueError, KeyError, TypeError, AttributeError, IndexError):
            return None

    def bring(self, project: Project) -> None:
        """Let a project have the files beyond its own that the earlier one had."""
        for path, dotted in self.brought.items():
            source = Loader().read(path)
            if source is not None and path not in project.names.modules:
                if dotted:
                    project.names.bring(source, dotted)
                else:
                    project.names.add(source)

    def due(self, project: Project, settings: Mapping[str, str], near: Mapping[str, list[int]]) -> set[str] | None:
        """The files in which something else may be found now. None: in all of them.

        ``settings`` is what is configured for each file, ``near`` the size and time of each that may be brought in.
        """
        now = project.names.modules
        pairs = self._pairs(now, settings)
        came = {path for path in pairs if (path in self.files) != (path in now)}
        if len(pairs) > MANY or any(os.path.basename(path) == "__init__.py" for path in came):
            return None  # what other files are called depends on it
        for path in pairs.keys() - came:
            old, new = pairs[path]
            if (of_tensors(old), project.relevant(old)) != (of_tensors(new), project.relevant(new)):
                return None  # which files are looked at depends on it
        beside = [path for path in near.keys() - self.files.keys() - now.keys() if self.near.get(path) != near[path]]
        names = {_stem(path) for path in (*came, *(path for path in beside if path not in self.near))}
        importers = [module for module in now.values() if not names.isdisjoint(module.words)] if names else []
        if not all(map(of_tensors, importers)):
            return None
        touched = set(pairs).union(*({m.source.path, *parts(m)} for m in importers))
        touched.update(*(_other_parts(*pair) for pair in pairs.values()))
        moved = self._moved(project, pairs.values(), beside)

        def holds(path: str) -> bool:
            ground = self.grounds.get(path)
            if ground is None or path in pairs:
                return False
            if any(step.path in pairs for finding in self.found[path] for step in finding.trail):
                return False  # the step's line may be another
            return touched.isdisjoint(ground.parts) and moved.isdisjoint(ground.common)

        return {path for path in (module.source.path for module in project.names.asked) if not holds(path)}

    def _pairs(self, now: Mapping[str, Module], settings: Mapping[str, str]) -> dict[str, tuple[Module, Module]]:
        """The files that are not as they were, before and now; where there is none, one that holds nothing."""
        found = {}
        for path in self.files.keys() | now.keys():
            known, new = self.files.get(path), now.get(path)
            if known is not None and new is not None and known.digest == new.source.digest:
                if known.setting != settings.get(path, ""):
                    found[path] = _module(path, "", new.name), new  # all of it may mean something else
                continue
            name = new.name if new is not None else known.name if known is not None else ""
            found[path] = _module(path, _text(known) if known else "", name), new or _module(path, "", name)
        return found

    def _moved(
        self, project: Project, pairs: Iterable[tuple[Module, Module]], beside: Iterable[str]
    ) -> set[tuple[str, str]]:
        """What files have in common that is not as it was, by what changed and by files ``beside`` those of the run."""
        asked: dict[str, set[str]] = {}
        for kind, about in set(chain.from_iterable(ground.common for ground in self.grounds.values())):
            asked.setdefault(kind, set()).add(about)
        found = set()
        for old, new in pairs:
            for kind, abouts in asked.items():
                had, has = SHARED[kind](project, old), SHARED[kind](project, new)
                found |= {(kind, about) for about in abouts if had(about) != has(about)}
        for source in map(Loader().read, beside):
            found |= {
                ("sought", name) for name in asked.get("sought", ()) if source is not None and name in source.text
            }
        return found


Notes = tuple[Ground, dict[str, str]]
"""What the findings in a file rest on, and the files that were brought in meanwhile."""


class Memory:
    """What one run knows of an earlier one, and keeps for a later one."""

    def __init__(self, kept: object) -> None:
        """``kept`` is what `dump` gave."""
        self._earlier = Earlier.load(kept)
        self._now = Earlier()
        self._grounds = Grounds()
        self._told = 0  # how many of the files that were brought in are known to whoever keeps them

    @property
    def outlines(self) -> dict[str, Outline]:
        """Those of the files that were there, by path."""
        return {path: file.outline for path, file in self._earlier.files.items()} if self._earlier is not None else {}

    def begin(
        self, project: Project, sources: list[Source], settings: Mapping[str, str], near: dict[str, list[int]]
    ) -> tuple[list[Source], list[Finding]]:
        """Those of the files that have to be looked at, and what is still found in the others."""
        self._settings, self._now.near = settings, near
        earlier, due = self._earlier, None
        if earlier is not None:
            with tracing(self._grounds):
                earlier.bring(project)
                due = earlier.due(project, settings, near)
        if earlier is None or due is None:
            return sources, []
        holding = []
        for path in (source.path for source in sources if source.path not in due):
            self._now.found[path], self._now.grounds[path] = earlier.found[path], earlier.grounds[path]
            holding += earlier.found[path]
        return [source for source in sources if source.path in due], holding

    @contextmanager
    def noting(self, project: Project, source: Source) -> Iterator[None]:
        """Note what is looked at meanwhile, on the way to what is found in a file."""
        project.forget_functions()  # they keep answers without a note of who asked
        with tracing(self._grounds), self._grounds.question(root(source.path)):
            yield

    def notes(self, project: Project, source: Source) -> Notes:
        """What `noting` noted, for `keep`, which may be in another process."""
        brought = dict(list(project.names.brought.items())[self._told :])
        self._told += len(brought)
        return self._grounds.of(source.path), brought

    def keep(self, path: str, found: list[Finding], notes: Notes) -> None:
        """Keep what is found in a file, and what that rests on."""
        self._now.found[path] = found
        self._now.grounds[path], brought = notes
        self._now.brought.update(brought)

    def end(self, project: Project) -> None:
        """Keep what the files of the run were."""
        now, modules = self._now, dict(project.names.modules)
        now.brought.update(project.names.brought)
        for path, name in now.brought.items():
            if path not in modules and (source := Loader().read(path)) is not None:  # another process brought it in
                modules[path] = _module(path, source.text, name)
        before = self._earlier.files if self._earlier is not None else {}
        for path, module in modules.items():
            digest, setting, known = module.source.digest, self._settings.get(path, ""), before.get(path)
            if known is not None and (known.digest, known.name) == (digest, module.name):
                now.files[path] = known._replace(setting=setting)
            else:
                text = zlib.compress(module.source.text.encode(), 1)
                now.files[path] = File(digest, module.name, setting, outline(module), text)

    def dump(self) -> bytes:
        """What a later run is to know."""
        return self._now.dump()


def _other_parts(old: Module, new: Module) -> set[str]:
    """The parts that are not in both of two states of a file, or not alike."""
    had, has = parts(old), parts(new)
    return {part for part in had.keys() | has.keys() if had.get(part) != has.get(part)}


def _text(file: File) -> str:
    return zlib.decompress(file.text).decode()


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _module(path: str, text: str, name: str) -> Module:
    """A file of that text, outside the project; one that cannot be parsed holds nothing."""
    package = os.path.basename(path) == "__init__.py"
    try:
        return Module(Source(path, text), name, package)
    except SourceError:
        return Module(Source(path, ""), name, package)
