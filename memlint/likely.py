"""What a function cannot do, as its words and the names that it calls tell: most are settled before they are read."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Iterator
from functools import cached_property

from memlint.extract import Class, Definition, words
from memlint.facts import Grad
from memlint.knowledge import Calls
from memlint.parameters import Parameters
from memlint.trace import active, note, question, unseen

# Words of whatever trains, evaluates, loads or cleans up.
TRAINS = re.compile(
    r"backward|zero_grad|grad\(|detach\(|\.numpy\(|\.item\(|argmax|\.eval\(|optim|register_\w*hook|Scaler|LR\(|anomaly|ctx\.|lru_cache|@(?:\w+\.)?cache|Parallel|DDP|except|profile|foreach|load_state_dict|\bcycle\(|torch\.save\(|(?<!json\.)(?<!yaml\.)\bload\("
)
TRAINING = tuple(
    """backward zero_grad grad( detach( .numpy( .item( argmax .eval( optim hook Scaler LR( anomaly ctx. cache Parallel
    DDP except profile foreach load cycle( save(""".split()
)  # one of which stands in whatever `TRAINS` matches
# How something is put away, and how it is added to what there is: of an attribute of ``self``, and of a bare name.
# None of the patterns looks further than some 200 characters: a line may hold a megabyte.
_ADDS = (
    r"\.(?:append|appendleft|extend|extendleft|insert|add|put|put_nowait|update|setdefault|register_buffer"
    r"|add_param_group)\("
)
_STORES = re.compile(_ADDS + r"|\+=|\][^\n=()]{0,200}=(?!=)|^[ \t]*\) *=(?!=)", re.M)
_SELF_STORES = re.compile(rf"self\.\w[\w.]*(?:\[[^\n]{{0,200}}\] *=(?!=)|(?:\[[^\n]{{0,200}}\])?{_ADDS}| *\+=)")
_NAME_STORES = re.compile(rf"\b(\w+)(?:{_ADDS}| *\+=|\[[^\n]{{0,200}}\] *=(?!=))")
_IN_PLACE = re.compile(r"\.\w+_\(")
_SELF_SUMS = re.compile(r"self\.\w[\w.]*(?:\[[^\n]{0,200}\])?(?: *[-+*/@&|%]=|\.\w+_\()")
_NAME_SUMS = re.compile(r"\b(\w+)(?: *[-+*/@&|%]=|\.\w+_\()")
_AUGMENTED = ("+=", "-=", "*=", "/=", "@=", "&=", "|=", "%=")
_ASSIGNMENT = re.compile(r"(?:^|[:;])[ \t]*(\w[^=\n;(]{0,200}?) *=(?!=)", re.M)
_TARGET = re.compile(r"\w[\w.]*")
_SUBSCRIPT = re.compile(r"\[[^\]\n]*\]?")
_OPERATORS = ("+", "-", "*", "/")
_ALIAS = re.compile(r"\b(\w+) *= *self\.[\w.]+ *$", re.M)
_BOUND = re.compile(r"\b(\w+) *=(?!=)|\bas (\w+)|\bfor ([^\n]{1,200}?) in\b")
# What a module's own methods do with a result that nobody is to differentiate.
EVALUATES = re.compile(
    r"detach|\.(?:item|numpy|tolist|cpu|argmax|eval|train|data|max|topk|multinomial|sort|argsort)\b|backward|grad\("
)
RECORDS = re.compile(r"enable_grad|set_grad_enabled|inference_mode\(False|grad_mode|requires_grad|backward")
DEVICES = re.compile(r"cuda|device|\.to\(|gpu|accelerat|fabric")
LASTING = re.compile(r"\bfor\b|\bwhile\b|\bself\.|\bglobal\b")
# What begins a graph beside a module that is called.
LEARNS = re.compile(r"requires_grad|backward")
_HOOKED = re.compile(r"hook\w*\(([^\n]*)")
_CONSTANT = re.compile(r"[(,=]\s*(?:True|False|None|[\"'])")
_PLAIN = frozenset(dir(builtins)) | frozenset(keyword.kwlist)
_ASSIGNED = re.compile(r"self\.(\w+)\s*(?::[^=\n]{1,200})?=(?!=)")
_RUNS = frozenset({"forward", "__call__"})
_RUNNERS = frozenset({"torch.utils.checkpoint.checkpoint", "map", "torch.compile"})


def stores(code: str) -> bool:
    """Whether a code may put something into a container."""
    return _STORES.search(code) is not None


def sums(code: str) -> bool:
    """Whether a code may add something to a variable: ``t += x``, ``t.add_(x)``, ``t = t + x``."""
    if any(map(code.__contains__, _AUGMENTED)) or ("_(" in code and _IN_PLACE.search(code) is not None):
        return True
    return any(_added_to_itself(code))


def _added_to_itself(code: str) -> Iterator[str]:
    """The names, dotted ones too, that are assigned what is computed from them: ``t = t + x``."""
    for found in _ASSIGNMENT.finditer(code):
        value = code[found.end() : found.end() + 200]
        for name in _TARGET.findall(_SUBSCRIPT.sub("", found[1])):
            if name in value and _is_operand(name, value):
                yield name


def _is_operand(name: str, code: str) -> bool:
    """Whether a name, or an element of what it names, is added to something, or multiplied by it."""
    at = code.find(name)
    while at >= 0:
        after = code[at + len(name) :].lstrip()
        if after.startswith(("[", ".get(")):
            after = after[re.search(r"[\])]|$", after).end() :].lstrip()  # type: ignore[union-attr]
        if after[:1] in _OPERATORS or code[:at].rstrip()[-1:] in _OPERATORS:
            return True
        at = code.find(name, at + 1)
    return False


def _kept(code: str, how: Callable[[str], bool]) -> bool:
    """Whether that is done to an attribute of ``self``, to a name that stands for one, or to a global."""
    if "global " in code or (_SELF_STORES if how is stores else _SELF_SUMS).search(code) is not None:
        return True
    if how is sums and any(name.startswith("self.") for name in _added_to_itself(code)):
        return True
    aliases = set(_ALIAS.findall(code))
    return bool(aliases) and not aliases.isdisjoint((_NAME_STORES if how is stores else _NAME_SUMS).findall(code))


def hooked(text: str) -> frozenset[str]:
    """The names that stand where a file registers a hook."""
    return frozenset().union(*map(words, _HOOKED.findall(text)))


def assigned(text: str) -> frozenset[str]:
    """The attributes of ``self`` that a file assigns."""
    return frozenset(_ASSIGNED.findall(text))


class Likely(Parameters):
    """Questions that words and names alone answer. No settles it; yes says only that the function has to be read."""

    def trains(self, definition: Definition) -> bool:
        """Whether a function has any word of training or evaluation in it."""
        return self.says(definition, TRAINING) and definition.says(TRAINS)

    def chooses(self, definition: Definition) -> bool:
        """Whether a function may hand a constant to one that trains: which may decide that here it only evaluates."""
        return definition.says(_CONSTANT) and (
            active() or any(d.says(LEARNS) and d.tested for d in self._called(definition))
        )

    def may_run(self, definition: Definition) -> bool:
        """Whether a function, or one that it calls, may call a module and do more with it than a model's own parts."""
        if definition.cls is not None and self.is_module(definition.cls):
            if not self.trains(definition) or EVALUATES.search(definition.text) is None:
                return False
        return self._may_record(definition) and (active() or self._itself_or_called(definition, self._calls_something))

    def _may_record(self, definition: Definition) -> bool:
        """Whether autograd may be on in a function: it is off all through it where its decorators, or the framework
        that calls it, say so."""
        return self.decorated_grad(definition) is not Grad.OFF or RECORDS.search(definition.text) is not None

    def may_keep(self, definition: Definition, how: Callable[[str], bool]) -> bool:
        """Whether a function, or one that it calls, may put something with a graph where it stays: by `stores`, or by
        `sums`."""
        cls = definition.cls
        if cls is not None and self.is_module(cls) and not self.trains(definition) and not _kept(definition.code, how):
            return False
        if not self._may_record(definition):
            return False
        return active() or all(
            self._itself_or_called(definition, asked)
            for asked in (self._learns, self._lasts, lambda d: self._does(d, how))
        )

    def may_place(self, definition: Definition) -> bool:
        """Whether a function, or one that it calls, may put something on a device: by a module, or by saying so."""
        return active() or self._itself_or_called(
            definition, lambda d: self._calls_something(d) or DEVICES.search(d.code) is not None
        )

    def _itself_or_called(self, definition: Definition, asked: Callable[[Definition], bool]) -> bool:
        return asked(definition) or any(map(asked, self._called(definition)))

    def _called(self, definition: Definition) -> Iterator[Definition]:
        """The functions that it may call."""
        calls = self._calls(definition)
        yield from calls.helpers
        for name in calls.methods:
            yield from self.methods_named(name)

    def _does(self, definition: Definition, how: Callable[[str], bool]) -> bool:
        known = self._doing.get((definition, how))
        if known is None:
            known = self._doing[definition, how] = how(definition.code)
        return known

    @staticmethod
    def _lasts(definition: Definition) -> bool:
        """Whether it has a loop, or a name that outlives it."""
        if LASTING.search(definition.code) is not None:
            return True
        return not definition.module.variables.keys().isdisjoint(definition.words)

    def _learns(self, definition: Definition) -> bool:
        """Whether a graph may begin in it, or come to it as to a hook."""
        if self._calls_something(definition) or LEARNS.search(definition.code) is not None:
            return True
        note(("hook", definition.name))
        return definition.name in self._hooks

    def _calls_something(self, definition: Definition) -> bool:
        """Whether it calls what is neither a function, a class nor a method known by name: that may be a module."""
        return self._calls(definition).something

    @question(1)
    def _calls(self, definition: Definition) -> Calls:
        known = self._calling.get(definition)
        if known is None:
            known = self._calling[definition] = self._find_calls(definition)
        return known

    def _find_calls(self, definition: Definition) -> Calls:
        helpers: list[Definition] = []
        methods: list[str] = []
        method = definition
        while method.outer is not None and not method.bound:
            method = method.outer
        me = method.positional[0] if method.bound else ""
        runs = False
        for name in definition.called:
            head, dotted, last = name.rpartition(".")
            if not dotted and last in _PLAIN:
                runs = runs or last in definition.parameters or last in _RUNNERS
                continue
            if not last:  # in a string
                continue
            if last in _RUNS:
                runs = True
            found = None
            if (head or not dotted) and not self._binds(definition, name.partition(".")[0]):
                found = self.names.named(name, definition)
            if isinstance(found, str):
                runs = runs or self.library.canonical(found) in _RUNNERS
            elif isinstance(found, Definition):
                helpers.append(found)
            elif isinstance(found, Class):
                pass  # what is only being put together neither runs nor keeps anything of its maker
            elif not dotted:
                runs = True
            else:
                runs = runs or last not in self._known_methods or bool(me and head == me and self._is_layer(last))
                methods.append(last)
        return Calls(runs, helpers, methods)

    def _binds(self, definition: Definition, name: str) -> bool:
        """Whether a function, or one around it, may give a name a meaning of its own; that of ``self`` is known."""
        where: Definition | None = definition
        while where is not None:
            if name in where.parameters:
                return not (where.bound and name == where.positional[0])
            bound = self._bound.get(where)
            if bound is None:
                found = " ".join(part for each in _BOUND.findall(where.code) for part in each)
                bound = self._bound[where] = words(found)
            if name in bound:
                return True
            where = where.outer
        return False

    @cached_property
    def _known_methods(self) -> frozenset[str]:
        """Methods that the library knows: none of them calls a module."""
        return self.library.method_names()

    def _is_layer(self, name: str) -> bool:
        note(("layer", name))
        return name in self._layers

    @cached_property
    def _hooks(self) -> frozenset[str]:
        """Every name that stands where a hook is registered."""
        with unseen():
            return frozenset().union(*(hooked(m.source.text) for m in self.names.modules.values()))

    @cached_property
    def _layers(self) -> frozenset[str]:
        """The attributes of ``self`` that any file assigns: a layer may be called like a method of a tensor."""
        with unseen():
            return frozenset().union(*(assigned(m.source.text) for m in self.names.modules.values()))
