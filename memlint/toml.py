"""TOML from the standard library, or from the package it came from where Python has none yet."""

from __future__ import annotations

import sys
from typing import Any


def loads(text: str) -> dict[str, Any]:
    """The table that ``text`` holds. Raises ValueError (`tomllib.TOMLDecodeError` is one)."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)
