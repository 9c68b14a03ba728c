"""Whatever a rule finds, `Confirmer` has a verdict on it: never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from memlint.check import Options, check_paths
from memlint.page import read
from memlint.rule import Claim, Finding, Level, Span
from memlint.source import Source
from memlint.trial import confirm, harness
from memlint.trial.confirm import Confirmer, Settings
from memlint.trial.run import Answer, Limits, Spec, TrialError, Trials
from memlint.trial.show import render_outcomes

ROOT = Path(__file__).parents[1]
BROKEN = "memlint fails to run it"


class Recorded(Trials):
    """Trials that run nothing: each compiles what it would have run, and gives one answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer
        self.specs: list[Spec] = []

    def run(self, spec: Spec, limits: Limits | None = None) -> Answer:
        for text in (*spec.arms.values(), spec.harness or ""):
            compile(text, "trial.py", "exec")
        self.specs.append(spec)
        return self.answer


def found_in(files: dict[str, bytes]) -> Iterator[tuple[Finding, Source]]:
    report = check_paths(list(files), Options(cache=False, overlay=files))
    for finding in report.findings:
        if finding.code not in ("MEM000", "MEM099"):
            yield finding, report.sources[finding.path]


def page_findings(path: Path) -> Iterator[tuple[Finding, Source]]:
    page = read(path)
    for block in [*page.finds, *(block for pair in page.fixes for block in pair), *page.trials]:
        yield from found_in({f"{page.name}_{block.line}/{name}": text.encode() for name, text in block.files.items()})


def finding_at(text: str, at: str, path: str = "train.py") -> tuple[Finding, Source]:
    line = next(n for n, row in enumerate(text.split("\n"), 1) if at in row)
    column = text.split("\n")[line - 1].index(at) + 1
    span = Span(line, column, line, column + len(at))
    finding = Finding("MEM103", "graph-tensor-append", Level.ERROR, path, span, "it grows", claim=Claim.GROWTH)
    return finding, Source(path, text)


@pytest.mark.parametrize("path", sorted((ROOT / "rules").glob("*.md")), ids=lambda path: path.stem)
def test_each_finding_of_a_page_has_a_harness_or_a_reason(path: Path) -> None:
    reading = {"live": 0, "peak": 0, "churn": 0, "host": 0, "seconds": 1.0}
    readings = [{**reading, "churn": 4096 * i} for i in range(9)]
    arms = {"before": {"ended": "returned", "readings": readings}, "after": {"ended": "returned", "readings": readings}}
    trials = Recorded(Answer("ended", {**arms, "device": "fake"}))
    seen = 0
    with Confirmer(Settings("fake", 8), trials) as confirmer:
        for finding, source in page_findings(path):
            outcome = confirmer.outcome(finding, source)
            seen += 1
            assert BROKEN not in outcome.verdict.reason
            assert outcome.harness or outcome.verdict.status == "undecided"
            assert outcome.verdict.reason or outcome.verdict.status == "confirmed"
            assert render_outcomes([outcome], False)
    assert seen
    assert trials.specs or path.stem == "tensor_lru_cache", "all but decorators can be called"


def test_the_fixtures_are_confirmed_without_a_failure_of_memlint() -> None:
    files = {str(path.relative_to(ROOT)): path.read_bytes() for path in sorted((ROOT / "fixtures").rglob("*.py"))}
    with Confirmer(Settings("fake", 8), Recorded(Answer("timeout"))) as confirmer:
        outcomes = [confirmer.outcome(*found) for found in found_in(files)]
    assert outcomes
    for outcome in outcomes:
        assert outcome.verdict.status == "undecided" and BROKEN not in outcome.verdict.reason


@pytest.mark.parametrize(
    ("text", "words", "reached"),
    [
        ("@decorate(\n    kept.append(1)\n)\ndef go(x):\n    pass\n", "decorates `go`: supply", True),
        ("class A:\n    kept.append(1)\n", "class body", True),
        ("async def go(x):\n    kept.append(x)\n", "coroutine", True),
        ("def outer():\n    def inner(x):\n        kept.append(x)\n", "calls `outer`", True),
    ],
)
def test_what_cannot_be_called_is_undecided_but_for_a_harness_that_reaches_it(
    text: str, words: str, reached: bool
) -> None:
    text += "def all_of(items):\n    for item in items:\n        go(item)\n"
    for own in (None, 'target = "all_of"\ndef setup(device):\n    return {"items": [1]}\n'):
        trials = Recorded(Answer("timeout"))
        with Confirmer(Settings("fake", harness=own), trials) as confirmer:
            verdict = confirmer.outcome(*finding_at(text, "kept")).verdict
        assert verdict.status == "undecided"
        assert bool(trials.specs) == (own is not None and reached)
        if not trials.specs:
            assert words in verdict.reason
        elif "@" in text:
            assert (trials.specs[0].function, trials.specs[0].loop) == ("all_of", 0)


def test_a_notebook_is_undecided() -> None:
    with Confirmer(Settings("fake"), Recorded(Answer("timeout"))) as confirmer:
        verdict = confirmer.outcome(*finding_at("def go(x):\n    kept.append(x)\n", "kept", "a.ipynb")).verdict
    assert verdict.status == "undecided" and "notebook" in verdict.reason


@pytest.mark.parametrize("error", [ValueError("odd"), RecursionError("deep"), OSError("no space left")])
def test_a_failure_of_memlint_costs_one_finding_its_verdict(monkeypatch: Any, error: Exception) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(harness, "drafts", fail)
    with Confirmer(Settings("fake"), Recorded(Answer("timeout"))) as confirmer:
        verdict = confirmer.outcome(*finding_at("def go(x):\n    kept.append(x)\n", "kept")).verdict
    assert verdict.status == "undecided"
    assert f"{BROKEN}: {type(error).__name__}: {error}; {confirm.SUPPLY}" == verdict.reason


def test_that_no_trial_can_run_at_all_is_an_error() -> None:
    class Broken(Recorded):
        def run(self, spec: Spec, limits: Limits | None = None) -> Answer:
            raise TrialError("no torch")

    with Confirmer(Settings("fake"), Broken(Answer(""))) as confirmer, pytest.raises(TrialError, match="no torch"):
        confirmer.outcome(*finding_at("def go(x):\n    kept.append(x)\n", "kept"))


def test_what_weights_take_shows_with_fewer_examples() -> None:
    text = """
def train(model, loader, optimizer, device):
    for x, y in loader:
        loss = (model(x.to(device)) - y.to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    finding, source = next(f for f in found_in({"train.py": text.encode()}) if f[0].code == "MEM203")

    class Smaller(Recorded):
        def run(self, spec: Spec, limits: Limits | None = None) -> Answer:
            super().run(spec, limits)

            def arm(peak: int) -> dict[str, Any]:
                readings = [{"live": 0, "peak": peak, "churn": 9 * i, "host": 0, "seconds": 1.0} for i in range(9)]
                return {"ended": "returned", "readings": readings, "hits": 8, "stumbled": 1, "failures": ["odd"]}

            arms = {"before": arm(9000 if spec.batch else 50_000), "after": arm(1000 if spec.batch else 50_000)}
            return Answer("ended", {**arms, "device": "fake"})

    trials = Smaller(Answer(""))
    with Confirmer(Settings("fake", 8), trials) as confirmer:
        verdict = confirmer.outcome(finding, source).verdict
    assert (verdict.status, verdict.tier) == ("confirmed", "isolated"), verdict
    assert verdict.reason == f"with batches of {confirm.SMALL} examples"
    assert [spec.batch for spec in trials.specs if spec.chain].count(confirm.SMALL) == 1, "when all else is tried"
    assert trials.specs[-1].batch == confirm.SMALL
