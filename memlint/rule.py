"""What a rule is and what it yields: types only, so that everything below can be read without the rest."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from memlint.function import Function


class Level(enum.Enum):
    """How much a finding costs its user: memory without bound, a higher peak or waste each step, or advice."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for a note, 1 for a warning, 2 for an error."""
        return ("note", "warning", "error").index(self.value)


class Claim(enum.Enum):
    """The number, an iteration, that a rule says its fix lowers. Bytes but for ``TIME`` (seconds) and ``COUNT``.

    ``EQUAL`` is the claim that the line does nothing: without it no number rises.
    """

    GROWTH = "growth"
    PEAK = "peak"
    KEPT = "kept"
    CHURN = "churn"
    TIME = "time"
    COUNT = "count"
    EQUAL = "equal"


class Applicability(enum.Enum):
    """Whether a fix may be applied: ``SAFE`` keeps every number the program computes, ``HINT`` is only shown."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    HINT = "hint"


class Span(NamedTuple):
    """A stretch of a source file: lines and columns from 1, columns in characters, the end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


class Edit(NamedTuple):
    """One replacement of the text in ``span`` by ``text``."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Operation:
    """A requested change of the tree, resolved to text by `memlint.edits` only when somebody wants to see it.

    ``verb`` names a function of `memlint.edits`; ``nodes`` are the spans of the syntax it works on.
    """

    verb: str
    nodes: tuple[Span, ...]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Fix:
    """A remedy: its title, the operations that carry it out, and whether they may be applied unasked."""

    title: str
    operations: tuple[Operation, ...] = ()
    applicability: Applicability = Applicability.HINT
    reason: str = ""
    edits: tuple[Edit, ...] = ()

    def __add__(self, other: Fix) -> Fix:
        return replace(self, operations=self.operations + other.operations)

    def titled(self, title: str) -> Fix:
        """The same fix under another title."""
        return replace(self, title=title)

    def safe(self) -> Fix:
        """The same fix, applied by ``--fix``."""
        return replace(self, applicability=Applicability.SAFE)

    def unsafe(self, reason: str) -> Fix:
        """The same fix, applied only by ``--unsafe-fixes``; ``reason`` says what a reader could observe."""
        return replace(self, applicability=Applicability.UNSAFE, reason=reason)

    def hint(self, reason: str = "") -> Fix:
        """The same fix, shown and never applied."""
        return replace(self, applicability=Applicability.HINT, reason=reason)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the trail by which a fact reached a finding."""

    path: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect at one place. ``message`` is one sentence in the present tense that names the user's variable."""

    code: str
    name: str
    level: Level
    path: str
    span: Span
    message: str
    fix: Fix | None = None
    trail: tuple[Step, ...] = ()
    claim: Claim | None = None
    function: str = ""  # qualified name of the function that the finding stands in, "" at module level
    cell: int | None = None  # notebook cell, from 1
    verdict: dict[str, Any] | None = None
    fingerprint: str = ""

    @property
    def order(self) -> tuple[str, int, int, str]:
        """The one order of findings: path, line, column, code."""
        return self.path, self.span.line, self.span.column, self.code

    def fingerprinted(self, line_text: str, occurrence: int) -> Finding:
        """The finding with a fingerprint that survives moved lines: rule, path, function, the line's text, its rank."""
        parts = "\0".join((self.code, self.path, self.function, line_text.strip(), str(occurrence)))
        return replace(self, fingerprint=hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:16])


Findings = Iterator[Finding]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as the registry knows it. ``run`` puts its questions to one function and yields findings."""

    code: str
    name: str
    claim: Claim
    run: Callable[[Function], Findings]
    triggers: tuple[str, ...] = ()  # the rule runs where the function's text holds one of these, or always
    anywhere: bool = False  # … though there be no loop, store or training, without which other rules do not look
    page: Path | None = field(default=None, compare=False)

    @property
    def title(self) -> str:
        """Code and name as reports show them."""
        return f"{self.code} {self.name}"


def rule(
    *,
    code: str,
    claim: Claim,
    triggers: tuple[str, ...] = (),
    anywhere: bool = False,
) -> Callable[[Callable[[Function], Findings]], Rule]:
    """Make a rule of a function. Its name, underscores as hyphens, is what users write."""

    def make(find: Callable[[Function], Findings]) -> Rule:
        name = find.__name__.replace("_", "-")

        def run(function: Function) -> Findings:
            for finding in find(function):
                yield replace(finding, code=code, name=name, claim=claim)

        return Rule(code, name, claim, run, triggers, anywhere)

    return make
