"""What a batch looks like: a first guess by words in the code, and better ones from what the forward complains of."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass, replace

BATCH, TOKENS = 32, 16  # as `standins` has them
SIDES = (28, 32, 64, 84, 96, 112, 128, 160, 224, 256, 299)

KINDS = ("classes", "tokens", "values", "images", "same", "maps")
_WORDS: tuple[tuple[str, str], ...] = (
    ("maps", r"seg|unet|pixel|\bmaps?\b|heatmap|depth"),
    ("tokens", r"token|input_ids|\bids\b|vocab|seq|flatten\(0, 1\)|view\(-1,|reshape\(-1,|bptt|block_size|word|\btext"),
    ("same", r"noise|diffus|autoenc|\bvae\b|recon|denois"),
    ("values", r"mse|l1_loss|smooth_l1|huber|regress|binary_cross|BCE"),
    ("images", r"image|\bimg|conv|pixel|mnist|cifar|vision"),
)
_CHANNELS = re.compile(r"(^|_)channels?$|^nc$|^in_chans?$|^image_channels")
_SIDE = re.compile(
    r"^(im(age|g)?_?(size|dim|side|h|height|w|width|sz))$|^(crop|input|image|img)_?(size|res)$|^resolution$"
)
_LENGTH = re.compile(r"^(block_size|seq_?len(gth)?|sequence_length|max_?(seq_?)?len(gth)?|bptt|context_length)$")


@dataclass(frozen=True)
class Guess:
    """A batch: of ``kind``, or where that is known better, of examples of ``shape``, which are ``words`` or values.

    Attributes:
        kind: as `standins.inputs` and `standins.targets` have it.
        shape: of one example, without the batch.
        words: whether the examples are whole numbers.
        target: an expression for what a model should say, "" for the kind's own.
        unknown: what arguments are of which the code tells nothing: "" (a fraction), "whole" or "tensor".
    """

    kind: str
    shape: tuple[int, ...] = ()
    words: bool = False
    target: str = ""
    unknown: str = ""

    @property
    def inputs(self) -> str:
        """An expression for one batch."""
        if not self.shape and not self.words:
            return f'inputs("{self.kind}")'
        sizes = ", ".join(map(str, self.shape)) if self.shape else "TOKENS"
        return f"torch.randint(2, (BATCH, {sizes}))" if self.words else f"torch.rand(BATCH, {sizes})"

    @property
    def targets(self) -> str:
        """An expression for what a model should say to it."""
        return self.target or f'targets("{self.kind}")'

    def of(self, dimensions: int, *, classes: bool = False) -> str:
        """An expression for a batch with so many ``dimensions``: this one where it has them, else one like it.

        Of ``classes`` it has numbers, where its dimensions do not tell otherwise.
        """
        if classes and dimensions <= 2:
            return f"torch.randint(2, ({'BATCH,' if dimensions == 1 else 'BATCH, TOKENS'}))"
        if len(self.example) + 1 == dimensions:
            return self.inputs
        last = self.shape[-1] if self.shape else "WIDTH"
        sizes = {1: "BATCH", 2: f"BATCH, {last}", 3: f"BATCH, TOKENS, {last}", 4: "BATCH, 3, 32, 32"}
        return f"torch.rand({sizes.get(dimensions, 'BATCH, 3, 8, 32, 32')})"

    @property
    def example(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self.shape or {"tokens": (TOKENS,), "images": (3, 32, 32), "maps": (3, 32, 32)}.get(self.kind, (64,))


def guesses(function: ast.AST, tree: ast.Module) -> tuple[Guess, ...]:
    """The batches to try on ``function``, the likeliest first, with the sizes that ``tree`` names."""
    sizes = _constants(tree)
    channels = next((sizes[name] for name in sizes if _CHANNELS.search(name) and sizes[name] in (1, 3, 4)), 3)
    side = next((sizes[name] for name in sizes if _SIDE.search(name) and 8 <= sizes[name] <= 512), 32)
    length = next((sizes[name] for name in sizes if _LENGTH.search(name) and 2 <= sizes[name] <= 1024), 0)
    made = []
    for kind in kinds(function):
        guess = Guess(kind)
        if kind in ("images", "maps") and (channels, side) != (3, 32):
            guess = Guess(kind, (channels, side, side))
        elif kind == "tokens" and length:
            guess = Guess(kind, (length,), words=True)
        made.append(guess)
    return tuple(made)


def _constants(tree: ast.Module) -> dict[str, int]:
    """Whole numbers by name: assigned, given as defaults, or those of command line options."""
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        name, value = "", None
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Name, ast.Attribute)):
            name, value = ast.unparse(node.targets[0]).rpartition(".")[2], node.value
        elif isinstance(node, ast.keyword) and node.arg:
            name, value = node.arg, node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument"):
            words = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            name = words[-1].lstrip("-").replace("-", "_") if words else ""
            value = next((k.value for k in node.keywords if k.arg == "default"), None)
        if name and isinstance(value, ast.Constant) and type(value.value) is int:
            found.setdefault(name.lower(), value.value)
    return found


def kinds(function: ast.AST) -> list[str]:
    """The kinds of batch to try on ``function``, the likeliest first."""
    text = ast.unparse(function)
    likely = [kind for kind, pattern in _WORDS if re.search(pattern, text, re.I)]
    return list(dict.fromkeys([*likely, *KINDS]))


def refined(guess: Guess, message: str) -> list[Guess]:
    """Better guesses, the likeliest first, after a run with ``guess`` failed with ``message``; none where it tells
    nothing."""
    for pattern, improve in _COMPLAINTS:
        if match := re.search(pattern, message):
            return [better for better in improve(guess, match) if better != guess]
    return []


def known(message: str) -> bool:
    """Whether ``message`` tells something of the batch."""
    return any(re.search(pattern, message) for pattern, _ in _COMPLAINTS)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text))


def _features(guess: Guess, match: re.Match[str]) -> list[Guess]:
    """A linear layer got ``got`` features and wants ``wanted``."""
    got, wanted = int(match["got"]), int(match["wanted"])
    example = guess.example
    if guess.words:
        return [replace(guess, words=False, shape=(wanted,))]
    beside = got - math.prod(example)  # features that are joined to the batch's own
    if 0 < beside < wanted:
        flat = replace(guess, shape=(wanted - beside,))
        return [*_pictures(guess, wanted - beside), flat] if len(example) > 1 else [flat]
    if len(example) == 1 or example[-1] == got:
        return [replace(guess, shape=(*example[:-1], wanted)), *_pictures(guess, wanted)]
    if got == math.prod(example):
        return [*_pictures(guess, wanted), replace(guess, shape=(wanted,))]
    return [*_other_sides(guess, got, wanted), replace(guess, shape=(wanted,))]


def _pictures(guess: Guess, numbers: int) -> list[Guess]:
    """Square pictures of so many numbers."""
    sides = [(c, math.isqrt(numbers // c)) for c in (1, 3) if numbers % c == 0]
    return [replace(guess, shape=(c, s, s)) for c, s in sides if c * s * s == numbers and s > 1]


def _other_sides(guess: Guess, got: int, wanted: int) -> list[Guess]:
    """Pictures whose features after some layers may come out as wanted: the ratio tells which way to go."""
    if len(guess.example) < 2:
        return []
    channels, side = guess.example[0], guess.example[-1]
    dimensions = len(guess.example) - 1
    scaled = round(side * (wanted / max(got, 1)) ** (1 / dimensions))
    usual = sorted(SIDES, key=lambda s: abs(s - scaled))
    sides = dict.fromkeys((*usual[:1], scaled, *usual[1:2]))
    return [replace(guess, shape=(channels, *[s] * dimensions)) for s in sides if 1 < s <= 512 and s != side]


def _channels(guess: Guess, match: re.Match[str]) -> list[Guess]:
    """A convolution or a norm wants ``wanted`` channels. A batch of one dimension less was taken for one example."""
    wanted, example = int(match["wanted"]), guess.example
    sizes = example[1:] if len(example) > 1 else (32, 32)
    dimensions = match["weight"].count(",") if match.groupdict().get("weight") else len(example)
    if dimensions == len(example) + 1:
        sizes = (*sizes, sizes[-1])
    better = [replace(guess, shape=(wanted, *sizes), words=False)]
    if len(example) == 3 and example[-1] == wanted:
        better.insert(0, replace(guess, shape=(wanted, *example[:-1])))
    return better


def _dimensions(guess: Guess, match: re.Match[str]) -> list[Guess]:
    """A convolution, a norm or a recurrent layer wants ``dim`` dimensions, the batch among them."""
    wanted = int(next(filter(None, match.groups()))) - 1
    example = guess.example
    if wanted == 1:
        return [replace(guess, shape=(math.prod(example),))]
    if wanted == 2:
        return [replace(guess, shape=(TOKENS, example[-1]), words=False)]
    channels = example[0] if len(example) > 1 else 3
    side = example[-1] if len(example) > 1 else 32
    return [replace(guess, shape=(channels, *[side] * (wanted - 1)), words=False)]


def _fewer(guess: Guess, match: re.Match[str]) -> list[Guess]:
    """So many sizes are asked for, the batch's among them, and there are more."""
    wanted = int(match["dim"])
    if wanted > len(guess.example):
        return []
    return [Guess("tokens", (TOKENS,), words=True)] * (wanted == 2) + _dimensions(guess, match)


def _named(guess: Guess, match: re.Match[str]) -> list[Guess]:
    """Sizes are asked for by their names, the batch's first."""
    count = len(match["names"].split(",")) - 1
    return [replace(guess, shape=(3, 32, 32)[:count] if count > 2 else (TOKENS, 64)[-count:], words=False)]


def _larger(guess: Guess, match: re.Match[str]) -> list[Guess]:
    example = guess.example
    if len(example) < 2:
        return [replace(guess, shape=(3, 64, 64), words=False)]
    return [replace(guess, shape=(example[0], *[s * 2 for s in example[1:]]))] if example[-1] < 256 else []


def _words(guess: Guess, match: re.Match[str]) -> list[Guess]:
    return [] if guess.words else [replace(guess, words=True, shape=guess.example if len(guess.example) == 1 else ())]


def _values(guess: Guess, match: re.Match[str]) -> list[Guess]:
    return [replace(guess, words=False, kind="images", shape=())]


def _real(guess: Guess, match: re.Match[str]) -> list[Guess]:
    return [replace(guess, words=False, kind="classes", shape=guess.example)]


def _recurrent(guess: Guess, match: re.Match[str]) -> list[Guess]:
    wanted = int(match["wanted"])
    before = guess.example[:-1] if len(guess.example) > 1 else (TOKENS,)
    return [replace(guess, shape=(*before[-1:], wanted), words=False)]


def _viewed(guess: Guess, match: re.Match[str]) -> list[Guess]:
    """A batch is seen as ``view``, which its numbers do not fill: what follows the first size is one example."""
    sizes = [int(n) for n in re.findall(r"-?\d+", match["view"])]
    one = math.prod(abs(n) for n in sizes[1:])
    if guess.words or one < 2:
        return []
    if math.prod(guess.example) == BATCH * one or len(sizes) < 2:
        return []
    flat = replace(guess, shape=(one,))
    if int(match["total"]) != BATCH * math.prod(guess.example):
        return _other_sides(guess, int(match["total"]) // BATCH, one)
    return [*_pictures(guess, one), flat]


def _like(guess: Guess, match: re.Match[str]) -> list[Guess]:
    """The target should have the output's shape."""
    return [replace(guess, target=f"torch.rand({_sizes(match['wanted'])})")]


def _sizes(text: str) -> str:
    numbers = _numbers(text)
    return ", ".join("BATCH" if i == 0 and n == BATCH else str(n) for i, n in enumerate(numbers)) + (
        "," if len(numbers) == 1 else ""
    )


def _classes(guess: Guess, match: re.Match[str]) -> list[Guess]:
    """The target should be one class number for each of so many outputs."""
    return [replace(guess, target=f"torch.randint(2, ({_sizes(match['wanted'])}))")]


def _one_class_each(guess: Guess, match: re.Match[str]) -> list[Guess]:
    return [replace(guess, target="torch.randint(2, (BATCH,))")]


def _whole_targets(guess: Guess, match: re.Match[str]) -> list[Guess]:
    return [replace(guess, target="torch.randint(2, (BATCH,))"), *_words(guess, match)]


def _real_targets(guess: Guess, match: re.Match[str]) -> list[Guess]:
    target = "torch.rand(BATCH)" if "randint(2, (BATCH,))" in guess.target or not guess.target else guess.target
    return [replace(guess, target=target), replace(guess, target="torch.rand(BATCH, 1)")]


def _more(guess: Guess, match: re.Match[str]) -> list[Guess]:
    """Examples with more dimensions are indexed."""
    if len(guess.example) > 2:
        return []
    return [replace(guess, kind="images", shape=(3, 32, 32) if len(guess.example) == 2 else ()), *_sequence(guess)]


def _sequence(guess: Guess) -> list[Guess]:
    return [replace(guess, shape=(TOKENS, guess.example[-1]), words=False)] if len(guess.example) == 1 else []


def _size(guess: Guess, match: re.Match[str]) -> list[Guess]:
    """What is joined differs in a size, of which one is the batch's own: so the other is what it should be."""
    sizes = {int(match["a"]), int(match["b"])}
    example = guess.example
    other = sizes - {example[-1]}
    if len(example) < 3 or example[-1] not in sizes or len(other) != 1:
        return []
    return [replace(guess, shape=(example[0], *[other.pop()] * (len(example) - 1)))]


def _tokens(guess: Guess, match: re.Match[str]) -> list[Guess]:
    """Two lengths along a sequence differ: the one that is not ours is the model's own."""
    sizes = {int(match["a"]), int(match["b"])} - set(guess.example) - {BATCH}
    index = int(match["at"])
    example = guess.example
    if not sizes or index > len(example) or index == 0:
        return []
    return [replace(guess, shape=(*example[: index - 1], min(sizes), *example[index:]))]


def _unknown(guess: Guess, match: re.Match[str]) -> list[Guess]:
    return [replace(guess, unknown="tensor" if match["use"] else "whole")]


_COMPLAINTS = (
    (r"'float' object (?P<use>has no attribute|is not (?:subscriptable|iterable|callable))", _unknown),
    (
        r"(?P<use>)(?:of ints, ?but got (?:float|Tensor)|'float' object cannot be interpreted as an int|got \(float)",
        _unknown,
    ),
    (r"(?P<use>not )supported between instances of '(?:float|Tensor)' and 'Tensor'", _unknown),
    (r"shapes cannot be multiplied \(\d+x(?P<got>\d+) and (?P<wanted>\d+)x", _features),
    (r"same reduction dim, but got \[\d+, (?P<got>\d+)\] X \[(?P<wanted>\d+)", _features),
    (r"normalized_shape=\[(?:\d+, )*(?P<wanted>\d+)\].*input of size ?\[(?:\d+, )*(?P<got>\d+)\]", _features),
    (
        r"(?:weight of size \[(?P<weight>[\d, ]+)\], )?expected input\[[\d, ]+\] to have (?P<wanted>\d+) channels",
        _channels,
    ),
    (r"running_mean should contain \d+ elements not (?P<wanted>\d+)", _channels),
    (r"[Ee]xpected \dD \(unbatched\) or (?P<dim>\d)D \(batched\)", _dimensions),
    (r"[Ee]xpected (?:\dD or )?(?P<dim>\d)D input|is not equal to len\(dims\) = (?P<axes>\d)", _dimensions),
    (r"Kernel size can't be greater|[Oo]utput size is too small|non-positive|padding size should be less", _larger),
    (r"Expected more than 1 value per channel", _larger),
    (r"Input type \(long", _values),
    (r"must have the same dtype, but got Long", _real),
    (r"'indices' to have (?:one of the following )?scalar types?:? ?:?\w*Long", _words),
    (r"embedding.*(?:Long|Int)|indices.*(?:Long|integer)|must be (?:integer|Long)", _words),
    (r"input\.size\(-1\) must be equal to input_size.*[Ee]xpected (?P<wanted>\d+)", _recurrent),
    (r"shape '\[(?P<view>[-\d, ]+)\]' is invalid for input of size (?P<total>\d+)", _viewed),
    (r"[Tt]arget size \(torch\.Size\(\[[\d, ]*\]\)\).*input size \(torch\.Size\(\[(?P<wanted>[\d, ]+)\]\)\)", _like),
    (r"batch_size \((?P<wanted>\d+)\) to match target batch_size", _classes),
    (r"0D or 1D target|1D target tensor expected|multi-target not supported|Expected target size", _one_class_each),
    (r"[Ee]xpected (?:floating point type|scalar type Float|dtype Float).*(?:Long|Int)", _real_targets),
    (r"can't be cast to .*(?:Long|Int)|Found dtype Long but expected Float|not implemented for 'Long'", _real_targets),
    (r"expected scalar type Long|not implemented for 'Float'|[Ee]xpected.*Long", _whole_targets),
    (r"too many indices for tensor|Dimension out of range", _more),
    (r"of shape [\[(](?P<names>\w+(?:, ?\w+)+)[\])]", _named),
    (r"too many values to unpack \(expected (?P<dim>[2-5])\)", _fewer),
    (r"not enough values to unpack \(expected (?P<dim>[2-5]), got \d\)", _dimensions),
    (r"except in dimension \d\. Expected (?:size )?(?P<a>\d+) .*?got (?:size )?(?P<b>\d+)", _size),
    (r"size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\).*dimension (?P<at>\d+)", _tokens),
)
