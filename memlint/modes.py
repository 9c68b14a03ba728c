"""The gradient mode in which a function runs: its decorators', its framework's, or that of whoever calls it."""

from __future__ import annotations

import ast
import re

from memlint.callers import Callers
from memlint.classes import last_word
from memlint.extract import Class, Definition
from memlint.facts import Event, Grad
from memlint.flow import Flow
from memlint.trace import fact, note, question

GUARDS = re.compile(r"no_grad|inference_mode|set_grad_enabled|enable_grad")
FRAMEWORK_FREE = (
    "torch.nn.",
    "object",
    "abc.",
    "typing.",
    "enum.",
    "torch.utils.data.",
    "collections.",
    "torch.optim.",
)


class Modes(Callers):
    """Questions about gradient modes."""

    @fact
    def decorated_grad(self, definition: Definition) -> Grad:
        """The gradient mode that decorators, or the framework that calls the method, give a function."""
        for decorator in definition.decorators:
            mode = self._decorator(decorator, definition)
            if mode is not None:
                return mode
        cls = definition.cls
        if cls is not None:
            for base in self.names.library_bases(cls):
                words = self.library.hook(base, definition.name)
                if "no_grad" in words:
                    return Grad.OFF
                if "grad" in words or "differentiated" in words:
                    return Grad.ON
        return Grad.ENTRY

    def _decorator(self, node: ast.expr, definition: Definition) -> Grad | None:
        call = node if isinstance(node, ast.Call) else None
        func = call.func if call is not None else node
        where = definition.outer or definition.module.top
        meaning = self.names.resolve(func, where)
        if isinstance(meaning, str):
            row = self.library.lookup(meaning)
            if row is not None:
                if row.effects & {"no_grad", "inference_mode"}:
                    flag = call.args[0] if call is not None and call.args else None
                    if isinstance(flag, ast.Constant) and flag.value is False:
                        return Grad.ON
                    return Grad.OFF
                if "enable_grad" in row.effects:
                    return Grad.ON
                if "set_grad_enabled" in row.effects and call is not None and call.args:
                    flag = call.args[0]
                    return (Grad.ON if flag.value else Grad.OFF) if isinstance(flag, ast.Constant) else Grad.UNKNOWN
                return None
        if isinstance(meaning, Definition):
            if "grad" not in meaning.text and "inference_mode" not in meaning.text:
                return None
            found = GUARDS.findall(meaning.text)
            if "enable_grad" in found:
                return Grad.UNKNOWN
            return Grad.OFF if found else None
        if isinstance(meaning, Class):
            note(meaning)
            return Grad.OFF if GUARDS.search("".join(d.text for d in meaning.methods.values())) else None
        if isinstance(meaning, ast.expr):  # dec = torch.no_grad()
            return Grad.OFF if GUARDS.search(ast.unparse(meaning)) else None
        last = last_word(func)
        if re.search(r"no_?grad|inference|eval_mode", last):
            return Grad.OFF
        return None

    def context_mode(self, target: Definition | Class) -> Grad | None:
        """The gradient mode under which a context manager of the project runs its block, None for no change."""
        if isinstance(target, Class):
            entering = self.names.method(target, "__enter__")
            guarded = entering is not None and GUARDS.search(entering.text) is not None
            return Grad.UNKNOWN if guarded else None
        if not target.generator:
            return None
        flow = self.flow(target)
        modes = {e.grad for e in flow.events if e.verb == "yield"} if flow is not None else set()
        if not modes or modes == {Grad.ENTRY}:
            return None
        return modes.pop() if len(modes) == 1 else Grad.UNKNOWN

    @question(1)
    def entry_grad(self, definition: Definition) -> Grad:
        """The gradient mode in which a function runs: its own, else that of all its callers together."""
        own = self.decorated_grad(definition)
        if own is not Grad.ENTRY:
            return own
        known = self._entry.get(definition)
        if known is None:
            self._entry[definition] = Grad.UNKNOWN  # a cycle of callers adds nothing
            known = self._entry[definition] = self._entry_grad(definition)
        return known

    def _entry_grad(self, definition: Definition) -> Grad:
        modes: set[Grad] = set()
        for flow, event in self.callers(definition) or self.namesakes(definition):
            if flow.definition is definition:
                continue
            modes.add(Grad.UNKNOWN if self._chosen(flow.definition, event) else self.grad_at(flow, event.grad))
        for _, grad in self.handed_on.get(definition, ()):
            modes.add(grad if grad is not Grad.ENTRY else Grad.UNKNOWN)
        if not modes:
            others = () if self.sole(definition.name) else self.of_unknown(definition)
            perhaps = all(self.grad_at(flow, event.grad) is Grad.ON for flow, event in others)
            return self._root_grad(definition) if perhaps else Grad.UNKNOWN
        if Grad.ON in modes:
            return Grad.ON
        return modes.pop() if len(modes) == 1 else Grad.UNKNOWN

    def _chosen(self, definition: Definition, event: Event) -> bool:
        """Whether an event is in one branch of a module's ``forward``, and those who take it, in some mode, are not in
        sight."""
        if definition.name != "forward" or event.grad is not Grad.ENTRY or self.callers(definition):
            return False
        line = event.site.lineno  # type: ignore[attr-defined]
        return bool(event.guards) or any(isinstance(n, ast.Return) and n.lineno < line for n in definition.nodes)

    def _root_grad(self, definition: Definition) -> Grad:
        if definition in self.addressed or definition in self.hooks or definition in self.crowded:
            return Grad.UNKNOWN
        if definition.name == "<lambda>" or (definition.outer is not None and not definition.decorators):
            return Grad.UNKNOWN
        if definition.cls is not None:
            for base in self.names.library_bases(definition.cls):
                if self.library.lookup(base) is None and not base.startswith(FRAMEWORK_FREE):
                    return Grad.UNKNOWN  # a framework that nobody here knows may call it in any mode
        return Grad.ON

    def grad_at(self, flow: Flow, grad: Grad) -> Grad:
        return self.entry_grad(flow.definition) if grad is Grad.ENTRY else grad
