"""Paths to findings: the only place that knows the whole static way, from files to rules to settled fixes."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from memlint import __version__, registry, wire
from memlint.cache import Cache, folder_for
from memlint.config import Config, ConfigError, Configs
from memlint.failure import failed
from memlint.files import Loader, discover, neighbours, shown
from memlint.registry import Registry
from memlint.rule import Applicability, Finding, Fix, Level, Rule, Span, Step
from memlint.source import Source, SourceError
from memlint.target import Finder, Target

if TYPE_CHECKING:
    from memlint.earlier import Memory, Notes
    from memlint.extract import Module
    from memlint.function import Function
    from memlint.library import Library
    from memlint.outline import Outline
    from memlint.project import Project


Result = TypeVar("Result")

Near = dict[str, list[int]]
"""Files near those of a run, with their size in bytes and the time of their last change in nanoseconds."""

_DEPTH = 20_000
_REMEMBERED = 200_000  # characters: below that, all is done again as soon as it is known what need not be
_PAYS = 2_000_000  # characters: below that, one process is done before others have begun
_STACK = 512 * 1024 * 1024  # address space, of which only what is used becomes memory


@dataclass(frozen=True)
class Options:
    """How a run departs from the configuration. ``overlay`` maps paths, as shown, to bytes that stand in for the
    file's own: standard input, an editor's buffer, a text that is being fixed. ``progress`` is told, in between, how
    many files are done, and of how many. ``jobs`` is the number of processes; 0 takes one for each processor where
    that pays."""

    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    target: Target | None = None
    cache: bool = True
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    progress: Callable[[int, int], None] | None = None
    jobs: int = 0


@dataclass
class Report:
    """What a run found. ``errors`` say, one line each, what memlint could not do; its own failures stand among the
    ``findings`` as well. ``sources`` are the files by path."""

    findings: list[Finding] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)
    files: int = 0
    fixed: int = 0
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    rule_folders: tuple[str, ...] = ()


def check_paths(paths: Sequence[str], options: Options | None = None, configs: Configs | None = None) -> Report:
    """Check files and folders. Raises `ConfigError`, `RegistryError` or `MissingPath`: the call is at fault."""
    started = time.perf_counter()
    run = Run(paths, options or Options(), configs or Configs())
    run.report.findings = with_deep_stack(run.findings)
    run.report.seconds = time.perf_counter() - started
    return run.report


@contextmanager
def uncollected() -> Iterator[None]:
    """Meanwhile, nobody looks for cycles: trees and facts live as long as a run, and it takes a third of its time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def with_deep_stack(work: Callable[[], Result]) -> Result:
    """Do ``work`` where recursion may go as deep as real code is nested: a chain of 1,500 ``elif`` is one such."""
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def target() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failure.append(error)

    limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK)
    sys.setrecursionlimit(max(limit, _DEPTH))
    try:
        # A daemon: Ctrl-C reaches the main thread, which then need not wait for this one.
        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)
    if failure:
        raise failure[0]
    return outcome[0]


def run_config(paths: Sequence[str], configs: Configs) -> Config:
    """The configuration of a run as a whole: the one that holds for its first path. Raises `ConfigError`."""
    first = paths[0] if paths and paths[0] != "-" else "."
    return configs.of_folder(os.path.abspath(first)) if os.path.isdir(first) else configs.of(first)


class Run:
    """One run over some paths: which files it has, which rules speak of each, and what they find."""

    def __init__(self, paths: Sequence[str], options: Options, configs: Configs) -> None:
        self._paths = tuple(paths)
        self._options = options
        self._configs = configs
        self._config = run_config(paths, configs)
        self._targets = Finder()
        self._chosen: dict[str, frozenset[str]] = {}
        self._registry: Registry | None = None
        self.report = Report(rule_folders=self._config.rule_folders)
        overlaid = [path for path in paths if shown(path) in options.overlay]
        on_disk = discover([path for path in paths if path not in overlaid], configs.of_folder)
        self._files = sorted({*on_disk, *map(shown, overlaid)})
        self.report.files = len(self._files)
        self._unreadable: list[Finding] = []
        for path in self._files:
            try:
                data = options.overlay.get(path)
                source = Source.read(path) if data is None else Source.from_bytes(path, data)
            except SourceError as error:
                self._unreadable.append(cannot_read(path, error))
            except Exception as error:
                self._unreadable.append(self._failed(path, None, "reading", error))
            else:
                self.report.sources[path] = source

    def findings(self) -> list[Finding]:
        if not self._files:
            return []
        near = _stats(self.near())
        if not self._options.cache:
            return self._fresh(near)
        with Cache(folder_for(self._config.folder)) as cache:
            frame, key = self._keys(near)
            if kept := cache.get(key):
                try:
                    return [wire.unpack(data) for data in json.loads(kept)]
                except (ValueError, KeyError, TypeError, AttributeError):
                    pass  # another program's, or damaged
            memory, size = None, sum(len(source.text) for source in self.report.sources.values())
            if size > _REMEMBERED and not self._config.rule_folders:  # whose rules need not note what they look at
                from memlint.earlier import Memory

                memory = Memory(cache.get(frame, "run"))
            found = self._fresh(near, memory)
            if not self.report.errors:
                cache.put(key, json.dumps([wire.pack(finding) for finding in found], separators=(",", ":")))
                if memory is not None:
                    cache.put(frame, memory.dump(), "run")
            return found

    def _fresh(self, near: Near, memory: Memory | None = None) -> list[Finding]:
        with uncollected():
            return self._found(near, memory)

    def _found(self, near: Near, memory: Memory | None) -> list[Finding]:
        rules = self.rules()
        selected = {path: self.selected(path, rules) for path in self._files}
        found = list(self._unreadable)
        if self.report.sources:
            found += self._analysed(list(self.report.sources.values()), near, rules, memory)
        found = [finding for finding in found if finding.code in selected[finding.path]]
        return fingerprinted(sorted(found, key=lambda f: f.order), self.report.sources)

    def rules(self) -> Registry:
        """memlint's rules and the user's. Raises `RegistryError`."""
        return registry.load(self._config.rule_folders)

    def near(self) -> list[str]:
        """Other files of the projects that the run's files belong to."""
        return neighbours(self._files, self._configs.of_folder)

    def readable(self) -> tuple[list[Source], list[Finding]]:
        """The files that can be read and parsed, and a finding for each of the others."""
        readable: list[Source] = []
        broken = list(self._unreadable)
        for source in self.report.sources.values():
            finding = self._unparsed(source)
            if finding is None:
                readable.append(source)
            else:
                broken.append(finding)
        return readable, broken

    def _unparsed(self, source: Source) -> Finding | None:
        """The finding of a file that cannot be parsed."""
        try:
            source.tree  # noqa: B018
        except SourceError as error:
            return cannot_read(source.path, error, source)
        except Exception as error:
            return self.failed(source, "parsing", error)
        return None

    def _analysed(self, sources: list[Source], near: Near, rules: Registry, memory: Memory | None) -> Iterator[Finding]:
        from memlint.pool import shared_out

        library = self.library()
        try:
            outlines = memory.outlines if memory is not None else None
            project = self.project(sources, list(near), library, outlines=outlines)
        except Exception as error:
            sources, failures = self._without_culprits(sources, library, error)
            yield from failures
            if not sources:
                return
            project = self.project(sources, list(near), library)
        unread = [source for source in sources if source.path not in project.names.modules]
        yield from (finding for source in unread if (finding := self._unparsed(source)) is not None)
        sources = [source for source in sources if source.path in project.names.modules]
        if memory is not None:
            settings = {path: self._setting(path) for path in self._files}
            sources, holding = memory.begin(project, sources, settings, near)
            yield from holding

        def work(number: int) -> tuple[list[Finding], list[str], Notes | None]:
            said, source = len(self.report.errors), sources[number]
            if memory is None:
                return self._of_file(project, source, rules), self.report.errors[said:], None
            with memory.noting(project, source):
                found = self._of_file(project, source, rules)
            return found, self.report.errors[said:], memory.notes(project, source)

        progress = self._options.progress or (lambda done, total: None)
        progress(0, len(sources))
        jobs = self._jobs(sources)
        pieces = shared_out(work, len(sources), jobs) if jobs > 1 else ((n, work(n)) for n in range(len(sources)))
        for done, (number, (found, errors, notes)) in enumerate(pieces, 1):
            if jobs > 1:
                self.report.errors += [error for error in errors if error not in self.report.errors]
            if memory is not None and notes is not None:
                memory.keep(sources[number].path, found, notes)
            yield from found
            progress(done, len(sources))
        if memory is not None:
            memory.end(project)

    def _of_file(self, project: Project, source: Source, rules: Registry) -> list[Finding]:
        if project.full:  # functions that are needed once more are read once more
            project.drop()
            gc.collect()
        try:
            raw = list(self._run_rules(project, source, self.active(source.path, rules)))
            return list(self.finished(source, raw, rules))
        except Exception as error:
            return [self.failed(source, "the analysis", error)]

    def _jobs(self, sources: list[Source]) -> int:
        """How many processes are to look at the files."""
        from memlint import pool

        jobs = self._options.jobs
        if not jobs:  # each process reads again what another one has read: less is done sooner by one alone
            jobs = pool.processors() if sum(len(source.text) for source in sources) > _PAYS else 1
        return min(jobs, len(sources)) if pool.can_fork() else 1

    def active(self, path: str, rules: Registry) -> list[Rule]:
        """The rules that may speak of a file."""
        chosen = self.selected(path, rules)
        return [rule for rule in rules if rule.code in chosen]

    def finished(
        self, source: Source, raw: list[Finding], rules: Registry, *, resolved: bool = True
    ) -> Iterator[Finding]:
        """What is to be said of a file in which the rules have found ``raw``: without what comments silence, and with
        fixes worked out where they are to be ``resolved`` at once."""
        from memlint.suppress import UNUSED, suppress

        chosen = self.selected(source.path, rules)
        ran = None
        if not rules.codes(["ALL"]) <= chosen | {UNUSED[0]}:
            ran = {word for rule in self.active(source.path, rules) for word in (rule.code, rule.name)}
        failures = {finding.trail[1:]: finding for finding in reversed(raw) if finding.code == "MEM000"}
        told = [finding for finding in raw if finding.code != "MEM000"]
        for finding in (*failures.values(), *suppress(source, told, ran)):
            if finding.code in chosen:
                yield from self._settled(source, finding) if resolved else [self._placed(source, finding)]

    def library(self) -> Library | None:
        """Library knowledge with the user's rows, where there are any. Raises `ConfigError`."""
        if not self._config.library:
            return None
        from memlint.library import Library, LibraryError

        try:
            return Library.load(self._config.library)
        except LibraryError as error:
            raise ConfigError(f"[tool.memlint.library]: {error}") from None

    def project(
        self,
        sources: list[Source],
        near: list[str],
        library: Library | None,
        module: type[Module] | None = None,
        outlines: Mapping[str, Outline] | None = None,
    ) -> Project:
        """The files as one project; ``module`` is the class of what is known of each, and ``outlines`` are as `Names`
        has them."""
        from memlint.extract import Module
        from memlint.project import Project

        loader = Loader(sources)
        return Project(
            sources,
            target_of=self._target,
            library=library,
            loader=loader,
            neighbours=near,
            module=module or Module,
            outlines=outlines,
        )

    def _without_culprits(
        self, sources: list[Source], library: Library | None, error: Exception
    ) -> tuple[list[Source], list[Finding]]:
        """The sources without those that the analysis fails on by themselves, which are findings: one must not take
        the others along."""
        sound, failures = [], []
        for source in sources:
            try:
                self.project([source], [], library)
                sound.append(source)
            except Exception as own:
                failures.append(self.failed(source, "the analysis", own))
        if failures:
            return sound, failures
        doing = f"the analysis of {len(sources)} files together"
        return [], [self.failed(sources[0], doing, error)]

    def _run_rules(self, project: Project, source: Source, rules: list[Rule]) -> Iterator[Finding]:
        seen: set[tuple[str, Span]] = set()
        module = project.names.modules.get(source.path)
        there = triggered(rules, source, module.spelling if module is not None else "")
        if not there:
            return
        for function in project.functions(source):
            for finding in self.asked(project, function, there):
                if (finding.code, finding.span) not in seen:
                    seen.add((finding.code, finding.span))
                    yield finding

    def asked(self, project: Project, function: Function, rules: Iterable[Triggered]) -> Iterator[Finding]:
        """What the rules find in one function."""
        definition = function.definition
        for rule, triggers in rules:
            if triggers and not project.says(definition, triggers):
                continue
            if rule.anywhere or project.interesting(definition):
                yield from self._guarded(rule, function)

    def _guarded(self, rule: Rule, function: Function) -> list[Finding]:
        """What a rule finds in a function; a rule that fails there must not take the others along."""
        try:
            return list(rule.run(function))
        except Exception as error:
            line = getattr(function.node, "lineno", 1)
            return [self._failed(function.source.path, function.source, rule.title, error, line, function.qualname)]

    def _failed(
        self, path: str, source: Source | None, doing: str, error: Exception, line: int = 1, function: str = ""
    ) -> Finding:
        """An internal error as a finding; the report says that there was one."""
        finding = failed(path, source, doing, error, line, function)
        self.report.errors.append(f"{finding.message} [{path}:{line}]")
        return finding

    def failed(self, source: Source, doing: str, error: Exception) -> Finding:
        """An internal error as the finding of a whole file; the report says that there was one."""
        return self._placed(source, self._failed(source.path, source, doing, error))

    def settled(self, source: Source, finding: Finding) -> Finding:
        """The finding with its fix worked out to edits, or without one, where it stands in the file."""
        return self._settled(source, finding)[0]

    def _settled(self, source: Source, finding: Finding) -> list[Finding]:
        """The finding settled; beside it memlint's failure, where the fix could not be worked out."""
        fix, failures = finding.fix, []
        if fix and fix.operations and not fix.edits:
            from memlint.edits import resolve

            try:
                fix = resolve(source, fix)
            except Exception as error:
                doing = f"the fix of {finding.code} {finding.name}"
                line, function = finding.span.line, finding.function
                failures.append(self._failed(source.path, source, doing, error, line, function))
                fix = None
        return [self._placed(source, each) for each in (replace(finding, fix=fix), *failures)]

    def _placed(self, source: Source, finding: Finding) -> Finding:
        """The finding where it stands in the file: the lines of a notebook's cells are others."""
        if source.is_notebook:
            return _in_notebook(source, finding, self.report.sources)
        return replace(finding, trail=_trail_in_files(finding, self.report.sources))

    def _target(self, path: str) -> Target:
        return self._options.target or self._configs.of(path).target_torch or self._targets.of(path)

    def selected(self, path: str, rules: Registry) -> frozenset[str]:
        """Codes of the rules that may speak of a file. An option beats the configuration."""
        known = self._chosen.get(path)
        if known is None:
            known = self._chosen[path] = self._choose(path, rules)
        return known

    def _choose(self, path: str, rules: Registry) -> frozenset[str]:
        config, options = self._configs.of(path), self._options
        if options.select is None:
            ignored = _configured(config, "ignore", rules)
            chosen = _configured(config, "select", rules) | _configured(config, "extend_select", rules)
            chosen -= ignored
            cannot_read = rules.codes(["MEM000"]) - ignored
        else:
            chosen = rules.codes(options.select)
            cannot_read = rules.codes(["MEM000"])  # a file that cannot be read was not checked, whatever was selected
        chosen |= rules.codes(options.extend_select) | cannot_read
        for pattern, names in config.per_file_ignores.items():
            if _matches(pattern, path, config.folder):
                chosen -= rules.codes(names)
        return chosen - rules.codes(options.ignore)

    def _setting(self, path: str) -> str:
        """What is configured for a file."""
        return repr((self._target(path), self._configs.of(path)))

    def _keys(self, near: Near) -> tuple[str, str]:
        """A digest of everything that the findings depend on but the files, and one of the files as well. Neighbours
        count by size and time: they are many."""
        digest = hashlib.sha256()

        def add(parts: Iterable[object]) -> str:
            for part in parts:
                digest.update(repr(part).encode("utf-8", "surrogatepass") + b"\0")
            return digest.hexdigest()

        options, config = self._options, self._config
        frame: list[object] = [__version__, sys.version, registry.signature(config.rule_folders), os.getcwd()]
        frame += [options.select, options.extend_select, options.ignore, options.target, self._paths]
        parts: list[object] = []
        for path in self._files:
            source = self.report.sources.get(path)
            parts += [path, source.digest if source else "", self._setting(path)]
        parts += [(f.path, f.message, f.span) for f in self._unreadable]
        return add(frame), add([*parts, *near.items()])


def _stats(paths: Iterable[str]) -> Near:
    """The files of these that are there."""
    found: Near = {}
    for path in paths:
        try:
            stat = os.stat(path)
        except OSError:
            continue
        found[path] = [stat.st_size, stat.st_mtime_ns]
    return found


def _configured(config: Config, key: str, rules: Registry) -> frozenset[str]:
    """Codes that a key of the configuration means. Raises `ConfigError`, which says where it stands."""
    try:
        return rules.codes(getattr(config, key))
    except registry.RegistryError as error:
        raise ConfigError(f"the configuration in {config.folder}: {key.replace('_', '-')}: {error}") from None


Triggered = tuple[Rule, tuple[str, ...]]
"""A rule with those of its triggers that a file holds; none where it needs none."""


def triggered(rules: list[Rule], source: Source, spelling: str = "") -> list[Triggered]:
    """The rules that a file holds a trigger of, and those that need none. ``spelling`` is all that the identifiers of
    the file hold, where that is at hand: it is searched much faster."""
    known: dict[str, bool] = {}
    found = []
    for rule in rules:
        for word in rule.triggers:
            if word not in known:
                known[word] = (not spelling or _spelt(word) in spelling) and source.says(word)
        there = tuple(word for word in rule.triggers if known[word])
        if there or not rule.triggers:
            found.append((rule, there))
    return found


@cache
def _spelt(word: str) -> str:
    """The longest identifier, or part of one, that a trigger holds."""
    return max(re.findall(r"\w+", word), key=len, default="")


def fingerprinted(findings: Iterable[Finding], sources: Mapping[str, Source]) -> list[Finding]:
    """The findings with fingerprints; equal lines in one function are told apart by their order."""
    counts: dict[tuple[str, str, str, str], int] = {}
    marked = []
    for finding in findings:
        source = sources.get(finding.path)
        text = source.line(source.code_span(finding.span).line).strip() if source else finding.message
        key = (finding.code, finding.path, finding.function, text)
        counts[key] = counts.get(key, 0) + 1
        marked.append(finding.fingerprinted(text, counts[key]))
    return marked


def cannot_read(path: str, error: SourceError, source: Source | None = None) -> Finding:
    """The one finding in a file that cannot be read or parsed."""
    end = len(source.line(error.line)) + 1 if source else error.column
    span = Span(error.line, error.column, error.line, max(end, error.column))
    cell = source.cell_of(error.line) if source else None
    span = source.raw_span(span) if source else span
    return Finding("MEM000", "cannot-read", Level.ERROR, path, span, f"the file {error.reason}", cell=cell)


def _in_notebook(source: Source, finding: Finding, sources: Mapping[str, Source]) -> Finding:
    """The finding where it stands in the notebook's file, and its fix as edits of that file."""
    fix = finding.fix
    if fix and fix.edits:
        from memlint.layout import in_notebook

        edits = in_notebook(source, fix.edits)
        fix = replace(fix, edits=edits, operations=()) if edits else replace(fix.hint(), edits=(), operations=())
    return replace(
        finding,
        span=source.raw_span(finding.span),
        cell=source.cell_of(finding.span.line),
        fix=fix,
        trail=_trail_in_files(finding, sources),
    )


def _trail_in_files(finding: Finding, sources: Mapping[str, Source]) -> tuple[Step, ...]:
    steps = []
    for step in finding.trail:
        source = sources.get(step.path)
        steps.append(replace(step, line=source.raw_line(step.line)) if source and source.is_notebook else step)
    return tuple(steps)


def _matches(pattern: str, path: str, folder: str) -> bool:
    from fnmatch import fnmatch

    relative = os.path.relpath(os.path.abspath(path), folder).replace(os.sep, "/")
    return any(fnmatch(relative, each) for each in (pattern, f"{pattern.rstrip('/')}/*")) or fnmatch(
        os.path.basename(path), pattern
    )


def applicable(fix: Fix | None, unsafe: bool) -> bool:
    """Whether ``--fix`` may apply the fix, ``unsafe`` ones allowed or not."""
    allowed = (Applicability.SAFE, Applicability.UNSAFE) if unsafe else (Applicability.SAFE,)
    return fix is not None and bool(fix.edits) and fix.applicability in allowed
