"""The reviewed record of findings in real packages: its form, its share of true findings, and that it still holds.

Every error and warning of the packages is in it. Of the notes, all are where a rule has at most 15 over the packages;
else at least 15 a rule: the first of each package in the order of names (by path and line), then each one's second, …;
and some 25 more, drawn at random, of each of the two rules that have over 100.
"""

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
COLUMNS = ("package", "path", "line", "rule", "level", "verdict", "why")
AGAIN = ("stable-baselines3", "easyocr", "gpytorch", "recbole")  # small ones, fetched anew and compared
TRUE_SHARE = {("error", "warning"): 19 / 20, ("note",): 9 / 10}


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
        if row["verdict"] == "none":  # a package of which nothing is judged
            assert (row["path"], row["line"], row["rule"], row["level"]) == ("", "", "", ""), row
        else:
            assert (
                row["rule"] in names
                and row["level"] in {level.value for level in Level}
                and row["line"].isdigit()
                and row["why"]
            ), row
    places = [(row["package"], row["path"], row["line"], row["rule"]) for row in rows()]
    assert len(places) == len(set(places))


def test_there_are_at_least_twenty_packages() -> None:
    assert len(packages()) >= 20


@pytest.mark.parametrize(("levels", "share"), TRUE_SHARE.items())
def test_the_share_of_true_findings(levels: tuple[str, ...], share: float) -> None:
    judged = [row["verdict"] for row in rows() if row["level"] in levels]
    assert judged.count("true") / len(judged) >= share


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
    found = {(f.path, str(f.span.line), f.name, f.level.value) for f in report.findings}
    judged = packages()[pinned]
    recorded = {(r["path"], r["line"], r["rule"], r["level"]) for r in judged if r["verdict"] != "none"}
    assert recorded <= found
    assert {f for f in found if f[3] != Level.NOTE.value} == {r for r in recorded if r[3] != Level.NOTE.value}
