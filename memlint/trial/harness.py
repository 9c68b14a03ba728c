"""A finding to a harness: plain source text that calls the flagged function, as a person could have written it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from memlint.rule import Finding
from memlint.source import Source
from memlint.trial.roles import Roles, kinds, own_models
from memlint.trial.run import Spec
from memlint.trial.watch import Place, called, definition, first, locate

_NAMES = (
    "BATCH",
    "TOKENS",
    "WIDTH",
    "Batches",
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


def spec(finding: Finding, source: Source, repaired: str | None, harness: str | None, device: str, steps: int) -> Spec:
    """The trial of ``finding`` under ``harness``: the file as written, against ``repaired`` if there is an edit.

    Of a decorator's finding the harness's target is watched. Raises `CannotRun` for other code outside functions.
    """
    target = called(harness) if harness else ""
    decorates = bool(target and _decorated(finding, source))
    place = first(source.text, target) if decorates else place_of(finding, source)
    module = module_of(source.path)
    arms = {"before": source.text} | ({"after": repaired} if repaired is not None else {})
    path = str(Path(source.path).resolve())
    return Spec(path, module.name, module.root, module.paths, place.function, place.loop, arms, harness, device, steps)


def _decorated(finding: Finding, source: Source) -> str:
    """The function of the module's own level that ``finding`` decorates, or ""."""
    for node in source.tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = [(d.lineno, d.end_lineno or d.lineno) for d in node.decorator_list]
            if any(start <= finding.span.line <= end for start, end in lines):
                return node.name
    return ""


def written(finding: Finding, source: Source, steps: int) -> Iterator[str]:
    """Harnesses for ``finding``, the likeliest first: each with another kind of model and batch.

    Raises `CannotRun` where the function cannot be reached from its module.
    """
    place = place_of(finding, source)
    tree = ast.parse(source.text)
    function, owner = _function(tree, place)
    likely = kinds(owner or function)
    for model in own_models(tree)[:2]:
        yield _text(finding, place, steps, Roles(tree, function, owner, place, likely[0], model))
    for kind in likely:
        yield _text(finding, place, steps, Roles(tree, function, owner, place, kind))


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


def _text(finding: Finding, place: Place, steps: int, roles: Roles) -> str:
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
    used = [name for name in _NAMES if re.search(rf"\b{name}\b", body)]
    imports = ["import torch"] * ("torch." in body)
    if "SimpleNamespace" in body:
        imports = ["from types import SimpleNamespace", "", *imports]
    if used:
        imports += ["", f"from memlint.trial.standins import {', '.join(used)}"]
    head = "\n".join(imports).strip("\n")
    at = f"{finding.path}:{finding.span.line}"
    return f'''"""How memlint confirm calls `{place.function}` for {finding.code} {finding.name} at {at}.

Edit it to your model and data and keep it: memlint confirm --harness THIS_FILE {at}
`module` is the module under test; what setup returns are the arguments (`self`: the object whose method is called).
"""

{head}

STEPS = {steps}
target = "{place.function}"


def setup(device):
{body}
'''
