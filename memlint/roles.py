"""What a name is for, judged by how the code uses it: a module, an optimizer, a scaler. Never by how it is called."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from memlint.extract import walk

MODULE = frozenset(
    """parameters named_parameters state_dict load_state_dict named_modules modules named_children children
    register_forward_hook register_full_backward_hook register_buffer register_module get_submodule named_buffers
    requires_grad_ gradient_checkpointing_enable no_sync""".split()
)
SWITCHES = frozenset({"eval", "train"})
OPTIMIZER = frozenset({"param_groups", "add_param_group"})
SCALER = frozenset({"unscale_", "get_scale"})
PLACES = frozenset({"device", "map_location"})  # keywords, and what takes a device first


@dataclass(slots=True)
class Use:
    """How one function, or one class, uses a dotted name."""

    attributes: set[str] = field(default_factory=set)  # read or called on it
    calls: set[str] = field(default_factory=set)  # called on it without arguments
    called: bool = False
    iterated: bool = False
    places: bool = False  # says where something goes

    def merge(self, other: Use) -> None:
        self.attributes |= other.attributes
        self.calls |= other.calls
        self.called = self.called or other.called
        self.iterated = self.iterated or other.iterated
        self.places = self.places or other.places

    @property
    def role(self) -> str:
        """``module``, ``optimizer``, ``scaler``, ``accelerator``, ``device`` or "" where the use does not tell."""
        seen = self.attributes
        if seen & SCALER or ("scale" in seen and {"step", "update"} & seen):
            return "scaler"
        if seen & OPTIMIZER or ({"zero_grad", "step"} <= seen and not self.called):
            return "optimizer"
        if "zero_grad" in seen and not self.called and not seen & (MODULE | SWITCHES):
            return "optimizer"
        if seen & {"backward"} and seen & {"prepare", "accumulate", "gather_for_metrics", "unwrap_model"}:
            return "accelerator"
        if seen & MODULE or "eval" in self.calls or (self.called and ("zero_grad" in seen or "train" in seen)):
            return "module"
        return "device" if self.places and not self.called and not self.iterated else ""


def uses(node: ast.AST) -> dict[str, Use]:
    """Every dotted name below ``node`` with how it is used."""
    found: dict[str, Use] = {}
    names: dict[int, str] = {}

    def name_of(n: ast.AST) -> str:
        if type(n) is ast.Name:
            return n.id
        if type(n) is ast.Attribute:
            known = names.get(id(n))
            if known is None:
                base = name_of(n.value)
                known = names[id(n)] = f"{base}.{n.attr}" if base else ""
            return known
        return ""

    def use(name: str) -> Use:
        made = found.get(name)
        if made is None:
            made = found[name] = Use()
        return made

    for n in walk(node):
        kind = type(n)
        if kind is ast.Attribute:
            base = name_of(n.value)  # type: ignore[attr-defined]
            if base:
                use(base).attributes.add(n.attr)  # type: ignore[attr-defined]
        elif kind is ast.Call:
            func = n.func  # type: ignore[attr-defined]
            name = name_of(func)
            for keyword in n.keywords:  # type: ignore[attr-defined]
                if keyword.arg in PLACES and (placed := name_of(keyword.value)):
                    use(placed).places = True
            if n.args and name.rpartition(".")[2] in ("device", "cuda", "set_device"):  # type: ignore[attr-defined]
                if placed := name_of(n.args[0]):  # type: ignore[attr-defined]
                    use(placed).places = True
            if name:
                use(name).called = True
                if type(func) is ast.Attribute and not n.args:  # type: ignore[attr-defined]
                    base = name_of(func.value)
                    if base:
                        use(base).calls.add(func.attr)
        elif kind is ast.For:
            name = name_of(n.iter)  # type: ignore[attr-defined]
            if name:
                use(name).iterated = True
    return found
