"""What a harness feeds: batches of the structure that a loop takes apart, models that give what is asked of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from memlint.roles import Use
from memlint.trial.guess import Guess

TARGET = re.compile(
    r"^(y|ys|t|gts?|truth|answer)$|^(y_|targ|tgt|label|lbl|gt_|truth|class|ground)|(_y|target|label|labels)s?$", re.I
)
_INDEX = re.compile(r"^(idx|index|indices|ids?x?_?)$|_idx$|_index$", re.I)
_MASK = re.compile(r"mask", re.I)
_CALL_NOISE = {
    "to",
    "cuda",
    "cpu",
    "size",
    "shape",
    "items",
    "keys",
    "values",
    "device",
    "dtype",
    "dim",
    "float",
    "long",
    "detach",
    "numel",
    "get",
    "pop",
}


class Feed:
    """Makes expressions for the data in ``scope``.

    ``targets`` are the names that loops run over, each with the loop's target; ``guess`` is the batch to make, unless
    the project's own model (``own``) says at run time which it takes; ``ranks`` are the dimensions that names have.
    """

    def __init__(
        self,
        scope: ast.AST,
        uses: dict[str, Use],
        targets: dict[str, ast.expr],
        guess: Guess,
        own: bool,
        ranks: dict[str, int],
    ) -> None:
        self._ranks = ranks
        self._scope = scope
        self._uses = uses
        self._targets = targets
        self._guess = guess
        self._own = own

    def gives(self, name: str) -> str:
        """What the function expects of the model's output, under whatever name it is called."""
        found = (self._gives(other) for other in (name, *aliases(self._scope, name)))
        return next((gives for gives in found if gives != "logits"), "logits")

    def _gives(self, name: str) -> str:
        for node in ast.walk(self._scope):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("loss", "logits", "last_hidden_state")
                and isinstance(node.value, ast.Call)
                and dotted(node.value.func) == name
            ):
                return "output"
            if not (
                isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and dotted(node.value.func) == name
            ):
                continue
            target = node.targets[0]
            if isinstance(target, (ast.Tuple, ast.List)):
                return ",".join("loss" if "loss" in ast.unparse(e) else "logits" for e in target.elts)
            used = self._uses.get(dotted(target), Use()).attributes
            keys = {
                s.slice.value
                for s in ast.walk(self._scope)
                if isinstance(s, ast.Subscript)
                and dotted(s.value) == dotted(target)
                and isinstance(s.slice, ast.Constant)
            }
            if used & {"loss", "logits", "last_hidden_state"} or any(isinstance(key, str) for key in keys):
                return "output"
            if "loss" in dotted(target).lower() and used & {"values", "items", "keys"}:
                return "losses"
            if "backward" in used or "loss" in dotted(target).lower():
                return "loss"
        return "logits"

    def batch(self, name: str) -> str:
        """An expression for one batch, of the structure that the loop over ``name`` takes apart."""
        target = self._targets.get(name)
        if isinstance(target, (ast.Tuple, ast.List)):
            return self._tuple(target)
        variable = dotted(target) if target is not None else ""
        for node in ast.walk(self._scope):
            if (
                variable
                and isinstance(node, ast.Assign)
                and isinstance(node.targets[0], (ast.Tuple, ast.List))
                and variable in (dotted(node.value), _moved(node.value))
            ):
                return self._tuple(node.targets[0])
        keys = [
            s.slice.value
            for s in ast.walk(self._scope)
            if variable
            and isinstance(s, ast.Subscript)
            and dotted(s.value) == variable
            and isinstance(s.slice, ast.Constant)
        ]
        words = list(dict.fromkeys(key for key in keys if isinstance(key, str)))
        numbers = [key for key in keys if isinstance(key, int)]
        if numbers and not words:
            count = max(numbers) + 1
            return f"({', '.join(self.element('', last=0 < i == count - 1) for i in range(count))},)"
        attributes = sorted(self._uses.get(variable, Use()).attributes - _CALL_NOISE)
        if not words and variable and self._spread(variable):
            words = ["input_ids", "labels"]
        if words:
            return "Output(" + ", ".join(f"{w}={self._entry(variable, w)}" for w in words if w.isidentifier()) + ")"
        if attributes:
            return "Output(" + ", ".join(f"{a}={self.element(a, last=False)}" for a in attributes) + ")"
        if variable:
            return self.element(variable, last=False)
        return f"({self.element('', last=False)}, {self.element('', last=True)})"

    def _entry(self, variable: str, key: str) -> str:
        """What a batch has under ``key``: where that is asked for its own items, words by their usual key."""
        inner = any(
            isinstance(n, ast.Attribute)
            and n.attr in ("items", "keys", "values")
            and isinstance(n.value, ast.Subscript)
            and dotted(n.value.value) == variable
            and isinstance(n.value.slice, ast.Constant)
            and n.value.slice.value == key
            for n in ast.walk(self._scope)
        )
        element = self.element(key, last=False)
        return f"Output(input_ids={element})" if inner else element

    def _spread(self, variable: str) -> bool:
        return (
            any(
                isinstance(k, ast.keyword) and k.arg is None and dotted(k.value) == variable
                for k in ast.walk(self._scope)
            )
            or "items" in self._uses.get(variable, Use()).attributes
        )

    def _tuple(self, target: ast.Tuple | ast.List) -> str:
        count = len(target.elts)
        parts = [
            self._tuple(e)
            if isinstance(e, (ast.Tuple, ast.List))
            else self.element(dotted(e), last=i == count - 1 and count > 1)
            for i, e in enumerate(target.elts)
        ]
        return f"({', '.join(parts)}{',' if count == 1 else ''})"

    def element(self, name: str, *, last: bool) -> str:
        if _MASK.search(name):
            return "torch.ones(BATCH, TOKENS, dtype=torch.bool)"
        if _INDEX.search(name) and self._guess.kind != "tokens":
            return "torch.arange(BATCH)"
        dimensions = self._ranks.get(name, 0)
        if dimensions and not self._own and not (self._guess.target and TARGET.search(name)):
            return self._guess.of(dimensions, classes=bool(TARGET.search(name)))
        if TARGET.search(name) or last:
            return "targets(kind)" if self._own and not self._guess.target else self._guess.targets
        return "batch.clone()" if self._own else self._guess.inputs


def aliases(scope: ast.AST, name: str) -> Iterator[str]:
    """Other names that ``scope`` gives to what ``name`` holds."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                pairs = list(zip(target.elts, value.elts, strict=True))
            yield from (dotted(to) for to, of in pairs if dotted(of) == name and dotted(to))


def iterations(scope: ast.AST, watched: str = "") -> Iterator[tuple[str, ast.expr]]:
    """Names that loops run over, through ``enumerate``, ``tqdm``, ``zip`` and ``iter``, each with the loop's target.

    Of the loop over ``watched`` also a call, as it stands there.
    """
    made: dict[str, list[ast.Call]] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and dotted(node.targets[0]):
            made.setdefault(dotted(node.targets[0]), []).append(node.value)
    for node in ast.walk(scope):
        if isinstance(node, (ast.For, ast.comprehension)):
            iterable, target = node.iter, node.target
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and dotted(node.value.func) == "next":
            if not node.value.args:
                continue
            iterable, target = node.value.args[0], node.targets[0]
        else:
            continue
        calls = isinstance(node, ast.For | ast.comprehension) and ast.unparse(iterable) == watched
        for name, part in _iterated(iterable, target, calls=calls):
            yield name, part
            for call in made.get(name, ()):
                yield from _iterated(call, part)


def _iterated(iterable: ast.expr, target: ast.expr, *, calls: bool = False) -> Iterator[tuple[str, ast.expr]]:
    if name := dotted(iterable):
        yield name, target
    if not isinstance(iterable, ast.Call):
        return
    wrapper = dotted(iterable.func).rpartition(".")[2].lower()
    if wrapper == "enumerate" and iterable.args:
        inner = target.elts[1] if isinstance(target, ast.Tuple) and len(target.elts) == 2 else target
        yield from _iterated(iterable.args[0], inner, calls=calls)
    elif wrapper == "zip" and isinstance(target, ast.Tuple):
        for argument, part in zip(iterable.args, target.elts, strict=False):
            yield from _iterated(argument, part, calls=calls)
    elif (
        wrapper in ("tqdm", "trange", "iter", "islice", "track", "prefetch", "log_every", "progress_bar", "list")
        and iterable.args
    ):
        yield from _iterated(iterable.args[0], target, calls=calls)
    elif calls and wrapper != "range":
        yield ast.unparse(iterable), target


def dotted(node: ast.AST | None) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def _moved(value: ast.expr) -> str:
    """The name of a batch whose parts ``value`` moves: ``[t.to(device) for t in batch]``, ``map(move, batch)``."""
    if isinstance(value, (ast.GeneratorExp, ast.ListComp)):
        return dotted(value.generators[0].iter)
    if isinstance(value, ast.Call) and re.search(r"map|to_device|move|unpack|send|cuda", dotted(value.func)):
        return next((name for argument in value.args if (name := dotted(argument))), "")
    return ""
