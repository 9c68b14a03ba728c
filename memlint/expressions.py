"""Expressions: the value that each has."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from memlint.calls import Calling
from memlint.extract import Class, Definition, Module
from memlint.facts import NOTHING, UNKNOWN, UNSET, Grad, Value
from memlint.reading import BUDGET
from memlint.values import CONTAINERS, EMPTY, LEAFY, Mode, Symbol, chain, join, of_file, together, written

MODULE_ATTRIBUTES = frozenset({"training", "parameters", "state_dict", "eval", "train", "to", "modules", "children"})
TENSOR_FACTS = frozenset("data shape dtype device grad T mT requires_grad grad_fn is_cuda ndim".split())
BUILTINS = frozenset(
    [
        "abs",
        "all",
        "any",
        "bool",
        "bytes",
        "callable",
        "dict",
        "divmod",
        "enumerate",
        "filter",
        "float",
        "format",
        "frozenset",
        "getattr",
        "hasattr",
        "hash",
        "id",
        "int",
        "isinstance",
        "issubclass",
        "iter",
        "len",
        "list",
        "map",
        "max",
        "min",
        "next",
        "object",
        "open",
        "pow",
        "print",
        "range",
        "repr",
        "reversed",
        "round",
        "set",
        "setattr",
        "slice",
        "sorted",
        "str",
        "sum",
        "super",
        "tuple",
        "type",
        "vars",
        "zip",
    ]
)


def _of_pair(owner: Value, attr: str) -> Value | None:
    """A part of what ``max(dim)``, ``sort()`` and their like return; None where it is something else."""
    if owner.items is not None and [item.kind for item in owner.items] == ["tensor", "indices"]:
        return owner.items[attr == "indices"]
    call = owner.site
    if owner.kind == "tensor" and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        if call.func.attr in ("max", "min", "median", "nanmedian") and call.args:
            return owner if attr == "values" else Value("indices", device=owner.device, site=call)
    return None


class Exit(Exception):
    """The budget of one walk is spent."""


class Evaluating(Calling):
    """The value of every kind of expression."""

    def eval(self, node: ast.expr) -> Value:
        self.steps += 1
        if self.steps > BUDGET:
            raise Exit
        handler = EXPRESSIONS.get(type(node))
        return handler(self, node) if handler is not None else UNKNOWN

    def meaning(self, node: ast.expr) -> object | None:
        """What a name or dotted name means beyond the function's own variables."""
        if type(node) is ast.Name:
            if node.id in self.env:
                return None
            return self.names.local(node.id, self.definition) or (node.id if node.id in BUILTINS else None)
        if type(node) is ast.Attribute:
            return self.names.attribute(self.meaning(node.value), node.attr)
        return None

    def do_name(self, node: ast.Name) -> Value:
        value = self.env.get(node.id)
        if value is not None:
            return value
        return self.named(node.id)

    def named(self, name: str) -> Value:
        closure = self.project.captured(self.definition, name)
        if closure is not None:
            return closure
        meaning = self.names.local(name, self.definition)
        if meaning is None:
            return Value("function", type=name) if name in BUILTINS else UNKNOWN
        return self.of_meaning(meaning, name)

    def of_meaning(self, meaning: object, name: str) -> Value:
        if isinstance(meaning, Definition):
            return Value("function", target=meaning)
        if isinstance(meaning, Class):
            return Value("class", type=meaning.full_name, target=meaning)
        if isinstance(meaning, str):
            return self.of_library(meaning)
        if isinstance(meaning, ast.expr):
            return self.project.global_read(self.names, self.module, self.definition, name, meaning)
        if isinstance(meaning, Module):
            return Value("namespace", target=meaning)
        return UNKNOWN

    def of_library(self, name: str) -> Value:
        row = self.library.lookup(name)
        if row is not None and row.attribute:
            return self.from_row(row, UNKNOWN, [], {}, None)
        if row is not None and row.kind:
            return Value("class", type=self.library.canonical(name))
        return Value("function" if row is not None else "library", type=self.library.canonical(name))

    def do_attribute(self, node: ast.Attribute) -> Value:
        name = chain(node)
        if name:
            value = self.env.get(name)
            if value is not None:
                return value
            if name.split(".", 1)[0] not in self.env:
                meaning = self.meaning(node)
                if meaning is not None:
                    return self.of_meaning(meaning, node.attr)
        return self.attribute(self.eval(node.value), node.attr, node, name)

    def attribute(self, owner: Value, attr: str, node: ast.expr, name: str = "") -> Value:
        if owner.kind == "namespace" and isinstance(owner.target, Module):
            meaning = self.names.member(owner.target, attr)
            return self.of_meaning(meaning, attr) if meaning is not None else UNKNOWN
        if owner.kind in ("library", "function", "class") and owner.type and not isinstance(owner.target, Class):
            return self.of_library(f"{owner.type}.{attr}")
        if attr in ("values", "indices") and (part := _of_pair(owner, attr)) is not None:
            return part
        cls = owner.target if owner.kind == "class" and isinstance(owner.target, Class) else None
        cls = cls or self.project.class_named(owner.type)
        if cls is not None:
            method = self.names.method(cls, attr)
            if method is not None:
                if self.project.is_property(method):
                    return self.call_definition(method, [owner], {}, node, receiver=owner)
                receiver = None if owner.kind == "class" and not self.project.is_classmethod(method) else owner
                return Value("function", target=method, receiver=receiver)
            if owner.kind == "class":
                stated = cls.variables.get(attr)
                if isinstance(stated, ast.Constant) and type(stated.value) in (int, float) and not self.is_enum(cls):
                    return Value("number")  # a count, a size: whatever it is by now
                return Value("constant", const=Symbol(f"{cls.full_name}.{attr}"))
            if attr not in MODULE_ATTRIBUTES or not self.project.is_module(cls):
                found = self.project.attribute(cls, attr, owner, name)
                if found is not None:
                    return found
        if attr == "grad" and owner.kind in ("parameter", "tensor", "unknown", "parameters"):
            self.event("read_grad", node, receiver=owner)
            return Value("gradient", receiver=owner, path=name)
        kind = owner.kind if owner.kind != "library_instance" else ""
        row = (self.library.member(owner.type, attr) if owner.type and owner.kind != "class" else None) or (
            self.library.method(kind, attr)
        )
        if row is not None and row.attribute:
            return self.from_row(row, owner, [], {}, node)
        if kind == "module" and row is None:  # a part of a model of which nothing is known
            return self.submodule(owner, attr, name)
        if kind == "unknown" and attr in TENSOR_FACTS:
            duck = self.library.method("tensor", attr)
            if duck is not None:
                return self.from_row(duck, owner, [], {}, node)
        return Value("method" if row is not None else "unknown", owner.deps if kind == "unknown" else EMPTY,
                     type=attr if row is not None else "", receiver=owner, path=name, target=row,
                     objs=self.unknown_objs(owner, attr, name))  # fmt: skip

    def is_enum(self, cls: Class) -> bool:
        """Whether a class is an enumeration, whose members are no numbers of their own."""
        return any(base.startswith("enum.") for base in self.names.library_bases(cls))

    def do_constant(self, node: ast.Constant) -> Value:
        return self.constant(node)

    def do_call(self, node: ast.Call) -> Value:
        callee = self.eval(node.func)
        args: list[Value] = []
        starred = False
        for arg in node.args:
            if type(arg) is ast.Starred:
                starred = True
                args.append(self.eval(arg.value).but(const=UNSET))
            else:
                args.append(self.eval(arg))
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value)
            keywords[keyword.arg or "**"] = value
        if starred:
            keywords.setdefault("*", UNKNOWN)
        result = self.call(callee, args, keywords, node)
        self.event("call", node, value=result, receiver=callee, args=tuple(args), keywords=keywords,
                   callee=callee.target, name=callee.type)  # fmt: skip
        return result

    def do_binop(self, node: ast.BinOp) -> Value:
        left, right = self.eval(node.left), self.eval(node.right)
        if left.kind == "string" and isinstance(node.op, ast.Mod):
            return Value("string")
        for operand, value in ((node.left, left), (node.right, right)):
            if value.kind == "parameter":
                self.event("weigh", operand, receiver=value)
        if left.const is not UNSET and right.const is not UNSET and left.kind == right.kind == "number":
            return Value("number")
        return self.arithmetic((left, right), node)

    def do_unary(self, node: ast.UnaryOp) -> Value:
        value = self.eval(node.operand)
        if isinstance(node.op, ast.Not):
            if value.const is not UNSET and not isinstance(value.const, (Symbol, Mode)):
                return Value("bool", const=not value.const)
            return Value("bool")
        if value.kind == "number":
            return Value(
                "number",
                const=-value.const
                if isinstance(value.const, (int, float)) and isinstance(node.op, ast.USub)
                else UNSET,
            )
        return self.arithmetic((value,), node)

    def do_compare(self, node: ast.Compare) -> Value:
        left = self.eval(node.left)
        rights = [self.eval(c) for c in node.comparators]
        if len(rights) == 1:
            answer = self.compare(left, node.ops[0], rights[0])
            if answer is not None:
                return Value("bool", const=answer)
        kinds = {left.kind, *(r.kind for r in rights)}
        if not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            self.reduce(together(self.held(v) for v in (left, *rights)))
        if kinds & {"tensor", "indices"} or (kinds & {"unknown"} and (left.deps or any(r.deps for r in rights))):
            if not isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
                return Value("indices", device=left.device)
        return Value("bool")

    def compare(self, a: Value, op: ast.cmpop, b: Value) -> bool | None:
        if isinstance(op, (ast.Is, ast.IsNot)) and b.kind == "none":
            if a.kind == "none":
                return isinstance(op, ast.Is)
            if (
                a.kind != "unknown"
                and (a.site is not None or a.kind in ("optimizer", "module", "number", "string", "bool"))
                and a.receiver is None
                and a.const is not UNSET
            ):
                return isinstance(op, ast.IsNot)
            if a.kind == "optimizer" and a.objs and a.objs[0].parameter < 0:
                return isinstance(op, ast.IsNot)
            return None
        if a.const is UNSET or b.const is UNSET:
            return None
        if isinstance(op, (ast.Eq, ast.Is)):
            return bool(a.const == b.const)
        if isinstance(op, (ast.NotEq, ast.IsNot)):
            return bool(a.const != b.const)
        if isinstance(a.const, Symbol) or isinstance(b.const, Symbol):
            return None
        try:
            if isinstance(op, ast.Lt):
                return bool(a.const < b.const)
            if isinstance(op, ast.Gt):
                return bool(a.const > b.const)
            if isinstance(op, ast.LtE):
                return bool(a.const <= b.const)
            if isinstance(op, ast.GtE):
                return bool(a.const >= b.const)
        except TypeError:
            return None
        return None

    def do_boolop(self, node: ast.BoolOp) -> Value:
        values = [self.eval(v) for v in node.values]
        truths = [self.truth(n, v) for n, v in zip(node.values, values, strict=True)]
        if isinstance(node.op, ast.And):
            if False in truths:
                return Value("bool", const=False)
            if all(truths):
                return values[-1]
        else:
            if truths[0] is True:
                return values[0]
            if all(t is False for t in truths):
                return values[-1]
            values = [v for v, t in zip(values, truths, strict=True) if t is not False] or values
        result = values[0]
        for value in values[1:]:
            result = join(result, value)
        return result if result.const is UNSET else result.but(const=UNSET)

    def do_ifexp(self, node: ast.IfExp) -> Value:
        truth = self.truth(node.test, self.eval(node.test))
        if truth is not None:
            return self.eval(node.body if truth else node.orelse)
        found, env = [], self.env
        for branch, holds in ((node.body, True), (node.orelse, False)):
            self.env = dict(env) if isinstance(node.test, (ast.Call, ast.UnaryOp, ast.BoolOp)) else env
            if self.env is not env:
                self.narrow(node.test, holds, self.env)
            found.append(self.eval(branch))
        self.env = env
        return self.either(*found)

    def narrow(self, test: ast.expr, truth: bool, env: dict[str, Value]) -> None:
        """Use what a condition says of a name: ``isinstance(x, Tensor)``, ``x is None``, ``if flag``."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.narrow(test.operand, not truth, env)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
            name = chain(test.left)
            if name and test.comparators[0].value is None and name in env:
                if isinstance(test.ops[0], ast.Is) is truth and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
                    env[name] = NOTHING
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and truth:
            for part in test.values:
                self.narrow(part, True, env)
        elif isinstance(test, ast.Call) and test.args:
            name = chain(test.args[0])
            known = env.get(name)
            meaning = self.meaning(test.func)
            if known is None or meaning not in ("isinstance", "hasattr", "torch.is_tensor"):
                return
            kind = "tensor" if meaning == "torch.is_tensor" else ""
            if meaning == "isinstance" and len(test.args) == 2:
                kind = self.instance_kind(test.args[1])
            elif meaning == "hasattr" and len(test.args) == 2 and not truth:
                attr = self.eval(test.args[1]).const
                if isinstance(attr, str) and self.library.method("tensor", attr) is not None:
                    kind = "tensor"  # every tensor has it
            if kind and truth and known.kind == "unknown":
                env[name] = known.but(kind=kind)
            elif kind == "tensor" and not truth:
                env[name] = known.but(kind="unknown", deps=EMPTY)

    def instance_kind(self, node: ast.expr) -> str:
        if isinstance(node, ast.Tuple):
            kinds = {self.instance_kind(e) for e in node.elts}
            return kinds.pop() if len(kinds) == 1 else ""
        meaning = self.meaning(node)
        if isinstance(meaning, str):
            if meaning in ("int", "float", "bool"):
                return "number"
            if meaning in ("list", "dict", "tuple", "set"):
                return meaning
            row = self.library.lookup(meaning)
            return row.kind if row is not None else ""
        if isinstance(node, ast.Name):
            return {"int": "number", "float": "number", "list": "list", "dict": "dict", "tuple": "tuple",
                    "str": "string"}.get(node.id, "")  # fmt: skip
        return ""

    def either(self, a: Value, b: Value) -> Value:
        if isinstance(a.const, Mode) or isinstance(b.const, Mode):
            modes = {v.const.mode if isinstance(v.const, Mode) else None for v in (a, b)}
            return Value("context", const=Mode(modes.pop() if len(modes) == 1 else Grad.UNKNOWN))  # type: ignore[arg-type]
        return join(a, b)

    def do_tuple(self, node: ast.Tuple) -> Value:
        items = tuple(self.eval(e.value if isinstance(e, ast.Starred) else e) for e in node.elts)
        if any(isinstance(e, ast.Starred) for e in node.elts):
            obj = self.make("tuple", node)
            for e, item in zip(node.elts, items, strict=True):
                self.put(obj, self.element(item, node) if isinstance(e, ast.Starred) else item)
            return Value("tuple", objs=(obj,))
        const = tuple(i.const for i in items) if all(i.const is not UNSET for i in items) else UNSET
        return Value("tuple", items=items, const=const)

    def do_list(self, node: ast.List | ast.Set) -> Value:
        kind = "list" if isinstance(node, ast.List) else "set"
        obj = self.make(kind, node)
        for element in node.elts:
            if isinstance(element, ast.Starred):
                self.put(obj, self.element(self.eval(element.value), element))
            else:
                self.put(obj, self.eval(element))
        return Value(kind, objs=(obj,), site=node)

    def do_dict(self, node: ast.Dict) -> Value:
        obj = self.make("dict", node)
        for key, element in zip(node.keys, node.values, strict=True):
            value = self.eval(element)
            if key is None:
                if value.obj is not None:
                    obj.items.update(value.obj.items)
                self.put(obj, self.element(value, node))
            else:
                self.put(obj, value, self.eval(key).const)
        return Value("dict", objs=(obj,), site=node)

    def do_comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        outer = dict(self.env)
        loops = self.loops
        for generator in node.generators:
            iterable = self.eval(generator.iter)
            self.loops = (*self.loops, node)
            self.assign(generator.target, self.element(iterable, generator.iter), node)
            for test in generator.ifs:
                self.eval(test)
        if isinstance(node, ast.DictComp):
            self.eval(node.key)
            value = self.eval(node.value)
            kind = "dict"
        else:
            value = self.eval(node.elt)
            kind = {ast.ListComp: "list", ast.SetComp: "set"}.get(type(node), "iterator")
        self.env = outer
        self.loops = loops
        obj = self.make(kind, node)
        self.put(obj, value)
        if kind != "iterator":
            self.event(
                "collect",
                node,
                value=value,
                target=obj,
                expr=node.elt if not isinstance(node, ast.DictComp) else node.value,
            )
        return Value(kind, objs=(obj,), site=node, receiver=value.receiver if value.kind in LEAFY else None)

    def do_subscript(self, node: ast.Subscript) -> Value:
        owner = self.eval(node.value)
        key = self.eval(node.slice)
        name = written(node) if type(node.value) is ast.Name else ""
        if owner.items is not None and isinstance(key.const, int) and -len(owner.items) <= key.const < len(owner.items):
            return owner.items[key.const]
        cls = self.project.class_named(owner.type)
        if cls is not None and owner.kind != "class":
            method = self.names.method(cls, "__getitem__")
            if method is not None:
                return self.call_definition(method, [owner, key], {}, node, receiver=owner)
        if owner.kind in ("tensor", "parameter", "indices"):
            advanced = key.kind in ("tensor", "indices", "list")
            return Value("indices" if owner.kind == "indices" else "tensor", self.held(owner),
                         view=not advanced, device=owner.device, site=node)  # fmt: skip
        if owner.kind == "module":
            return self.submodule(owner, written(node.slice), name).but(kind="module")
        if owner.kind in CONTAINERS and owner.obj is not None:
            found = [
                o.items[key.const] for o in owner.objs if isinstance(key.const, (str, int)) and key.const in o.items
            ]
            if isinstance(node.slice, ast.Slice):
                return owner.but(site=node) if owner.obj.elem is not None else owner
            if len(found) == len(owner.objs):
                value = found[0]
                for other in found[1:]:
                    value = join(value, other)
                return value
        if isinstance(node.slice, ast.Slice):
            return owner.but(const=UNSET, view=owner.kind in ("tensor", "unknown"))
        element = self.entry_of(owner, key) if of_file(owner) else self.element(owner, node)
        if element is UNKNOWN and owner.deps:
            return Value(
                "unknown",
                owner.deps,
                view=True,
                device=owner.device,
                site=node,
                objs=self.unknown_objs(owner, written(node.slice), name),
            )
        if element is UNKNOWN:
            return Value("unknown", objs=self.unknown_objs(owner, written(node.slice), name), device=owner.device)
        return element

    def do_lambda(self, node: ast.Lambda) -> Value:
        found = self.project.lambda_definition(node, self.definition)
        self.project.closures.setdefault(found, self.env)
        return Value("function", target=found)

    def do_starred(self, node: ast.Starred) -> Value:
        return self.eval(node.value)

    def do_named(self, node: ast.NamedExpr) -> Value:
        value = self.eval(node.value)
        self.assign(node.target, value, node)
        return value

    def do_await(self, node: ast.Await) -> Value:
        return self.eval(node.value)

    def do_yield(self, node: ast.Yield) -> Value:
        value = self.eval(node.value) if node.value is not None else NOTHING
        self.event("yield", node, value=value)
        self.escape(self.held(value))
        return UNKNOWN

    def do_yield_from(self, node: ast.YieldFrom) -> Value:
        self.eval(node.value)
        return UNKNOWN

    def do_joined(self, node: ast.JoinedStr) -> Value:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.eval(part.value)
        return Value("string")

    def do_slice(self, node: ast.Slice) -> Value:
        for part in (node.lower, node.upper, node.step):
            if part is not None:
                self.eval(part)
        return Value("slice")


EXPRESSIONS: dict[type, Callable[[Evaluating, Any], Value]] = {
    ast.Name: Evaluating.do_name,
    ast.Attribute: Evaluating.do_attribute,
    ast.Constant: Evaluating.do_constant,
    ast.Call: Evaluating.do_call,
    ast.BinOp: Evaluating.do_binop,
    ast.UnaryOp: Evaluating.do_unary,
    ast.Compare: Evaluating.do_compare,
    ast.BoolOp: Evaluating.do_boolop,
    ast.IfExp: Evaluating.do_ifexp,
    ast.Tuple: Evaluating.do_tuple,
    ast.List: Evaluating.do_list,
    ast.Set: Evaluating.do_list,
    ast.Dict: Evaluating.do_dict,
    ast.ListComp: Evaluating.do_comprehension,
    ast.SetComp: Evaluating.do_comprehension,
    ast.DictComp: Evaluating.do_comprehension,
    ast.GeneratorExp: Evaluating.do_comprehension,
    ast.Subscript: Evaluating.do_subscript,
    ast.Lambda: Evaluating.do_lambda,
    ast.Starred: Evaluating.do_starred,
    ast.NamedExpr: Evaluating.do_named,
    ast.Await: Evaluating.do_await,
    ast.Yield: Evaluating.do_yield,
    ast.YieldFrom: Evaluating.do_yield_from,
    ast.JoinedStr: Evaluating.do_joined,
    ast.Slice: Evaluating.do_slice,
}
