"""A finding to a harness: plain source text that calls the flagged function, as a person could have written it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from memlint.check import Options, check_paths
from memlint.rule import Finding
from memlint.source import Source
from memlint.trial.guess import Guess, guesses
from memlint.trial.lenient import bound, way
from memlint.trial.roles import Roles, own_models
from memlint.trial.run import Spec
from memlint.trial.watch import Place, bytes_at, called, definition, first, locate, loop_at, own, position

_NAMES = (
    "BATCH",
    "COUNT",
    "TOKENS",
    "WIDTH",
    "Batches",
    "Options",
    "Output",
    "Quiet",
    "StandIn",
    "fitted",
    "inputs",
    "instance",
    "loss_of",
    "targets",
)
_ROOTS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")


class CannotRun(Exception):
    """No trial can be made for a finding; the message says why and what the user could supply."""


@dataclass(frozen=True)
class Module:
    """How a file is imported: its dotted name, the folders to put on ``sys.path``, the root of its project."""

    name: str
    paths: tuple[str, ...]
    root: str


def module_of(path: str) -> Module:
    """The module that the file at ``path`` is, by the ``__init__.py`` files around it."""
    file = Path(path).resolve()
    parts = [file.stem] if file.stem != "__init__" else []
    folder = file.parent
    while (folder / "__init__.py").exists() and folder != folder.parent:
        parts.insert(0, folder.name)
        folder = folder.parent
    root = next((f for f in (file.parent, *file.parents) if any((f / name).exists() for name in _ROOTS)), folder)
    if not all(part.isidentifier() for part in parts):
        parts = ["memlint_trial_module"]
    paths = dict.fromkeys(
        str(p) for p in (folder, file.parent if folder == file.parent else folder, root, root / "src")
    )
    return Module(
        ".".join(parts), tuple(p for p in paths if os.path.isdir(p)), str(root if len(root.parts) > 1 else folder)
    )


def place_of(finding: Finding, source: Source) -> Place:
    """The loop to watch for ``finding``. Raises `CannotRun` for code outside functions."""
    place = locate(source.text, finding.span.line, finding.span.column)
    if place.function:
        return place
    if name := _decorated(finding, source):
        raise CannotRun(
            f"it decorates `{name}`: supply --harness FILE whose `target` is a function that calls `{name}`"
        )
    raise CannotRun("it stands at module level, which cannot be called: move it into a function")


def around(finding: Finding, source: Source, target: str) -> Place:
    """The loop around ``finding`` in the function ``target`` of its file, or where it has none there, its first."""
    place = locate(source.text, finding.span.line, finding.span.column)
    return place if place.loop is not None and place.function == target else first(source.text, target)


def own_harness(source: Source) -> str | None:
    """A harness for a file that has its own: a function `setup(device)` that returns arguments, and maybe `target`."""
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "setup" and _names_of(node.args) == ["device"]:
            if any(isinstance(n, ast.Return) and n.value is not None for n in own(node)):
                target = called(source.text)
                return "setup = module.setup\n" + (f'target = "{target}"\n' if target else "")
    return None


def _names_of(arguments: ast.arguments) -> list[str]:
    every = (*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg)
    return [argument.arg for argument in every if argument is not None]


@dataclass(frozen=True)
class Draft:
    """A way to run what a finding flags: ``write`` makes the harness for a guess of what the batches look like.

    ``chain`` are the scopes that are run leniently (`run.Spec`), none where the function is called as it stands.
    """

    tier: str
    place: Place
    guesses: tuple[Guess, ...]
    write: Callable[[Guess], str]
    chain: tuple[str, ...] = ()


def spec(
    finding: Finding,
    source: Source,
    repaired: str | None,
    harness: str | None,
    device: str,
    steps: int,
    draft: Draft | None = None,
) -> Spec:
    """The trial of ``finding`` under ``harness``: the file as written, against ``repaired`` if there is an edit.

    Of a decorator's finding the harness's target is watched, and where the file itself is its harness, `around` says
    what. Raises `CannotRun` for other code outside functions.
    """
    module = module_of(source.path)
    arms = {"before": source.text} | ({"after": repaired} if repaired is not None else {})
    flagged = {}
    if draft is not None:
        place = draft.place
        flagged["before"] = bytes_at(source.text, finding.span.line, finding.span.column)
        if repaired is not None:
            flagged["after"] = moved(finding, source, repaired)
    else:
        target = called(harness) if harness else ""
        if target and harness == own_harness(source):
            place = around(finding, source, target)
        else:
            decorates = bool(target and _decorated(finding, source))
            place = first(source.text, target) if decorates else place_of(finding, source)
    return Spec(
        str(Path(source.path).resolve()),
        module.name,
        module.root,
        module.paths,
        place.function,
        place.loop,
        arms,
        harness,
        device,
        steps,
        chain=draft.chain if draft else (),
        flagged=flagged,
    )


def moved(finding: Finding, source: Source, repaired: str) -> tuple[int, int]:
    """The line (from 1) and the column (from 0, in bytes) in ``repaired`` of what is flagged in ``source``, or of what
    has taken its place."""
    at = start = source.offset(finding.span.line, finding.span.column)
    for span, text in finding.fix.edits if finding.fix else ():
        first, last = source.offset(span.line, span.column), source.offset(span.end_line, span.end_column)
        if last <= start:
            at += len(text) - (last - first)
        elif first < start:
            at -= start - first
    return position(repaired, at)


def as_script(finding: Finding, source: Source) -> tuple[Finding, Source]:
    """A notebook's finding and code as those of a script. Raises `CannotRun` where the script has no such finding."""
    path = f"{source.path.removesuffix('.ipynb')}_notebook.py"
    options = Options(select=(finding.name,), cache=False, overlay={path: source.text.encode()})
    report = check_paths([path], options)
    found = [f for f in report.findings if f.code == finding.code and source.raw_span(f.span) == finding.span]
    if not found:
        raise CannotRun("it stands in a notebook, whose cells as one script do not show it")
    return found[0], report.sources[path]


def joined(tree: ast.Module, chain: tuple[str, ...]) -> ast.Module:
    """The statements of the scopes of ``chain`` and of the module's own level, one after the other."""
    scopes = [definition(tree, Place(name)) for name in dict.fromkeys(("", *chain))]
    found = [statement for scope in scopes if scope is not None for statement in scope.body]
    return ast.Module([s for s in found if not isinstance(s, (ast.FunctionDef, ast.ClassDef))], [])


def _decorated(finding: Finding, source: Source) -> str:
    """The function of the module's own level that ``finding`` decorates, or ""."""
    for node in source.tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = [(d.lineno, d.end_lineno or d.lineno) for d in node.decorator_list]
            if any(start <= finding.span.line <= end for start, end in lines):
                return node.name
    return ""


def drafts(finding: Finding, source: Source, steps: int) -> Iterator[Draft]:
    """Ways to run what ``finding`` flags, the truest first: called with arguments, then isolated.

    Raises `CannotRun` where there is none.
    """
    reasons = []
    for made in (_called, _isolated):
        try:
            yield from made(finding, source, steps)
        except CannotRun as error:
            reasons.append(error)
    if len(reasons) == 2:
        raise reasons[0]


def written(finding: Finding, source: Source, steps: int) -> Iterator[str]:
    """The harnesses of `drafts`, with the guesses that they begin with."""
    for draft in drafts(finding, source, steps):
        for guess in draft.guesses:
            yield draft.write(guess)


def _called(finding: Finding, source: Source, steps: int) -> Iterator[Draft]:
    """The function with the file's own models or with stand-ins. Raises `CannotRun` where it cannot be reached."""
    place = place_of(finding, source)
    tree = ast.parse(source.text)
    function, owner = _function(tree, place)
    likely = guesses(owner or function, tree)

    def write(guess: Guess, model: str = "") -> str:
        return _text(finding, place, steps, Roles(tree, function, owner, place, guess, model))

    for model in own_models(tree)[:2]:
        yield Draft("called", place, likely[:1], partial(write, model=model))
    yield Draft("called", place, likely, write)


def _isolated(finding: Finding, source: Source, steps: int) -> Iterator[Draft]:
    """The script, or the function alone, with stand-ins for what fails. Raises `CannotRun` where nothing recurs."""
    if _decorated(finding, source):
        raise CannotRun("what decorates a function runs once")
    tree = ast.parse(source.text)
    place = locate(source.text, finding.span.line, finding.span.column)
    chain = way(tree, place.function)
    scope = joined(tree, chain)
    names = dict.fromkeys(name for node in scope.body for name in bound(node, definitions=False))
    loop = loop_at(tree, place)
    inside = set(bound(loop, definitions=False)) if loop is not None else set()

    given: list[str] = []  # to the function where the way begins
    if chain[0] != "":
        given = [name for name in _names_of(_function(tree, Place(chain[0]))[0].args) if name not in ("self", "cls")]

    def write(guess: Guess) -> str:
        owner = None
        roles = Roles(tree, scope, None, place, guess)
        made = roles.stand_ins([*given, *names, *roles.iterated()], inside)
        if chain[0] != "":
            function, owner = _function(tree, Place(chain[0]))
            roles = Roles(tree, function, owner, place, guess)
            roles.quiet = "Missing()"
            return _text(finding, place, steps, roles, made, chain[0])
        return _standing(finding, place, steps, made)

    yield Draft("isolated", place, guesses(scope, tree), write, chain)


def _function(tree: ast.Module, place: Place) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ast.ClassDef | None]:
    node = definition(tree, place)
    if isinstance(node, ast.AsyncFunctionDef):
        raise CannotRun(f"`{place.function}` is a coroutine: supply --harness FILE that runs it")
    if not isinstance(node, ast.FunctionDef):
        raise CannotRun("it stands in a class body, which cannot be called: supply --harness FILE")
    outer = definition(tree, Place(".".join(place.parts[:-1])))
    if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
        raise CannotRun(
            f"`{place.parts[-1]}` is defined inside `{outer.name}`: supply --harness FILE that calls `{outer.name}`"
        )
    return node, outer if isinstance(outer, ast.ClassDef) else None


def _text(
    finding: Finding, place: Place, steps: int, roles: Roles, standins: dict[str, str] | None = None, target: str = ""
) -> str:
    made = roles.make()
    lines = list(made.lines)
    own = next((i for i, line in enumerate(lines) if " = module." in line and ".to(device)" in line), None)
    if own is not None:
        lines.insert(own + 1, f"kind, batch = fitted({lines[own].partition(' ')[0]}, device)")
    arguments = [f'"{name}": {value}' for name, value in made.arguments.items()]
    returned = f"return {{{', '.join(arguments)}}}"
    if len(returned) > 100:
        returned = "return {\n" + "".join(f"        {argument},\n" for argument in arguments) + "    }"
    body = "\n".join(f"    {line}" for line in [*lines, returned])
    at = f"{finding.path}:{finding.span.line}"
    called = target or place.function
    standing = _standins(standins) if standins is not None else ""
    return f'''"""How memlint confirm calls `{called}` for {finding.code} {finding.name} at {at}.

Edit it to your model and data and keep it: memlint confirm --harness THIS_FILE {at}
`module` is the module under test; what setup returns are the arguments (`self`: the object whose method is called).
"""

{_imports(body + standing)}

STEPS = {steps}
target = "{called}"


def setup(device):
{body}
{standing}'''


def _standing(finding: Finding, place: Place, steps: int, standins: dict[str, str]) -> str:
    body = _standins(standins)
    at = f"{finding.path}:{finding.span.line}"
    return f'''"""How memlint confirm runs the script for {finding.code} {finding.name} at {at}.

A name gets what `standins` makes for it where the script's own statement fails.
"""

{_imports(body)}

STEPS = {steps}
{body}'''


def _standins(made: dict[str, str]) -> str:
    keys = {name: repr(name) if re.search(r'["\\]', name) else f'"{name}"' for name in made}
    lines = "".join(f"        {keys[name]}: lambda: {expression},\n" for name, expression in made.items())
    return f"\n\ndef standins(device, names):\n    return {{\n{lines}    }}\n"


def _imports(body: str) -> str:
    used = [name for name in _NAMES if re.search(rf"\b{name}\b", body)]
    imports = ["import torch"] * ("torch." in body)
    if "Missing()" in body:
        imports += ["", "from memlint.trial.missing import Missing"]
    if used:
        imports += ["", f"from memlint.trial.standins import {', '.join(used)}"]
    return "\n".join(imports).strip("\n")
