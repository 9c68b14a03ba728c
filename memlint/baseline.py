"""Known findings, by fingerprints that survive moved lines: only new ones are reported."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from memlint.rule import Finding


class BaselineError(Exception):
    """A baseline that cannot be read or written; the message is one line for the user."""


def read(path: str) -> frozenset[str]:
    """The fingerprints in the file at ``path``. Raises `BaselineError`."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        if data["version"] != 1:
            raise BaselineError(f"the baseline {path} is of version {data['version']}; this memlint knows version 1")
        return frozenset(entry["fingerprint"] for entry in data["findings"])
    except FileNotFoundError:
        raise BaselineError(f"no baseline {path}; --update-baseline writes it") from None
    except (KeyError, TypeError):
        raise BaselineError(f"the baseline {path} is none that --update-baseline wrote") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BaselineError(f"the baseline {path} cannot be read: {error}") from None


def write(path: str, findings: Iterable[Finding]) -> None:
    """Make ``findings`` the known ones; those fixed since are dropped. Raises `BaselineError`."""
    entries = [
        {"fingerprint": f.fingerprint, "code": f.code, "path": f.path, "message": f.message}
        for f in findings
        if f.code != "MEM000"
    ]
    text = json.dumps({"version": 1, "findings": entries}, indent=1, ensure_ascii=False) + "\n"
    try:
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{path}.tmp", path)
    except OSError as error:
        raise BaselineError(f"the baseline {path} cannot be written: {error.strerror}") from None
