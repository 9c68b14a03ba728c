"""Verdicts as text: figures, bars and curves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memlint.rule import Claim, Finding, Level, Span
from memlint.trial.confirm import Outcome
from memlint.trial.evidence import Evidence
from memlint.trial.judge import Measurement, Verdict, undecided
from memlint.trial.show import bar, render_outcomes, size, spark

SPAN = Span(3, 5, 3, 9)
FINDING = Finding("MEM103", "graph-tensor-append", Level.ERROR, "a.py", SPAN, "`loss` stays", claim=Claim.GROWTH)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (-84, "0 B"), (512, "512 B"), (1536, "1.5 KiB"), (-(3 << 20), "-3.0 MiB"), (5 << 30, "5.0 GiB")],
)
def test_sizes(number: float, text: str) -> None:
    assert size(number) == text


def test_pictures_are_to_scale() -> None:
    assert spark((10, 17, 10), 10, 17) == "▁█▁"
    assert spark((1, 1), 1, 1) == "▁▁"
    assert (len(bar(1, 1)), len(bar(0.5, 1)), bar(0, 1)) == (32, 16, "")
    assert bar(1 / 256, 1) == "▏"


def test_growth_is_drawn_as_two_curves() -> None:
    before = Measurement(device_growth=1 << 20, iterations=3, curve=(0, 1 << 20, 2 << 20, 3 << 20))
    after = Measurement(iterations=3, curve=(0, 0, 0, 0))
    verdict = Verdict("confirmed", Claim.GROWTH, "called", "fake", "", before, after, "identical", "device_growth")
    text = render_outcomes([Outcome(FINDING, verdict)], color=False)
    assert "a.py:3:5 error MEM103 graph-tensor-append: `loss` stays" in text
    assert "confirmed: growth an iteration 1.0 MiB as written, 0 B repaired (fake, tier called, 3 iterations)" in text
    assert "as written ▁▃▆█" in text and "repaired   ▁▁▁▁" in text
    assert "results identical" in text and text.endswith("1 confirmed.\n")
    assert "\x1b[" not in text and "\x1b[31m" in render_outcomes([Outcome(FINDING, verdict)], color=True)


def test_an_undecided_finding_shows_its_reason() -> None:
    text = render_outcomes([Outcome(FINDING, undecided(Claim.GROWTH, "called", "cpu", "no way in"))], color=False)
    assert "undecided: no way in (cpu, tier called)" in text and text.endswith("1 undecided.\n")


def test_evidence_is_one_line() -> None:
    before, after = Measurement(device_growth=2048, iterations=3, curve=(0, 1)), Measurement(iterations=3, curve=(0, 0))
    stacks = ({"frames": [["net.py", 9], ["a.py", 2], ["a.py", 3]], "bytes": 1536, "leads": True},)
    verdict = Verdict("confirmed", Claim.GROWTH, "called", "cpu", "", before, after, measure="device_growth")
    found = replace(verdict, evidence=Evidence(1536, 2048, stacks))
    assert "    evidence 1.5 KiB of 2.0 KiB lead here, most from net.py:9 in a.py:3\n" in text_of(found)
    stacks = ({"frames": [], "bytes": 2048, "leads": False},)
    found = replace(verdict, evidence=Evidence(0, 2048, stacks))
    assert "evidence 0 B of 2.0 KiB lead here, most of the others from code without a Python stack" in text_of(found)
    assert "evidence" not in text_of(verdict)


def text_of(verdict: Verdict) -> str:
    return render_outcomes([Outcome(FINDING, verdict)], color=False)
