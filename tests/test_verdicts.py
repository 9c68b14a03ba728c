"""The reviewed record of findings in real packages: its form, its share of true findings, and that it still holds."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest

from memlint.check import Options, check_paths
from memlint.registry import load
from memlint.rule import Level

RECORD = Path(__file__).parents[1] / "fixtures" / "verdicts.tsv"
COLUMNS = ("package", "path", "line", "rule", "verdict", "why")
AGAIN = ("stable-baselines3", "easyocr", "gpytorch", "recbole")  # small ones, fetched anew and compared
TRUE_SHARE = 19 / 20


def rows() -> list[dict[str, str]]:
    with RECORD.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def packages() -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows():
        found[row["package"]].append(row)
    return found


def test_the_record_has_its_form() -> None:
    names = {rule.name for rule in load(())}
    with RECORD.open(encoding="utf-8") as file:
        assert tuple(file.readline().rstrip("\n").split("\t")) == COLUMNS
    for row in rows():
        assert "==" in row["package"], row
        assert row["verdict"] in ("true", "wrong", "none"), row
        if row["verdict"] == "none":  # a package in which nothing is found
            assert (row["path"], row["line"], row["rule"]) == ("", "", ""), row
        else:
            assert row["rule"] in names and row["line"].isdigit() and row["why"], row


def test_at_least_twenty_packages_and_nineteen_in_twenty_true() -> None:
    assert len(packages()) >= 20
    judged = [row["verdict"] for row in rows() if row["verdict"] != "none"]
    assert judged.count("true") / len(judged) >= TRUE_SHARE


@pytest.mark.parametrize("name", AGAIN)
def test_a_package_gives_what_the_record_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = next((package for package in packages() if package.split("==")[0] == name), None)
    assert pinned is not None, f"{name} is not in the record"
    fetched = subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", tmp_path, pinned],
        capture_output=True, text=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}, timeout=300,
    )  # fmt: skip
    if fetched.returncode:
        pytest.skip(f"{pinned} cannot be fetched here: {fetched.stderr.strip()[-200:]}")
    folder = tmp_path / "package"
    for archive in tmp_path.glob("*.whl"):
        zipfile.ZipFile(archive).extractall(folder)
    monkeypatch.chdir(folder)
    report = check_paths(["."], Options(cache=False))
    assert not report.errors
    found = {(f.path, str(f.span.line), f.name) for f in report.findings if f.level is not Level.NOTE}
    recorded = {(r["path"], r["line"], r["rule"]) for r in packages()[pinned] if r["verdict"] != "none"}
    assert found == recorded
