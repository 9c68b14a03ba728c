"""One way down and no way back: each module imports only those above it in this list."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "memlint"

# fmt: off
ORDER = [
    "rule", "toml", "notebook", "dialect", "source", "suppress", "layout", "imports", "surgery", "edits", "facts",
    "values", "trace", "extract", "outline", "target", "library", "names", "roles", "reading", "special", "splice",
    "calls", "expressions",
    "flow",
    "lifetimes", "becomes", "stems",
    "knowledge", "classes", "places", "callers", "modes", "parameters", "likely",
    "answers", "function", "hoard", "growth", "lightning", "keeping",
    "project", "registry", "page", "config", "files", "failure", "wire", "cache", "pool", "grounds", "earlier", "check",
    "baseline", "apply",
    "workspace",
    "report", "trial", "testing", "lsp", "cli", "__main__",
]
# fmt: on
RULES = PACKAGE / "rules" if (PACKAGE / "rules").is_dir() else PACKAGE.parent / "rules"


def imports(path: Path) -> Iterator[str]:
    """Modules of memlint that a file imports when it runs; what only a type checker sees does not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "memlint" and len(parts) > 1 and layer_exists(parts[1]):
                yield parts[1]


def layer_exists(name: str) -> bool:
    return (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if "rules" not in relative.parts[:-1] and relative.name != "__init__.py":
            yield relative.parts[0].removesuffix(".py"), path


def questions() -> dict[str, set[str]]:
    """Modules outside the list, with what they import: further questions to a function, which rules alone put."""
    return {name: set(imports(path)) - {name} for name, path in modules() if name not in ORDER}


def test_every_module_has_its_place() -> None:
    names = {name for name, _ in modules()}
    assert names >= set(ORDER)
    assert len(ORDER) == len(set(ORDER))
    put = {name for path in RULES.glob("*.py") for name in imports(path)}
    put |= {name for used in questions().values() for name in used}
    assert names - set(ORDER) <= put, "a module that is not in the list, and that no rule imports"


def test_imports_point_upward() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {used}"
        for name, path in modules()
        if name in ORDER
        for used in imports(path)
        if used != name and (used not in ORDER or ORDER.index(used) >= ORDER.index(name))
    ]
    assert not wrong, "\n".join(wrong)


def test_questions_stand_beside_the_function() -> None:
    above = ORDER[: ORDER.index("function") + 1]
    wrong = {name: used - set(above) - set(questions()) for name, used in questions().items()}
    assert not any(wrong.values()), wrong
    list(graphlib.TopologicalSorter(questions()).static_order())  # raises where they import each other in a circle


def test_only_the_trial_s_child_imports_torch() -> None:
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == "torch" for name in names):
                assert path.parent.name == "trial", f"{path} imports torch"
