"""Where statements lie in a file's text, and the smallest changes from one text to another."""

from __future__ import annotations

import ast
import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from memlint.rule import Edit, Span
from memlint.source import Source


class Change(NamedTuple):
    """Characters ``start`` to ``end`` of a file's text and what to write there."""

    start: int
    end: int
    text: str


class Region(NamedTuple):
    """The lines, from 1 and both included, of whole statements of one block; ``depth`` 0 at module level."""

    first: int
    last: int
    depth: int


def region_of(source: Source, spans: Sequence[Span], *, whole: bool) -> Region:
    """The fewest whole statements of one block that hold all the spans; ``whole`` asks for the owner of that block too.

    Raises `ValueError` where there is no statement that has its lines to itself.
    """
    start, end = min(span[:2] for span in spans), max(span[2:] for span in spans)
    low, high = start[0], end[0]
    runs: list[list[ast.stmt]] = []
    block: list[ast.stmt] | None = source.tree.body
    before = 0
    while block:
        run = [statement for statement in block if first_line(statement) <= high and low <= last_line(statement)]
        if not run:
            break
        first, last = first_line(run[0]), last_line(run[-1])
        run = [statement for statement in block if first_line(statement) <= last and first <= last_line(statement)]
        if not runs:
            before = max((last_line(statement) for statement in block if last_line(statement) < first), default=0)
        runs.append(run)
        inner = blocks(run[0]) if len(run) == 1 else ()
        block = next(
            (body for body in inner if _start(source, body[0]) <= start and end <= source.span(body[-1])[2:]), None
        )
    if whole and len(runs) > 1:
        runs.pop()
    elif whole and runs:
        return Region(before + 1, last_line(runs[0][-1]), 0)
    while runs and not starts_line(source, runs[-1][0]):
        runs.pop()
    if not runs:
        raise ValueError("no statement there")
    return Region(first_line(runs[-1][0]), last_line(runs[-1][-1]), len(runs) - 1)


def blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks that a compound statement owns."""
    for holder in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        for name in ("body", "orelse", "finalbody"):
            if block := getattr(holder, name, None):
                yield block


def first_line(statement: ast.stmt) -> int:
    """The line a statement starts on, from 1, its decorators counted in."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _start(source: Source, statement: ast.stmt) -> tuple[int, int]:
    """Line and column where a statement starts; a decorated one at the margin."""
    first = first_line(statement)
    return (first, 1) if first < statement.lineno else source.span(statement)[:2]


def last_line(statement: ast.stmt) -> int:
    """The line a statement ends on, from 1."""
    return statement.end_lineno or statement.lineno


def starts_line(source: Source, statement: ast.stmt) -> bool:
    """Whether nothing stands before a statement on its line: no semicolon, no header, and no ``el`` of an ``elif``."""
    line = source.lines[first_line(statement) - 1]
    if isinstance(statement, ast.If) and line.lstrip().startswith("elif"):
        return False
    decorated = first_line(statement) < statement.lineno
    return decorated or not line.encode()[: statement.col_offset].strip()


def newline_of(source: Source) -> str:
    """The line end of a file: that of its first line."""
    return next((line[len(line.rstrip("\r\n")) :] for line in source.lines if line.endswith(("\r", "\n"))), "\n")


def indent_unit(source: Source, line: int) -> str:
    """What a block adds to the indentation of its owner, as those around ``line`` have it, or else the file."""
    around: list[ast.stmt] = []
    inside = source.tree.body
    while holder := next((each for each in inside if first_line(each) <= line <= last_line(each)), None):
        around.append(holder)
        inside = [statement for block in blocks(holder) for statement in block]
    anywhere = (node for node in ast.walk(source.tree) if isinstance(node, ast.stmt))
    for statement in itertools.chain(reversed(around), anywhere):
        for block in blocks(statement):
            outer, inner = (source.lines[number - 1] for number in (statement.lineno, first_line(block[0])))
            outer, inner = (text[: len(text) - len(text.lstrip(" \t"))] for text in (outer, inner))
            if len(inner) > len(outer) and inner.startswith(outer):
                return inner[len(outer) :]
    return "    "


def differences(start: int, text: str, other: str) -> Iterator[Change]:
    """The changes that make ``other`` of ``text``, which starts at an offset; a line that only moves sideways changes
    its margin."""
    import difflib  # here, and not at start-up: rules import the builders that lead to this module

    old, new = Source("", text).lines, Source("", other).lines
    matcher = difflib.SequenceMatcher(None, [line.strip() for line in old], [line.strip() for line in new], False)
    starts = list(itertools.accumulate(map(len, old), initial=start))
    for _, low, high, new_low, new_high in matcher.get_opcodes():
        if high - low == new_high - new_low:
            pairs = [(n, old[n], new[m]) for n, m in zip(range(low, high), range(new_low, new_high), strict=True)]
        else:
            pairs = [(low, "".join(old[low:high]), "".join(new[new_low:new_high]))]
        for n, before, after in pairs:
            if before != after:
                yield _trimmed(starts[n], before, after)


def _trimmed(start: int, before: str, after: str) -> Change:
    head = _common(before, after)
    before, after = before[head:], after[head:]
    tail = _common(before[::-1], after[::-1])
    return Change(start + head, start + head + len(before) - tail, after[: len(after) - tail])


def _common(one: str, other: str) -> int:
    """How many characters two texts have in common at their start."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def merged(changes: Iterable[Change]) -> list[Change]:
    """The changes in order, neighbours as one. Insertions at one place keep the order they came in.

    Raises `ValueError` where two of them overlap.
    """
    ordered: list[Change] = []
    for change in sorted(changes, key=lambda change: change[:2]):
        last = ordered[-1] if ordered else None
        if last and change.start < last.end:
            raise ValueError("edits overlap")
        if last and change.start == last.end:
            ordered[-1] = Change(last.start, change.end, last.text + change.text)
        else:
            ordered.append(change)
    return ordered


def applied(text: str, changes: Iterable[Change]) -> str:
    """The text with the changes made. Raises `ValueError` where two of them overlap."""
    parts, at = [], 0
    for change in merged(changes):
        parts += [text[at : change.start], change.text]
        at = change.end
    return "".join(parts) + text[at:]


def as_edit(source: Source, change: Change) -> Edit:
    """The change with lines and columns for its offsets."""
    starts = [0, *itertools.accumulate(map(len, source.lines))]
    if source.lines and not source.lines[-1].endswith(("\r", "\n")):
        starts.pop()  # the end of the text is then a place on its last line

    def place(offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    return Edit(Span(*place(change.start), *place(change.end)), change.text)


def in_notebook(source: Source, edits: Iterable[Edit]) -> tuple[Edit, ...] | None:
    """Edits of a notebook's code as edits of its file.

    None where they would touch a magic, reach over cells, or leave a cell that does not parse by itself.
    """
    code = source.code
    assert code is not None
    cells: dict[tuple[int, int], list[Change]] = {}
    for span, text in edits:
        start, end = source.offset(span.line, span.column), source.offset(span.end_line, span.end_column)
        first = min(span.line, len(source.lines)) - 1
        last = first if start == end else span.end_line - 1 if span.end_column > 1 else span.end_line - 2
        bounds = code.bounds(first)
        if last >= bounds[1]:
            return None
        cells.setdefault(bounds, []).append(Change(start, end, text))
    found: list[Change] = []
    for (first, end_line), changes in cells.items():
        begin, end = source.offset(first + 1, 1), source.offset(end_line + 1, 1)
        moved = (Change(start - begin, stop - begin, text) for start, stop, text in changes)
        text = applied(source.text[begin:end], moved)
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return None
        changed = code.changes(first, text)
        if changed is None:
            return None
        found += (Change(*change) for change in changed)
    return tuple(as_edit(source.file, change) for change in merged(found))
