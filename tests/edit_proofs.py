"""What each verb of `memlint.edits` must do to a program, said a second time on the plain syntax tree."""

from __future__ import annotations

import ast
import copy
import io
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from memlint import edits
from memlint.rule import Fix
from memlint.source import Source

Blocks = list[tuple[list[ast.stmt], ast.AST]]


def blocks(tree: ast.AST) -> Blocks:
    """Every list of statements below ``tree``, with its owner."""
    return [
        (block, owner)
        for owner in ast.walk(tree)
        for name in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(owner, name, None), list) and block
    ]


def twin(tree: ast.Module, node: ast.AST, other: ast.Module) -> ast.AST:
    """The node of ``other``, a copy of ``tree``, that stands where ``node`` does."""
    pairs = zip(ast.walk(tree), ast.walk(other), strict=True)
    return next(copied for original, copied in pairs if original is node)


class Swap(ast.NodeTransformer):
    """Puts what ``make`` returns in the place of one expression."""

    def __init__(self, node: ast.AST, make: Callable[[ast.expr], ast.expr]) -> None:
        self.node = node
        self.make = make

    def visit(self, node: ast.AST) -> ast.AST:
        """Swap the node, or look below it."""
        if node is self.node:
            assert isinstance(node, ast.expr)
            return self.make(node)
        return self.generic_visit(node)


def expression(text: str) -> ast.expr:
    """The tree of an expression."""
    return ast.parse(text, mode="eval").body


def wrapped(source: Source, node: ast.expr) -> ast.Module:
    """The program with ``.detach()`` called on an expression."""
    tree = copy.deepcopy(source.tree)
    swap = Swap(twin(source.tree, node, tree), lambda old: ast.Call(ast.Attribute(old, "detach", ast.Load()), [], []))
    swap.visit(tree)
    return tree


def with_keyword(source: Source, call: ast.Call, name: str, value: str) -> ast.Module:
    """The program with a keyword argument set."""
    tree = copy.deepcopy(source.tree)
    new = twin(source.tree, call, tree)
    assert isinstance(new, ast.Call)
    for keyword in new.keywords:
        if keyword.arg == name:
            keyword.value = expression(value)
            return tree
    new.keywords.append(ast.keyword(name, expression(value)))
    return tree


def without_keyword(source: Source, call: ast.Call, name: str) -> ast.Module:
    """The program with a keyword argument gone."""
    tree = copy.deepcopy(source.tree)
    new = twin(source.tree, call, tree)
    assert isinstance(new, ast.Call)
    new.keywords = [keyword for keyword in new.keywords if keyword.arg != name]
    return tree


def without_call(source: Source, call: ast.Call) -> ast.Module:
    """The program with the receiver of a method call in the call's place."""
    tree = copy.deepcopy(source.tree)

    def receiver(old: ast.expr) -> ast.expr:
        assert isinstance(old, ast.Call) and isinstance(old.func, ast.Attribute)
        return old.func.value

    Swap(twin(source.tree, call, tree), receiver).visit(tree)
    return tree


def block_changed(source: Source, statement: ast.stmt, change: Callable[[list[ast.stmt], int], None]) -> ast.Module:
    """The program with the block around a statement changed."""
    tree = copy.deepcopy(source.tree)
    new = twin(source.tree, statement, tree)
    block = next(block for block, _ in blocks(tree) if any(member is new for member in block))
    change(block, next(index for index, member in enumerate(block) if member is new))
    return tree


def enclosed(source: Source, first: ast.stmt, count: int, header: str) -> ast.Module:
    """The program with ``count`` statements put in a block."""

    def change(block: list[ast.stmt], index: int) -> None:
        (shell,) = ast.parse(f"{header}\n    pass").body
        assert isinstance(shell, ast.With)
        shell.body = block[index : index + count]
        block[index : index + count] = [shell]

    return block_changed(source, first, change)


def deleted(source: Source, statement: ast.stmt) -> ast.Module:
    """The program without a statement."""

    def change(block: list[ast.stmt], index: int) -> None:
        del block[index]
        if not block:
            block.append(ast.Pass())

    tree = block_changed(source, statement, change)
    return ast.Module([], []) if len(source.tree.body) == 1 and statement in source.tree.body else tree


def inserted(source: Source, statement: ast.stmt, text: str, after: int) -> ast.Module:
    """The program with statements written before (0) or after (1) one."""
    return block_changed(
        source, statement, lambda block, index: block.__setitem__(slice(index + after, index + after), parsed(text))
    )


def restated(source: Source, statement: ast.stmt, text: str) -> ast.Module:
    """The program with another statement in the place of one."""
    return block_changed(source, statement, lambda block, index: block.__setitem__(index, parsed(text)[0]))


def parsed(text: str) -> list[ast.stmt]:
    """The statements of a text."""
    return ast.parse(text).body


def moved(source: Source, statement: ast.stmt, places: int) -> ast.Module:
    """The program with a statement moved up by some places in its block."""
    return block_changed(source, statement, lambda block, index: block.insert(index - places, block.pop(index)))


def hoisted(source: Source, statement: ast.stmt, loop: ast.stmt) -> ast.Module:
    """The program with a statement taken out of its block and put before a loop."""
    tree = copy.deepcopy(source.tree)
    new, anchor = twin(source.tree, statement, tree), twin(source.tree, loop, tree)
    for block, _ in blocks(tree):
        if any(member is new for member in block):
            block[:] = [member for member in block if member is not new]
    for block, _ in blocks(tree):
        for index, member in enumerate(block):
            if member is anchor:
                assert isinstance(new, ast.stmt)
                block.insert(index, new)
                return tree
    raise AssertionError("the loop is gone")


def decorated(source: Source, function: ast.FunctionDef, decorator: str) -> ast.Module:
    """The program with a function's innermost decorator added."""
    tree = copy.deepcopy(source.tree)
    new = twin(source.tree, function, tree)
    assert isinstance(new, ast.FunctionDef)
    new.decorator_list.append(expression(decorator))
    return tree


def requests(source: Source) -> Iterator[tuple[Fix, Callable[[], ast.Module]]]:
    """Every single fix that could be asked of a file, with the program that it must lead to."""
    strings = [node for node in ast.walk(source.tree) if isinstance(node, ast.JoinedStr)]
    inside = {id(node) for string in strings for node in ast.walk(string)}
    for node in ast.walk(source.tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            yield edits.wrap(source, node, "{}.detach()"), partial(wrapped, source, node)
        if isinstance(node, ast.Call):
            fresh, value = "fresh", "a or b"
            yield edits.set_keyword(source, node, fresh, value), partial(with_keyword, source, node, fresh, value)
            if isinstance(node.func, ast.Attribute):
                yield edits.drop_call(source, node), partial(without_call, source, node)
            for name in [keyword.arg for keyword in node.keywords if keyword.arg]:
                yield edits.drop_keyword(source, node, name), partial(without_keyword, source, node, name)
                yield edits.set_keyword(source, node, name, "1"), partial(with_keyword, source, node, name, "1")
        if isinstance(node, ast.FunctionDef):
            yield edits.decorate(source, node, "torch.no_grad()"), partial(decorated, source, node, "torch.no_grad()")
        if isinstance(node, (ast.For, ast.While)):
            for inner in node.body:
                yield edits.hoist(source, inner, node), partial(hoisted, source, inner, node)
    for block, _ in blocks(source.tree):
        for index, statement in enumerate(block):
            yield edits.delete(source, statement), partial(deleted, source, statement)
            yield edits.restate(source, statement, "x.y = None"), partial(restated, source, statement, "x.y = None")
            text = "if a:\n    b()\nc = 1"
            yield edits.insert_before(source, statement, text), partial(inserted, source, statement, text, 0)
            yield edits.insert_after(source, statement, text), partial(inserted, source, statement, text, 1)
            if index > 1:
                yield edits.move(source, statement, block[index - 2]), partial(moved, source, statement, 2)
            for count in (1, 3):
                if index + count <= len(block):
                    header = "with torch.no_grad():"
                    fix = edits.enclose(source, statement, block[index + count - 1], header)
                    yield fix, partial(enclosed, source, statement, count, header)


def comments(text: str) -> Counter[str]:
    """The comments of a program."""
    tokens = tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


def prove(source: Source, fix: Fix, expected: Callable[[], ast.Module]) -> bool:
    """Whether the fix has edits; they are then shown to make just the program asked for, and to keep the layout."""
    resolved = edits.resolve(source, fix)
    if resolved is None:
        return False
    text = edits.apply_edits(source, resolved.edits)
    assert ast.dump(ast.parse(text)) == ast.dump(expected()), text
    assert source.text.endswith(("\n", "\r")) == text.endswith(("\n", "\r")) or not text.strip()
    ends = {line[len(line.rstrip("\r\n")) :] for line in source.lines if line.endswith(("\r", "\n"))}
    assert {line[len(line.rstrip("\r\n")) :] for line in Source("", text).lines if line.endswith(("\r", "\n"))} <= ends
    if fix.operations[0].verb not in ("delete", "drop_keyword", "set_keyword"):
        assert comments(text) == comments(source.text)
    return True
