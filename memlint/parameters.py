"""What a function's parameters are: by what is handed over, by annotation, by use, by default."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from memlint.extract import Class, Definition
from memlint.facts import UNKNOWN, UNSET, Event, Grad, Node, Obj, Origin, Value
from memlint.flow import Flow
from memlint.modes import Modes
from memlint.reading import Reading
from memlint.trace import question
from memlint.values import CONTAINERS, EMPTY, GRAPHLESS, LOADED, Mode, chain, join, of_file

FEW = 12
BUILT = frozenset({"parameters", "named_parameters", "state_dict", "load_state_dict"})
_DISPLAYS: dict[type, str] = {ast.List: "list", ast.Dict: "dict", ast.Set: "set"}


class Parameters(Modes):
    """Questions about parameters and arguments."""

    def _signature(self, target: Definition, bound: dict[str, Value]) -> tuple[Any, ...]:
        """What of the arguments a reading of the function depends on."""
        found = []
        for i, name in enumerate(target.parameters):
            given = bound.get(name)
            kind, type_, const, callee = self._shape(target, i, name, given)
            known = isinstance(const, (bool, int, str, type(None)))
            frozen = given is not None and bool(given.objs) and given.objs[0].frozen
            found.append((kind, type_, const if known else UNSET, callee, frozen, given is not None and of_file(given)))
        return tuple(found)

    def _symbolic(self, definition: Definition, bound: dict[str, Value]) -> dict[str, Value]:
        """The parameters as the function itself sees them: nodes and objects that carry their index."""
        found: dict[str, Value] = {}
        node = definition.node
        for i, name in enumerate(definition.parameters):
            given = bound.get(name)
            kind, type_, const, target = self._shape(definition, i, name, given)
            obj = Obj(kind, node, name=name, parameter=i, type=type_, home=definition)
            if given is not None and given.objs:
                obj.frozen = given.objs[0].frozen
                obj.type = LOADED if of_file(given) else type_
            if i == 0 and definition.bound and definition.cls is not None:
                objs = (obj,) if kind != "class" else ()
                found[name] = Value(kind, type=type_, target=target, objs=objs, path=name if objs else "")
                continue
            mark = Node(Origin.PARAMETER, node, name, Grad.ON, (), index=i, path=definition.module.source.path,
                        owner=definition)  # fmt: skip
            if given is not None and given.objs:
                obj.bounded = given.objs[0].bounded
                obj.evaluates, obj.trains = given.objs[0].evaluates, given.objs[0].trains
            if given is None and isinstance(definition.defaults.get(name), (ast.List, ast.Dict, ast.Set)):
                obj = self._defaults.setdefault((definition, name), obj)
                obj.kind, obj.owner = kind, definition
            deps = EMPTY if kind in GRAPHLESS else frozenset({mark})
            value = Value(kind, deps, type_, (obj,), path=name, const=const, target=target)
            if given is not None and kind not in CONTAINERS:
                value.scalar, value.leaf = given.scalar, given.leaf
            if given is not None and given.items is not None and not deps:
                value.items = given.items
            found[name] = value
        return found

    def _shape(self, definition: Definition, i: int, name: str, given: Value | None) -> tuple[str, str, Any, Any]:
        """Kind, type, constant and callee of a parameter, by what it is given, else by annotation, use and default."""
        cls = definition.cls
        if i == 0 and cls is not None and definition.bound:
            if given is not None:
                cls = self.class_named(given.type) or cls
            if self.is_classmethod(definition):
                return "class", cls.full_name, UNSET, cls
            return self.class_kind(cls), cls.full_name, UNSET, None
        kind, type_, const, target = "unknown", "", UNSET, None
        if given is not None:
            kind, type_, const = given.kind, given.type, given.const
            target = given.target if isinstance(given.target, (Definition, Class)) else None
            if isinstance(const, Mode) or not (isinstance(const, bool) or name in definition.tested):
                const = UNSET  # one reading serves all callers
        if kind == "unknown":
            kind, type_ = self._said_of(definition, name)
            if kind == "unknown" and given is None:
                use = self.uses(definition).get(name)
                if use is not None and use.called and definition.name != "__init__":  # there it makes the parts
                    kind, type_ = self._handed(definition, name)
                    kind = kind or "unknown"
        elif kind in ("gradient", "method", "constant", "namespace", "library", "slice", "range"):
            kind = "unknown"
        if given is None:
            kind = _DISPLAYS.get(type(definition.defaults.get(name)), kind)
        return kind, type_, const, target

    @question(2)
    def _said_of(self, definition: Definition, name: str) -> tuple[str, str]:
        """Kind and type of a parameter by its annotation, else by how the function uses it."""
        found = self._stated.get((definition, name))
        if found is None:
            found = self._annotated(definition, name)
            use = self.uses(definition).get(name)
            if found[0] == "unknown" and use is not None and use.role:
                found = (use.role, "")
            self._stated[definition, name] = found
        return found

    def _handed(self, definition: Definition, name: str) -> tuple[str, str]:
        """Kind and type of what all callers hand over for a parameter that the function calls."""
        if definition in self._handing or len(self.within_reach(definition)) > FEW:
            return "", ""
        self._handing.add(definition)
        try:
            found = {
                (v.kind, v.type)
                for flow, event in self.callers(definition)
                if (v := self.argument(definition, name, flow, event)) is not None
            }
        finally:
            self._handing.discard(definition)
        kinds = {kind for kind, _ in found}
        if kinds != {"module"}:
            return "", ""
        return "module", next(iter(found))[1] if len(found) == 1 else ""

    def argument(self, definition: Definition, name: str, flow: Flow, event: Event) -> Value | None:
        """What one call of a function hands over for a parameter."""
        args = list(event.args)
        if definition.bound and event.receiver.receiver is not None:
            args.insert(0, event.receiver.receiver)
        elif definition.bound and event.verb in ("build", "forward"):
            args.insert(0, event.value if event.verb == "build" else event.receiver)
        return self.bind(definition, args, event.keywords, flow).get(name)

    def handed_over(self, definition: Definition, name: str) -> Iterator[tuple[Flow, Value]]:
        """What the function's callers, itself left out, hand over for a parameter, each with its flow."""
        for flow, event in self.callers(definition):
            if flow.definition is not definition:
                value = self.argument(definition, name, flow, event)
                if value is not None:
                    yield flow, value

    def _annotated(self, definition: Definition, name: str) -> tuple[str, str]:
        node = definition.annotations.get(name)
        default = definition.defaults.get(name)
        if isinstance(default, (ast.Name, ast.Attribute)):  # ``act_layer: nn.Module = nn.GELU`` means a class
            meaning = self.names.resolve(default, definition.outer or definition.module.top)
            if isinstance(meaning, Class) or (
                isinstance(meaning, str) and (row := self.library.lookup(meaning)) and row.kind
            ):
                return "unknown", ""
        stated = self.annotation(node, definition) if node is not None else ("unknown", "")
        return ("unknown", "") if stated[0] == "module" and self._makes_modules(definition, name) else stated

    def _makes_modules(self, definition: Definition, name: str) -> bool:
        """Whether calling a name gives a module: it is a class, or builds one, whatever its annotation says."""
        for node in definition.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                made = node.value
                while isinstance(made.func, ast.Attribute) and isinstance(made.func.value, ast.Call):
                    made = made.func.value
                if isinstance(made.func, ast.Name) and made.func.id == name:
                    uses = (self.uses(definition).get(chain(t)) for t in node.targets)
                    if any(use is not None and use.attributes & BUILT for use in uses):
                        return True
        return False

    def bind(
        self, target: Definition, args: Sequence[Value], keywords: dict[str, Value], caller: Reading
    ) -> dict[str, Value]:
        """Parameters by name with the arguments of a call; defaults that are constants where nothing is given."""
        bound: dict[str, Value] = {}
        positional = list(target.positional)
        node = target.node
        for name, value in zip(positional, args, strict=False):
            bound[name] = value
        vararg = getattr(getattr(node, "args", None), "vararg", None)
        if vararg is not None and len(args) > len(positional):
            bound[vararg.arg] = Value("tuple", items=tuple(args[len(positional) :]))
        rest: dict[str, Value] = {}
        for name, value in keywords.items():
            if name in target.parameters:
                bound[name] = value
            elif name not in ("*", "**"):
                rest[name] = value
        kwarg = getattr(getattr(node, "args", None), "kwarg", None)
        if kwarg is not None:
            obj = Obj("dict", node, name=kwarg.arg, items=dict(rest))
            for value in rest.values():
                obj.elem = value if obj.elem is None else join(obj.elem, value)
            bound[kwarg.arg] = Value("dict", objs=(obj,))
        if "**" not in keywords and "*" not in keywords:
            for name, default in target.defaults.items():
                if name not in bound:
                    if isinstance(default, ast.Constant):
                        bound[name] = caller.constant(default)
                    elif isinstance(default, ast.Attribute):
                        bound[name] = UNKNOWN
        return bound

    def lambda_definition(self, node: ast.Lambda, outer: Definition) -> Definition:
        found = self._lambdas.get(node)
        if found is None:
            prefix = f"{outer.qualname}.<locals>." if outer.qualname else ""
            found = self._lambdas[node] = Definition("<lambda>", f"{prefix}<lambda>", node, outer.module, None, outer)
        return found

    def captured(self, definition: Definition, name: str) -> Value | None:
        """The value that a closure sees for a name of the function around it."""
        outer = definition.outer
        while outer is not None:
            env = self.closures.get(definition)
            if env is not None and name in env:
                value = env[name]
                use = self.uses(outer).get(name) if value.kind == "unknown" else None
                return value.but(kind="module") if use is not None and use.role == "module" else value
            if name in outer.parameters:
                flow = self._flows.get((outer, ()))
                return flow.arguments.get(name) if flow is not None else self._symbolic(outer, {}).get(name)
            definition, outer = outer, outer.outer
        return None
