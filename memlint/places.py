"""Places that several functions share: attributes and names of a file's top level, and what is put there."""

from __future__ import annotations

import ast
import re

from memlint.classes import Classes
from memlint.extract import Class, Definition, Module
from memlint.facts import UNKNOWN, UNSET, Node, Obj, Origin, Value
from memlint.names import Names
from memlint.trace import note, question
from memlint.values import CONTAINERS, EMPTY, GRAPHLESS, join


def rebinds(module: Module, name: str) -> bool:
    """Whether a file binds one of its global names more than once, as far as its text tells."""
    n = re.escape(name)
    return len(re.findall(rf"^\s*(?:global\s+.*\b{n}\b|{n}\s*[+\-*/]?=[^=])", module.source.text, re.M)) > 1


class Places(Classes):
    """Questions about what lies in attributes and global names."""

    def place_node(self, obj: Obj) -> Node:
        if obj.node is None:
            obj.node = Node(Origin.PLACE, obj.site or ast.Pass(), obj.name, place=obj)
        return obj.node

    def attribute_obj(self, cls: Class, attr: str, _owner: Value | None = None) -> Obj:
        family = self.names.family(cls)
        found = self._attribute_objs.get((family, attr))
        if found is None:
            found = self._attribute_objs[family, attr] = Obj("unknown", name=f"self.{attr}", owner=family)
        return found

    def part(self, parent: Obj, name: str) -> Obj:
        """The object that an attribute of an object of unknown class is."""
        found = self._parts.get((parent, name))
        if found is None:
            found = Obj("unknown", parent.site, parent.loops, name=f"{parent.name}.{name}", owner=parent.owner,
                        home=parent.home, parent=parent)  # fmt: skip
            found.frozen = parent.frozen
            self._parts[parent, name] = found
        return found

    @question(2)
    def attribute(self, cls: Class, attr: str, owner: Value, name: str) -> Value | None:
        """What ``self.attr`` holds: the join of all that the class's methods assign to it."""
        key = (cls, attr)
        obj = self.attribute_obj(cls, attr)
        if key not in self._attributes:
            self._attributes[key] = Value("unknown", frozenset({self.place_node(obj)}), objs=(obj,))
            self._attributes[key] = self._attribute(cls, attr, obj)
        value = self._attributes[key]
        if value is None:
            return None
        return value.but(receiver=owner, path=name)

    def _attribute(self, cls: Class, attr: str, obj: Obj) -> Value | None:
        value: Value | None = None
        known = False
        for c in self.names.mro(cls):
            if isinstance(c, Class) and attr in c.variables:
                known = True
                inner = c.variables[attr]
                kind = {ast.List: "list", ast.Dict: "dict", ast.Set: "set"}.get(type(inner), "unknown")
                if isinstance(inner, ast.Constant):
                    kind = {bool: "bool", int: "number", float: "number", str: "string"}.get(type(inner.value), "none")
                value = Value(kind)
                break
        for definition in self.writers(cls, attr)[:6]:
            known = True
            flow = self.flow(definition)
            if flow is None:
                continue
            for event in flow.events:
                if event.verb == "set" and event.target is obj and event.inner is None:
                    value = event.value if value is None else join(value, event.value)
        if value is None or value.kind in ("unknown", "none"):
            kind, type_ = self._stated_attribute(cls, attr)
            if kind == "unknown":
                use = self.class_use(cls, attr)
                kind, type_ = use.role if use is not None else "", ""
            if value is None and not known and not kind:
                return Value("unknown", frozenset({self.place_node(obj)}), objs=(obj,))
            value = (value or UNKNOWN).but(kind=kind or (value.kind if value is not None else "unknown"))
            if type_:
                value = value.but(type=type_)
            if value.kind == "none":
                value = value.but(kind="unknown", const=UNSET)
        if value.obj is not None and value.obj is not obj:
            obj.bounded = obj.bounded or all(o.bounded for o in value.objs)
            obj.frozen = obj.frozen or any(o.frozen for o in value.objs)
            obj.items = obj.items or {k: self._placed(v, obj) for k, v in value.obj.items.items()}
            obj.model = obj.model or value.obj.model
            if value.obj.elem is not None and obj.elem is None:
                obj.elem = self._placed(value.obj.elem, obj)
        obj.kind, obj.type = value.kind, value.type
        deps = (
            EMPTY
            if value.kind in GRAPHLESS or value.kind in ("module", "instance")
            else frozenset({self.place_node(obj)})
        )
        constant = (
            value.const
            if isinstance(value.const, (str, bool, int))
            and len(self.writers(cls, attr)) == 1
            and value.kind == "string"
            else UNSET
        )
        target = value.target if isinstance(value.target, (Definition, Class)) else None
        return Value(value.kind, deps, value.type, (obj,), const=constant, leaf=value.leaf, device=value.device,
                     scalar=value.scalar, target=target)  # fmt: skip

    def _stated_attribute(self, cls: Class, attr: str) -> tuple[str, str]:
        """Kind and type of an attribute that a class states as an object of another class of the project."""
        for c in self.names.mro(cls):
            if isinstance(c, Class) and attr in c.stated:
                kind, type_ = self.annotation(c.stated[attr], c.outer or c.module.top)
                return (kind, type_) if self.class_named(type_) is not None else ("unknown", "")
        return "unknown", ""

    def _placed(self, value: Value, obj: Obj) -> Value:
        """A value that sits in a shared object, as those see it who read it there."""
        for inner in value.objs:
            inner.owner = inner.owner or obj.owner
            inner.name = inner.name or obj.name
        return value.but(deps=frozenset({self.place_node(obj)}), path="") if value.deps else value

    def global_obj(self, module: Module, name: str) -> Obj:
        found = self._globals.get((module, name))
        if found is None:
            found = self._globals[module, name] = Obj("unknown", name=name, owner=module)
        return found

    def global_value(self, module: Module, name: str, value: Value) -> Value:
        """A container bound at the top level of a file: all functions of the file share it."""
        for obj in value.objs:
            self._share(obj, module, name)
        return value

    def _share(self, obj: Obj, module: Module, name: str) -> None:
        if obj.owner is None:
            obj.owner, obj.name = module, obj.name or name
            for inner in (*obj.items.values(), *([obj.elem] if obj.elem is not None else [])):
                for o in inner.objs:
                    if o.kind in CONTAINERS:
                        self._share(o, module, name)

    def _made_later(self, home: Module, reader: Definition, name: str) -> Value | None:
        """The module that functions of its file bind a global to that is None at first, where all bind one such."""
        note(home)
        made: list[Value] = []
        for definition in home.definitions:
            if (
                definition is reader
                or definition.is_top
                or not definition.says("global ")
                or name not in definition.words
            ):
                continue
            flow = self.flow(definition)
            obj = self.global_obj(home, name)
            made += (e.value for e in flow.events if e.verb == "set" and e.target is obj) if flow is not None else ()
        types = {v.type for v in made if v.kind != "none"}
        if len(types) != 1 or "" in types or not all(v.kind in ("module", "none") for v in made):
            return None
        return next(v for v in made if v.type).but(deps=EMPTY, path=name)

    def _home(self, names: Names, module: Module, name: str, expr: ast.expr) -> Module:
        """The file at whose top level an expression is bound to a name."""
        found = self._homes.get(expr)
        if found is None:
            found = next((m for m in names.modules.values() if m.variables.get(name) is expr), module)
            self._homes[expr] = found
        return found

    def global_read(self, names: Names, module: Module, definition: Definition, name: str, expr: ast.expr) -> Value:
        """A name bound at the top level of a file, as functions see it."""
        home = module if module.variables.get(name) is expr else self._home(names, module, name, expr)
        if definition is home.top:
            return UNKNOWN
        if isinstance(expr, ast.Constant):
            kinds = {bool: "bool", int: "number", float: "number", str: "string"}
            note(("rebinds", home, name))
            many = rebinds(home, name)
            if expr.value is None and many:
                made = self._made_later(home, definition, name)
                if made is not None:
                    return made
                return Value("unknown", frozenset({self.place_node(self.global_obj(home, name))}))
            return Value(kinds.get(type(expr.value), "none"), const=UNSET if many else expr.value)
        top = home.top, ()  # what calls this function may be the top level itself: then the name is what it is by now
        flow = self._flows.get(top) or self._running.get(top) or self.flow(home.top)
        value = flow.env.get(name) if flow is not None else None
        if value is None:
            return UNKNOWN
        if value.kind == "unknown" and self.role(definition, name) == "module":
            return value.but(kind="module", deps=EMPTY, objs=value.objs or (self.global_obj(home, name),), path=name)
        deps = EMPTY
        if value.kind in CONTAINERS and value.obj is not None:
            deps = frozenset({self.place_node(value.obj)})
        elif value.kind in ("tensor", "unknown"):
            deps = frozenset({self.place_node(self.global_obj(home, name))})
        return value.but(deps=deps, path=name)
