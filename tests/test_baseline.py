"""The file of known findings: what stands in it, and what is said where it cannot be read or written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memlint.baseline import BaselineError, read, write
from memlint.rule import Finding, Level, Span


def finding(code: str, path: str, message: str, fingerprint: str) -> Finding:
    return Finding(code, "a-name", Level.WARNING, path, Span(1, 1, 1, 2), message, fingerprint=fingerprint)


FOUND = [
    finding("MEM103", "ü.py", "„loss“ stays", "2b"),
    finding("MEM102", "a.py", "it grows", "1a"),
    finding("MEM000", "b.py", "the file cannot be read", "3c"),
]


def test_what_stands_in_it_is_what_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "known.json")
    write(path, FOUND)
    text = Path(path).read_bytes().decode("utf-8")
    assert "„loss“ stays" in text and "ü.py" in text and text.count("\n") > 10, "people read it, and its diffs"
    data = json.loads(text)
    assert data["version"] == 1
    assert {(e["code"], e["path"], e["message"], e["fingerprint"]) for e in data["findings"]} == {
        ("MEM103", "ü.py", "„loss“ stays", "2b"),
        ("MEM102", "a.py", "it grows", "1a"),
    }, "a file that cannot be read is never known"
    assert set(read(path)) == {"1a", "2b"}
    assert [p.name for p in tmp_path.iterdir()] == ["known.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "findings": [{}]}', "\xff"])
def test_what_is_no_baseline_is_told_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "known.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BaselineError) as told:
        read(str(path))
    assert str(path) in str(told.value) and "\n" not in str(told.value)


def test_what_is_of_another_version_or_is_not_there_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    path.write_text('{"version": 7, "findings": []}')
    with pytest.raises(BaselineError) as told:
        read(str(path))
    assert str(told.value) == f"the baseline {path} is of version 7; this memlint knows version 1"
    with pytest.raises(BaselineError) as told:
        read(str(tmp_path / "none.json"))
    assert str(told.value) == f"no baseline {tmp_path / 'none.json'}; --update-baseline writes it"


def test_where_it_cannot_be_written_that_is_told(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere" / "known.json")
    with pytest.raises(BaselineError) as told:
        write(path, FOUND)
    assert str(told.value) == f"the baseline {path} cannot be written: No such file or directory"
