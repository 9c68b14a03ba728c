"""A Jupyter notebook as one Python text: its code cells in order, magics blanked, each line placed in the file; and
changes of that text as changes of the file."""

from __future__ import annotations

import ast
import json
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cached_property
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\r\n]*")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")  # Python's own line ends
_DECODER = json.JSONDecoder()
_CHARACTER = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.S)
_MAGIC = re.compile(r"^(\s*)(?:%|!|\?|(?:pip|conda)\s+\w|.*[^#'\"\s]\?{1,2}\s*$)")
_ASSIGNED = re.compile(r"^(\s*[\w.,\s]+=\s*)[%!].*$")
_PYTHON_CELLS = ("%%time", "%%timeit", "%%capture", "%%prun", "%%memit", "%%mprun")


class Piece(NamedTuple):
    """A line of a cell, or a part of one, as one JSON string holds it: what it says, and from where to where in the
    file it does, quotes left out."""

    text: str
    start: int
    end: int


class Cell(NamedTuple):
    """A code cell: its ``number`` among all cells, from 1; the pieces of its source; whether they are items of a list
    and not one string; and whether each is a whole line, so that lines can be changed one by one."""

    number: int
    pieces: list[Piece]
    listed: bool
    regular: bool


Change = tuple[int, int, str]
"""The text from the first to before the second place in the file becomes the third."""


class Code:
    """What a notebook holds: the joined lines of its code cells, and where in the file each of them stands."""

    def __init__(self, raw: str, cells: list[Cell]) -> None:
        self._raw = raw
        self._cells = cells
        self._lines: list[list[Piece]] = []  # of each line of the text, the pieces that make it
        self._first: list[int] = []  # of each cell, its first line
        self._blank: set[int] = set()  # lines that say something else than the cell does
        text: list[str] = []
        for cell in cells:
            self._first.append(len(text))
            code: list[str] = []
            for piece in cell.pieces:
                if code and not code[-1].endswith("\n"):
                    code[-1] += piece.text
                    self._lines[-1].append(piece)
                else:
                    code.append(piece.text)
                    self._lines.append([piece])
            if code and not code[-1].endswith("\n"):
                code[-1] += "\n"
            python = _python(code)
            self._blank |= {len(text) + i for i, (a, b) in enumerate(zip(code, python, strict=True)) if a != b}
            text += python
        self.lines = text

    @property
    def text(self) -> str:
        """The Python of all cells."""
        return "".join(self.lines)

    def cell(self, line: int) -> int | None:
        """The number of the cell that a line of the text, from 1, stands in; None where there is no cell."""
        at = self._cell_at(line - 1)
        return self._cells[at].number if at >= 0 else None

    def cell_line(self, line: int) -> int:
        """Which line of its cell a line of the text is; both from 1."""
        at = self._cell_at(line - 1)
        return line - self._first[at] if at >= 0 else line

    def place(self, line: int, column: int) -> tuple[int, int]:
        """Line and column of the file at which those of the text stand; all from 1."""
        offset = self._offset(line - 1, column - 1)
        start = bisect_right(self._starts, offset) - 1
        return start + 1, offset - self._starts[start] + 1

    def find(self, line: int, column: int) -> tuple[int, int]:
        """Line and column of the text that stand at, or next before, those of the file; all from 1."""
        offset = self._starts[min(line, len(self._starts)) - 1] + column - 1
        at = max(bisect_right(self._offsets, offset) - 1, 0)
        column = 0
        for piece in self._lines[at] if self._lines else ():
            for start in _character_starts(self._raw, piece):
                if start >= offset:
                    return at + 1, column + 1
                column += 1
        return at + 1, column + 1

    def bounds(self, line: int) -> tuple[int, int]:
        """The lines of the text, from 0, that the cell of line ``line`` has: the first, and the one after its last."""
        at = self._cell_at(line)
        return self._first[at], self._first[at + 1] if at + 1 < len(self._first) else len(self._lines)

    def changes(self, line: int, text: str) -> list[Change] | None:
        """What to change in the file for the cell of line ``line``, from 0, to say ``text``.

        None where that would touch a magic, or where the cell has an unusual form.
        """
        cell = self._cells[self._cell_at(line)]
        first, last = self.bounds(line)
        if not cell.regular or len(cell.pieces) != last - first:
            return None
        shown, new = self.lines[first:last], _LINE.findall(text)
        if not cell.pieces[-1].text.endswith(("\n", "\r")):  # the last line of a cell ends nowhere
            shown[-1] = shown[-1].removesuffix("\n")
            new[-1:] = [line.removesuffix("\n") for line in new[-1:]]
        found: list[Change] = []
        for verb, a, b, c, d in SequenceMatcher(None, shown, new, autojunk=False).get_opcodes():
            if verb == "equal":
                continue
            if any(first + i in self._blank for i in range(a, b)):
                return None
            if not b and cell.pieces[0].text.startswith("%%"):
                return None  # nothing may stand before it
            if b - a == d - c:
                found += (self._within(*pair) for pair in zip(cell.pieces[a:b], new[c:d], strict=True))
            else:
                found.append(self._lines_changed(cell, a, b, new[c:d]))
        return found

    def _within(self, piece: Piece, new: str) -> Change:
        """A line becomes another: only what differs is written anew."""
        old = piece.text
        head = _common(old, new)
        tail = _common(old[head:][::-1], new[head:][::-1])
        starts = [*_character_starts(self._raw, piece), piece.end]
        return starts[head], starts[len(old) - tail], self._written(new[head : len(new) - tail])

    def _lines_changed(self, cell: Cell, a: int, b: int, new: list[str]) -> Change:
        """The lines from ``a`` to before ``b`` of a cell become ``new``, of which there are more or fewer."""
        pieces = cell.pieces
        if not cell.listed:
            start = pieces[a].start if a < len(pieces) else pieces[-1].end
            return start, pieces[b - 1].end if b > a else start, "".join(map(self._written, new))
        between = self._between(cell)
        written = [f'"{self._written(line)}"' for line in new]
        if b > a and new:
            return pieces[a].start - 1, pieces[b - 1].end + 1, between.join(written)
        if new and a < len(pieces):
            at = pieces[a].start - 1
            return at, at, "".join(line + between for line in written)
        if new:
            at = pieces[-1].end + 1
            return at, at, "".join(between + line for line in written)
        if b < len(pieces):
            return pieces[a].start - 1, pieces[b].start - 1, ""
        return pieces[a - 1].end + 1 if a else pieces[a].start - 1, pieces[b - 1].end + 1, ""

    def _between(self, cell: Cell) -> str:
        """What parts one line of a cell from the next in the file."""
        if len(cell.pieces) > 1:
            return self._raw[cell.pieces[0].end + 1 : cell.pieces[1].start - 1]
        before = cell.pieces[0].start - 1
        return "," + self._raw[self._raw.rindex("[", 0, before) + 1 : before]

    def _written(self, line: str) -> str:
        return json.dumps(line, ensure_ascii=self._escapes)[1:-1]

    @cached_property
    def _escapes(self) -> bool:
        """Whether the file writes what is not ASCII as escapes."""
        return self._raw.isascii() and re.search(r"\\u(?!00[0189])[0-9a-fA-F]{4}", self._raw) is not None

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", self._raw))]

    @cached_property
    def _offsets(self) -> list[int]:
        return [pieces[0].start for pieces in self._lines]

    def _cell_at(self, line: int) -> int:
        return bisect_right(self._first, min(line, max(len(self._lines) - 1, 0))) - 1

    def _offset(self, line: int, column: int) -> int:
        if not self._lines:
            return 0
        pieces = self._lines[min(line, len(self._lines) - 1)]
        for piece in pieces:
            if column < len(piece.text) or piece is pieces[-1]:
                starts = _character_starts(self._raw, piece)
                return starts[column] if column < len(starts) else piece.end
            column -= len(piece.text)
        raise AssertionError("no line is without a piece")


def read(raw: str) -> Code:
    """The code of a notebook's text. Raises ValueError with the reason where it is no notebook's JSON.

    Cells of nbformat 3 and older stand in worksheets. A notebook, or a cell, in another language has no code.
    """
    try:
        book = json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(book, dict) or not any(isinstance(book.get(key), list) for key in ("cells", "worksheets")):
        raise ValueError("no notebook: it has no list of cells")
    python = _language(book.get("metadata")) in ("", "python")
    return Code(raw, list(_code_cells(raw)) if python else [])


def _language(metadata: object) -> str:
    """The language that a notebook's metadata name, in lower case; "" where they name none."""
    if not isinstance(metadata, dict):
        return ""
    for table, key in (("language_info", "name"), ("kernelspec", "language")):
        named = metadata[table].get(key) if isinstance(metadata.get(table), dict) else None
        if isinstance(named, str) and named:
            return "python" if named.lower().startswith(("python", "ipython")) else named.lower()
    return ""


def _code_cells(raw: str) -> Iterator[Cell]:
    for number, at in enumerate(_places(raw), 1):
        cell, _ = _DECODER.raw_decode(raw, at)
        if not isinstance(cell, dict) or cell.get("cell_type") != "code" or not _is_python(cell):
            continue
        for name, place in _members(raw, at):
            if name in ("source", "input"):
                listed = raw[place] == "["
                strings = [p for p in (_items(raw, place) if listed else [place]) if raw[p] == '"']
                pieces = [piece for start in strings for piece in _pieces(raw, start)]
                whole = all(piece.text.endswith("\n") for piece in pieces[:-1])
                yield Cell(number, pieces, listed, whole and (not listed or len(pieces) == len(strings)))


def _is_python(cell: dict[str, Any]) -> bool:
    """Whether a cell names no other language: of nbformat 3 by itself, in VS Code's notebooks by its metadata."""
    metadata = cell.get("metadata")
    code = metadata.get("vscode") if isinstance(metadata, dict) else None
    own = code.get("languageId") if isinstance(code, dict) else cell.get("language")
    return not isinstance(own, str) or own == "python"


def _places(raw: str) -> Iterator[int]:
    """Where the cells stand in the file, in order."""
    for key, start in _members(raw, _skip(raw, 0)):
        if key == "cells" and raw[start] == "[":
            yield from _items(raw, start)
        elif key == "worksheets" and raw[start] == "[":
            for sheet in _items(raw, start):
                for name, place in _members(raw, sheet) if raw[sheet] == "{" else ():
                    if name == "cells" and raw[place] == "[":
                        yield from _items(raw, place)


def _pieces(raw: str, at: int) -> list[Piece]:
    """The lines of the JSON string at ``at``."""
    text, end = scanstring(raw, at + 1)
    lines = _LINE.findall(text)
    if len(lines) <= 1:
        return [Piece(text, at + 1, end - 1)] if text else []
    starts = _character_starts(raw, Piece(text, at + 1, end - 1))
    pieces, count = [], 0
    for line in lines:
        start, count = starts[count], count + len(line)
        pieces.append(Piece(line, start, starts[count] if count < len(starts) else end - 1))
    return pieces


def _character_starts(raw: str, piece: Piece) -> list[int]:
    """Where in the file each character of a piece begins: an escape is one character."""
    return [match.start() for match in _CHARACTER.finditer(raw, piece.start, piece.end)]


def _common(one: str, other: str) -> int:
    """How many characters two texts have in common at their start."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _skip(raw: str, at: int) -> int:
    match = _SPACE.match(raw, at)
    return match.end() if match else at


def _members(raw: str, at: int) -> list[tuple[str, int]]:
    """Keys of the object at ``at``, with the places of their values."""
    members = []
    at = _skip(raw, at + 1)
    while raw[at] == '"':
        key, at = scanstring(raw, at + 1)
        at = _skip(raw, _skip(raw, at) + 1)
        members.append((key, at))
        at = _skip(raw, _DECODER.raw_decode(raw, at)[1])
        if raw[at] == ",":
            at = _skip(raw, at + 1)
    return members


def _items(raw: str, at: int) -> list[int]:
    """Places of the items of the array at ``at``."""
    items = []
    at = _skip(raw, at + 1)
    while raw[at] != "]":
        items.append(at)
        at = _skip(raw, _DECODER.raw_decode(raw, at)[1])
        if raw[at] == ",":
            at = _skip(raw, at + 1)
    return items


def _python(code: list[str]) -> list[str]:
    """The lines of a cell as Python, as many as before."""
    if not code or parses("".join(code)):
        return code
    if code[0][:1] in " \t" and code[0].strip():  # a notebook takes the first line's margin off all of them
        margin = code[0][: len(code[0]) - len(code[0].lstrip())]
        inner = _python([line.removeprefix(margin) for line in code])
        if all(line.strip() in ("", "#", "pass") for line in inner):  # Python would stand at other columns
            return inner
    first = next((line.strip() for line in code if line.strip()), "")
    if first.startswith("%%") and not first.startswith(_PYTHON_CELLS):
        return ["#\n"] * len(code)
    blanked: list[str] = []
    above = ""  # what a line that ends in a backslash goes on with: a magic or Python
    for line in code:
        magic = _MAGIC.match(line)
        if above == "magic":
            blanked.append("#\n")
        elif above != "python" and (assigned := _ASSIGNED.match(line)):
            blanked.append(assigned[1] + "None\n")
        elif above != "python" and magic:
            blanked.append(magic[1] + "pass\n")
        else:
            blanked.append(line)
        above = ("python" if blanked[-1] is line else "magic") if line.rstrip().endswith("\\") else ""
    return blanked


def parses(text: str) -> bool:
    """Whether the running Python can read a text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
