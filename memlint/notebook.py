"""A Jupyter notebook as one Python text: its code cells in order, magics blanked, each line placed in the file."""

from __future__ import annotations

import ast
import json
import re
import warnings
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_MAGIC = re.compile(r"^(\s*)(?:%|!|\?|.*[^#'\"\s]\?{1,2}\s*$)")
_ASSIGNED = re.compile(r"^(\s*[\w.,\s]+=\s*)[%!].*$")
_PYTHON_CELLS = ("%%time", "%%timeit", "%%capture", "%%prun", "%%memit", "%%mprun")


class Code(NamedTuple):
    """What a notebook holds: the joined ``text``; for each of its lines the cell (from 1, all kinds counted) and the
    line of the file."""

    text: str
    cells: list[int]
    raw_lines: list[int]


def read(raw: str) -> Code:
    """The code of a notebook's text. Raises ValueError with the reason where it is not JSON of nbformat 4."""
    try:
        book = json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(book, dict) or not isinstance(book.get("cells"), list):
        older = isinstance(book, dict) and "worksheets" in book
        raise ValueError("notebook of nbformat 3; convert it to 4" if older else "no notebook: it has no list of cells")
    lines: list[str] = []
    cells: list[int] = []
    raw_lines: list[int] = []
    counted, upto = 1, 0
    for number, (cell, pieces) in enumerate(_cells(raw), 1):
        if cell.get("cell_type") != "code":
            continue
        code: list[str] = []
        for piece, at in pieces:
            counted, upto = counted + raw.count("\n", upto, at), at
            for line in piece.splitlines(keepends=True):
                if code and not code[-1].endswith("\n"):
                    code[-1] += line
                    continue
                code.append(line)
                cells.append(number)
                raw_lines.append(counted)
        if code and not code[-1].endswith("\n"):
            code[-1] += "\n"
        lines += _python(code)
    return Code("".join(lines), cells, raw_lines)


def _cells(raw: str) -> list[tuple[dict[str, Any], list[tuple[str, int]]]]:
    """Every cell, with the strings of its source and their places in the file."""
    found = []
    for key, start in _members(raw, _skip(raw, 0)):
        if key != "cells":
            continue
        for at in _items(raw, start):
            cell, _ = _DECODER.raw_decode(raw, at)
            pieces: list[tuple[str, int]] = []
            for name, place in _members(raw, at) if isinstance(cell, dict) else ():
                if name == "source":
                    places = [place] if raw[place] == '"' else _items(raw, place) if raw[place] == "[" else []
                    pieces = [(_DECODER.raw_decode(raw, p)[0], p) for p in places if raw[p] == '"']
            found.append((cell if isinstance(cell, dict) else {}, pieces))
    return found


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
    if not code or _parses("".join(code)):
        return code
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


def _parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
