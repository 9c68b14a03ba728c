"""A project that stays in memory while its files change: after a change, only what depends on it is asked again.

What depends on what is traced down to single functions. A function whose text is as before keeps its findings, unless
one of the questions that led to them looked at code that changed, and would be answered otherwise now. What reading
functions has brought is thrown away at each change: marks and stores of one reading lie in the objects of another, and
nobody can take them back one by one. What a fresh run would find is what is found here: `tests/test_workspace.py`.
"""

from __future__ import annotations

import ast
import gc
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from memlint.callers import CROWD
from memlint.check import Options, Report, Run, Triggered, cannot_read, fingerprinted, triggered, uncollected
from memlint.config import Configs
from memlint.extract import Class, Definition, Module
from memlint.facts import UNKNOWN, Value
from memlint.files import discover, shown
from memlint.knowledge import of_tensors
from memlint.names import Names
from memlint.parameters import FEW
from memlint.project import Project
from memlint.rule import Edit, Finding, Span
from memlint.source import Source, SourceError
from memlint.trace import Trace, note, tracing, unseen

FILES = ("derived", "prolific", "imported", "named", "methods_named", "relevant")
"""Facts that look at all files: asked anew where a file has other classes, functions or imports than before."""


class TracedSource(Source):
    """A text that tells who looks at all of it. What stands at a piece of syntax is noted with that piece."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("text", "lines", "tree"):
            note(("text", super().__getattribute__("path")))
        return super().__getattribute__(name)

    def says(self, word: str | re.Pattern[str]) -> bool:
        note(("says", self.path, word), self.path)
        with unseen():
            return super().says(word)

    def segment(self, span: Span) -> str:
        with unseen():
            return super().segment(span)

    def span(self, node: ast.AST) -> Span:
        with unseen():
            return super().span(node)

    def rows(self, first: ast.AST, last: ast.AST | None = None) -> str:
        with unseen():
            return super().rows(first, last)


class TracedDefinition(Definition):
    """A function that tells who looks at it: at anything but where it stands and what it is called."""

    def __getattribute__(self, name: str) -> Any:
        if name not in _PLACE:
            note(self)
            if name in _TEXTS and self.qualname != "":
                with unseen():  # its lines, and no others of the file
                    return super().__getattribute__(name)
        return super().__getattribute__(name)


class TracedClass(Class):
    """A class that tells who looks at it."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name not in _PLACE:
            note(self)
        return super().__getattribute__(name)


class TracedModule(Module):
    """A file that tells who looks at its functions, its classes, and all of its words."""

    definition = TracedDefinition
    cls = TracedClass

    def __getattribute__(self, name: str) -> Any:
        if name in ("words", "definitions"):
            note(("text", self.source.path))
        return super().__getattribute__(name)

    def spells(self, pattern: re.Pattern[str]) -> bool:
        return True  # not worth a note: what asks goes on to ask more

    def holds(self, *words: str) -> bool:
        note(("holds", self.source.path, words), self.source.path)
        with unseen():
            return super().holds(*words)


_PLACE = frozenset({"name", "qualname", "full_name", "module", "cls", "outer", "__class__", "__dict__", "__init__"})
_TEXTS = frozenset({"text", "words", "called"})
_MISSING = object()
_WORD = re.compile(r"[^\W\d]\w*")


def _face(value: Value | None) -> object:
    """What others can see of a value, without the nodes that stand for it; None where it holds too much to tell."""
    if value is None or value.items is not None or any(o.elem is not None or o.items for o in value.objs):
        return None
    plain = value.kind, value.type, value.leaf, value.device, value.view, value.scalar, value.part, bool(value.deps)
    objs = [(o.kind, o.type, o.name, o.bounded, o.frozen, o.evaluates, o.trains, o.shared) for o in value.objs]
    return plain, repr(value.const), value.target, objs, [(len(o.clears), o.model is None) for o in value.objs]


_DIGESTS: dict[str, Callable[[Any], Any]] = {
    "attribute": _face,
    "callers": lambda found: {flow.definition for flow, _ in found},
}


class Workspace:
    """The files under some paths, and the texts that stand in for some of them: an editor's buffers."""

    def __init__(self, paths: Sequence[str], options: Options | None = None, configs: Configs | None = None) -> None:
        """Read the files. Raises `ConfigError`, `RegistryError` or `MissingPath`."""
        self._paths = paths
        self._options = options or Options()
        self._configs = configs or Configs()
        self._texts: dict[str, bytes] = dict(self._options.overlay)
        self.reload()

    # ------------------------------------------------------------------ what the files say

    def reload(self) -> None:
        """Read all files again. Raises `ConfigError`, `RegistryError` or `MissingPath`."""
        listed = set(discover(self._paths, self._configs.of_folder))
        texts = {p: t for p, t in self._texts.items() if p in listed or not self._paths or not os.path.exists(p)}
        options = replace(self._options, overlay=texts, cache=False)
        self._run = Run((*self._paths, *texts), options, self._configs)
        self._rules = self._run.rules()
        sources, broken = self._run.readable()
        for source in sources:
            source.__class__ = TracedSource
        self._broken = {finding.path: finding for finding in broken}
        self._trace = Trace()
        self._trace.digests = _DIGESTS
        self._project = self._run.project(sources, self._run.near(), self._run.library(), TracedModule)
        self._looks: dict[Module, _Looks] = {}
        self._raw: dict[Definition, list[Finding]] = {}
        self._findings: dict[str, list[Finding]] = {}
        self._frozen = False
        self._waste: list[object] = []
        self._due: dict[str, None] = dict.fromkeys((*self._run.report.sources, *self._broken))

    def put(self, path: str, text: bytes | None) -> None:
        """Let ``text`` stand in for the file at ``path``; None: what the disk holds."""
        path = shown(path)
        if text is None:
            self._texts.pop(path, None)
        else:
            self._texts[path] = text
        known = self._run.report.sources.get(path)
        if known is None and path not in self._broken:
            if text is not None and self._paths and os.path.exists(path):
                return None  # passed over, as configured
            return self.reload()  # a file that was not there before
        try:
            source = Source.read(path) if text is None else Source.from_bytes(path, text)
            if known is not None and path not in self._broken and source.digest == known.digest:
                return None
            self._run.report.sources[path] = source
            source.tree  # noqa: B018
        except SourceError as error:
            if text is None and path in self._run.report.sources and "no such file" in error.reason:
                return self.reload()
            at = self._run.report.sources.get(path) if error.reason.startswith("cannot be parsed") else None
            self._broken[path] = cannot_read(path, error, at)
            self._due[path] = None
            return None  # other files see it as it was when it could be read
        module = self._project.names.modules.get(path)
        if module is None:
            return self.reload()
        self._broken.pop(path, None)
        self._due[path] = None
        self._replace(module, source)
        return None

    def _replace(self, module: Module, source: Source) -> None:
        source.__class__ = TracedSource
        old_source = module.source
        before = self._looks.get(module) or _Looks(module)
        module.replace(source)
        after = self._looks[module] = _Looks(module)
        if before.tensors != after.tensors:
            return self.reload()
        project, trace = self._project, self._trace
        with tracing(trace):
            changed = before.changed(after)
            if before.stars != after.stars:
                changed |= {key for key in trace.asked_by if isinstance(key, tuple) and key[:2] == ("name", module)}
            for key in trace.about[source.path]:
                if key[0] == "says":
                    other = Source.says(old_source, key[2]) != Source.says(source, key[2])
                else:
                    other = before.words.isdisjoint(key[2]) != after.words.isdisjoint(key[2])
                if other:
                    changed.add(key)
            regrouped = before.shape != after.shape
            stores: tuple[Names | Project, ...] = (project, project.names)
            keys = trace.concerned(changed, lambda key, cause: False)
            old: dict[Hashable, Any] = {}
            for store in stores:
                for key in [k for k in store.facts if k in keys or (regrouped and k[0] in FILES)]:
                    old[key] = store.facts.pop(key)
            if regrouped:
                project.regrouped()
                project.names.regrouped()
                changed |= {key for key in old if isinstance(key, tuple) and key[0] in FILES}
            project.reindex(module, before.words, after.words)
            self._waste.append(dict(vars(project)))  # taken apart when there is time: see `tidy`
            project.unread()

            def same(key: Hashable, cause: Hashable) -> bool:
                if not isinstance(key, tuple) or cause is None:
                    return False
                name, *arguments = key
                if name in _DIGESTS:
                    return key in trace.answers and self._answers_same(key, cause)
                value = old.get(key, _MISSING)
                if value is _MISSING:
                    return False
                ask = getattr(project, name, None) or getattr(project.names, name)
                return bool(ask(*arguments) == value)

            concerned = trace.concerned(changed, same)
        for key in concerned:
            trace.answers.pop(key, None)
        self._move(module, before.lines, after.lines)
        roots = {key[1] for key in concerned if isinstance(key, tuple) and key[0] == "root"}
        present = set(module.definitions)
        for root in roots | {d for d in self._raw if d.module is module and d not in present}:
            self._raw.pop(root, None)
            self._due[root.module.source.path] = None
        return None

    def _answers_same(self, key: tuple[Any, ...], cause: Hashable) -> bool:
        """Whether a question gets the answer that it got, as far as others can see it."""
        project, before = self._project, self._trace.answers[key]
        if key[0] == "attribute":
            return before is not None and bool(_face(project.attribute(key[1], key[2], UNKNOWN, "")) == before)
        if isinstance(cause, tuple) and cause[0] == "mentioning" and not before:
            # A name that too many mention for anybody to be asked; one edit does not make it so, or otherwise.
            return len(project.within_reach(key[1])) > CROWD + FEW
        if not (isinstance(cause, tuple) and cause[0] == "flow") or cause[1] in before:
            return False
        flow = project.flow(cause[1])  # one that called it nowhere: does it now?
        return flow is not None and not any(project.calls(key[1], project.overridden(key[1]), flow))

    def _move(self, module: Module, before: list[str], after: list[str]) -> None:
        """Let findings that stay say where their lines are now."""
        head = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
        shift = len(after) - len(before)
        if head is None or not shift:
            return
        path = module.source.path

        def line(number: int) -> int:
            return number + shift if number > head else number

        def place(span: Span) -> Span:
            return Span(line(span.line), span.column, line(span.end_line), span.end_column)

        def moved(finding: Finding) -> Finding:
            trail = tuple(replace(s, line=line(s.line)) if s.path == path else s for s in finding.trail)
            span, fix = finding.span, finding.fix
            if finding.path == path:
                span = place(span)
                if fix is not None:
                    operations = tuple(replace(o, nodes=tuple(map(place, o.nodes))) for o in fix.operations)
                    fix = replace(
                        fix, operations=operations, edits=tuple(Edit(place(e.span), e.text) for e in fix.edits)
                    )
            return replace(finding, span=span, trail=trail, fix=fix)

        for definition, findings in self._raw.items():
            if findings:
                new = [moved(finding) for finding in findings]
                if new != findings:
                    self._raw[definition] = new
                    self._due[definition.module.source.path] = None

    # ------------------------------------------------------------------ what is found in them

    def check(
        self, first: Iterable[str] = (), stop: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[str, list[Finding]]]:
        """The findings, anew, of each file that a change may have changed them in: those of ``first`` come first.

        Ends early where ``stop`` says so; what is then left comes at the next call. Fixes are requests still: `settled`
        works one out.
        """
        while self._due and not stop():
            path = next((p for p in first if p in self._due), None) or next(iter(self._due))
            found = self._check(path, stop)
            if found is None:
                return
            del self._due[path]
            self._findings[path] = found
            yield path, found

    def _check(self, path: str, stop: Callable[[], bool]) -> list[Finding] | None:
        run = self._run
        if path in self._broken:
            chosen = run.selected(path, self._rules)
            return fingerprinted([self._broken[path]] if "MEM000" in chosen else [], self.sources)
        source = run.report.sources[path]
        try:
            raw = self._asked(source, triggered(run.active(path, self._rules), source), stop)
            if raw is None:
                return None
            found = list(run.finished(source, raw, self._rules, resolved=source.is_notebook))
        except Exception as error:
            found = [run.failed(source, "the analysis", error)]
        return fingerprinted(sorted(found, key=lambda finding: finding.order), self.sources)

    def _asked(self, source: Source, rules: list[Triggered], stop: Callable[[], bool]) -> list[Finding] | None:
        """What the rules find in a file, asking only about functions of which it is not known; None where stopped."""
        project, trace = self._project, self._trace
        module = project.names.modules.get(source.path)
        if module is None or not rules or not project.relevant(module):
            return []
        with uncollected(), tracing(trace):
            for definition in module.definitions:
                if definition in self._raw:
                    continue
                if stop():
                    return None
                project.forget_functions()  # what one root has worked out, another has not looked at
                with trace.question(("root", definition)):
                    self._raw[definition] = list(self._run.asked(project, project.function(definition), rules))
        unique: dict[tuple[str, Span], Finding] = {}
        for definition in module.definitions:
            for finding in self._raw[definition]:
                unique.setdefault((finding.code, finding.span), finding)
        return list(unique.values())

    def tidy(self) -> None:
        """Take apart what is no longer needed: for a quiet moment."""
        if self._frozen and not self._waste:
            return
        self._waste.clear()
        gc.collect()
        if not self._due and not self._frozen:
            gc.freeze()  # what stays: collections need not go through it again
            self._frozen = True

    def settled(self, finding: Finding) -> Finding:
        """A finding of `check` with its fix worked out."""
        source = self.sources[finding.path]
        return self._run.settled(source, finding) if not source.is_notebook else finding

    @property
    def due(self) -> tuple[str, ...]:
        """The files that `check` has yet to look at."""
        return tuple(self._due)

    @property
    def sources(self) -> dict[str, Source]:
        """The files by path, as they were read last."""
        return self._run.report.sources

    @property
    def report(self) -> Report:
        """What has been found so far, as a run reports it."""
        found = sorted((f for findings in self._findings.values() for f in findings), key=lambda f: f.order)
        return replace(self._run.report, findings=found)


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text))


class _Looks:
    """What a file looks like from outside, to be compared with what it looks like after a change."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines = module.source.lines
        self.stars = list(module.stars)
        self.words = module.words
        self.tensors = of_tensors(module)
        self.texts = {d: d.text for d in module.definitions if d is not module.top}
        inside: set[int] = set()
        for _, first, last in module._extents:
            inside.update(range(first, last + 1))
        self.rest = "".join(line for n, line in enumerate(self.lines, 1) if n not in inside)
        self.classes: dict[Class, str] = {}
        for cls in module.every_class():
            lines = range(cls.node.lineno, (cls.node.end_lineno or cls.node.lineno) + 1)
            own = "".join(self.lines[n - 1] for n in lines if n not in inside)
            self.classes[cls] = f"{own}\0{list(cls.methods)}"
        self.names: dict[str, object] = {name: ast.dump(value) for name, value in module.variables.items()}
        self.names |= {name: self.classes[cls] for name, cls in module.classes.items() if cls in self.classes}
        self.names |= {name: ("function", id(function)) for name, function in module.functions.items()}
        self.names |= {name: ("import", target) for name, target in module.imports.items()}
        self.names |= {name: (self.names[name], ast.dump(module.variables[name])) for name in module.rebound}
        functions = [(d.qualname, dict(d.imports)) for d in module.definitions]
        self.shape: object = (dict(module.imports), self.stars, dict(self.classes), functions)

    def changed(self, after: _Looks) -> set[Hashable]:
        """What is not as it was before."""
        module = self.module
        found: set[Hashable] = {("text", module.source.path)}
        for definition in self.texts.keys() | after.texts.keys():
            old, new = self.texts.get(definition, ""), after.texts.get(definition, "")
            if old != new:
                found.add(definition)
                found |= {("mentioning", word) for word in _words(old) ^ _words(new)}
        if self.rest != after.rest:
            found.add(module.top)
            found |= {("mentioning", word) for word in _words(self.rest) ^ _words(after.rest)}
        for cls in self.classes.keys() | after.classes.keys():
            if self.classes.get(cls) != after.classes.get(cls):
                found.add(cls)
        for name in self.names.keys() | after.names.keys():
            if self.names.get(name) != after.names.get(name):
                found.add(("name", module, name))
        return found
