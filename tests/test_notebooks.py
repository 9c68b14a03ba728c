"""Notebooks of every shape that people save: findings at the right cells, and fixes that leave every other byte alone.

``fixtures/notebooks`` holds one notebook as Jupyter, Colab, VS Code, papermill and older programs write it: with
widgets, magics, sources in one string, on one line, under a byte-order mark. ``# want: NAME`` stands on the lines to be
found.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from hypothesis import given, settings
from hypothesis import strategies as st

from memlint.apply import apply_fixes
from memlint.check import Options, applicable, check_paths
from memlint.layout import in_notebook
from memlint.rule import Edit, Span
from memlint.source import Source

SHAPES = sorted((Path(__file__).parent.parent / "fixtures" / "notebooks").glob("*.ipynb"))
ids = [path.stem for path in SHAPES]


def cells(raw: str) -> list[dict[str, Any]]:
    """The cells of a notebook, those of all worksheets in a row."""
    book = json.loads(raw.removeprefix("\ufeff"))
    return list(book["cells"]) if "cells" in book else [c for sheet in book["worksheets"] for c in sheet["cells"]]


def code(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    return source if isinstance(source, str) else "".join(source)


def wanted(raw: str) -> list[tuple[int, int, str]]:
    """Cell, line of the cell and rule of every finding that the notebook asks for."""
    found = []
    for number, cell in enumerate(cells(raw), 1):
        for line, text in enumerate(code(cell).split("\n"), 1):
            if match := re.search(r"# want: ([\w-]+)", text):
                found.append((number, line, match[1]))
    return found


def rest(raw: str) -> str:
    """The file without the sources of its code cells."""
    decoder = json.JSONDecoder()
    parts, at = [], 0
    for match in re.finditer(r'"(?:source|input)"\s*:\s*', raw):
        before = raw.rfind('"cell_type"', 0, match.start())
        if match.start() < at or not re.match(r'"cell_type"\s*:\s*"code"', raw[before:]):
            continue
        parts.append(raw[at : match.end()])
        at = decoder.raw_decode(raw, match.end())[1]
    return "".join(parts) + raw[at:]


def read(path: Path) -> str:
    return path.read_bytes().decode()


def test_there_are_ten_shapes() -> None:
    assert len(SHAPES) >= 10
    assert sum(bool(wanted(read(path))) for path in SHAPES) >= 10


@pytest.mark.parametrize("path", SHAPES, ids=ids)
def test_findings_stand_at_their_cells(path: Path) -> None:
    report = check_paths([str(path)], Options(cache=False))
    (source,) = report.sources.values()
    found = []
    for finding in report.findings:
        assert finding.cell is not None and source.code is not None
        line = source.code.cell_line(source.code_span(finding.span).line)
        found.append((finding.cell, line, finding.name))
        text = source.file.segment(finding.span)
        assert text and text in source.file.line(finding.span.line)
        assert text == source.segment(source.code_span(finding.span))
    assert found == wanted(read(path))
    assert not report.errors


@pytest.mark.parametrize("path", SHAPES, ids=ids)
def test_a_fix_changes_its_lines_and_no_other_byte(path: Path, tmp_path: Path, memlint: Run) -> None:
    copy = tmp_path / path.name
    shutil.copy(path, copy)
    before = read(copy)
    memlint("check", "--fix", "--no-cache", str(copy))
    after = read(copy)
    assert (after == before) == (not wanted(before))
    assert rest(after) == rest(before)
    # Lines that no fix speaks of are there as they were, with their own spelling of what JSON spells in two ways.
    moved = "".join(code(cell) for cell in cells(before) if "want: eval-without-no-grad" in code(cell))
    lines = re.findall(r'"(?:[^"\\]|\\.)*\\n"', before)
    kept = [line for line in lines if "want:" not in line and json.loads(line) not in moved]
    at = 0
    for line in kept:
        at = after.find(line, at)
        assert at >= 0, line
    assert not check_paths([str(copy)], Options(cache=False)).findings
    for old, new in zip(cells(before), cells(after), strict=True):
        assert {k: v for k, v in old.items() if k not in ("source", "input")} == {
            k: v for k, v in new.items() if k not in ("source", "input")
        }
        assert type(old.get("source")) is type(new.get("source"))
        assert code(old).endswith("\n") == code(new).endswith("\n")
    memlint("check", "--fix", "--no-cache", str(copy))
    assert read(copy) == after


def test_the_diff_is_of_the_file(tmp_path: Path, memlint: Run) -> None:
    shutil.copy(SHAPES[ids.index("jupyter")], tmp_path / "a.ipynb")
    out = memlint("check", "--diff", "--no-cache", str(tmp_path / "a.ipynb")).out
    assert '-    "        losses.append(loss)  # want: graph-tensor-append\\n",\n' in out
    assert '+    "        losses.append(loss.detach())  # want: graph-tensor-append\\n",\n' in out


def test_text_shows_the_cell_its_line_and_the_code(tmp_path: Path, memlint: Run) -> None:
    shutil.copy(SHAPES[ids.index("colab")], tmp_path / "a.ipynb")
    out = memlint("check", "--no-cache", str(tmp_path / "a.ipynb")).out
    assert re.search(r"--> .*a\.ipynb:96:18 \(cell 5, line 8\)\n   8 \| +losses\.append\(loss\)", out)


def notebook(*sources: list[str] | str, **metadata: Any) -> str:
    made: list[dict[str, Any]] = [{"cell_type": "code", "metadata": {}, "source": source} for source in sources]
    return json.dumps({"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def source_of(raw: str) -> Source:
    return Source.from_bytes("a.ipynb", raw.encode())


def edited(raw: str, *edits: tuple[tuple[int, int, int, int], str]) -> str | None:
    """The notebook after edits of its code, or None where they cannot be made."""
    source = source_of(raw)
    changes = in_notebook(source, [Edit(Span(*span), text) for span, text in edits])
    if changes is None:
        return None
    file = source.file
    text = file.text
    for span, new in reversed(changes):
        start, end = file.offset(span.line, span.column), file.offset(span.end_line, span.end_column)
        text = text[:start] + new + text[end:]
    return text


@pytest.mark.parametrize(
    ("cell", "edit", "outcome"),
    [
        (["a\n", "b"], ((2, 1, 2, 2), "c"), ["a\n", "c"]),
        (["a\n", "b"], ((3, 1, 3, 1), "c\n"), ["a\n", "b\n", "c"]),
        (["a\n", "b"], ((1, 1, 1, 1), "c\n"), ["c\n", "a\n", "b"]),
        (["a\n", "b"], ((2, 1, 3, 1), ""), ["a"]),
        (["a\n", "b\n"], ((2, 1, 3, 1), ""), ["a\n"]),
        (["a\n", "b"], ((1, 1, 2, 1), ""), ["b"]),
        (["a"], ((1, 1, 2, 1), ""), []),
        (["a"], ((2, 1, 2, 1), "'é'\n"), ["a\n", "'é'"]),
        (["a\n", "b\n", "c"], ((1, 1, 3, 1), "if 1:\n    a\n    b\n"), ["if 1:\n", "    a\n", "    b\n", "c"]),
        ("a\nb", ((2, 1, 2, 2), "c"), "a\nc"),
        ("a\nb", ((3, 1, 3, 1), "c\n"), "a\nb\nc"),
        ("a\nb", ((1, 1, 2, 1), ""), "b"),
        (["'\t\"\\\\'\n", "b"], ((1, 1, 1, 1), "x = "), ["x = '\t\"\\\\'\n", "b"]),
    ],
)
def test_lines_come_and_go(cell: list[str] | str, edit: Any, outcome: list[str] | str) -> None:
    raw = edited(notebook(cell), edit)
    assert raw is not None
    assert json.loads(raw)["cells"][0]["source"] == outcome
    expected = notebook(outcome)
    if "é" not in raw:
        assert json.loads(raw) == json.loads(expected)


def test_what_a_notebook_cannot_take_is_no_edit() -> None:
    two = notebook(["a\n", "b"], ["%time x\n", "c"], ["%%time\n", "d\n"])
    assert edited(two, ((2, 1, 3, 1), "")) is not None
    assert edited(two, ((2, 1, 5, 1), "")) is None  # over two cells
    assert edited(two, ((3, 1, 4, 1), "")) is None  # a magic
    assert edited(two, ((3, 1, 4, 1), "    pass\n")) is None
    assert edited(two, ((5, 1, 5, 1), "import os\n")) is None  # before a magic that must stand first
    assert edited(two, ((1, 1, 1, 1), "if a:\n    ")) is not None
    assert edited(two, ((2, 1, 2, 1), "    ")) is None  # a cell that does not parse
    odd = notebook(["a\nb\n", "c"])
    assert edited(odd, ((1, 1, 1, 2), "d")) is None


def test_languages() -> None:
    r = notebook(["x <- 1 +\n"], kernelspec={"language": "R", "name": "ir"})
    assert source_of(r).text == ""
    cell: dict[str, Any] = {"cell_type": "code", "metadata": {"vscode": {"languageId": "sql"}}, "source": "SELECT 1"}
    assert source_of(json.dumps({"cells": [cell]})).text == ""
    cell["metadata"]["vscode"]["languageId"] = "python"
    assert source_of(json.dumps({"cells": [cell]})).text == "SELECT 1\n"


WORD = st.text(st.sampled_from("ab '\"\\/\té広𝄞\u2028"), max_size=6)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(WORD, min_size=1, max_size=4), min_size=1, max_size=3), st.booleans(), st.booleans(), st.data()
)
def test_every_character_has_its_place(
    texts: list[list[str]], listed: bool, escaped: bool, data: st.DataObject
) -> None:
    comments = [[f"#{word}\n" for word in lines] for lines in texts]
    made = [{"cell_type": "code", "source": lines if listed else "".join(lines)} for lines in comments]
    raw = json.dumps({"cells": made}, indent=2, ensure_ascii=escaped)
    source = source_of(raw)
    assert source.text == "".join(map("".join, comments))
    line = data.draw(st.integers(1, len(source.lines)))
    column = data.draw(st.integers(1, len(source.line(line))))
    span = Span(line, column, line, column + 1)
    placed = source.raw_span(span)
    assert source.code_span(placed) == span
    assert json.loads(f'"{source.file.segment(placed)}"') == source.segment(span)
    word = data.draw(WORD)
    changed = edited(raw, ((line, column + 1, line, column + 1), word)) if column > 1 else None
    if changed is not None:
        assert (
            source_of(changed).text
            == source.text[: source.offset(line, column + 1)] + word + source.text[source.offset(line, column + 1) :]
        )


def test_fixes_of_a_notebook_parse_and_say_the_same_as_those_of_a_script() -> None:
    """The fixes of the cells, joined, are the fixes that the same code gets in one file."""
    for path in SHAPES:
        source = Source.from_bytes(str(path), path.read_bytes())
        script = check_paths(["x.py"], Options(cache=False, overlay={"x.py": source.text.encode()}))
        book = check_paths([str(path)], Options(cache=False))
        one, _ = apply_fixes(script.sources["x.py"], [f for f in script.findings if applicable(f.fix, True)])
        other, _ = apply_fixes(source, [f for f in book.findings if applicable(f.fix, True)])
        fixed = Source.from_bytes(str(path), source.to_bytes(other))
        assert fixed.text == one
        ast.parse(one)


def test_shell_lines_need_no_sign_and_may_be_indented() -> None:
    book = notebook([" !speak --text 'hello' \\\n", "      --out out.wav\n"], ["pip install -q torch\n", "x = 1\n"])
    assert source_of(book).text == "pass\n#\npass\nx = 1\n"


def test_figures_that_a_notebook_shows_stay_open(tmp_path: Path) -> None:
    text = """import matplotlib.pyplot as plt


def train(model, loader, optimizer, epochs):
    for epoch in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        fig, ax = plt.subplots()
        ax.plot([epoch])
"""
    cell: dict[str, Any] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": text}
    book = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "train.ipynb").write_text(json.dumps(book))
    (tmp_path / "train.py").write_text(text)
    report = check_paths([str(tmp_path)], Options(select=("figure-not-closed",), cache=False))
    assert [Path(finding.path).name for finding in report.findings] == ["train.py"]


def test_what_a_cell_shows_is_not_thrown_away(tmp_path: Path) -> None:
    sources = ["import torch\nrows = torch.rand(4, 4)", "rows.cuda()", "rows.cuda()\nprint(rows.mean())"]
    book = {
        "cells": [
            {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}
            for source in sources
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (tmp_path / "moves.ipynb").write_text(json.dumps(book))
    report = check_paths([str(tmp_path)], Options(select=("discarded-detach",), cache=False))
    assert [finding.cell for finding in report.findings] == [3]
