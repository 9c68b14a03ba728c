"""Findings to new text: fixes that do not overlap, in rounds until nothing changes, written whole or not at all."""

from __future__ import annotations

import ast
import hashlib
import os
import signal
import stat
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from memlint.check import Options, Report, applicable, check_paths
from memlint.config import Configs
from memlint.failure import failed
from memlint.rule import Edit, Finding
from memlint.source import Source, SourceError

ROUNDS = 10
"""Rounds of check and fix at most; a fix that another overlaps waits for the next one."""


@dataclass
class Fixed:
    """What fixing came to: findings ``before`` and ``after``; by path, old source and new text, and how many fixes."""

    before: Report
    after: Report
    changes: dict[str, tuple[Source, str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)


def fix_paths(
    paths: Sequence[str], options: Options, *, unsafe: bool | None = None, configs: Configs | None = None
) -> Fixed:
    """Fix what may be fixed under ``paths``, in memory. ``unsafe`` None: as each file's configuration says."""
    configs = configs or Configs()
    before = after = check_paths(paths, options, configs)
    originals = before.sources
    texts: dict[str, str] = {}
    left: set[str] = set()
    broken: dict[str, Finding] = {}
    errors: list[str] = []
    counts: Counter[str] = Counter()
    for _ in range(ROUNDS):
        changed: dict[str, str] = {}
        for path, source in after.sources.items():
            if path in broken or path in left:
                continue
            allowed = configs.of(path).unsafe_fixes if unsafe is None else unsafe
            mine = [f for f in after.findings if f.path == path and applicable(f.fix, allowed)]
            text, count = apply_fixes(source, mine)
            if count == 0 or text == source.raw:
                continue
            try:
                _parse(source, text)
            except SourceError as error:
                errors.append(f"{path} {error.reason}; the file is left as it is")
                left.add(path)
                continue
            except (SyntaxError, ValueError) as error:
                codes = ", ".join(sorted({f.code for f in mine}))
                errors.append(f"internal error: the fix of {codes} breaks {path} ({error}); the file is left as it is")
                broken[path] = failed(path, source, f"the fix of {codes}", error)
                continue
            changed[path] = text
            counts[path] += count
        if not changed:
            break
        texts |= changed
        overlay = {**options.overlay, **{path: originals[path].to_bytes(text) for path, text in texts.items()}}
        # The rounds in between are nobody's next question, so they are not kept.
        after = check_paths(paths, replace(options, overlay=overlay, cache=False), configs)
    after.findings = sorted([*after.findings, *broken.values()], key=lambda finding: finding.order)
    after.fixed = counts.total()
    return Fixed(before, after, {path: (originals[path], text) for path, text in texts.items()}, counts, errors)


def apply_fixes(source: Source, findings: Iterable[Finding]) -> tuple[str, int]:
    """The file's text with the findings' fixes, and how many of them found room."""
    edits, count = chosen(source, findings)
    return edited(source, edits), count


def edited(source: Source, edits: Iterable[Edit]) -> str:
    """The file's text with the edits."""
    source = source.file
    text = source.text
    for start, end, new in sorted(((*_range(source, edit), edit.text) for edit in edits), reverse=True):
        text = text[:start] + new + text[end:]
    return text


def chosen(source: Source, findings: Iterable[Finding]) -> tuple[list[Edit], int]:
    """The edits of the findings' fixes that do not overlap, and of how many they are. An import that two bring goes in
    once."""
    source = source.file
    kept: list[Edit] = []
    count = 0
    for finding in findings:
        wanted = finding.fix.edits if finding.fix else ()
        edits = [edit for edit in wanted if not (edit in kept and _is_import(edit))]
        if any(_clash(source, edit, other) for edit in edits for other in kept):
            continue
        kept += edits
        count += 1
    return kept, count


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until what is done here is done: a file made beside another is then never left there."""
    if threading.current_thread() is not threading.main_thread():
        yield  # which signals do not reach
        return
    waiting: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if waiting:
            signal.raise_signal(signal.SIGINT)


def write(source: Source, text: str) -> None:
    """Replace the file of ``source`` by ``text``: beside it first, then renamed over it, mode and owner kept.

    Raises `SourceError` where the file is read-only, has changed since it was read, or cannot be written.
    """
    path = os.path.realpath(source.path)
    data = source.to_bytes(text)
    try:
        status = os.stat(path)
        if not status.st_mode & 0o222 or not os.access(path, os.W_OK):
            raise SourceError("cannot be written: it is read-only")
        if Source.read(path).digest != source.digest:
            raise SourceError("was changed by somebody else meanwhile and is left as it is")
        with _uninterrupted():
            handle, beside = tempfile.mkstemp(prefix=".memlint-", suffix=".tmp", dir=os.path.dirname(path))
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.chmod(beside, stat.S_IMODE(status.st_mode))
                if hasattr(os, "chown") and (status.st_uid, status.st_gid) != (os.getuid(), os.getgid()):
                    os.chown(beside, status.st_uid, status.st_gid)
                os.replace(beside, path)
            except BaseException:
                if os.path.exists(beside):
                    os.unlink(beside)
                raise
    except OSError as error:
        raise SourceError(f"cannot be written: {(error.strerror or str(error)).lower()}") from None


def diff(source: Source, text: str) -> str:
    """A unified diff from the source to ``text``."""
    from difflib import unified_diff

    old, new = source.file.lines, Source("", text).lines
    parts = []
    for line in unified_diff(old, new, f"a/{source.path.lstrip('/')}", f"b/{source.path.lstrip('/')}"):
        parts.append(line if line.endswith(("\n", "\r")) else f"{line}\n\\ No newline at end of file\n")
    return "".join(parts)


def _parse(source: Source, text: str) -> None:
    """Raise SyntaxError or ValueError where ``text`` would be no file in the place of ``source``, and `SourceError`
    where the encoding would not give back what the file holds: some can write one text in several ways."""
    if hashlib.sha256(source.to_bytes(source.raw)).hexdigest() != source.digest:
        raise SourceError(f"cannot be repaired: {source.encoding} would write all of it otherwise")
    written = Source.from_bytes(source.path, source.to_bytes(text))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ast.parse(written.text)


def _range(source: Source, edit: Edit) -> tuple[int, int]:
    span = edit.span
    return source.offset(span.line, span.column), source.offset(span.end_line, span.end_column)


def _is_import(edit: Edit) -> bool:
    """Whether an edit only puts in an import: of two fixes that need the same one, one brings it."""
    start, end = edit.span[:2], edit.span[2:]
    return start == end and edit.text.endswith(("\n", "\r")) and edit.text.strip().startswith(("import ", "from "))


def _clash(source: Source, one: Edit, other: Edit) -> bool:
    """Whether two edits touch the same text; two insertions at one place have no order, so they clash as well."""
    start, end = _range(source, one)
    other_start, other_end = _range(source, other)
    if start == end or other_start == other_end:
        return start <= other_end and other_start <= end
    return start < other_end and other_start < end
