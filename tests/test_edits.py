"""Fixes as text: what each verb writes, what it refuses, and proofs that it changes nothing else."""

from __future__ import annotations

import ast
import random
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest
from edit_proofs import enclosed, prove, requests, wrapped
from hypothesis import given, settings
from hypothesis import strategies as st

from memlint import edits
from memlint.check import with_deep_stack
from memlint.rule import Applicability, Edit, Fix, Span
from memlint.source import Source


def source_of(text: str) -> Source:
    """A file with this text, its margin taken off."""
    return Source("train.py", dedent(text))


def find(source: Source, text: str, occurrence: int = 0) -> ast.AST:
    """The outermost expression or statement that reads ``text``."""
    found = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.expr, ast.stmt)) and source.segment(source.span(node)) == text
    ]
    return [node for node in found if not isinstance(node, ast.Expr) or len(found) == 1][occurrence]


def statement(source: Source, start: str) -> ast.stmt:
    """The first statement whose text starts with ``start``."""
    return next(
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.stmt) and source.segment(source.span(node)).startswith(start)
    )


def fixed(source: Source, fix: Fix) -> str | None:
    """The text after the fix, or None where it has no edits."""
    resolved = edits.resolve(source, fix)
    return None if resolved is None else edits.apply_edits(source, resolved.edits)


@pytest.mark.parametrize(
    ("line", "expression", "template", "expected"),
    [
        ("total += loss", "loss", "{}.detach()", "total += loss.detach()"),
        ("xs.append(a + b)", "a + b", "{}.detach()", "xs.append((a + b).detach())"),
        ("t = (a + b)", "a + b", "{}.detach()", "t = (a + b).detach()"),
        ("t = -x", "-x", "{}.detach()", "t = (-x).detach()"),
        ("t = a if b else c", "a if b else c", "{}.detach()", "t = (a if b else c).detach()"),
        ("f(y := x)", "y := x", "{}.detach()", "f((y := x).detach())"),
        ("f(lambda: x)", "lambda: x", "g({})", "f(g(lambda: x))"),
        ("t = m(x)[0].mean()", "m(x)[0].mean()", "{}.item()", "t = m(x)[0].mean().item()"),
        ("t = 1", "1", "{}.real", "t = (1).real"),
        ("return(a + b)", "a + b", "{}.detach()", "return(a + b).detach()"),
        ("t = (a + b)", "a + b", "float({})", "t = float(a + b)"),
        ("f((x for x in y))", "(x for x in y)", "list({})", None),
        ("t = u * x", "x", "{} + 1", "t = u * (x + 1)"),
        ("t = x", "x", "{} + 1", "t = x + 1"),
        ("f(*xs)", "*xs", "{}.detach()", None),
        ("t = 1", "t", "{}.detach()", None),
        ('f(f"{loss}")', "loss", "{}.detach()", None),
        ("a = 1; t += loss", "loss", "{}.detach()", "a = 1; t += loss.detach()"),
        ("if a: t += loss", "loss", "{}.detach()", "if a: t += loss.detach()"),
        (
            "é = 'ü', '\N{GRINNING FACE}', loss  # ß",
            "loss",
            "{}.detach()",
            "é = 'ü', '\N{GRINNING FACE}', loss.detach()  # ß",
        ),
    ],
)
def test_wrap(line: str, expression: str, template: str, expected: str | None) -> None:
    source = source_of(f"def f():\n    {line}\n")
    text = fixed(source, edits.wrap(source, find(source, expression), template))
    assert text == (None if expected is None else f"def f():\n    {expected}\n")


def test_await_is_parenthesised() -> None:
    source = source_of("async def f():\n    return await g()\n")
    text = fixed(source, edits.wrap(source, find(source, "await g()"), "{}.detach()"))
    assert text == "async def f():\n    return (await g()).detach()\n"


def test_wraps_inside_each_other_compose() -> None:
    source = source_of("t = a + b.c\n")
    inner = edits.wrap(source, find(source, "b.c"), "{}.detach()")
    outer = edits.wrap(source, find(source, "a + b.c"), "float({})")
    assert fixed(source, inner + outer) == fixed(source, outer + inner) == "t = float(a + b.c.detach())\n"


def test_replace_parenthesises_for_its_surroundings() -> None:
    source = source_of("t = 2 * f(x)\n")
    assert fixed(source, edits.replace(source, find(source, "f(x)"), "a + b")) == "t = 2 * (a + b)\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b()\n", "a = None\n"),
        ("if x: a.b()  # why\n", "if x: a = None  # why\n"),
        (
            "for x in y:\n    # over\n    c(); a.b(); d()  # why\n",
            "for x in y:\n    # over\n    c(); a = None; d()  # why\n",
        ),
        ("a.b(  # lost\n)\n", None),
    ],
)
def test_restate_keeps_the_line(text: str, expected: str | None) -> None:
    source = source_of(text)
    assert fixed(source, edits.restate(source, statement(source, "a.b"), "a = None")) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("f()", "f(k=True)"),
        ("f(a)", "f(a, k=True)"),
        ("f(a, )", "f(a, k=True, )"),
        ("f(a, k=False, b=1)", "f(a, k=True, b=1)"),
        ("f(*a)", "f(*a, k=True)"),
        ("f(**kw)", None),
        ("f(k=False, **kw)", "f(k=True, **kw)"),
        ("f(x for x in y)", None),
        ("f(\n    a,  # one\n    b,  # two\n)", "f(\n    a,  # one\n    b,  # two\n    k=True,\n)"),
        ("f(\n    a,  # one\n    b  # two\n)", "f(\n    a,  # one\n    b,  # two\n    k=True\n)"),
        ("f(\n    a\n)", "f(\n    a,\n    k=True\n)"),
        ("f(\n    a,\n    # own line\n)", "f(\n    a,\n    # own line\n    k=True,\n)"),
        ("f(a,\n  b)", "f(a,\n  b,\n  k=True)"),
        ("f(\n    a, b,\n)", "f(\n    a, b, k=True,\n)"),
        ("f(  # why\n    a,\n)", "f(  # why\n    a,\n    k=True,\n)"),
    ],
)
def test_set_keyword(call: str, expected: str | None) -> None:
    source = source_of(f"y = {call}  # end\n")
    text = fixed(source, edits.set_keyword(source, find(source, call), "k", "True"))
    assert text == (None if expected is None else f"y = {expected}  # end\n")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("f(k=1)", "f()"),
        ("f(k=1,)", "f()"),
        ("f(a, k=1)", "f(a)"),
        ("f(a, k=1,)", "f(a,)"),
        ("f(k=1, b=2)", "f(b=2)"),
        ("f(a, k=1, b=2)", "f(a, b=2)"),
        ("f(a, k=1, **kw)", "f(a, **kw)"),
        ("f(a)", None),
        ("f(\n    a,  # one\n    k=1,  # gone\n    b=2,  # two\n)", "f(\n    a,  # one\n    b=2,  # two\n)"),
        ("f(\n    a,  # one\n    k=1,\n)", "f(\n    a,  # one\n)"),
        ("f(\n    a,  # one\n    k=1\n)", "f(\n    a  # one\n)"),
        ("f(\n    a,\n    k=1,\n    # on b\n    b=2,\n)", "f(\n    a,\n    # on b\n    b=2,\n)"),
        ("f(a,\n  k=1)", "f(a)"),
        ("f(a, k=1,\n  b=2)", "f(a,\n  b=2)"),
        ("f(\n    k=1,\n)", "f()"),
        ("f(k=1,\n  b=2)", "f(b=2)"),
        ("f(k=1,  # kept\n  b=2)", "f(  # kept\n  b=2)"),
        ("f(a, k=1,  # kept\n  b=2)", "f(a,  # kept\n  b=2)"),
        ("f(\n    a, k=1,\n)", "f(\n    a,\n)"),
        ("f(\n    a,\n    # kept\n    k=1,\n    b=2,\n)", "f(\n    a,\n    # kept\n    b=2,\n)"),
    ],
)
def test_drop_keyword(call: str, expected: str | None) -> None:
    source = source_of(f"y = {call}  # end\n")
    text = fixed(source, edits.drop_keyword(source, find(source, call), "k"))
    assert text == (None if expected is None else f"y = {expected}  # end\n")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("x.to(d)", "x"),
        ('f(x.a(1)).to("cuda")', "f(x.a(1))"),
        ("(a + b).cuda()", "(a + b)"),
        ("(x\n  .cuda())", "(x)"),
        ("f(\n    a,  # one\n).to(d)", "f(\n    a,  # one\n)"),
        ("(x  # one\n  .cuda())", None),
        ("x.to(\n    d,  # one\n)", None),
        ("f(x)", None),
    ],
)
def test_drop_call(call: str, expected: str | None) -> None:
    source = source_of(f"y = {call}  # end\n")
    node = source.tree.body[0]
    assert isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    text = fixed(source, edits.drop_call(source, node.value))
    assert text == (None if expected is None else f"y = {expected}  # end\n")


def test_enclose_keeps_strings_comments_and_continuations() -> None:
    source = source_of('''\
        def f(model, loader):
            """Doc."""
            # every batch
            for x in loader:  # here
                # inside
                s = """one
          two"""

                y = model(
                    x,
                )

                @wraps
                def g():
                    return \\
                        s
                # last
            return y
        ''')
    loop = statement(source, "for")
    text = fixed(source, edits.enclose(source, loop, loop, "with torch.no_grad():"))
    assert text == dedent('''\
        def f(model, loader):
            """Doc."""
            # every batch
            with torch.no_grad():
                for x in loader:  # here
                    # inside
                    s = """one
          two"""

                    y = model(
                        x,
                    )

                    @wraps
                    def g():
                        return \\
                        s
                    # last
            return y
        ''')
    assert prove(
        source, edits.enclose(source, loop, loop, "with g():"), partial(enclosed, source, loop, 1, "with g():")
    )


@pytest.mark.parametrize(
    ("body", "first", "last"),
    [
        ("if a: b()", "b()", "b()"),
        ("a(); b()", "b()", "b()"),
        ("a(); b()\n    c()", "a()", "c()"),
        ("yield a", "yield a", "yield a"),
        ("for x in y:\n        yield x", "for", "for"),
        ("if a:\n        b(await c)", "if", "if"),
        ("async for x in y: b(x)", "async for", "async for"),
        ("async with x: b()", "async with", "async with"),
        ("x = [b async for b in c]", "x", "x"),
        ("'doc'\n    a()", "'doc'", "a()"),
        ("b()\n    a()", "a()", "b()"),
        ("if a:\n        b()\n    elif c:\n        d()", "if c", "if c"),
    ],
)
def test_enclose_refuses(body: str, first: str, last: str) -> None:
    source = source_of(f"async def f():\n    {body}\n")
    nodes = [node for node in ast.walk(source.tree) if isinstance(node, ast.stmt)]

    def pick(start: str) -> ast.stmt:
        return next(node for node in nodes if ast.unparse(node).startswith(start))

    assert fixed(source, edits.enclose(source, pick(first), pick(last), "with g():")) is None


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("try:\n    a()\nexcept E as e:\n    b()  # it\nelse:\n    c()\nfinally:\n    d()\n", "b()"),
        ("try:\n    a()\nfinally:\n    b()\n", "b()"),
        ("match x:\n    case [1, *y]:\n        a()\n    case _:\n        b()\n", "b()"),
        ("async def f():\n    async with a:\n        async for x in y:\n            b()\n", "b()"),
        ("if a:\n    a()\nelif c:\n    b()\nelse:\n    d()\n", "b()"),
        ("class A:\n    @d\n    # why\n    def f(self):\n        pass\n\n    b()\n", "b()"),
        ("while a:\n    if c: d()\n    b(); c()\n", None),
        ("if a:\n\tb()", "b()"),
        ("if a:\n  b()  # x\n  \n  # end\n# out\n", "b()"),
    ],
)
def test_blocks_of_every_kind(text: str, inner: str | None) -> None:
    source = Source("a.py", text)
    node = statement(source, inner or "b()")
    fixes = (
        edits.enclose(source, node, node, "with g():"),
        edits.delete(source, node),
        edits.insert_after(source, node, "z()"),
    )
    for fix, expected in (each for each in requests(source) if each[0].operations in [fix.operations for fix in fixes]):
        prove(source, fix, expected)
    assert [fixed(source, fix) is not None for fix in fixes] == [inner is not None] * 3


def test_documentation_stays_documentation() -> None:
    source = source_of("def f():\n    'doc'\n    a()\n")
    doc = statement(source, "'doc'")
    assert fixed(source, edits.insert_before(source, doc, "b()")) is None
    assert fixed(source, edits.move(source, statement(source, "a()"), doc)) is None
    assert fixed(source, edits.insert_after(source, doc, "b()")) == "def f():\n    'doc'\n    b()\n    a()\n"


def test_a_lambda_or_inner_generator_may_be_enclosed() -> None:
    source = source_of("def f():\n    def g():\n        yield 1\n    return g\n")
    fix = edits.enclose(source, statement(source, "def g"), statement(source, "return"), "with h():")
    assert fixed(source, fix) == "def f():\n    with h():\n        def g():\n            yield 1\n        return g\n"


@pytest.mark.parametrize("above", ["@staticmethod", "@classmethod", "@property", "@a.setter", "@overload\n    @b(1)"])
def test_decorate_goes_below_all_others(above: str) -> None:
    source = source_of(f"class A:\n    # note\n    {above}\n    # more\n    def f(x): ...\n")
    text = fixed(source, edits.decorate(source, statement(source, "def"), "torch.no_grad()"))
    assert text is not None
    (function,) = ast.parse(text).body[0].body  # type: ignore[attr-defined]
    assert ast.unparse(function.decorator_list[-1]) == "torch.no_grad()"
    assert text.replace("    @torch.no_grad()\n", "") == source.text


def test_decorate_refuses_async_and_what_is_there() -> None:
    source = source_of("async def f(): ...\n@torch.no_grad()\ndef g(): ...\ndef h():\n    yield\n")
    assert fixed(source, edits.decorate(source, statement(source, "async"), "torch.no_grad()")) is None
    assert fixed(source, edits.decorate(source, statement(source, "def g"), "torch.no_grad()")) is None
    assert fixed(source, edits.decorate(source, statement(source, "def h"), "torch.no_grad()")) is not None


def test_hoist_takes_its_comments_along() -> None:
    source = source_of("""\
        a = 1

        # train
        for e in range(3):
            for x in y:
                # fresh
                # each time
                opt = Adam(  # why
                    ps,
                )

                opt.step()
        """)
    loop = statement(source, "for e")
    assert fixed(source, edits.hoist(source, statement(source, "opt = "), loop)) == dedent("""\
        a = 1

        # fresh
        # each time
        opt = Adam(  # why
            ps,
        )
        # train
        for e in range(3):
            for x in y:
                opt.step()
        """)


@pytest.mark.parametrize(
    "body",
    [
        "opt = Adam()",
        "if a:\n        opt = Adam()\n        b()",
        "opt = Adam(); b()",
        "pass\nelse:\n    opt = Adam()\n    b()",
    ],
)
def test_hoist_refuses(body: str) -> None:
    source = source_of(f"for x in y:\n    {body}\n")
    assert fixed(source, edits.hoist(source, statement(source, "opt"), statement(source, "for"))) is None


def test_move_and_delete() -> None:
    source = source_of("def f():\n    a()\n\n    # on b\n    b()  # it\n    c()\n")
    call_a, call_b, call_c = (statement(source, name) for name in ("a()", "b()", "c()"))
    moved = "def f():\n    # on b\n    b()  # it\n    a()\n\n    c()\n"
    assert fixed(source, edits.move(source, call_b, call_a)) == moved
    assert fixed(source, edits.delete(source, call_b)) == "def f():\n    a()\n\n    # on b\n    # it\n    c()\n"
    assert fixed(source, edits.delete(source, call_c)) == "def f():\n    a()\n\n    # on b\n    b()  # it\n"
    alone = source_of("if x:\n    # why\n    a()\nb()\n")
    assert fixed(alone, edits.delete(alone, statement(alone, "a()"))) == "if x:\n    # why\n    pass\nb()\n"


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("b()  # why", "    # why\n"),
        ("b()  # memlint: ignore[noop-del]", ""),
        ("b()  # noqa: F821", ""),
        ("b()  # type: ignore[name-defined]", ""),
        ("b()  # types of all", "    # types of all\n"),
        ("b(  # one\n        1,  # noqa\n        # two\n    )  # three", "    # one\n    # two\n    # three\n"),
        ("for x in y:  # one\n        # two\n        b()  # three", "    # one\n    # two\n    # three\n"),
    ],
)
def test_comments_outlive_their_statement_where_they_spoke_to_people(line: str, left: str) -> None:
    for before, after in (("    a()\n", "    c()\n"), ("    a()\n", ""), ("", "    c()\n")):
        source = source_of(f"def f():\n{before}    {line}\n{after}")
        gone = statement(source, line[:2])
        assert fixed(source, edits.delete(source, gone)) == f"def f():\n{before}{left}{after}"
    source = source_of(f"def f():\n    {line}\n")
    assert fixed(source, edits.delete(source, statement(source, line[:2]))) == f"def f():\n{left}    pass\n"


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("unit", ["  ", "    ", "\t", "   "], ids=["two", "four", "tab", "three"])
def test_a_new_block_is_one_step_deeper_at_any_depth(unit: str, depth: int) -> None:
    head = "".join(f"{unit * n}if x{n}:\n" for n in range(depth))
    source = Source("a.py", f"{head}{unit * depth}a()\n{unit * depth}b()\n")
    call = statement(source, "a()")
    given, inner = unit * depth, unit * (depth + 1)
    assert fixed(source, edits.enclose(source, call, call, "with y:")) == (
        f"{head}{given}with y:\n{inner}a()\n{given}b()\n"
    )
    assert fixed(source, edits.insert_before(source, call, "if y:\n    for z in y:\n        pass")) == (
        f"{head}{given}if y:\n{inner}for z in y:\n{inner}{unit}pass\n{given}a()\n{given}b()\n"
    )


def test_insert_uses_the_indentation_of_the_file() -> None:
    source = source_of("def f():\n\tif a:\n\t\tb()\n")
    text = fixed(source, edits.insert_after(source, statement(source, "b()"), "if c:\n    d()"))
    assert text == "def f():\n\tif a:\n\t\tb()\n\t\tif c:\n\t\t\td()\n"
    text = fixed(source, edits.insert_before(source, statement(source, "b()"), "c()"))
    assert text == "def f():\n\tif a:\n\t\tc()\n\t\tb()\n"


# The spelling of torch.no_grad where `here()` stands, and whether `import torch` is added; None where it must not be.
SPELLINGS = {
    "import torch\nhere()": ("torch.no_grad", False),
    "import torch.nn\nhere()": ("torch.no_grad", False),
    "import torch as th\nhere()": ("th.no_grad", False),
    "from torch import no_grad\nhere()": ("no_grad", False),
    "from torch import no_grad as ng\nhere()": ("ng", False),
    "from torch import nn\nhere()": ("torch.no_grad", True),
    "import torch.nn as nn\nhere()": ("torch.no_grad", True),
    "from torch import nn\ndef f(torch):\n    here()": None,
    "import torch\ndef f(torch):\n    here()": None,
    "import torch\ndef f():\n    torch = 1\n    here()": None,
    "import torch as th\ndef f():\n    for th in x:\n        here()": ("torch.no_grad", True),
    "import torch\ntorch = patched(torch)\nhere()": None,
    "try:\n    import torch\nexcept ImportError:\n    torch = None\ndef f():\n    here()": ("torch.no_grad", False),
    "def f():\n    import torch\n    here()": ("torch.no_grad", False),
    "def f():\n    import torch\ndef g():\n    here()": None,
    "def f():\n    from torch import nn\n    here()": None,
    "if TYPE_CHECKING:\n    import torch\ndef f():\n    here()": None,
    "class A:\n    torch = 1\n    def f(self):\n        here()": ("torch.no_grad", True),
    "def f(model):\n    here()": ("torch.no_grad", True),
    "def f():\n    here()\n    import torch": None,
    "from .torch import no_grad\nfrom torch import nn\nhere()": ("torch.no_grad", True),
}


@pytest.mark.parametrize("text", SPELLINGS)
def test_qualified(text: str) -> None:
    source = source_of(text + "\n")
    answer = edits.qualified(source, "torch.no_grad", find(source, "here()"))
    assert (answer and (answer[0], bool(answer[1].operations))) == SPELLINGS[text]


def test_a_decorator_is_spelled_outside_its_function() -> None:
    source = source_of("import torch\ndef f(torch): ...\n")
    answer = edits.qualified(source, "torch.no_grad", statement(source, "def"))
    assert answer is not None and answer[0] == "torch.no_grad"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"""Doc."""\nfrom __future__ import annotations\nimport os\n\nx = 1\n', None),
        ("import os\nfrom torch import nn\n", "import os\nimport torch\nfrom torch import nn\n"),
        ("from __future__ import annotations\n", "from __future__ import annotations\nimport torch\n"),
        ('"""Doc."""\nx = 1\n', '"""Doc."""\n\nimport torch\n\nx = 1\n'),
        ("#!/usr/bin/python\n# coding: utf-8\nx = 1\n", "#!/usr/bin/python\n# coding: utf-8\nimport torch\n\nx = 1\n"),
        ("import os", "import os\nimport torch\n"),
        ("", "import torch\n"),
        ("import os\r\nx = 1", "import os\r\nimport torch\r\nx = 1"),
        ("if a:\n    import torch.nn\n", "import torch\n\nif a:\n    import torch.nn\n"),
    ],
)
def test_ensure_import(before: str, after: str | None) -> None:
    source = Source("a.py", before)
    expected = before.replace("import os\n", "import os\nimport torch\n") if after is None else after
    assert fixed(source, edits.ensure_import("torch")) == expected


def test_operations_of_one_fix_compose() -> None:
    source = source_of("""\
        from torch import nn
        def f(model, loader):
            for x in loader:
                opt = Adam()
                opt.zero_grad(set_to_none=False)
                total += model(x)
        """)
    function, loop = statement(source, "def"), statement(source, "for")
    spelling, imported = edits.qualified(source, "torch.no_grad", loop) or pytest.fail("no spelling")
    fix = (
        edits.enclose(source, loop, loop, f"with {spelling}():")
        + imported
        + edits.hoist(source, statement(source, "opt = "), loop)
        + edits.drop_keyword(source, find(source, "opt.zero_grad(set_to_none=False)"), "set_to_none")
        + edits.wrap(source, find(source, "model(x)"), "{}.detach()")
        + edits.decorate(source, function, "timed")
        + imported
    )
    # The loop is asked to be in two places by then: the hoist no longer finds it.
    assert fixed(source, fix) is None
    kept = tuple(operation for operation in fix.operations if operation.verb != "hoist")
    assert fixed(source, Fix("", kept)) == dedent("""\
        import torch
        from torch import nn
        @timed
        def f(model, loader):
            with torch.no_grad():
                for x in loader:
                    opt = Adam()
                    opt.zero_grad()
                    total += model(x).detach()
        """)


def test_edits_are_small_and_apart() -> None:
    source = source_of("def f():\n    total += loss\n    for x in y:\n        g(x)\n")
    wrap = edits.resolve(source, edits.wrap(source, find(source, "loss"), "{}.detach()"))
    assert wrap is not None and wrap.edits == (Edit(Span(2, 18, 2, 18), ".detach()"),)
    loop = statement(source, "for")
    enclose = edits.resolve(source, edits.enclose(source, loop, loop, "with h():"))
    assert enclose is not None and [edit.span.line for edit in enclose.edits] == [3, 3, 4]
    assert all(edit.span[:2] == edit.span[2:] for edit in enclose.edits)
    both = edits.apply_edits(source.text, (*enclose.edits, *wrap.edits))
    assert both == "def f():\n    total += loss.detach()\n    with h():\n        for x in y:\n            g(x)\n"


def test_resolve_keeps_title_and_applicability() -> None:
    source = source_of("t += loss\n")
    fix = edits.wrap(source, find(source, "loss"), "{}.detach()").titled("let go").safe()
    resolved = edits.resolve(source, fix)
    assert resolved is not None and (resolved.title, resolved.applicability) == ("let go", Applicability.SAFE)
    plain = Fix("words only")
    assert edits.resolve(source, plain) is plain


def test_overlapping_edits_are_an_error() -> None:
    with pytest.raises(ValueError, match="overlap"):
        edits.apply_edits("abc", (Edit(Span(1, 1, 1, 3), ""), Edit(Span(1, 2, 1, 4), "")))


def test_a_fix_that_changes_nothing_is_none() -> None:
    source = source_of("f(k=1)\n")
    assert fixed(source, edits.set_keyword(source, find(source, "f(k=1)"), "k", "1")) is None


def test_byte_order_mark_stays() -> None:
    data = b"\xef\xbb\xbf" + "t += lüss\r\n".encode()
    source = Source.from_bytes("a.py", data)
    text = fixed(source, edits.wrap(source, find(source, "lüss"), "{}.detach()"))
    assert text is not None and source.to_bytes(text) == b"\xef\xbb\xbf" + "t += lüss.detach()\r\n".encode()


def test_libcst_is_imported_only_to_resolve() -> None:
    code = "import sys, memlint.edits; sys.exit('libcst' in sys.modules or 'memlint.surgery' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])


# Pieces of programs, with a tab for one step of indentation, and `~` where a name may have other letters.
PIECES = (
    "x~ = f(a, b~=1)",
    "x += y - 1  # n~te",
    "s = '''one\n\ttwo ~\nthree'''",
    "g(\n\ta,  # one\n\tk=-1,  # two\n)",
    "h(a,\n  k='~', *c, **d)",
    "a(); b(k=1)",
    "y = a if b else (\n\tc\n\t+ d\n)",
    "if a: b(~)",
    "# alone ~",
    "",
    "t = a \\\n\t+ b",
)
OWNERS = (
    "for i in f(~):",
    "while a:",
    "with a as b:",
    "def f(a, b=c):",
    "class A:",
    "if f(k=1):  # why",
    "@d\ndef g():",
)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Programs with odd layout: tabs, narrow steps, DOS line ends, no final newline, letters outside ASCII."""

    def block(depth: int) -> list[str]:
        lines: list[str] = []
        for _ in range(draw(st.integers(1, 3))):
            if depth < 3 and draw(st.booleans()):
                lines += [*draw(st.sampled_from(OWNERS)).split("\n")]
                lines += ["\t" + line for line in block(depth + 1)]
            piece = draw(st.sampled_from(PIECES))
            lines += [piece] if "'''" in piece else piece.split("\n")
        return [*lines, "pass"]

    text = "\n".join(block(0)) + draw(st.sampled_from(("", "\n")))
    text = text.replace("~", draw(st.sampled_from(("", "é", "字"))))
    text = text.replace("\t", draw(st.sampled_from(("\t", " ", "  ", "    "))))
    return text.replace("\n", draw(st.sampled_from(("\n", "\r\n"))))


@settings(max_examples=60, deadline=None)
@given(programs(), st.randoms(use_true_random=False))
def test_fixes_do_just_what_they_say(text: str, choice: random.Random) -> None:
    source = Source("a.py", text)
    asked = list(requests(source))
    for fix, expected in choice.sample(asked, min(6, len(asked))):
        prove(source, fix, expected)


def test_most_requests_on_real_code_are_met() -> None:
    source = Source.read(textwrap.__file__)
    chosen = random.Random(7).sample(list(requests(source)), 30)
    assert sum(prove(source, fix, expected) for fix, expected in chosen) > 20


@settings(max_examples=40, deadline=None)
@given(st.text("aé字\N{GRINNING FACE}", min_size=1, max_size=6), st.sampled_from(("\n", "\r\n")))
def test_columns_are_characters(letters: str, newline: str) -> None:
    source = Source("a.py", f"s = '{letters}'{newline}t = '{letters}', loss{newline}")
    node = find(source, "loss")
    assert isinstance(node, ast.expr)
    assert prove(source, edits.wrap(source, node, "{}.detach()"), partial(wrapped, source, node))


@pytest.mark.parametrize(
    ("shape", "least"),
    [
        ("a" + ".b()" * 20_000, "a" + ".b()" * 50),
        ("a" + " + a" * 20_000, "a" + " + a" * 200),
        ("a" + " and a" * 20_000, "a" + " and a" * 200),
        ("'x' " * 20_000, "'x' " * 200),
        ("not " * 3_000 + "a", "not " * 200 + "a"),
    ],
    ids=["chain", "terms", "conditions", "strings", "unary"],
)
def test_what_libcst_would_choke_on_goes_without_a_fix(shape: str, least: str) -> None:
    """It nests these, takes time and memory by the square, and overflows its stack: that would end the process."""

    def attempt() -> list[bool]:
        found = []
        for value in (shape, least):
            source = Source("a.py", f"def f(x):\n    g(x)\n    y = g(x, ({value}))\n")
            (function,) = source.tree.body
            assert isinstance(function, ast.FunctionDef)
            last = function.body[1]
            assert isinstance(last, ast.Assign)
            for fix in (
                edits.set_keyword(source, last.value, "a", "b"),
                edits.enclose(source, function.body[0], last, "with x:"),
            ):
                found.append(edits.resolve(source, fix) is not None)
        return found

    assert with_deep_stack(attempt) == [False, False, True, True]
