"""What libraries do, as data: ``library/*.toml`` → ``{qualified name: Row}``.

A table of a file describes every name it lists::

    [[row]]
    in = 'torch'            # the names are torch.relu, torch.tanh, …
    on = 'tensor'           # … and the methods relu, tanh, … of every tensor
    names = 'relu tanh'
    returns = 'tensor'
    graph = 'arguments'
    example = 'w'           # the tests call torch.relu(w) and Tensor.relu(w) and hold the row against the result

``on = 'any'`` states a method by its name alone, for receivers that the analysis knows nothing of. A name may
contain ``*``. ``[alias]`` maps one prefix to another; ``.*`` at its end stands for one more segment.

`WORDS` is the whole vocabulary.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

Version = tuple[int, ...]

FOLDER = Path(__file__).with_name("library")

PARENTS: Mapping[str, str] = MappingProxyType(
    {
        "parameter": "tensor",
        "indices": "tensor",
        "engine": "module",
        "defaultdict": "dict",
        "counter": "dict",
        "shape": "tuple",
        "outputs": "dict",
    }
)
"""Kinds that answer to another kind's methods where they have none of their own."""

KINDS = frozenset(
    """
    tensor parameter indices number string bytes none bool module optimizer scheduler scaler loader dataset sampler list
    tuple dict defaultdict counter set deque queue iterator ndarray device dtype shape distribution context handle
    function meter logger writer run progress accelerator fabric engine trainer event figure file profiler
    generator graph_node packed path frame outputs tokenizer pipeline keras_model
    """.split()
)
"""What an object is, as far as memory goes. *parameter*: a leaf tensor that requires gradients; *indices*: a tensor of
integers or booleans, which never carries a graph; *engine*: a module that also does backward and step."""


WORDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        # same: a method's receiver, or a function's first argument (or its like: a copy, an element-wise result);
        # instance: one of the class that the method was called on; element: what the receiver or first argument holds;
        # arguments: the arguments without the receiver, a tuple of them where there are several.
        "returns": KINDS | {"same", "instance", "element", "arguments", "unknown"},
        "of": KINDS | {"element", "elements", "argument", "arguments", "unknown"},
        "items": KINDS | {"element", "same", "unknown"},
        "forward": KINDS | {"same", "unknown"},
        "kind": KINDS,
        # none: carries no graph; arguments: that of its tensor arguments and receiver; module: that, and the
        # parameters' own.
        "graph": frozenset({"none", "arguments", "module", "unknown"}),
        "device": frozenset({"host", "argument", "same", "unknown"}),
        # number: arguments are read as numbers or text, never kept with their graph; keeps: they are kept as they are;
        # reads: they are looked at, copied or written out, and not kept.
        "accepts": frozenset({"", "number", "keeps", "reads"}),
        # makes: a tensor of nothing but numbers, on the device that `device` names; rounds: computed, and so perhaps
        # not to the last bit the same on another device.
        # broadcasts: reads its tensor arguments (not the receiver, where it works in place) element by element, so that
        # one whose strides are zero serves as well as a full copy.
        "effects": frozenset(
            """
            backward step zero_grad frees_grads eval train freeze unfreeze requires_grad no_grad inference_mode
            set_grad_enabled enable_grad append extend insert add update setdefault put clear pop detach_ item log
            retains cycle copies in_place moves hook unhook wraps loads saves anomaly empty_cache collect profile
            autocast accumulate synchronize random materializes calls closure optional_backward differentiates figure
            close bounded reset checkpoints fused vocabulary makes rounds restores broadcasts
            """.split()
        ),
        # What a framework's base class does with the methods that the user overrides: no_grad, grad: it calls them with
        # autograd off, on; differentiated: it calls backward on what they return; collected: it keeps what they return
        # over the epoch; detached: it detaches that first; optimizers, loader: they return optimizers, a loader;
        # worker: it may run in a process of a loader; forward: it is what calling the module does; batch: it calls them
        # once for every batch.
        "hooks": frozenset(
            "no_grad grad differentiated collected detached optimizers worker forward loader batch".split()
        ),
    }
)


class LibraryError(ValueError):
    """A row says something that is not in the vocabulary; the message names the file, the row and the nearest word."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of a function, method or class.

    For a class, ``returns`` is ``kind``, the kind of its instances, and ``graph``, ``items`` and ``forward`` speak of
    what calling an instance gives.
    """

    returns: str = "unknown"
    of: str = "unknown"  # what the container that it returns holds
    items: tuple[str, ...] = ()  # the elements of the tuple that it returns; of each tuple, where `of` is elements
    items_with: str = ""  # … only where this argument is given, else one value of kind `returns`
    graph: str = "unknown"
    view: bool = False  # the result shares, or may share, the storage of the receiver or first argument
    device: str = "same"
    effects: frozenset[str] = frozenset()
    keeps: tuple[str, ...] = ()  # the arguments, by name or position, that stay referenced after the call
    accepts: str = ""
    kind: str = ""
    forward: str = ""
    parameters: bool = False  # instances hold trainable weights
    bases: tuple[str, ...] = ()
    hooks: Mapping[str, frozenset[str]] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()  # the first parameters, in order, without the receiver
    defaults: Mapping[str, Mapping[Version, Any]] = field(default_factory=dict)
    since: Version | None = None  # first torch that has it
    until: Version | None = None  # first torch that no longer has it
    attribute: bool = False  # read, not called
    example: tuple[str, ...] = ()
    check: str = ""

    def __contains__(self, effect: str) -> bool:
        """Whether the call has that effect: ``"backward" in row``."""
        return effect in self.effects

    def default(self, argument: str, version: Version | None = None) -> Any:
        """The default of ``argument`` in that version (None: the newest), or None where none is stated."""
        value = None
        for since, candidate in sorted(self.defaults.get(argument, {}).items()):
            if version is None or since <= version:
                value = candidate
        return value


def _version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


def _nearest(word: str, words: Iterable[str]) -> str:
    import difflib

    match = difflib.get_close_matches(word, sorted(words), 1, 0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


def _words(value: Any) -> tuple[str, ...]:
    return tuple(value.split()) if isinstance(value, str) else tuple(value)


_LISTS = frozenset({"effects", "items", "keeps", "bases", "arguments"})
_FLAGS = frozenset({"view", "parameters", "attribute"})
_KEYS = frozenset(f.name for f in fields(Row))
_PLACES = frozenset({"in", "on", "names"})


def make_row(table: Mapping[str, Any], where: str) -> Row:
    """Turn one table into a row. ``where`` is how an error names the place.

    Raises:
        LibraryError: an unknown key, a value of the wrong type, or a word outside `WORDS`.
    """
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in _PLACES:
            continue
        if key not in _KEYS:
            raise LibraryError(f"{where}: unknown key {key!r}{_nearest(key, _KEYS | _PLACES)}")
        try:
            values[key] = _value(key, value)
        except (AttributeError, TypeError, ValueError) as error:
            reason = str(error) if isinstance(error, LibraryError) else f"{key} cannot be {value!r}"
            raise LibraryError(f"{where}: {reason}") from None
    if kind := values.get("kind"):
        values.setdefault("returns", kind)
        if kind == "module":
            values.setdefault("forward", "tensor")
            values.setdefault("graph", "module" if values.get("parameters") else "arguments")
    return Row(**values)


def _value(key: str, value: Any) -> Any:
    if key in _FLAGS:
        if not isinstance(value, bool):
            raise TypeError
        return value
    if key == "hooks":
        hooks = {name: frozenset(_words(words)) for name, words in value.items()}
        for words in hooks.values():
            _known(key, words)
        return MappingProxyType(hooks)
    if key == "defaults":
        return MappingProxyType({name: {_version(v): d for v, d in table.items()} for name, table in value.items()})
    if key in ("since", "until"):
        return _version(value)
    if key == "example":
        return (value,) if isinstance(value, str) else tuple(value)
    if key in _LISTS:
        listed = _words(value)
        if key in WORDS:
            _known(key, listed)
        return frozenset(listed) if key == "effects" else listed
    if not isinstance(value, str):
        raise TypeError
    if key in WORDS:
        _known(key, (value,))
    return value


def _known(key: str, words: Iterable[str]) -> None:
    for word in words:
        if word not in WORDS[key]:
            raise LibraryError(f"unknown word {word!r} for {key}{_nearest(word, WORDS[key])}")


class _Entry:
    """A row that is parsed when somebody first asks for it: a run meets a few dozen of some seven hundred."""

    __slots__ = ("_row", "_source", "where")

    def __init__(self, source: str | Mapping[str, Any], where: str) -> None:
        self._source: str | Mapping[str, Any] | None = source
        self.where = where
        self._row: Row | None = None

    @property
    def row(self) -> Row:
        if self._row is None:
            table = self._source
            if isinstance(table, str):
                table = _parse(f"[[row]]{table}", self.where)["row"][0]
            self._row = make_row(table or {}, self.where)
            self._source = None
        return self._row


class Library:
    """The rows of all files, and the user's own over them. Immutable once loaded; share one."""

    def __init__(self) -> None:
        self._rows: dict[str, _Entry] = {}
        self._methods: dict[str, dict[str, _Entry]] = {}
        self._having: dict[str, frozenset[str]] = {}
        self._globs: dict[str, list[tuple[str, _Entry]]] = {}
        self._aliases: dict[str, str] = {}
        self._canonical: dict[str, str] = {}
        self._found: dict[str, Row | None] = {}

    @classmethod
    def load(cls, extra: Mapping[str, Any] | None = None) -> Library:
        """The library as shipped, with ``extra`` over it: ``{qualified name: row}``, or a string for an alias.

        Raises:
            LibraryError: a row that does not keep to the vocabulary.
        """
        library = cls()
        aliases, entries = _shipped_entries()
        library._aliases.update(aliases)
        for places, entry in entries:
            library._add(places, entry)
        for name, value in (extra or {}).items():
            if isinstance(value, str):
                library._aliases[name] = value
            elif isinstance(value, Mapping):
                entry = _Entry(value, f"library row {name!r}")
                if misplaced := _PLACES & value.keys():
                    raise LibraryError(f"{entry.where}: {sorted(misplaced)[0]!r} has no place here")
                entry.row  # noqa: B018  so that a fault shows at once
                library._add({"names": name}, entry)
            else:
                raise LibraryError(f"library row {name!r}: a table or the name that it stands for, not {value!r}")
        return library

    def _add(self, places: Mapping[str, str], entry: _Entry) -> None:
        names = places.get("names", "").split()
        if not names:
            raise LibraryError(f"{entry.where}: no names")
        kinds = places.get("on", "").split()
        for kind in kinds:
            if kind != "any" and kind not in KINDS:
                raise LibraryError(f"{entry.where}: unknown word {kind!r} for on{_nearest(kind, KINDS)}")
            self._methods.setdefault(kind, {}).update(dict.fromkeys(names, entry))
        for prefix in places.get("in", "").split() or (() if kinds else ("",)):
            for name in names:
                qualified = f"{prefix}.{name}" if prefix else name
                if "*" in name:
                    self._globs.setdefault(qualified.split(".")[0], []).append((qualified, entry))
                else:
                    self._rows[qualified] = entry

    def canonical(self, name: str) -> str:
        """The name under which the library knows ``name``: ``torch.optim.adam.Adam`` → ``torch.optim.Adam``."""
        known = self._canonical.get(name)
        if known is None:
            known = self._canonical[name] = self._rename(name)
        return known

    def _rename(self, name: str) -> str:
        for _ in range(4):
            if name in self._rows:
                return name
            renamed = self._alias(name)
            if renamed is None:
                return name
            name = renamed
        return name

    def _alias(self, name: str) -> str | None:
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            prefix = ".".join(parts[:length])
            target = self._aliases.get(prefix)
            if target is None and 1 < length < len(parts):
                target = self._aliases.get(".".join(parts[: length - 1]) + ".*")
            if target is not None:
                renamed = ".".join(filter(None, (target, *parts[length:])))
                if renamed != name:
                    return renamed
        return None

    def lookup(self, name: str) -> Row | None:
        """The row of a qualified name: a function, a class, or a method as ``module.Class.method``."""
        try:
            return self._found[name]
        except KeyError:
            row = self._found[name] = self._find(self.canonical(name))
            return row

    def _find(self, name: str) -> Row | None:
        entry = self._rows.get(name)
        if entry is not None:
            return entry.row
        owner, _, attribute = name.rpartition(".")
        if owner and (row := self.member(owner, attribute)) is not None:
            return row
        for pattern, candidate in self._globs.get(name.split(".")[0], ()):
            if fnmatchcase(name, pattern):
                return candidate.row
        return None

    def member(self, owner: str, name: str) -> Row | None:
        """The row of the attribute ``name`` of a library class, inherited ones and those of its kind included."""
        row = self.lookup(owner)
        if row is None or not (row.kind or row.bases):
            return None
        for base in (owner, *self.bases(owner)):
            found = self._rows.get(f"{self.canonical(base)}.{name}")
            if found is not None:
                return found.row
        return self.method(row.kind, name)

    def method(self, kind: str, name: str) -> Row | None:
        """The row of a method or attribute by the kind of its receiver."""
        while kind:
            entry = self._methods.get(kind, {}).get(name)
            if entry is not None:
                return entry.row
            kind = PARENTS.get(kind, "")
        return None

    def method_names(self) -> frozenset[str]:
        """The methods and attributes of all kinds."""
        return frozenset(name for names in self._methods.values() for name in names)

    def having(self, effect: str) -> frozenset[str]:
        """The bare names of the functions and methods that have an effect."""
        found = self._having.get(effect)
        if found is None:
            names = (re.split(r"[.:]", name)[-1] for name, row in self.rows() if effect in row)
            found = self._having[effect] = frozenset(names)
        return found

    def duck(self, name: str) -> Row | None:
        """The row of a method whose name says what it does on any receiver, or None."""
        return self.method("any", name)

    def bases(self, name: str) -> tuple[str, ...]:
        """The library classes that a class derives from, nearest first, each once."""
        found: dict[str, None] = {}
        row = self.lookup(name)
        for base in row.bases if row else ():
            found[base] = None
            found.update(dict.fromkeys(self.bases(base)))
        return tuple(found)

    def hook(self, name: str, method: str) -> frozenset[str]:
        """What the framework does with ``method`` of a class derived from ``name``: words of ``WORDS["hooks"]``."""
        for base in (name, *self.bases(name)):
            row = self.lookup(base)
            if row is not None and method in row.hooks:
                return row.hooks[method]
        return frozenset()

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Every row with its qualified name, patterns included; methods by kind as ``kind:name``."""
        for name, entry in self._rows.items():
            yield name, entry.row
        for patterns in self._globs.values():
            for name, entry in patterns:
                yield name, entry.row
        for kind, methods in self._methods.items():
            for name, entry in methods.items():
                yield f"{kind}:{name}", entry.row


def _parse(text: str, where: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LibraryError(f"{where}: {error}") from None


_HEAD = re.compile(r"^\[\[row\]\]", re.MULTILINE)
_PLACE = re.compile(r"^(in|on|names) = (?:'''([^']*)'''|'([^'\n]*)')", re.MULTILINE)


@functools.cache
def _shipped_entries() -> tuple[Mapping[str, str], tuple[tuple[Mapping[str, str], _Entry], ...]]:
    """The aliases, and where each row belongs. Reading all rows would take longer than checking a file."""
    aliases: dict[str, str] = {}
    entries = []
    for path in sorted(FOLDER.glob("*.toml")):
        head, *rows = _HEAD.split(path.read_text("utf-8"))
        aliases.update(_parse(head, path.name).get("alias", {}))
        for number, text in enumerate(rows, 1):
            places = {key: long or short for key, long, short in _PLACE.findall(text)}
            where = f"{path.name}: row {number} ({places.get('names', '').strip()[:40]})"
            entries.append((places, _Entry(text, where)))
    return aliases, tuple(entries)


@functools.cache
def shipped() -> Library:
    """The library without rows of the user's, loaded once."""
    return Library.load()
