"""Small torch models and data that harnesses and rule pages share. Imported inside trials alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from memlint.trial.missing import Missing


class Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, then transform: (batch, tokens, width) to the same."""
        batch, tokens, width = x.shape
        shape = (batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = self.qkv(self.norm1(x)).view(shape).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """A language model in small: embedding, blocks, logits over the words."""

    def __init__(self, layers: int = 4, width: int = 512, words: int = 8192, heads: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, words)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits (batch, tokens, words) for word numbers (batch, tokens)."""
        return self.head(self.blocks(self.embedding(ids)))  # type: ignore[no-any-return]


class TokenBatches:
    """A loader of random word numbers and next words, made on the host anew at each step."""

    def __init__(self, steps: int, batch: int = 4, tokens: int = 512, words: int = 8192) -> None:
        self.steps, self.shape, self.words = steps, (batch, tokens), words

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(self.steps):
            yield torch.randint(self.words, self.shape), torch.randint(self.words, self.shape)


def token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy of every token's next word."""
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


BATCH, WIDTH, TOKENS, CLASSES = 32, 64, 16, 10
COUNT = 2  # a whole number of which nothing is known
LACKING = Missing("attribute")


def inputs(kind: str) -> torch.Tensor:
    """One batch of ``kind``: "classes", "values", "tokens", "images", "maps" (images to images), "same"."""
    if kind == "tokens":
        return torch.randint(CLASSES, (BATCH, TOKENS))
    if kind in ("images", "maps"):
        return torch.rand(BATCH, 3, 32, 32)
    return torch.rand(BATCH, WIDTH)


def targets(kind: str) -> torch.Tensor:
    """What a model should say to a batch of ``kind``: class numbers, or values where there are no classes."""
    if kind in ("values", "same"):
        return torch.rand(BATCH, CLASSES if kind == "values" else WIDTH)
    shape = {"tokens": (BATCH, TOKENS), "maps": (BATCH, 32, 32)}.get(kind, (BATCH,))
    return torch.randint(CLASSES, shape)


def loss_of(kind: str) -> nn.Module:
    """The criterion that goes with ``kind``."""
    return nn.MSELoss() if kind in ("values", "same") else nn.CrossEntropyLoss()


class Output(dict[str, Any]):
    """A model's output by key, by attribute and by position, as transformers' models give it."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, key: Any) -> Any:
        return list(self.values())[key] if isinstance(key, (int, slice)) else super().__getitem__(key)


class Options:
    """Settings by attribute and by key. Others than those given are ``other``, where that is given."""

    def __init__(self, other: Any = None, **given: Any) -> None:
        vars(self).update(given)
        self._other = other

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or self._other is None:
            raise AttributeError(f"the options have no {name}")
        return getattr(self._other, name)

    def __getitem__(self, key: Any) -> Any:
        return getattr(self, str(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        setattr(self, str(key), value)

    def __contains__(self, key: Any) -> bool:
        return key in vars(self)

    def get(self, key: Any, default: Any = None) -> Any:
        """The setting, or ``default``, or where that is given what others are."""
        return vars(self).get(key, default if self._other is None else self._other)


class StandIn(nn.Module):
    """A small network in place of a model that cannot be built: takes whatever batch it is given.

    ``gives`` says what comes out: "logits" (a tensor that fits ``kind``), "loss" (a number), "output" (an `Output` with
    loss, logits and hidden states), "losses" (one with a loss alone), or several of these joined by commas, as a
    tuple. ``also`` says the same of methods of the model's own by name; "optimizer" is one over its weights, "model"
    a part of it.
    """

    used = 0  # calls of such networks

    def __init__(self, kind: str = "classes", gives: str = "logits", also: dict[str, str] | None = None) -> None:
        super().__init__()
        self._also = also or {}
        self.kind, self.gives = kind, gives
        self.embedding = nn.Embedding(CLASSES, WIDTH) if kind == "tokens" else None
        self.features = {"images": 3 * 32 * 32, "maps": 3}.get(kind, WIDTH)
        self.body = nn.Sequential(nn.Linear(self.features, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.head = nn.Linear(256, WIDTH if kind == "same" else CLASSES)

    def __repr__(self) -> str:
        return f"StandIn({self.kind!r}, {self.gives!r})"  # one line, where an error's message quotes it

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Outputs for the first tensor among the arguments."""
        return self._given(self.gives, *args, **kwargs)

    def _given(self, gives: str, *args: Any, **kwargs: Any) -> Any:
        StandIn.used += 1
        tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)]
        if not tensors:
            found = [
                t
                for a in args
                for t in (a.values() if isinstance(a, dict) else a if isinstance(a, (list, tuple)) else ())
            ]
            tensors = [t for t in found if isinstance(t, torch.Tensor)]
        if not tensors:
            return None
        x = self._features(tensors[0].to(self.head.weight.device))
        hidden = self.body(x)
        logits = self.head(hidden)
        if self.kind == "maps":
            logits = logits.movedim(-1, 1)
        loss = logits.float().pow(2).mean()
        parts = {
            "logits": logits,
            "loss": loss,
            "losses": Output(loss=loss),
            "output": Output(loss=loss, logits=logits, last_hidden_state=hidden),
        }
        chosen = tuple(parts[name] for name in gives.split(","))
        return chosen if len(chosen) > 1 else chosen[0]

    def __getattr__(self, name: str) -> Any:
        gives = vars(self).get("_also", {}).get(name)
        if gives is None:
            return super().__getattr__(name)
        if gives == "optimizer":
            vars(self)[name] = _Descent(self.parameters(), lr=0.01)
            return vars(self)[name]
        if gives == "model":
            return self.body
        return lambda *args, **kwargs: self._given(gives, *args, **kwargs)

    def _features(self, x: torch.Tensor) -> torch.Tensor:
        """The batch with as many features as the first layer takes, padded with zeros or cut."""
        if self.embedding is not None and not x.is_floating_point():
            return self.embedding(x.long().clamp(0, CLASSES - 1))  # type: ignore[no-any-return]
        x = x.to(self.head.weight.dtype)
        if self.kind == "maps" and x.dim() > 2:
            x = x.movedim(1, -1)
        elif self.kind != "tokens" and x.dim() > 2:
            x = x.flatten(1)
        elif x.dim() == 0:
            x = x.expand(1)
        return F.pad(x, (0, self.features - x.shape[-1])) if x.shape[-1] != self.features else x

    def generate(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Word numbers for a batch, the most likely ones."""
        weight = self.head.weight
        words: torch.Tensor = self.head(self.body(weight.new_zeros(BATCH, TOKENS, self.features))).argmax(-1)
        return words


class _Descent(torch.optim.SGD):
    """An optimizer that a model has, as an attribute or from a method."""

    def __call__(self, *args: Any, **kwargs: Any) -> _Descent:
        return self


class Batches:
    """A loader of ``steps`` batches, each made anew by ``make`` on the host."""

    def __init__(self, steps: int, make: Callable[[], Any]) -> None:
        self.steps, self.make = steps, make
        self.batch_size = BATCH
        self.dataset = range(steps * BATCH)
        self.sampler = Quiet()

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        return (self.make() for _ in range(self.steps))

    def get_batch(self, *args: Any, **kwargs: Any) -> Any:
        """One batch, as loaders of a program's own give it."""
        return self.make()

    next_batch = get_batch


class Quiet:
    """Stands for what only takes notes (a logger, a writer, a callback): any use of it is fine and keeps nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Quiet()

    def __call__(self, *args: Any, **kwargs: Any) -> Quiet:
        return Quiet()

    def __getitem__(self, key: Any) -> Quiet:
        return Quiet()

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False


def fitted(model: nn.Module, device: Any) -> tuple[str, torch.Tensor]:
    """The first kind of batch that ``model`` takes, and one such batch on the host."""
    first = next(
        (m for m in model.modules() if isinstance(m, (nn.Linear, nn.Embedding, nn.modules.conv._ConvNd))), None
    )
    shapes: list[tuple[str, torch.Tensor]] = [(kind, inputs(kind)) for kind in ("classes", "tokens", "images")]
    if isinstance(first, nn.Linear):
        shapes.insert(0, ("classes", torch.rand(BATCH, first.in_features)))
    elif isinstance(first, nn.Embedding):
        shapes.insert(0, ("tokens", torch.randint(first.num_embeddings, (BATCH, TOKENS))))
    elif first is not None:
        dimensions = len(first.kernel_size)
        shapes = [("images", torch.rand(BATCH, first.in_channels, *[side] * dimensions)) for side in (32, 28, 64, 224)]
    for kind, batch in shapes:
        try:
            with torch.no_grad():
                model(batch.to(device))
        except (RuntimeError, TypeError, ValueError, IndexError, AssertionError, AttributeError):
            continue
        return kind, batch
    raise ValueError(f"{type(model).__name__} takes none of the batches that were tried")


def instance(cls: type, arguments: dict[str, Any], attributes: dict[str, Any]) -> Any:
    """An object of ``cls``, built with ``arguments`` or else bare; the ``attributes`` that it lacks are set.

    A model or an optimizer that is None so far is lacking, and so is what is absent. Where its class cannot make them,
    a model has weights that stand for its own.
    """
    whole = True
    if abstract := getattr(cls, "__abstractmethods__", ()):
        cls = type(cls)(cls.__name__, (cls,), {name: Quiet() for name in abstract})
        whole = False
    try:
        made = cls(**arguments)
    except Exception:
        made, whole = object.__new__(cls), False
        if isinstance(made, nn.Module):
            nn.Module.__init__(made)
    for name, value in attributes.items():
        weights = isinstance(value, (nn.Module, torch.optim.Optimizer))
        there = getattr(made, name, LACKING)
        if isinstance(there, Missing) or (weights and there is None):
            with contextlib.suppress(AttributeError):  # a property that needs what is not there
                setattr(made, name, value)
    if isinstance(made, nn.Module) and not whole and not any(True for _ in made.parameters()):
        made.register_parameter("weights", nn.Parameter(torch.rand(WIDTH, WIDTH)))
    return made
