"""What a function's text alone rules out. Each question is asked before the function is read, and costs little.

The answer may be yes too often and never too seldom, so that asking first changes no finding; where somebody traces
what is looked at, it is always yes. `Function.own` asks `possible`; a rule that needs more than one thing at once asks
for all of them first.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable
from keyword import kwlist
from typing import TYPE_CHECKING

from memlint.extract import Class, Definition, Module
from memlint.facts import Grad
from memlint.library import MADE
from memlint.reach import GUARDING, SWITCHES, differentiates
from memlint.trace import active

if TYPE_CHECKING:
    from memlint.project import Project

# Every pattern below is bounded: a generated line may be a million characters long.
HELPERS = 40  # functions that are looked through, one after the other
_PUTS = r"\.(?:append|appendleft|extend|extendleft|insert|add|put|put_nowait|setdefault|update)\("
_STORES = re.compile(rf"{_PUTS}|\] *(?::[^=\n]{1, 200})?=(?!=)|\+=")
_PLAIN = frozenset((*dir(builtins), *kwlist))
_READS = re.compile(  # what reads numbers off a result, and needs no graph for it
    r"[<>!=]=|(?<![->])[<>]|arg(?:max|min|sort)|\.(?:item|topk|tolist|numpy|cpu|multinomial|sample|max|min|sort|detach|data)\b"
    r"|(?:max|min|sort|topk|multinomial|float|int|str|print|round|bool|format|len|save_image)\("
)
_DECIDES = re.compile(r"arg(?:max|min|sort)|\.(?:item|topk|tolist|numpy|cpu|multinomial|detach|max)\(|\.data\b")
_JOINED = re.compile(
    r"\bself\.\w+ *(?::[^=\n]{1,200})?=(?!=)[^\n]{0,200}(?:\n[^\n]{0,200})?"
    r"\b(?:cat|concat|concatenate|[hv]?stack|append|(?:row|column)_stack)\("
)
_INTO = re.compile(rf"\bself\.[\w.]+[^\n]{{0,200}}?(?:{_PUTS}|\] *=(?!=)| *\+=)")
_ALIAS = re.compile(
    r"^[ \t]*(?:(\w+) *= *self\.[\w.]+(?:\[[^\n]{0,200}\])?[ \t]*$|for +([^\n]{1,200}?) +in +[^\n]{0,200}\bself\.)",
    re.M,
)

Possible = Callable[["Project", Definition], bool]


def possible(project: Project, definition: Definition, verb: str) -> bool:
    """Whether an event of that verb may stand in the function's own text."""
    check = _OWN.get(verb)
    return check is None or active() or check(project, definition)


def forwards(project: Project, definition: Definition) -> bool:
    """Whether a function's own text may call a module."""
    known = project.forwarding.get(definition)
    if known is None:
        known = any(given and _may_be_module(project, definition, n) for n, given in definition.called.items())
        project.forwarding[definition] = known
    return known


def may_forward(project: Project, definition: Definition) -> bool:
    """Whether it, or what it calls by name, may call a module."""
    if active():
        return True
    seen = [definition]
    for each in seen:  # grows as it goes
        if forwards(project, each):
            return True
        if len(seen) < HELPERS:
            seen += [d for d in project.names.helpers(each) if d not in seen]
    return False


def _may_be_module(project: Project, definition: Definition, name: str) -> bool:
    """Whether what is called by a name, with arguments, may be a module: not where it is known for something else."""
    root, _, last = name.rpartition(".")
    if last in ("forward", "__call__", "map", "]", ")"):
        return True
    if last.startswith("__"):
        return False
    if name[0] == ".":
        return last in project.attribute_names
    names = project.names
    if not root:
        if name in _PLAIN or definition.module.source.text.count(name) < 2:  # bound nowhere: a word in a string
            return False
        return not isinstance(names.local(name, definition), (Definition, Class, Module, str))
    own = definition.positional[0] if definition.bound else ""
    cls = definition.cls
    if root == own and cls is not None:
        return names.method(cls, last) is None and project.library.method(project.class_kind(cls), last) is None
    first = root.partition(".")[0]
    if first not in definition.parameters and first != own and first in definition.module.imports:
        if isinstance(names.local(first, definition), (str, Module, Class)):
            return False
    return last in project.attribute_names


def builds(project: Project, definition: Definition) -> bool:
    """Whether it may make a module, an optimizer or their like: by the name of a class, or of what returns one."""
    for name in definition.called:
        if name in _PLAIN or name[0] in ")]":
            continue
        if name.rpartition(".")[2] in project.library.makers:
            return True
        found = project.names.named(name, definition) if name[0] != "." else None
        if isinstance(found, Class):
            return True
        row = project.library.lookup(found) if isinstance(found, str) else None
        if row is not None and (row.kind in MADE or row.returns in MADE):
            return True
    return False


def _says(effect: str) -> Possible:
    return lambda project, definition: not project.library.doers(effect).isdisjoint(definition.words)


def _reads(pattern: re.Pattern[str]) -> Possible:
    return lambda project, definition: pattern.search(definition.code) is not None


_OWN: dict[str, Possible] = {
    "forward": forwards,
    "backward": lambda project, definition: differentiates(definition),
    "grad": lambda project, definition: differentiates(definition),
    "store": _reads(_STORES),
    "build": builds,
    "collect": _reads(re.compile(r"\bfor\b")),
    "zero_grad": _says("zero_grad"),
    "step": _says("step"),
    "eval": _says("eval"),
    "train": _says("train"),
    "hook": _says("hook"),
}


def may_evaluate(project: Project, definition: Definition) -> bool:
    """Whether a forward in it, or in a helper that it calls, may be needless.

    Either something switches models between training and evaluation, as far as it can be seen from there, or it reads
    numbers off results; a module's own methods, which are full of sizes and comparisons, only where they plainly
    decide by them.
    """
    if active():
        return True
    if not _switched(project, definition):
        cls = definition.cls
        reads = _DECIDES if cls is not None and project.is_module(cls) else _READS
        if reads.search(definition.code) is None:
            return False
    return forwards(project, definition) or any(
        (project.reach.trains(helper) or project.reach.guarded(helper)) and forwards(project, helper)
        for helper in project.names.helpers(definition)
    )


def _switched(project: Project, definition: Definition) -> bool:
    """Whether models that the function can see are switched: its own, those of its class, those of the file."""
    if SWITCHES.search(definition.code):
        return True
    source, cls = definition.module.source, definition.cls
    switches, shared = project.reach.switching(definition.module)
    if switches:
        if shared or not definition.module.variables.keys().isdisjoint(definition.words):
            return True
        if cls is not None:
            lines = source.lines[cls.node.lineno - 1 : cls.node.end_lineno]
            return SWITCHES.search("".join(lines)) is not None
    return any(SWITCHES.search(d.code) for d in project.names.helpers(definition))


def may_train(project: Project, definition: Definition) -> bool:
    """Whether a graph may begin in it that somebody differentiates."""
    if active():
        return True
    reach = project.reach
    if reach.hooks(definition):
        return True
    return reach.trains(definition) and (differentiates(definition) or may_forward(project, definition))


def may_run_guarded(project: Project, definition: Definition) -> bool:
    """Whether some of it may run with autograd off: by its own words, its caller's, or a framework's."""
    if active():
        return True
    return (
        not GUARDING.isdisjoint(definition.words)
        or project.reach.guarded(definition)
        or project.decorated_grad(definition) is not Grad.ENTRY
    )


def may_keep(project: Project, definition: Definition) -> bool:
    """Whether it may put something where it outlives the call: a module's attribute, a global, a default argument."""
    if active():
        return True
    text = definition.code
    cls = definition.cls
    module = cls is not None and project.is_module(cls)
    if module and _JOINED.search(text):
        return True
    if not _STORES.search(text):
        return False
    if module and (_INTO.search(text) or _filled(text)):
        return True
    if any(not isinstance(d, ast.Constant) for d in definition.defaults.values()):
        return True
    variables = definition.module.variables
    return any(not isinstance(variables[name], ast.Constant) for name in variables.keys() & definition.words)


def _filled(text: str) -> bool:
    """Whether a name for an attribute, or for one of its elements, gets something put into it."""
    names = {n for found in _ALIAS.findall(text) for n in re.findall(r"\w+", " ".join(found))}
    return any(re.search(rf"\b{n}(?:{_PUTS}|\[[^\n]{{0,200}}\] *=(?!=)| *\+=)", text) for n in names)
