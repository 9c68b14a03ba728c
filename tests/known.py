"""A project of files that a test writes down, and what it knows of their functions and classes by name."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from memlint.extract import Class, Definition, Module
from memlint.project import Project
from memlint.source import Source


def project_of(files: dict[str, str] | str, **options: Any) -> Project:
    """The files' texts by path; a text alone is ``a.py``, and begins with what most need to import."""
    texts = {"a.py": f"import torch\nfrom torch import nn\n\n{files}"} if isinstance(files, str) else files
    return Project([source(path, text) for path, text in texts.items()], **options)


def source(path: str, text: str) -> Source:
    return Source(path, text)


def module_of(project: Project, path: str = "a.py") -> Module:
    return project.names.modules[path]


def function_of(project: Project, name: str, path: str = "a.py") -> Definition:
    """The last function of a file with that qualified name."""
    return [d for d in module_of(project, path).definitions if d.qualname == name][-1]


def class_of(project: Project, name: str, path: str = "a.py") -> Class:
    return next(c for c in project.names.classes(module_of(project, path)) if c.name == name)


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def names_of(found: Sequence[object]) -> list[object]:
    """Classes by their names, library names as they are."""
    return [c.name if isinstance(c, Class) else c for c in found]


class Disk:
    """A loader that finds nothing, and reads the files beside the project."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files, self.opened = files, list[str]()

    def __call__(self, dotted: str, importer: str) -> Source | None:
        return None

    def read(self, path: str) -> Source | None:
        self.opened.append(path)
        return Source(path, self.files[path]) if path in self.files else None
