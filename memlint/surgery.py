"""What each verb of `memlint.edits` does to a LibCST tree. Imported only when somebody wants to see a fix's text.

A `Patient` is the tree of one stretch of whole statements. A verb finds its nodes by position and books a change on
them; `Patient.operate` carries all of them out in one walk, so the verbs of one fix need not know of each other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import libcst as cst
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider

from memlint.rule import Span

Statement = cst.BaseStatement
Place = tuple[int, int]

_HOLE = "__memlint_hole__"

# Comments that speak to a tool about the line they stand on, and would speak of other lines elsewhere.
_DIRECTIVE = re.compile(
    r"#\s*(?:memlint|noqa|type|pylint|pyright|mypy|ruff|fmt|isort|yapf|pragma|nosec|noinspection)\b"
)

# What a dot, a call or a subscript can follow as it stands, and so needs parentheses nowhere.
_PRIMARY = (
    cst.Name,
    cst.Attribute,
    cst.Call,
    cst.Subscript,
    cst.List,
    cst.Dict,
    cst.Set,
    cst.ListComp,
    cst.DictComp,
    cst.SetComp,
    cst.BaseString,
    cst.Ellipsis,
)
# What may stand bare on neither side: Python itself asks for the parentheses in some of these places.
_FRAGILE = (cst.GeneratorExp, cst.Yield, cst.NamedExpr, cst.Tuple)
_ROOMY = (cst.Arg, cst.Assign, cst.AnnAssign, cst.AugAssign, cst.Expr, cst.Return, cst.Element, cst.Index)


class UnknownShape(Exception):
    """The syntax is not one that a verb knows how to change: the finding goes without a fix."""


@dataclass
class Block:
    """The statements of one block while they are changed: each beside the original it came from, if it had one."""

    statements: list[tuple[Statement | None, Statement]]
    footer: list[cst.EmptyLine]

    def index(self, original: Statement) -> int:
        """Where the statement stands now. Raises `UnknownShape` where another verb has taken it away."""
        for index, (known, _) in enumerate(self.statements):
            if known is original:
                return index
        raise UnknownShape("statement is gone")

    def take(self, original: Statement) -> Statement:
        """Remove a statement together with the comments over it; blank lines over it go to the one that follows."""
        index = self.index(original)
        _, statement = self.statements.pop(index)
        blanks, _ = _split_blanks(statement)
        if index < len(self.statements) and index > 0:
            known, following = self.statements[index]
            have, rest = _split_blanks(following)
            self.statements[index] = known, _led_by(following, [*(have or blanks), *rest])
        elif index < len(self.statements):
            known, following = self.statements[index]
            self.statements[index] = known, _led_by(following, _split_blanks(following)[1])
        return statement

    def put_before(self, anchor: Statement, statement: Statement, *, own: Statement | None = None) -> None:
        """Insert a statement before ``anchor`` and under the blank lines that stood there."""
        index = self.index(anchor)
        known, following = self.statements[index]
        blanks, comments = _split_blanks(following)
        self.statements[index] = known, _led_by(following, comments)
        self.statements.insert(index, (own, _led_by(statement, [*blanks, *_split_blanks(statement)[1]])))


@dataclass
class Patient:
    """The tree of one stretch of statements, and the changes booked on it.

    ``first`` is the line of the file at which ``text`` starts; ``unit`` is one step of indentation. Raises
    `UnknownShape` where LibCST cannot read the text or would not give it back as it is.
    """

    text: str
    first: int
    unit: str
    newline: str
    nodes: dict[cst.CSTNode, list[Callable[[Any], Any]]] = field(default_factory=lambda: defaultdict(list))
    blocks: dict[cst.CSTNode, list[Callable[[Block], None]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.config = cst.PartialParserConfig(default_indent=self.unit, default_newline=self.newline)
        try:
            wrapper = MetadataWrapper(cst.parse_module(self.text, self.config), unsafe_skip_copy=True)
        except (cst.ParserSyntaxError, RecursionError) as error:
            raise UnknownShape(str(error)) from None
        self.module = wrapper.module
        if self.module.code != self.text:
            raise UnknownShape("text does not survive LibCST")
        self.parents = wrapper.resolve(ParentNodeProvider)
        self._by_start: dict[Place, list[tuple[Place, cst.CSTNode]]] = defaultdict(list)
        for node, position in wrapper.resolve(PositionProvider).items():
            start, end = position.start, position.end
            self._by_start[start.line, start.column].append(((end.line, end.column), node))

    def expression(self, span: Span) -> cst.BaseExpression:
        """The expression that covers just ``span``."""
        line = 1 - self.first
        end = (span.end_line + line, span.end_column - 1)
        for place, node in self._by_start[span.line + line, span.column - 1]:
            if place == end and isinstance(node, cst.BaseExpression):
                if self._inside(node, (cst.FormattedString, cst.Annotation)):
                    raise UnknownShape("expression inside a string or an annotation")
                return node
        raise UnknownShape("no such expression")

    def call(self, span: Span) -> cst.Call:
        """The call that covers just ``span``."""
        node = self.expression(span)
        if not isinstance(node, cst.Call):
            raise UnknownShape("not a call")
        return node

    def statement(self, span: Span) -> Statement:
        """The statement that starts where ``span`` does and has its lines to itself."""
        for _, node in self._by_start[span.line - self.first + 1, span.column - 1]:
            if isinstance(node, cst.SimpleStatementLine) and len(node.body) > 1:
                raise UnknownShape("statements joined by semicolons")
            if isinstance(node, cst.BaseStatement) and isinstance(self.parent(node), (cst.IndentedBlock, cst.Module)):
                return node
        raise UnknownShape("no such statement")

    def small_statement(self, span: Span) -> cst.BaseSmallStatement:
        """The simple statement that starts where ``span`` does; it may share its line with others."""
        for _, node in self._by_start[span.line - self.first + 1, span.column - 1]:
            if isinstance(node, cst.BaseSmallStatement):
                return node
        raise UnknownShape("no such simple statement")

    def parent(self, node: cst.CSTNode) -> cst.CSTNode:
        """The node that holds ``node``."""
        return self.parents[node]

    def _inside(self, node: cst.CSTNode, kinds: tuple[type[cst.CSTNode], ...]) -> bool:
        while not isinstance(node, cst.Module):
            node = self.parents[node]
            if isinstance(node, kinds):
                return True
        return False

    def parse(self, text: str) -> cst.BaseExpression:
        """An expression that a fix brings along."""
        return cast(cst.BaseExpression, _parsed(lambda: cst.parse_expression(text, self.config)))

    def parse_statements(self, text: str) -> Sequence[Statement]:
        """Statements that a fix brings along, in the file's own indentation and line ends."""
        text = text.replace("\r\n", "\n").replace("\n", self.newline)
        module = _parsed(lambda: cst.parse_module(text.rstrip("\r\n") + self.newline, self.config))
        # Said outright: LibCST takes the first indentation of a text, here a whole margin, for its step.
        unit = self.unit

        class Indented(cst.CSTTransformer):
            def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock) -> Any:
                return updated_node if updated_node.indent is not None else updated_node.with_changes(indent=unit)

        return cast("Sequence[Statement]", cast(cst.Module, module.visit(Indented())).body)

    def operate(self) -> str:
        """The text with every booked change made."""
        patient = self

        class Surgeon(cst.CSTTransformer):
            def on_leave(self, original_node: Any, updated_node: Any) -> Any:
                if original_node in patient.blocks:
                    updated_node = _changed_block(original_node, updated_node, patient.blocks[original_node])
                for change in patient.nodes.get(original_node, ()):
                    updated_node = change(updated_node)
                return updated_node

        return cast(cst.Module, _parsed(lambda: self.module.visit(Surgeon()))).code


def _parsed(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (cst.ParserSyntaxError, cst.CSTValidationError, RecursionError) as error:
        raise UnknownShape(str(error)) from None


def _changed_block(original: Any, updated: Any, changes: list[Callable[[Block], None]]) -> Any:
    block = Block(list(zip(original.body, updated.body, strict=True)), list(updated.footer))
    for change in changes:
        change(block)
    return updated.with_changes(body=[statement for _, statement in block.statements], footer=block.footer)


def _split_blanks(statement: Statement) -> tuple[list[cst.EmptyLine], list[cst.EmptyLine]]:
    """The blank lines that a statement's leading lines begin with, and the rest."""
    lines: list[cst.EmptyLine] = list(cast(Any, statement).leading_lines)
    count = next((index for index, line in enumerate(lines) if line.comment), len(lines))
    return lines[:count], lines[count:]


def _comments(node: cst.CSTNode) -> list[cst.Comment]:
    """The comments in a piece of syntax, in order."""
    found: list[cst.Comment] = []

    class Collecting(cst.CSTVisitor):
        def visit_Comment(self, node: cst.Comment) -> None:
            found.append(node)

    node.visit(Collecting())
    return found


def _led_by(statement: Statement, lines: Sequence[cst.EmptyLine]) -> Statement:
    return cast(Any, statement).with_changes(leading_lines=lines)  # type: ignore[no-any-return]


def _bracketed(expression: Any) -> Any:
    return expression.with_changes(lpar=[cst.LeftParen(), *expression.lpar], rpar=[*expression.rpar, cst.RightParen()])


def _unbracketed(expression: Any, parent: cst.CSTNode) -> Any:
    """The expression without the parentheses that those of a call make needless."""
    if not (isinstance(parent, cst.Arg) and expression.lpar) or isinstance(expression, _FRAGILE):
        return expression
    if expression.lpar[0].deep_equals(cst.LeftParen()) and expression.rpar[-1].deep_equals(cst.RightParen()):
        return expression.with_changes(lpar=expression.lpar[1:], rpar=expression.rpar[:-1])
    return expression


def _fit(expression: Any, parent: cst.CSTNode) -> Any:
    """The expression, in parentheses where it could not stand bare under ``parent``."""
    if isinstance(expression, _PRIMARY) or expression.lpar:
        return expression
    roomy = isinstance(parent, _ROOMY) and not isinstance(expression, _FRAGILE)
    return expression if roomy else _bracketed(expression)


def wrap(patient: Patient, spans: Sequence[Span], template: str) -> None:
    """Put an expression in the place of the ``{}`` of a template."""
    node = patient.expression(spans[0])
    if isinstance(node, cst.StarredElement):
        raise UnknownShape("starred")
    shell = _parsed(
        lambda: MetadataWrapper(
            cst.Module([cst.SimpleStatementLine([cst.Expr(patient.parse(template.replace("{}", _HOLE)))])])
        )
    )
    parents = shell.resolve(ParentNodeProvider)
    holes = [found for found in parents if isinstance(found, cst.Name) and found.value == _HOLE]
    if len(holes) != 1:
        raise UnknownShape("a template has one hole")
    whole = cast(Any, shell.module).body[0].body[0].value

    def change(updated: Any) -> Any:
        parent = parents[holes[0]]
        filled = whole.deep_replace(holes[0], _fit(_unbracketed(updated, parent), parent))
        return _fit(filled, patient.parent(node))

    patient.nodes[node].append(change)


def replace(patient: Patient, spans: Sequence[Span], text: str) -> None:
    """Write another expression in the place of one."""
    node = patient.expression(spans[0])
    new = patient.parse(text)
    patient.nodes[node].append(lambda updated: _fit(new, patient.parent(node)))


def restate(patient: Patient, spans: Sequence[Span], text: str) -> None:
    """Write another simple statement in the place of one."""
    statement = patient.small_statement(spans[0])
    new = patient.parse_statements(text)
    if len(new) != 1 or not isinstance(new[0], cst.SimpleStatementLine) or len(new[0].body) != 1:
        raise UnknownShape("not one simple statement")
    (small,) = new[0].body
    patient.nodes[statement].append(lambda updated: small.with_changes(semicolon=updated.semicolon))


def set_keyword(patient: Patient, spans: Sequence[Span], name: str, value: str) -> None:
    """Give a call a keyword argument, or another value to the one it has."""
    call = patient.call(spans[0])
    new = patient.parse(value)
    if not isinstance(new, _PRIMARY) and isinstance(new, _FRAGILE):
        new = _bracketed(new)
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == name:
            patient.nodes[arg].append(lambda updated: updated.with_changes(value=new))
            return
    if any(arg.star == "**" for arg in call.args):
        raise UnknownShape("the keyword may be among those passed on by **")
    if len(call.args) == 1 and isinstance(call.args[0].value, cst.GeneratorExp) and not call.args[0].value.lpar:
        raise UnknownShape("a bare generator must be the only argument")
    keyword = cst.Arg(
        new,
        cst.Name(name),
        equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )

    def change(updated: cst.Call) -> cst.Call:
        if not updated.args:
            return updated.with_changes(args=[keyword])
        *before, last = updated.args
        gap = before[-1].comma if before else None
        above = gap.whitespace_after if isinstance(gap, cst.Comma) else updated.whitespace_before_args
        if isinstance(last.comma, cst.Comma):
            tail = last.comma.whitespace_after
            ending = last.with_changes(comma=last.comma.with_changes(whitespace_after=_then(tail, above)))
            added = keyword.with_changes(comma=cst.Comma(whitespace_after=_bare(tail)))
        else:
            tail = last.whitespace_after_arg
            ending = last.with_changes(
                comma=cst.Comma(whitespace_after=_then(tail, above)), whitespace_after_arg=cst.SimpleWhitespace("")
            )
            added = keyword.with_changes(whitespace_after_arg=_bare(tail))
        return updated.with_changes(args=[*before, ending, added])

    patient.nodes[call].append(change)


def _bare(space: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    """The same line break without the comments before it."""
    if isinstance(space, cst.ParenthesizedWhitespace):
        end = space.first_line.with_changes(whitespace=cst.SimpleWhitespace(""), comment=None)
        return space.with_changes(first_line=end, empty_lines=[])
    return space


def _then(
    comments: cst.BaseParenthesizableWhitespace, layout: cst.BaseParenthesizableWhitespace
) -> cst.BaseParenthesizableWhitespace:
    """The comments of one gap, and the line break and indentation of another."""
    if not isinstance(layout, cst.ParenthesizedWhitespace):
        if not _commented(comments):
            return cst.SimpleWhitespace(" ")
        return comments
    if not isinstance(comments, cst.ParenthesizedWhitespace):
        return _bare(layout)
    return comments.with_changes(indent=layout.indent, last_line=layout.last_line)


def _commented(space: cst.BaseParenthesizableWhitespace) -> bool:
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return False
    return space.first_line.comment is not None or any(line.comment for line in space.empty_lines)


def drop_keyword(patient: Patient, spans: Sequence[Span], name: str) -> None:
    """Take a keyword argument out of a call, with its comma and the line it has to itself."""
    call = patient.call(spans[0])
    index = next((i for i, arg in enumerate(call.args) if arg.keyword and arg.keyword.value == name), None)
    if index is None:
        raise UnknownShape("no such keyword")

    def change(updated: cst.Call) -> cst.Call:
        args = list(updated.args)
        gone = args.pop(index)
        before = args[index - 1] if index else None
        lead = cast(cst.Comma, before.comma).whitespace_after if before else updated.whitespace_before_args
        ended = isinstance(gone.comma, cst.Comma)
        tail = gone.comma.whitespace_after if isinstance(gone.comma, cst.Comma) else gone.whitespace_after_arg
        if index < len(args):  # the next argument moves up: to its own line if it had one
            space = _joined(lead, tail) if isinstance(lead, cst.ParenthesizedWhitespace) else tail
        elif isinstance(lead, cst.ParenthesizedWhitespace):
            space = _joined(lead, tail, close=True)
        else:
            space = tail
        if before is None:
            if not args and not _commented(space):
                space = cst.SimpleWhitespace("")
            elif args and not isinstance(lead, cst.ParenthesizedWhitespace) and not _commented(tail):
                space = lead
            return updated.with_changes(args=args, whitespace_before_args=space)
        if index < len(args) or ended:
            comma = cast(cst.Comma, before.comma).with_changes(whitespace_after=space)
            args[index - 1] = before.with_changes(comma=comma)
        else:
            args[index - 1] = before.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=space)
        return updated.with_changes(args=args)

    patient.nodes[call].append(change)


def drop_call(patient: Patient, spans: Sequence[Span]) -> None:
    """Leave of a method call what the method is called on."""
    call = patient.call(spans[0])
    if not isinstance(call.func, cst.Attribute):
        raise UnknownShape("not a method call")
    if len(_comments(call)) > len(_comments(call.func.value)):
        raise UnknownShape("a comment in what goes")

    def change(updated: cst.Call) -> Any:
        receiver = cast(Any, updated.func).value
        around = {"lpar": [*updated.lpar, *receiver.lpar], "rpar": [*receiver.rpar, *updated.rpar]}
        return _fit(receiver.with_changes(**around), patient.parent(call))

    patient.nodes[call].append(change)


def _joined(
    lead: cst.ParenthesizedWhitespace, tail: cst.BaseParenthesizableWhitespace, *, close: bool = False
) -> cst.BaseParenthesizableWhitespace:
    """One gap out of the two around an argument that is gone: its own line's comment goes with it, the others stay."""
    if isinstance(tail, cst.ParenthesizedWhitespace):
        return lead.with_changes(
            empty_lines=[*lead.empty_lines, *tail.empty_lines], indent=tail.indent, last_line=tail.last_line
        )
    return tail if close and not _commented(lead) else lead


def enclose(patient: Patient, spans: Sequence[Span], header: str) -> None:
    """Put neighbouring statements in a compound statement such as a with-block."""
    first, last = patient.statement(spans[0]), patient.statement(spans[1])
    parent = patient.parent(first)
    if patient.parent(last) is not parent:
        raise UnknownShape("statements of two blocks")
    shell = cast(Any, patient.parse_statements(f"{header}{patient.newline}{patient.unit}pass")[0])
    body = cast("cst.IndentedBlock | cst.Module", parent).body
    start, end = body.index(cast(Any, first)), body.index(cast(Any, last))
    if start > end or any(
        isinstance(statement, cst.SimpleStatementLine) and len(statement.body) > 1
        for statement in body[start : end + 1]
    ):
        raise UnknownShape("statements joined by semicolons, or in no order")
    if any(_pauses(statement) for statement in body[start : end + 1]):
        raise UnknownShape("others would run inside the block while the function waits")
    if start == 0 and _is_docstring(first):
        raise UnknownShape("docstring")

    def change(block: Block) -> None:
        low, high = block.index(first), block.index(last)
        inside = [statement for _, statement in block.statements[low : high + 1]]
        lead = list(cast(Any, inside[0]).leading_lines)
        inside[0] = _led_by(inside[0], [])
        suite = cst.IndentedBlock(inside, header=shell.body.header, indent=patient.unit)
        block.statements[low : high + 1] = [(None, shell.with_changes(leading_lines=lead, body=suite))]

    patient.blocks[parent].append(change)


def _pauses(statement: cst.CSTNode) -> bool:
    """Whether a statement hands control to a generator's consumer, or to an event loop."""
    if isinstance(statement, (cst.Yield, cst.Await)):
        return True
    if isinstance(statement, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
        return False
    return getattr(statement, "asynchronous", None) is not None or any(map(_pauses, statement.children))


def _is_docstring(statement: Statement) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    small = statement.body[0]
    return isinstance(small, cst.Expr) and isinstance(small.value, cst.BaseString)


def decorate(patient: Patient, spans: Sequence[Span], decorator: str) -> None:
    """Put a decorator directly above ``def``, below those that are there."""
    function = patient.statement(spans[0])
    if not isinstance(function, cst.FunctionDef) or function.asynchronous is not None:
        raise UnknownShape("not a plain function")
    new = cst.Decorator(patient.parse(decorator))
    if any(old.decorator.deep_equals(new.decorator) for old in function.decorators):
        raise UnknownShape("decorated already")
    patient.nodes[function].append(lambda updated: updated.with_changes(decorators=[*updated.decorators, new]))


def hoist(patient: Patient, spans: Sequence[Span]) -> None:
    """Move a simple statement out of the loops around it, to stand before the outermost of those named."""
    statement, loop = patient.statement(spans[0]), patient.statement(spans[1])
    inner, outer = patient.parent(statement), patient.parent(loop)
    if not isinstance(statement, cst.SimpleStatementLine) or not isinstance(inner, cst.IndentedBlock):
        raise UnknownShape("not a simple statement of a block")
    if len(inner.body) == 1:
        raise UnknownShape("the body would be empty")
    block: cst.CSTNode = inner
    while block is not outer:
        owner = patient.parent(block)
        if not isinstance(owner, (cst.For, cst.While, cst.With)) or owner.body is not block:
            raise UnknownShape("not every iteration comes by the statement")
        block = patient.parent(owner)
        if owner is loop:
            break
    if block is not outer:
        raise UnknownShape("the loop is not around the statement")
    lifted: list[Statement] = []
    patient.blocks[inner].append(lambda block: lifted.append(block.take(statement)))
    patient.blocks[outer].append(lambda block: block.put_before(loop, lifted[0]))


def move(patient: Patient, spans: Sequence[Span]) -> None:
    """Move a statement before another of its block, its comments with it."""
    statement, anchor = patient.statement(spans[0]), patient.statement(spans[1])
    parent = patient.parent(statement)
    if statement is anchor or patient.parent(anchor) is not parent:
        raise UnknownShape("statements of two blocks")
    patient.blocks[parent].append(lambda block: block.put_before(anchor, block.take(statement), own=statement))


def delete(patient: Patient, spans: Sequence[Span]) -> None:
    """Take a statement away, and write ``pass`` where the block would be empty. Comments stay, on lines of their own,
    but for those that told a tool about the statement."""
    statement = patient.statement(spans[0])

    def change(block: Block) -> None:
        index = block.index(statement)
        _, gone = block.statements[index]
        inside = _comments(_led_by(gone, []))
        kept = [cst.EmptyLine(comment=comment) for comment in inside if not _DIRECTIVE.match(comment.value)]
        comments = [*_split_blanks(gone)[1], *kept]
        if len(block.statements) == 1 and isinstance(patient.parent(statement), cst.IndentedBlock):
            lines = [*cast(Any, gone).leading_lines, *kept]
            empty = cst.SimpleStatementLine([cst.Pass()], leading_lines=lines)
            block.statements[0] = (None, empty)
            return
        block.take(statement)
        if index < len(block.statements):
            known, following = block.statements[index]
            blanks, rest = _split_blanks(following)
            block.statements[index] = known, _led_by(following, [*blanks, *comments, *rest])
        else:
            block.footer[:0] = comments

    patient.blocks[patient.parent(statement)].append(change)


def insert_before(patient: Patient, spans: Sequence[Span], text: str) -> None:
    """Write statements before one, below the blank lines over it and above its comments."""
    anchor = patient.statement(spans[0])
    new = patient.parse_statements(text)

    def change(block: Block) -> None:
        for statement in new:
            block.put_before(anchor, statement)

    patient.blocks[patient.parent(anchor)].append(change)


def insert_after(patient: Patient, spans: Sequence[Span], text: str) -> None:
    """Write statements after one."""
    anchor = patient.statement(spans[0])
    new = patient.parse_statements(text)

    def change(block: Block) -> None:
        index = block.index(anchor) + 1
        block.statements[index:index] = [(None, statement) for statement in new]

    patient.blocks[patient.parent(anchor)].append(change)


VERBS: dict[str, Callable[..., None]] = {
    verb.__name__: verb
    for verb in (
        wrap,
        replace,
        restate,
        set_keyword,
        drop_keyword,
        drop_call,
        enclose,
        decorate,
        hoist,
        move,
        delete,
        insert_before,
        insert_after,
    )
}
