"""memlint has nothing to say of memlint."""

from __future__ import annotations

from pathlib import Path

import memlint
from memlint import registry
from memlint.check import Options, check_paths


def test_memlint_is_clean_under_itself() -> None:
    report = check_paths([str(Path(memlint.__file__).parent), str(registry.rules_folder())], Options(cache=False))
    assert report.files > 50
    assert not report.errors
    assert not [f"{f.path}:{f.span.line}: {f.name}: {f.message}" for f in report.findings]
