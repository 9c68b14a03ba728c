"""Suppression comments: which findings they silence, and which of them silence nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from memlint.rule import Applicability, Edit, Finding, Fix, Level, Span
from memlint.source import Source, SourceError

UNUSED = ("MEM099", "unused-suppression")

_DIRECTIVE = re.compile(r"#\s*memlint:\s*(?P<verb>[\w-]*)\s*(?P<list>\[[^\]#]*\])?[^#]*")
_NOQA = re.compile(r"#\s*noqa:\s*(?P<codes>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)", re.IGNORECASE)


@dataclass(slots=True)
class Comment:
    """One suppression comment. ``names`` are rule names or codes; None silences every rule."""

    line: int
    start: int  # column from 1 of its hash
    end: int
    names: tuple[str, ...] | None
    whole_file: bool = False
    noqa: bool = False
    unknown: str = ""  # a word after "memlint:" that means nothing
    used: set[str] = field(default_factory=set)

    def covers(self, finding: Finding) -> bool:
        """Whether this comment speaks of the finding's rule."""
        return not self.unknown and (
            self.names is None or finding.code in self.names or (finding.name in self.names and not self.noqa)
        )


def comments(source: Source) -> list[Comment]:
    """The suppression comments of a file, in order."""
    if "memlint:" not in source.text and "noqa" not in source.text.lower():
        return []
    found: list[Comment] = []
    for line, column, text in _comment_tokens(source):
        for match in _DIRECTIVE.finditer(text):
            end = match.start() + len(match.group().rstrip())
            verb, names = match["verb"], match["list"]
            listed = tuple(name for name in re.split(r"[\s,]+", names[1:-1]) if name) if names else None
            known = verb in ("ignore", "ignore-file")
            found.append(
                Comment(
                    line,
                    column + match.start(),
                    column + end,
                    listed,
                    verb == "ignore-file",
                    unknown="" if known else verb or "nothing",
                )
            )
        for match in _NOQA.finditer(text):
            codes = tuple(re.split(r"[\s,]+", match["codes"].upper()))
            found.append(Comment(line, column + match.start(), column + match.end(), codes, noqa=True))
    return found


def suppress(source: Source, findings: Iterable[Finding], ran: Collection[str] | None = None) -> Iterator[Finding]:
    """The findings that no comment silences, then a note for every comment that silences nothing.

    ``ran`` holds codes and names of the rules that ran; a comment about another rule is left in peace. None: all ran.
    """
    findings = list(findings)
    if not findings and "memlint:" not in source.text:
        return  # a `noqa` that silences nothing is somebody else's
    found = comments(source)
    if not found:
        yield from findings
        return
    first_lines = _FirstLines(source) if findings else None
    for finding in findings:
        line = finding.span.line
        lines = {line, first_lines.of(line) if first_lines is not None else line}
        silencing = [c for c in found if (c.whole_file or c.line in lines) and c.covers(finding)]
        for comment in silencing:
            comment.used |= {finding.code, finding.name}
        if not silencing:
            yield finding
    for comment in found:
        yield from _unused(source, comment, ran)


def ignoring(source: Source, span: Span, name: str) -> Edit | None:
    """The edit, of the text, that silences a rule for a finding at ``span``: its name in a comment on the line, or on
    the statement's first line where the line has no room for one. None where neither has."""
    for line in dict.fromkeys((span.line, _FirstLines(source).of(span.line))):
        text = source.line(line)
        known = next((c for c in comments(source) if c.line == line and c.names and not c.noqa and not c.unknown), None)
        if known is not None:
            at = text.index("]", known.start - 1) + 1
            return Edit(Span(line, at, line, at), f", {name}")
        end = len(text.rstrip()) + 1
        edit = Edit(Span(line, end, line, len(text) + 1), f"  # memlint: ignore[{name}]")
        start = source.offset(line, end)
        changed = Source("", source.text[:start] + edit.text + source.text[source.offset(line, len(text) + 1) :])
        try:
            same = ast.dump(changed.tree) == ast.dump(source.tree)
        except (SourceError, RecursionError):
            continue
        if same and any(c.line == line for c in comments(changed)):
            return edit
    return None


def _unused(source: Source, comment: Comment, ran: Collection[str] | None) -> Iterator[Finding]:
    if comment.noqa:
        return
    span = Span(comment.line, comment.start, comment.line, comment.end)
    if comment.unknown:
        message = f"the comment says {comment.unknown!r} after 'memlint:'; only 'ignore' and 'ignore-file' are known"
        yield Finding(*UNUSED, Level.NOTE, source.path, span, message)
        return
    if comment.names is None:
        if not comment.used and ran is None:
            fix = Fix("Remove the comment", applicability=Applicability.SAFE, edits=(_removal(source, comment),))
            yield Finding(*UNUSED, Level.NOTE, source.path, span, "the comment suppresses nothing", fix)
        return
    idle = [name for name in comment.names if name not in comment.used and (ran is None or name in ran)]
    if not idle and comment.names:
        return
    kept = [name for name in comment.names if name not in idle]
    edit = _removal(source, comment)
    if kept:
        text = source.line(comment.line)[comment.start - 1 : comment.end - 1]
        edit = Edit(span, re.sub(r"\[[^\]]*\]", f"[{', '.join(kept)}]", text, count=1))
    fix = Fix("Remove what suppresses nothing", applicability=Applicability.SAFE, edits=(edit,))
    listed = ", ".join(idle) or "no rule at all"
    yield Finding(*UNUSED, Level.NOTE, source.path, span, f"the comment suppresses no finding of {listed}", fix)


def _removal(source: Source, comment: Comment) -> Edit:
    """Take the comment out: with the spaces before it, or with its line if it stands alone there."""
    line = source.line(comment.line)
    before, after = line[: comment.start - 1], line[comment.end - 1 :]
    if not before.strip() and not after.strip() and comment.line < len(source.lines):
        return Edit(Span(comment.line, 1, comment.line + 1, 1), "")
    start = len(before.rstrip()) + 1 if not after.strip() else comment.start
    return Edit(Span(comment.line, start, comment.line, comment.end + len(after) - len(after.lstrip())), "")


def _comment_tokens(source: Source) -> Iterator[tuple[int, int, str]]:
    """Line and column from 1, and text, of every comment."""
    import io
    import tokenize

    try:
        for token in tokenize.generate_tokens(io.StringIO(source.text, newline=None).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.start[1] + 1, token.string
    except (tokenize.TokenError, SyntaxError):
        return


class _FirstLines:
    """For each line, the first line of the innermost statement that covers it."""

    def __init__(self, source: Source) -> None:
        self._first: dict[int, int] = {}
        try:
            statements = [node for node in ast.walk(source.tree) if isinstance(node, ast.stmt)]
        except SourceError:
            return
        # Parents come before their children in a breadth-first walk, so the innermost statement writes last.
        for node in statements:
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                self._first[line] = node.lineno

    def of(self, line: int) -> int:
        return self._first.get(line, line)
