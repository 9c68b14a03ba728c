"""Bytes, text, positions, notebooks; and that nothing a file may hold brings memlint down."""

from __future__ import annotations

import ast
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memlint.rule import Span
from memlint.source import Source, SourceError


def test_positions_are_characters_from_one() -> None:
    source = Source.from_bytes("a.py", "é = 'ü' + yé\n\tz = 1".replace("\n\t", "\n").encode())
    node = source.tree.body[0]
    assert isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp)
    span = source.span(node.value.right)
    assert span == Span(1, 11, 1, 13)
    assert source.segment(span) == "yé"


@given(
    st.lists(st.sampled_from(["x = 'é'", "", "# ü𝄞", "f(𝕒, b)", "y = '''a"]), max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_every_node_is_found_by_its_span(lines: list[str], end: str) -> None:
    source = Source.from_bytes("a.py", end.join(lines).encode())
    assert "".join(source.lines) == source.text
    try:
        tree = source.tree
    except SourceError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            segment = source.segment(source.span(node))
            assert ast.dump(ast.parse(segment, mode="eval").body) == ast.dump(node)


def test_encodings_and_marks() -> None:
    latin = "# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1")
    source = Source.from_bytes("a.py", latin)
    assert "é" in source.text
    assert source.to_bytes(source.text) == latin
    marked = b"\xef\xbb\xbfx = 1\r\n"
    source = Source.from_bytes("a.py", marked)
    assert source.text == "x = 1\r\n"
    assert source.to_bytes(source.text) == marked
    with pytest.raises(SourceError, match="latin-1"):
        Source.from_bytes("a.py", latin).to_bytes("# coding: latin-1\n'€𝄞'")
    assert Source.from_bytes("a.py", b"x = 1\n\n# coding: nonsense\n").encoding == "utf-8"
    assert Source.from_bytes("a.py", b"x = 1\n# coding: nonsense\n").encoding == "utf-8"


@pytest.mark.parametrize(
    ("cookie", "encoding"),
    [
        ("utf-8-unix", "utf-8"),
        ("UTF_8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("latin-1-dos", "latin-1"),
        ("iso-8859-1", "latin-1"),
        ("iso-8859-15", "iso-8859-15"),
        ("koi8-r", "koi8-r"),
        ("shift_jis", "shift_jis"),
    ],
)
def test_cookies_are_read_as_python_reads_them(cookie: str, encoding: str) -> None:
    data = f"# -*- coding: {cookie} -*-\nx = 'a'\n".encode()
    source = Source.from_bytes("a.py", data)
    assert source.encoding == encoding
    assert source.to_bytes(source.text) == data
    assert compile(data, "a.py", "exec")
    marked = b"\xef\xbb\xbf" + data
    if encoding == "utf-8":
        source = Source.from_bytes("a.py", marked)
        assert source.to_bytes(source.text) == marked


@pytest.mark.parametrize(
    ("data", "reason", "line", "column"),
    [
        (b"# coding: nonsense\n", "unknown encoding", 1, 1),
        (b"x = 1\ny = '\xff'\n", "cannot be decoded", 2, 6),
        (b"x = 1\r\xc3\xa9 = '\xff'\r", "cannot be decoded", 2, 6),
        (b"x = 1\n\0", "null", 2, 1),
        ("x = 1\ré = '\0'".encode(), "null", 2, 6),
        (b"x = 1\nif x:\ny\n", "cannot be parsed as Python", 3, 1),
        ("\r\né = 'ü' + $\r\n".encode(), "cannot be parsed as Python", 2, 11),
        ("x = 'é' + (".encode(), "was never closed", 1, 11),
        (b"\xef\xbb\xbfx = = 1", "cannot be parsed", 1, 5),
        (b"print 'two'\n", "cannot be parsed", 1, 1),
        (b"x = " + b"(" * 3000 + b")" * 3000, "nested", 1, 205),
        (b"x = " + b"-" * 100_000 + b"1\n", "nested too deeply", 1, 1),
    ],
)
def test_reasons(data: bytes, reason: str, line: int, column: int) -> None:
    with pytest.raises(SourceError) as caught:
        _ = Source.from_bytes("a.py", data).tree
    assert reason in caught.value.reason
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    ("since", "text"),
    [
        ((3, 11), "try:\n    f()\nexcept* OSError:\n    pass\n"),
        ((3, 12), "type Pair[T] = tuple[T, list[T]]\n"),
        ((3, 12), "def f[T: (int, str)](x: T) -> T:\n    return x\n\n\nclass A[*Ts]:\n    pass\n"),
        ((3, 12), 'x = f"{a["b"]} and {c["d"]}"\n'),
        ((3, 12), "x = f\"{'\\n'.join(a)}\"\n"),
        ((3, 13), "'type X = int'\nclass A[T = int]:\n    pass\n"),
        ((3, 14), "try:\n    f()\nexcept OSError, ValueError:\n    print(f'{x}')\n"),
        ((3, 14), "x = t'{y}'\n"),
        ((3, 15), "lazy import torch\nlazy from os import path\n"),
        ((3, 15), "x = [*each for each in lists]\n"),
    ],
)
def test_a_newer_python_is_named_that_reads_a_text(since: tuple[int, int], text: str) -> None:
    if sys.version_info >= since:
        pytest.skip("this Python reads it")
    with pytest.raises(SourceError) as caught:
        _ = Source("a.py", text).tree
    assert caught.value.reason.endswith(f"; Python {since[0]}.{since[1]} and newer can read it")
    with pytest.raises(SourceError) as caught:  # and none where the text is broken besides
        _ = Source("a.py", f"{text}x = = 1\n").tree
    assert "can read it" not in caught.value.reason


@pytest.mark.parametrize(
    "line",
    [
        "print 'two'",
        "if x: print x",
        "exec 'x = 1' in names",
        "raise ValueError, 'two'",
        "x = `y`",
        "if x <> y: pass",
        "os.chmod(path, 0644)",
        "x = 10L",
        "x = ur'a'",
        "f = lambda (a, b): a",
        "def f(a, (b, c)): pass",
    ],
)
def test_python_2_is_named_where_nothing_else_reads_a_line(line: str) -> None:
    for above, named in (("x = 1", True), ("x = f'{y}'", False)):
        with pytest.raises(SourceError) as caught:
            _ = Source("a.py", f"{above}\n{line}\n").tree
        assert caught.value.reason.endswith("; this is Python 2") is named


def test_a_very_long_line_costs_no_more_than_its_length() -> None:
    """Patterns that say who reads a text go through it once."""
    for part in ("[*", "except ", "def f(", "class a[", "type X[", "f'{", "= f'", "a.b, ", "`", "\t"):
        started = time.process_time()
        with pytest.raises(SourceError):
            _ = Source("a.py", "$ " + part * (400_000 // len(part))).tree
        assert time.process_time() - started < 30  # seconds; one or two, where a quadratic one takes an hour


def test_reading_names_the_reason(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        Source.read(str(tmp_path / "gone.py"))
    with pytest.raises(SourceError, match="a folder"):
        Source.read(str(tmp_path))
    with pytest.raises(SourceError, match="null"):
        Source.read("a\0.py")


def notebook(*cells: tuple[str, list[str] | str]) -> bytes:
    """A notebook as Jupyter writes it."""
    made: list[dict[str, Any]] = [{"cell_type": kind, "metadata": {}, "source": source} for kind, source in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1).encode()


def test_notebook_cells_become_one_text() -> None:
    raw = notebook(
        ("markdown", ["# BAD\n", "text"]),
        ("code", ["%matplotlib inline\n", "x = !ls \\\n", "  more\n", "if x:\n", "    !pip install y\n", "z = 1"]),
        ("code", "%%bash\nls\n"),
        ("code", ["a = 4 \\\n", "% 3\n", "help?"]),
    )
    source = Source.from_bytes("a.ipynb", raw)
    assert source.text == "pass\nx = None\n#\nif x:\n    pass\nz = 1\n#\n#\na = 4 \\\n% 3\npass\n"
    assert source.tree
    assert [source.cell_of(n) for n in range(1, 9)] == [2] * 6 + [3] * 2
    raw_lines = raw.decode().split("\n")
    assert '"z = 1"' in raw_lines[source.raw_line(6) - 1]
    assert "bash" in raw_lines[source.raw_line(7) - 1]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "Expecting"),
        (b"[]", "no notebook"),
        (b'{"cells": 1}', "no notebook"),
        (b'{"worksheets": 3}', "no notebook"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_notebook_is_told(data: bytes, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        Source.from_bytes("a.ipynb", data)


def test_findings_in_a_notebook_stand_at_the_file_s_line(project: Path, memlint: Run) -> None:
    raw = notebook(("markdown", "x"), ("code", ["%time x\n", "y = 'BAD'"]))
    (project / "a.ipynb").write_bytes(raw)
    result = memlint("check", "--output-format", "json")
    (found,) = json.loads(result.out)["findings"]
    assert "BAD" in raw.decode().split("\n")[found["line"] - 1]
    assert found["cell"] == 2
    assert found["fix"]["edits"]
    assert "(cell 2, line 2)" in memlint("check", "--output-format", "concise").out
    memlint("check", "--fix")
    assert (project / "a.ipynb").read_bytes() == raw.replace(b"BAD", b"GOOD")


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass"))))
@example(b"\x0c")
@example(b"\r")
@example(b"\\")
@example(b"# memlint: ignore[\n")
@example(b"# coding: undefined\n")
@example(b"# coding: idna\n\xff")
@example(b"\xef\xbb\xbf# coding: latin-1\n")
def test_any_bytes_give_a_tree_or_a_reason(data: bytes) -> None:
    for name in ("a.py", "a.ipynb"):
        try:
            source = Source.from_bytes(name, data)
            for node in ast.walk(source.tree):
                if isinstance(node, ast.expr | ast.stmt):
                    source.segment(source.span(node))
        except SourceError as error:
            assert error.reason
            assert error.line >= 1


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
@example(b"x = '" + b"a" * 100_000 + b"'  # memlint: ignore\n")
@example(b"x = 1  # memlint: ignore[a\r\ry = '''\n")
def test_any_bytes_give_findings_or_one_cannot_read(data: bytes) -> None:
    from memlint.check import Options, check_paths

    for name in ("fuzz.py", "fuzz.ipynb"):
        report = check_paths([name], Options(cache=False, overlay={name: data}))
        assert not report.errors
        assert sum(f.code == "MEM000" for f in report.findings) <= 1
