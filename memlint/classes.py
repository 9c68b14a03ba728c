"""Classes of a project: of which kind they are, what their attributes are written by, whether they have weights."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from memlint.extract import Class, Definition
from memlint.facts import Answer, Value
from memlint.knowledge import Knowledge
from memlint.reading import Reading
from memlint.roles import Use, uses
from memlint.trace import fact, unseen
from memlint.values import chain

WEIGHTY = re.compile(r"Parameter\(|register_parameter|add_module|setattr|ModuleList|ModuleDict|Sequential")
SWITCHED = re.compile(r"requires_grad\s*[=:](?!=)|requires_grad_\(")
PROPERTIES = frozenset({"property", "cached_property"})
KIN = 60  # classes that derive from one: beyond that they are too many to ask each how it uses what they share


class Classes(Knowledge):
    """Questions about classes."""

    def annotation(self, node: ast.expr, where: Definition) -> tuple[str, str]:
        """Kind and type that an annotation states."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return "unknown", ""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            left, right = self.annotation(node.left, where), self.annotation(node.right, where)
            if "none" in (left[0], right[0]):
                return right if left[0] == "none" else left
            return left if left == right else ("unknown", "")
        if isinstance(node, ast.Constant) and node.value is None:
            return "none", ""
        if isinstance(node, ast.Subscript):
            base = self.names.resolve(node.value, where)
            last = base.rpartition(".")[2] if isinstance(base, str) else getattr(node.value, "id", "")
            if last == "Optional":
                return self.annotation(node.slice, where)
            if last in ("List", "list", "Dict", "dict", "Set", "set", "Tuple", "tuple", "Deque"):
                return {"Deque": "deque"}.get(last, last.lower()), ""
            node = node.value
        meaning = self.names.resolve(node, where)
        if isinstance(meaning, Class):
            return self.class_kind(meaning), meaning.full_name
        if isinstance(meaning, str):
            row = self.library.lookup(meaning)
            if row is not None and row.kind:
                return row.kind, "" if row.kind in ("tensor", "module") else self.library.canonical(meaning)
            return "unknown", ""
        simple = {"int": "number", "float": "number", "str": "string", "bool": "bool", "list": "list", "dict": "dict",
                  "tuple": "tuple", "set": "set", "None": "none"}  # fmt: skip
        return (simple.get(node.id, "unknown") if isinstance(node, ast.Name) else "unknown"), ""

    def class_named(self, full_name: str) -> Class | None:
        """The project's class of that full name."""
        return self.named(full_name) if full_name else None

    @fact
    def named(self, full_name: str) -> Class | None:
        with unseen():
            for module in self.names.beyond(self._classed):
                for cls in self.names.classes(module):
                    self._classes.setdefault(cls.full_name, cls)
                self._classed += 1
        return self._classes.get(full_name)

    @fact
    def class_kind(self, cls: Class) -> str:
        """The kind of a project class's instances, from the library classes that it derives from."""
        for base in self.names.library_bases(cls):
            row = self.library.lookup(base)
            if row is not None and row.kind:
                return row.kind
        return "instance"

    def is_module(self, cls: Class) -> bool:
        return self.class_kind(cls) in ("module", "engine")

    @staticmethod
    def is_property(definition: Definition) -> bool:
        return any(last_word(d) in PROPERTIES for d in definition.decorators)

    @staticmethod
    def is_classmethod(definition: Definition) -> bool:
        return any(last_word(d) == "classmethod" for d in definition.decorators)

    def setter(self, cls: Class, attr: str) -> Definition | None:
        """The ``@attr.setter`` of a class."""
        for c in self.names.mro(cls):
            if isinstance(c, Class) and attr in c.methods:
                for d in c.module.definitions:
                    if d.cls is c and d.name == attr and any(last_word(x) == "setter" for x in d.decorators):
                        return d
                return None
        return None

    @fact
    def learns(self, cls: Class) -> Answer:
        """Whether a module class has weights of its own or below. MAYBE: only those of what its constructor is given.

        A module without weights builds no graph from plain input.
        """
        self.facts["learns", cls] = Answer.YES  # a class that holds itself adds nothing
        known = Answer.any(self._weights(cls))
        methods = (d for c in self.names.mro(cls) if isinstance(c, Class) for d in c.methods.values())
        if known is Answer.YES and any(SWITCHED.search(d.text) for d in methods):
            return Answer.MAYBE  # weights made, or turned, into constants by a switch
        return known

    def _weights(self, cls: Class) -> Iterator[Answer]:
        for c in self.names.mro(cls):
            if isinstance(c, str):
                row = self.library.lookup(c)
                if row is None or (row.parameters and c != "torch.nn.Module"):
                    yield Answer.YES
                continue
            for definition in c.methods.values():
                if "self." not in definition.text:
                    continue
                if WEIGHTY.search(definition.text):
                    yield Answer.YES
                for value in self._assigned(definition):
                    if isinstance(value, ast.Call):
                        yield self._weights_made(value, definition)
                    elif definition.name == "__init__" and isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
                        yield Answer.MAYBE if self._stored_as_module(cls, ast.unparse(value)) else Answer.NO

    def _weights_made(self, call: ast.Call, where: Definition) -> Answer:
        """Whether what a call gives has weights: by what is called, or by what it is a method of."""
        meaning = self.names.resolve(call.func, where) or (call.func.id if isinstance(call.func, ast.Name) else None)
        if isinstance(meaning, Class):
            return self.learns(meaning) if self.is_module(meaning) else Answer.NO
        if isinstance(meaning, str):
            row = self.library.lookup(meaning)
            if row is None or (row.parameters if row.kind == "module" else row.returns in ("module", "unknown")):
                return Answer.YES
            return Answer.NO
        if isinstance(call.func, ast.Attribute):
            owner = call.func.value
            if isinstance(owner, ast.Call):
                return self._weights_made(owner, where)  # `torch.from_numpy(x).float()`, `Net().cuda()`
            if isinstance(owner, ast.Attribute) and where.bound and chain(owner).startswith(f"{where.positional[0]}."):
                return Answer.NO  # of an attribute, which answers for its weights
        return Answer.YES

    def _stored_as_module(self, cls: Class, written: str) -> bool:
        """Whether the attribute that a constructor fills from an argument is then called, or used as a module."""
        attrs = {attr for c in self.names.mro(cls) if isinstance(c, Class) for attr in self.written(c)}
        for attr in attrs:
            assigns = re.compile(rf"self\.{re.escape(attr)}\s*=\s*{re.escape(written)}\b")
            if any(assigns.search(d.text) for d in self.writers(cls, attr)):
                use = self.class_use(cls, attr)
                if use is not None and (use.called or use.iterated or use.role == "module"):
                    return True
        return False

    @staticmethod
    def _assigned(definition: Definition) -> Iterator[ast.expr]:
        for node in definition.nodes:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and any(isinstance(t, ast.Attribute) for t in targets):
                values = [node.value]
                while values:
                    value = values.pop()
                    if isinstance(value, ast.IfExp):
                        values += (value.orelse, value.body)
                    elif isinstance(value, ast.BoolOp):
                        values += value.values
                    elif value is not None:
                        yield value

    def writers(self, cls: Class, attr: str) -> list[Definition]:
        """The methods of a class and its bases that assign ``self.attr``, constructors first."""
        found: list[Definition] = []
        for c in self.names.mro(cls):
            if isinstance(c, Class):
                found.extend(d for d in self.written(c).get(attr, ()) if d not in found)
        return sorted(found, key=lambda d: d.name != "__init__")

    @fact
    def written(self, cls: Class) -> dict[str, list[Definition]]:
        """The attributes of ``self`` that methods of a class, not of its bases, assign, each with those methods."""
        table: dict[str, list[Definition]] = defaultdict(list)
        for definition in cls.methods.values():
            if not definition.bound:
                continue
            me = definition.positional[0]
            if f"{me}." not in definition.text:
                continue
            for node in definition.nodes:
                targets = (
                    node.targets if isinstance(node, ast.Assign)
                    else [node.target] if isinstance(node, (ast.AnnAssign, ast.AugAssign)) else []
                )  # fmt: skip
                for target in targets:
                    for t in target.elts if isinstance(target, ast.Tuple) else [target]:
                        if (
                            isinstance(t, ast.Attribute) and isinstance(t.value, ast.Name) and t.value.id == me
                        ) and definition not in table[t.attr]:
                            table[t.attr].append(definition)
        return dict(table)

    def class_use(self, cls: Class, attr: str) -> Use | None:
        """How the methods of a class and its relatives use an attribute of ``self``; None where none does.

        All that derives from what it derives from itself is related to it, as long as that is not a crowd.
        """
        found: list[Use | None] = []
        for above in reversed([c for c in self.names.mro(cls) if isinstance(c, Class)]):
            if not self.prolific(above):
                return _merged([self.family_use(above, attr), *found])
            found.append(self.own_use(above, attr))
        return _merged(found)

    @fact
    def prolific(self, cls: Class) -> bool:
        """Whether a crowd derives from a class."""
        with unseen():
            return len(self.names.derived(cls)) >= KIN

    @fact
    def family_use(self, family: Class, attr: str) -> Use | None:
        """How the methods of a class and those derived from it use an attribute of ``self``; None where none does."""
        return _merged(self.own_use(c, attr) for c in (family, *self.names.derived(family)))

    def own_use(self, cls: Class, attr: str) -> Use | None:
        """How the methods of a class itself use an attribute of ``self``; a file that does not say it is not parsed."""
        methods = cls.methods.values() if cls.module.holds(attr) else ()
        own = (d for d in methods if self.says(d, (attr,)) and d.bound)
        return _merged(self.uses(d).get(f"{d.positional[0]}.{attr}") for d in own)

    @fact
    def uses(self, definition: Definition) -> dict[str, Use]:
        """How a function uses each dotted name."""
        return uses(definition.node)

    def role(self, definition: Definition, name: str) -> str:
        """The role of something unknown, by how a function uses its name."""
        use = self.uses(definition).get(name) if name else None
        return use.role if use is not None else ""

    def role_of(self, value: Value, flow: Reading) -> str:
        """The role of something unknown, by how this function uses the name that it has there."""
        return self.role(flow.definition, value.path)


def _merged(uses: Iterable[Use | None]) -> Use | None:
    """Several uses as one; None where there is none."""
    found: Use | None = None
    for use in uses:
        if use is not None:
            found = found or Use()
            found.merge(use)
    return found


def last_word(node: ast.expr) -> str:
    """The last part of a dotted name, of what is called where it is a call."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
