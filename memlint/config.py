"""``[tool.memlint]`` of ``pyproject.toml`` or ``memlint.toml``: the nearest one upward from a file holds for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memlint.registry import nearest
from memlint.rule import Level
from memlint.target import Target, parse


class ConfigError(Exception):
    """A configuration that memlint does not understand. The message is one line for the user."""


@dataclass(frozen=True)
class Config:
    """What a configuration says. Selectors are names, codes, beginnings of codes, or ``ALL``.

    ``folder`` is the absolute path of the folder whose patterns and relative paths it means; ``library`` holds the
    user's rows of library knowledge as they stand in the file; ``confirm`` the table of that name.
    """

    folder: str = ""
    select: tuple[str, ...] = ("ALL",)
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclude: tuple[str, ...] | None = None
    extend_exclude: tuple[str, ...] = ()
    target_torch: Target | None = None
    fail_on: Level = Level.WARNING
    unsafe_fixes: bool = False
    baseline: str | None = None
    rule_folders: tuple[str, ...] = ()
    library: Mapping[str, Any] = field(default_factory=dict)
    confirm: Mapping[str, Any] = field(default_factory=dict)


_KEYS = [name.replace("_", "-") for name in Config.__dataclass_fields__ if name != "folder"]


class Configs:
    """Configurations by file, each read once."""

    def __init__(self) -> None:
        self._folders: dict[str, Config] = {}

    def of(self, path: str) -> Config:
        """The configuration for the file ``path``. Raises `ConfigError`."""
        return self.of_folder(os.path.dirname(os.path.abspath(path)))

    def of_folder(self, folder: str) -> Config:
        """The configuration for files in ``folder``, an absolute path. Raises `ConfigError`."""
        known = self._folders.get(folder)
        if known is None:
            known = _read_folder(folder)
            if known is None:
                parent = os.path.dirname(folder)
                known = Config(folder=os.getcwd()) if parent == folder else self.of_folder(parent)
            self._folders[folder] = known
        return known


def _read_folder(folder: str) -> Config | None:
    for name in ("memlint.toml", "pyproject.toml"):
        path = os.path.join(folder, name)
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from None
        if name == "pyproject.toml" and "memlint" not in text:
            continue
        from memlint.toml import loads

        try:
            table = loads(text)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
        if name == "pyproject.toml":
            table = table.get("tool", {})
            if "memlint" not in table:
                continue
            table = table["memlint"]
        elif set(table) == {"tool"}:
            raise ConfigError(f"{path}: write the keys without [tool.memlint], which belongs into pyproject.toml")
        return from_table(table, folder, path)
    return None


def from_table(table: Any, folder: str, path: str) -> Config:
    """The configuration that a ``[tool.memlint]`` table states. Raises `ConfigError`, naming ``path`` and the key."""
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: [tool.memlint] is no table")
    values: dict[str, Any] = {"folder": folder}
    for key, value in table.items():
        if key not in _KEYS:
            raise ConfigError(f"{path}: unknown key {key!r}{nearest(key, _KEYS)}")
        try:
            values[key.replace("-", "_")] = _value(key, value, folder)
        except ValueError as error:
            raise ConfigError(f"{path}: {key}: {error}") from None
    return Config(**values)


def _value(key: str, value: Any, folder: str) -> Any:
    if key in ("select", "extend-select", "ignore", "exclude", "extend-exclude"):
        return _strings(value)
    if key == "rule-folders":
        return tuple(os.path.join(folder, each) for each in _strings(value))
    if key == "per-file-ignores":
        return {pattern: _strings(names) for pattern, names in _table(value).items()}
    if key == "target-torch":
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is no string such as '2.1'")
        return parse(value)
    if key == "fail-on":
        return level(value)
    if key == "unsafe-fixes":
        if not isinstance(value, bool):
            raise ValueError(f"{value!r} is neither true nor false")
        return value
    if key == "baseline":
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is no path")
        return os.path.join(folder, value)
    return _table(value)


def level(value: object) -> Level:
    """The level of that name. Raises ValueError, which names the nearest one."""
    names = [each.value for each in Level]
    if value not in names:
        raise ValueError(f"unknown level {value!r}{nearest(str(value), names) or '; one of ' + ', '.join(names)}")
    return Level(value)


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{value!r} is no list of strings")
    return tuple(value)


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is no table")
    return value
