"""What becomes of the tensors that a name holds: whether all that is ever wanted of them is wanted on the host."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memlint.extract import Class, Definition
from memlint.lifetimes import Lifetimes
from memlint.trace import note
from memlint.values import chain

if TYPE_CHECKING:
    from memlint.project import Project

JOINS = frozenset(
    f"torch.{n}" for n in "cat concat concatenate stack vstack hstack dstack column_stack row_stack".split()
)
# Element by element, a reduction or another shape: as well done on the host.
CHEAP = frozenset(
    """detach float double half bfloat16 long int bool type squeeze unsqueeze view reshape flatten ravel permute
    transpose t T mT contiguous clone softmax sigmoid log_softmax exp log log2 log10 sqrt square abs round floor ceil
    clamp clamp_min clamp_max neg eq ne gt lt ge le logical_and logical_or logical_not unbind split chunk expand_as
    isnan isfinite nan_to_num data real imag""".split()
)
REDUCTIONS = frozenset(
    """mean sum std var max min amax amin argmax argmin any all prod median norm count_nonzero nanmean nansum
    topk""".split()
)
PARTS = frozenset("values indices items keys copy get pop popleft popitem".split())
FACTS = frozenset("shape dtype device ndim size dim numel nelement is_cuda element_size requires_grad".split())
FILLS = frozenset("append extend add insert clear update setdefault appendleft put reverse remove".split())
TELLS = frozenset("len isinstance type id print str repr bool hasattr callable".split())
PASSES = frozenset("list tuple sorted reversed set iter next dict sum max min".split())
WRAPPERS = frozenset({"tqdm", "trange", "track"})
DEPTH = 4  # functions that a value is followed through
STEPS = 400

Path = tuple[int, ...]
"""Which part of what is looked at holds the tensors: ``(1, 0)`` is the first element of the second."""


@dataclass
class Fate:
    """What a search has met. ``moves``: conversions to the host; ``numbers``: those of what had been reduced before."""

    moves: list[tuple[Definition, ast.AST]] = field(default_factory=list)
    numbers: list[ast.AST] = field(default_factory=list)
    moved: bool = False  # a conversion that makes no sense for what is on the host already
    tensors: bool = False  # joined by something that takes tensors only, none of them zero-dimensional
    lost: ast.AST | None = None  # the first use that is not on the host, or that nobody knows

    @property
    def hosted(self) -> bool:
        """Whether all uses are conversions to the host, of more than numbers."""
        return self.lost is None and bool(self.moves)


class Search:
    """One search over the uses of a value, through assignments, loops, returns and the project's own functions."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.fate = Fate()
        self.seen: set[tuple[ast.AST, Path, ast.AST | None]] = set()
        self.names: set[tuple[Definition, str, Path, ast.AST | None, ast.AST | None]] = set()
        self.calls: list[tuple[Definition, ast.Call, Definition]] = []  # callee, call, caller: entered and not left
        self.outward = 0  # returns followed into callers
        self.read: dict[Definition, Lifetimes] = {}

    @property
    def call(self) -> ast.Call | None:
        """The call through which the search came to where it is."""
        return self.calls[-1][1] if self.calls else None

    def lifetimes(self, where: Definition) -> Lifetimes:
        found = self.read.get(where)
        if found is None:
            found = self.read[where] = Lifetimes(where.node)
        return found

    def parent(self, where: Definition, node: ast.AST) -> ast.AST | None:
        return self.lifetimes(where).parents.get(node)

    def lose(self, node: ast.AST) -> None:
        if self.fate.lost is None:
            self.fate.lost = node

    def name(
        self, where: Definition, text: str, path: Path = (), reduced: bool = False, binding: ast.AST | None = None
    ) -> None:
        """Follow every use of a name, or of ``name["key"]``, that sees what a binding gave it."""
        key = (where, text, path, self.call, binding)
        if key in self.names or self.fate.lost is not None:
            return
        self.names.add(key)
        if text.startswith("self."):
            self.attribute(where, text, path, reduced)
            return
        root, _, item = text.partition("[")
        if any(root in inner.text for inner in where.functions.values()) or (
            where is where.module.top
            and any(root in d.text and root not in d.parameters for d in where.module.definitions if d is not where)
        ):
            self.lose(where.node)  # a closure, or a function that reads the global, may do anything with it
            return
        uses = self.lifetimes(where).uses(root, binding)
        self.uses(where, uses, item.rstrip("]"), path, reduced)

    def uses(self, where: Definition, uses: list[ast.expr], key: str, path: Path, reduced: bool) -> None:
        for node in uses:
            parent = self.parent(where, node)
            part = key and isinstance(parent, ast.Subscript) and parent.value is node
            if part and isinstance(parent.slice, ast.Constant):  # type: ignore[union-attr]
                above = self.parent(where, parent)  # type: ignore[arg-type]
                filled = isinstance(above, ast.Attribute) and above.attr in FILLS
                if ast.unparse(parent.slice) == key and isinstance(parent.ctx, ast.Load) and not filled:  # type: ignore[union-attr]
                    self.follow(where, parent, path, reduced)  # type: ignore[arg-type]
                continue
            if isinstance(parent, ast.Attribute) and parent.attr in FILLS:
                continue
            self.follow(where, node, path, reduced)

    def attribute(self, where: Definition, text: str, path: Path, reduced: bool) -> None:
        """Follow an attribute through all methods of its class."""
        cls = where.cls
        attr = text.split(".", 1)[1].partition("[")[0]
        if cls is None or "." in attr:
            self.lose(where.node)
            return
        family = self.project.names.family(cls)
        classes = {family, *self.project.names.derived(family)}
        key = text.partition("[")[2].rstrip("]")
        for definition in self.project.mentioning(attr):
            note(definition)
            if definition.cls not in classes:
                self.lose(definition.node)
                return
            me = definition.positional[0] if definition.bound else "self"
            uses = self.lifetimes(definition).loads.get(f"{me}.{attr}", [])
            self.uses(definition, uses, key, path, reduced)

    def follow(self, where: Definition, node: ast.AST, path: Path = (), reduced: bool = False) -> None:
        """Follow one value from an expression that has it."""
        key = (node, path, self.call)
        if self.fate.lost is not None or key in self.seen:
            return
        self.seen.add(key)
        if len(self.seen) > STEPS:
            self.lose(node)
            return
        parent = self.parent(where, node)
        step = getattr(self, f"in_{type(parent).__name__.lower()}", None)
        if step is None:
            self.lose(node)
        else:
            step(where, node, parent, path, reduced)

    # ------------------------------------------------------------------ by what is around it

    def pass_on(self, where: Definition, node: ast.AST, parent: ast.AST, path: Path, reduced: bool) -> None:
        self.follow(where, parent, path, reduced)

    in_ifexp = in_starred = in_dict = in_unaryop = in_boolop = in_list = in_set = pass_on

    def ignore(self, where: Definition, node: ast.AST, parent: ast.AST, path: Path, reduced: bool) -> None:
        """What is only looked at, or thrown away."""

    in_expr = in_if = in_while = in_assert = in_delete = in_formattedvalue = in_raise = ignore

    def in_binop(self, where: Definition, node: ast.AST, parent: ast.BinOp, path: Path, reduced: bool) -> None:
        other = parent.right if parent.left is node else parent.left
        if isinstance(parent.op, ast.MatMult) or not _plain(other):
            self.lose(node)
        else:
            self.follow(where, parent, (), reduced)

    def in_compare(self, where: Definition, node: ast.AST, parent: ast.Compare, path: Path, reduced: bool) -> None:
        if all(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in parent.ops):
            return
        if all(_plain(e) for e in (parent.left, *parent.comparators) if e is not node):
            self.follow(where, parent, (), reduced)
        else:
            self.lose(node)

    def in_subscript(self, where: Definition, node: ast.AST, parent: ast.Subscript, path: Path, reduced: bool) -> None:
        if parent.value is not node:
            self.lose(node)
        elif isinstance(parent.ctx, ast.Load):
            index = parent.slice
            if path and isinstance(index, ast.Constant) and isinstance(index.value, int):
                if index.value != path[0]:
                    return
                path = path[1:]
            self.follow(where, parent, path, reduced)

    def in_tuple(self, where: Definition, node: ast.AST, parent: ast.Tuple, path: Path, reduced: bool) -> None:
        if any(isinstance(e, ast.Starred) for e in parent.elts):
            self.follow(where, parent, (), reduced)
        else:
            self.follow(where, parent, (parent.elts.index(node), *path), reduced)  # type: ignore[arg-type]

    def in_attribute(self, where: Definition, node: ast.AST, parent: ast.Attribute, path: Path, reduced: bool) -> None:
        attr = parent.attr
        call = self.parent(where, parent)
        called = isinstance(call, ast.Call) and call.func is parent
        result = call if called else parent
        assert result is not None
        if attr in FACTS or attr in FILLS:
            return
        if attr in CHEAP:
            self.follow(where, result, path, reduced)
        elif attr in REDUCTIONS:
            self.follow(where, result, (), True)
        elif attr in PARTS:
            self.follow(where, result, (1, *path) if attr == "items" else path, reduced)
        elif not called or not isinstance(call, ast.Call):
            self.lose(node)
        elif attr in ("cpu", "tolist", "item") or (attr == "to" and _host(call)):
            self.fate.moved = self.fate.moved or attr in ("cpu", "to")
            if reduced or attr == "item":
                self.fate.numbers.append(node)
            else:
                self.fate.moves.append((where, node))
        elif attr == "to" and call.args and "dtype" in ast.unparse(call.args[0]):
            self.follow(where, result, path, reduced)
        else:
            self.lose(node)

    def in_keyword(self, where: Definition, node: ast.AST, parent: ast.keyword, path: Path, reduced: bool) -> None:
        call = self.parent(where, parent)
        if isinstance(call, ast.Call) and parent.arg is not None:
            self.argument(where, node, call, path, reduced, parent.arg)
        else:
            self.lose(node)

    def in_call(self, where: Definition, node: ast.AST, parent: ast.Call, path: Path, reduced: bool) -> None:
        if node is parent.func:
            self.lose(node)
        else:
            self.argument(where, node, parent, path, reduced, None)

    def argument(
        self, where: Definition, node: ast.AST, call: ast.Call, path: Path, reduced: bool, keyword: str | None
    ) -> None:
        position = call.args.index(node) if keyword is None else -1  # type: ignore[arg-type]
        meaning = self.callee(where, call)
        if isinstance(meaning, Definition):
            self.enter(where, meaning, call, position, keyword, path, reduced)
            return
        if isinstance(meaning, str):
            meaning = self.project.library.canonical(meaning)
        name = meaning if isinstance(meaning, str) else chain(call.func)
        last = name.rpartition(".")[2]
        if name in JOINS:
            self.fate.tensors = self.fate.tensors or last not in ("stack", "hstack", "vstack", "dstack")
            self.follow(where, call, (), reduced)
        elif name.startswith("torch.") and name.count(".") == 1 and last in CHEAP | REDUCTIONS and position == 0:
            self.follow(where, call, (), reduced or last in REDUCTIONS)
        elif isinstance(call.func, ast.Attribute) and last in ("append", "extend", "appendleft", "add", "insert"):
            self.container(where, call.func.value, path, reduced)
        elif last in WRAPPERS and position == 0:
            self.follow(where, call, path, reduced)
        elif isinstance(call.func, ast.Name) and not isinstance(meaning, Class):
            self.builtin(where, node, call, last, position, path, reduced)
        else:
            self.lose(node)

    def callee(self, where: Definition, call: ast.Call) -> object | None:
        """What a call calls: by its name, else by what the reading of the function around it has found out."""
        meaning = self.project.names.resolve(call.func, where)
        flow = self.project.flow(where) if meaning is None else None
        for event in flow.events if flow is not None else ():
            if event.verb == "call" and event.site is call and isinstance(event.callee, Definition):
                return event.callee
        return meaning

    def builtin(
        self, where: Definition, node: ast.AST, call: ast.Call, name: str, position: int, path: Path, reduced: bool
    ) -> None:
        if name in TELLS:
            return
        if name in ("float", "int"):
            self.fate.numbers.append(node)
        elif name == "zip":
            self.follow(where, call, path if isinstance(node, ast.Starred) else (position, *path), reduced)
        elif name == "enumerate":
            self.follow(where, call, (1, *path), reduced)
        elif name in PASSES:
            self.follow(where, call, path, reduced)
        else:
            self.lose(node)

    def enter(
        self, where: Definition, callee: Definition, call: ast.Call, position: int, keyword: str | None, path: Path,
        reduced: bool,
    ) -> None:  # fmt: skip
        """Follow an argument into a function of the project."""
        names = callee.positional[1:] if callee.bound else callee.positional
        starred = any(isinstance(a, ast.Starred) for a in call.args)
        name = keyword if keyword in callee.parameters else names[position] if 0 <= position < len(names) else None
        if name is None or starred or len(self.calls) >= DEPTH or any(d is callee for d, _, _ in self.calls):
            self.lose(call)
            return
        self.calls.append((callee, call, where))
        self.name(callee, name, path, reduced)
        self.calls.pop()

    # ------------------------------------------------------------------ where it goes on under another name

    def in_assign(self, where: Definition, node: ast.AST, parent: ast.Assign, path: Path, reduced: bool) -> None:
        for target in parent.targets:
            self.bind(where, target, path, reduced, parent)

    def in_annassign(self, where: Definition, node: ast.AST, parent: ast.AnnAssign, path: Path, reduced: bool) -> None:
        self.bind(where, parent.target, path, reduced, parent)

    def in_augassign(self, where: Definition, node: ast.AST, parent: ast.AugAssign, path: Path, reduced: bool) -> None:
        self.container(where, parent.target, (), reduced)

    def in_namedexpr(self, where: Definition, node: ast.AST, parent: ast.NamedExpr, path: Path, reduced: bool) -> None:
        self.bind(where, parent.target, path, reduced, parent)
        self.follow(where, parent, path, reduced)

    def in_for(self, where: Definition, node: ast.AST, parent: ast.For, path: Path, reduced: bool) -> None:
        if node is parent.iter:
            self.bind(where, parent.target, path, reduced, parent)

    def in_comprehension(
        self, where: Definition, node: ast.AST, parent: ast.comprehension, path: Path, reduced: bool
    ) -> None:
        if node is parent.iter:
            self.bind(where, parent.target, path, reduced, parent)

    def in_listcomp(self, where: Definition, node: ast.AST, parent: ast.AST, path: Path, reduced: bool) -> None:
        self.follow(where, parent, path, reduced)

    in_setcomp = in_generatorexp = in_dictcomp = in_listcomp

    def bind(self, where: Definition, target: ast.expr, path: Path, reduced: bool, binding: ast.AST) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            plain = not any(isinstance(e, ast.Starred) for e in target.elts)
            if path and plain and 0 <= path[0] < len(target.elts):
                self.bind(where, target.elts[path[0]], path[1:], reduced, binding)
            else:
                for element in target.elts:
                    self.bind(where, element, (), reduced, binding)
        elif isinstance(target, ast.Starred):
            self.bind(where, target.value, (), reduced, binding)
        elif isinstance(target, ast.Subscript):
            self.container(where, target, path, reduced)
        elif isinstance(target, ast.Attribute) and not chain(target).startswith("self."):
            self.lose(target)  # what an object of the caller's holds, anybody may read
        else:
            self.name(where, chain(target), path, reduced, binding)

    def container(self, where: Definition, target: ast.expr, path: Path, reduced: bool = False) -> None:
        """Follow what a container holds that was bound before: ``x.append(…)``, ``x[k] = …``, ``x += …``."""
        item = ""
        if isinstance(target, ast.Subscript):
            item = f"[{ast.unparse(target.slice)}]" if isinstance(target.slice, ast.Constant) else ""
            target = target.value
        name = chain(target)
        if not name or ("." in name and not name.startswith("self.")):
            self.lose(target)
            return
        self.name(where, name + item, path, reduced, self.lifetimes(where).reaching(name, target))

    def in_return(self, where: Definition, node: ast.AST, parent: ast.Return, path: Path, reduced: bool) -> None:
        if self.calls and self.calls[-1][0] is where:  # it came in through this call, and goes out through it
            _, call, caller = entered = self.calls.pop()
            self.follow(caller, call, path, reduced)
            self.calls.append(entered)
            return
        callers = self.project.callers(where)
        if not callers or where in self.project.addressed or where in self.project.crowded or self.outward >= DEPTH:
            self.lose(node)
            return
        self.outward += 1
        for flow, event in callers:
            self.follow(flow.definition, event.site, path, reduced)
        self.outward -= 1


def fate_of(project: Project, where: Definition, target: ast.expr) -> Fate:
    """What becomes of all that the container ``target`` holds, as it is where that expression stands."""
    search = Search(project)
    search.container(where, target, ())
    return search.fate


def fate_of_value(project: Project, where: Definition, node: ast.AST) -> Fate:
    """What becomes of the value of an expression."""
    search = Search(project)
    search.follow(where, node)
    return search.fate


def _host(call: ast.Call) -> bool:
    """Whether ``.to(…)`` names the host."""
    values = (*call.args[:1], *(k.value for k in call.keywords if k.arg == "device"))
    return any("'cpu'" in ast.unparse(v) for v in values)


def _plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant))
