"""One source file: its bytes, text, positions and syntax tree. What cannot be read or parsed is a `SourceError`."""

from __future__ import annotations

import ast
import codecs
import hashlib
import os
import re
import stat
import sys
import warnings
from functools import cached_property
from typing import TYPE_CHECKING

from memlint.rule import Span

if TYPE_CHECKING:
    from memlint.notebook import Code

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")  # Python's own line ends: not str.splitlines', which knows more
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


class SourceError(Exception):
    """A file that cannot be read or parsed: ``reason`` in one clause, ``line`` and ``column``, in characters, from 1
    where there is one."""

    def __init__(self, reason: str, line: int = 1, column: int = 1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column


class Source:
    """A Python file as text, with positions in characters.

    ``path`` is shown to users: relative to the working folder, with forward slashes. ``text`` keeps the file's own
    line ends and lacks its byte-order mark; ``digest`` is the SHA-256 of the file's bytes.
    """

    def __init__(
        self, path: str, text: str, *, encoding: str = "utf-8", bom: bool = False, digest: str | None = None
    ) -> None:
        self.path = path
        self.text = text
        self.encoding = encoding
        self.bom = bom
        self._digest = digest
        self._code: Code | None = None
        self._raw = ""

    @classmethod
    def from_bytes(cls, path: str, data: bytes) -> Source:
        """Decode a file as Python would: byte-order mark, then PEP 263 cookie, then UTF-8. An ``.ipynb`` file gives the
        Python of its code cells. Raises `SourceError`."""
        digest = hashlib.sha256(data).hexdigest()
        text, encoding, bom = decode(data, cookie=not path.endswith(".ipynb"))
        if not path.endswith(".ipynb"):
            return cls(path, text, encoding=encoding, bom=bom, digest=digest)
        from memlint import notebook  # rare, and it brings json along

        try:
            code = notebook.read(text)
        except ValueError as error:
            raise SourceError(
                f"cannot be read: {error}", getattr(error, "lineno", 1), getattr(error, "colno", 1)
            ) from None
        source = cls(path, code.text, encoding=encoding, bom=bom, digest=digest)
        source._code, source._raw = code, text
        return source

    @classmethod
    def read(cls, path: str) -> Source:
        """Read ``path``. Raises `SourceError` where it is gone, unreadable, not a file, or not in its encoding."""
        return cls.from_bytes(path, read_bytes(path))

    @property
    def digest(self) -> str:
        """SHA-256 of the file's bytes, in hexadecimal."""
        if self._digest is None:
            self._digest = hashlib.sha256(self.to_bytes(self.text)).hexdigest()
        return self._digest

    def to_bytes(self, text: str) -> bytes:
        """``text`` in this file's encoding and under its mark. Raises `SourceError` where it has no such form."""
        try:
            data = text.encode(self.encoding)
        except UnicodeError as error:
            raise SourceError(f"cannot be written as {self.encoding}: {error}") from None
        return codecs.BOM_UTF8 + data if self.bom else data

    @cached_property
    def lines(self) -> list[str]:
        """The lines, each with its own line end, so that joining them gives the text."""
        return lines_of(self.text)

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree. Raises `SourceError` where this Python cannot read the text."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes and the like are another linter's business
                return ast.parse(self.text, self.path)
        except SyntaxError as error:
            if "\0" in self.text:
                raise self._null(error.msg) from None
            from memlint.dialect import reader

            reason = f"cannot be parsed as Python {sys.version_info[0]}.{sys.version_info[1]}: {error.msg}"
            if other := reader(self.text, error):
                reason += f"; {other}"
            line = max(error.lineno or 1, 1)
            raise SourceError(reason, line, min(max(error.offset or 1, 1), len(self.line(line)) + 1)) from None
        except (RecursionError, MemoryError):
            raise SourceError("cannot be parsed: nested too deeply") from None
        except ValueError as error:  # null bytes, lone surrogates
            raise self._null(str(error)) from None

    def _null(self, said: str) -> SourceError:
        """What the parser says of a text, at the first null character, where there is one."""
        before = self.text[: max(self.text.find("\0"), 0)]
        lines = lines_of(before + "x")
        return SourceError(f"cannot be parsed: {said}", len(lines), len(lines[-1]))

    def forget(self) -> None:
        """Let go of all that can be made of the text again."""
        for name in ("tree", "lines", "starts"):
            self.__dict__.pop(name, None)

    def span(self, node: ast.AST) -> Span:
        """Where ``node`` stands, in characters (the tree itself counts bytes of UTF-8)."""
        line: int = node.lineno  # type: ignore[attr-defined]
        column: int = node.col_offset  # type: ignore[attr-defined]
        end_line: int = node.end_lineno  # type: ignore[attr-defined]
        end_column: int = node.end_col_offset  # type: ignore[attr-defined]
        if self._ascii:
            return Span(line, column + 1, end_line, end_column + 1)
        return Span(line, self._characters(line, column), end_line, self._characters(end_line, end_column))

    def offset(self, line: int, column: int) -> int:
        """Index in ``text`` of a 1-based line and column; past the end of a line is its end, past the file its end."""
        starts = self.starts
        if line >= len(starts):
            return len(self.text)
        return min(starts[line - 1] + column - 1, starts[line])

    def segment(self, span: Span) -> str:
        """The text that ``span`` covers."""
        return self.text[self.offset(span.line, span.column) : self.offset(span.end_line, span.end_column)]

    def says(self, word: str | re.Pattern[str]) -> bool:
        """Whether the text holds a word, or a place that a pattern matches."""
        return word in self.text if isinstance(word, str) else word.search(self.text) is not None

    def rows(self, first: ast.AST, last: ast.AST | None = None) -> str:
        """The whole lines of a statement, or from one to another."""
        return "".join(self.lines[first.lineno - 1 : (last or first).end_lineno])  # type: ignore[attr-defined]

    def line(self, number: int) -> str:
        """Line ``number`` from 1 without its line end; "" past the end of the file."""
        return self.lines[number - 1].rstrip("\r\n") if 0 < number <= len(self.lines) else ""

    @property
    def raw(self) -> str:
        """The text of the file itself: a notebook's is JSON."""
        return self.text if self._code is None else self._raw

    @property
    def file(self) -> Source:
        """The file as it is, positions counted in it: for a notebook its JSON, for all others this very source."""
        return self if self._code is None else Source(self.path, self._raw, encoding=self.encoding, bom=self.bom)

    def cell_of(self, line: int) -> int | None:
        """The notebook cell, from 1, that a line of ``text`` belongs to; None where the file is no notebook."""
        return self._code.cell(line) if self._code else None

    def raw_line(self, line: int) -> int:
        """The line of the file itself at which a line of ``text`` stands: another one in a notebook."""
        return self._code.place(line, 1)[0] if self._code else line

    def raw_span(self, span: Span) -> Span:
        """Where in the file itself a stretch of ``text`` stands."""
        if self._code is None:
            return span
        return Span(*self._code.place(span.line, span.column), *self._code.place(span.end_line, span.end_column))

    def code_span(self, span: Span) -> Span:
        """The stretch of ``text`` that a stretch of the file itself holds."""
        if self._code is None:
            return span
        return Span(*self._code.find(span.line, span.column), *self._code.find(span.end_line, span.end_column))

    @property
    def code(self) -> Code | None:
        """The cells of a notebook."""
        return self._code

    @property
    def is_notebook(self) -> bool:
        """Whether the text is made of a notebook's cells, so that its lines are not the file's."""
        return self.path.endswith(".ipynb")

    @cached_property
    def _ascii(self) -> bool:
        return self.text.isascii()

    @cached_property
    def starts(self) -> list[int]:
        """Index of the start of every line, and of the end of the text."""
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line))
        return starts

    def _characters(self, line: int, column: int) -> int:
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        if text.isascii():
            return column + 1
        return len(text.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore")) + 1

    def __repr__(self) -> str:
        return f"Source({self.path!r})"


def _plain(encoding: str) -> str:
    """The encoding that a cookie means: Python, too, reads Emacs' ``utf-8-unix`` as UTF-8, and so for Latin-1."""
    name = encoding[:12].replace("_", "-")
    for known in ("utf-8", "latin-1", "iso-8859-1", "iso-latin-1"):
        if name == known or name.startswith(f"{known}-"):
            return "utf-8" if known == "utf-8" else "latin-1"
    return encoding


def lines_of(text: str) -> list[str]:
    """The lines of a text, each with its line end: a line feed, a carriage return, or both."""
    return _LINE.findall(text)


def read_bytes(path: str) -> bytes:
    """The bytes of ``path``. Raises `SourceError` with the reason in a user's words."""
    try:
        mode = os.stat(path).st_mode
        # Opening a pipe waits for a writer, and a device may never end; a shell's `<(…)` is a pipe under /dev.
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (stat.S_ISFIFO(mode) and path.startswith("/dev/"))):
            raise SourceError("cannot be read: a pipe or device, not a file")
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise SourceError("cannot be read: no such file") from None
    except IsADirectoryError:
        raise SourceError("cannot be read: a folder, not a file") from None
    except PermissionError:
        raise SourceError("cannot be read: permission denied") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def decode(data: bytes, *, cookie: bool = True) -> tuple[str, str, bool]:
    """The text of a file, its encoding (that of the PEP 263 ``cookie``, where one counts), and whether it starts with a
    byte-order mark. Raises `SourceError`."""
    bom = data.startswith(codecs.BOM_UTF8)
    if bom:
        data = data[len(codecs.BOM_UTF8) :]
    encoding = "utf-8"
    for line in data[:4096].splitlines()[:2] if cookie else ():
        if named := _COOKIE.match(line):
            encoding = _plain(named[1].decode("ascii", "replace").lower())
            break
        if line.strip() and not line.lstrip().startswith(b"#"):
            break  # a cookie on the second line counts only under a comment or an empty line
    try:
        return data.decode(encoding), encoding, bom
    except LookupError:
        raise SourceError(f"cannot be decoded: unknown encoding {encoding!r}") from None
    except UnicodeDecodeError as error:
        try:
            before = data[: error.start].decode(encoding)
        except UnicodeError:  # one that counts otherwise
            before = data[: error.start].decode("latin-1")
        lines = lines_of(before + "x")
        raise SourceError(f"cannot be decoded as {encoding}: {error.reason}", len(lines), len(lines[-1])) from None
    except (UnicodeError, ValueError, AssertionError) as error:
        raise SourceError(f"cannot be decoded as {encoding}: {error}") from None
