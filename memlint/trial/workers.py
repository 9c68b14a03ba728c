"""Findings to verdicts by several workers: one for each GPU that may be used, else one. `cluster` has workers, too."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from memlint.rule import Finding
from memlint.source import Source
from memlint.trial.confirm import Confirmer, Outcome, Settings, alone
from memlint.trial.judge import CONFIRMED, FEW

ALONE = "once the other findings of the function are repaired"


def devices(asked: str, gpus: int) -> list[str]:
    """The device of each worker: every GPU there is for "cuda" and "auto", or the one device that was asked for."""
    return [f"cuda:{number}" for number in range(gpus)] if asked in ("cuda", "auto") and gpus > 1 else [asked]


@contextlib.contextmanager
def workers(settings: Settings, make: Callable[[Settings], Confirmer] = Confirmer) -> Iterator[list[Confirmer]]:
    """Confirmers for ``settings``, each with a device and a process of its own. Raises `run.TrialError`."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(make(settings))
        chosen = devices(settings.device, first.gpus() if settings.device in ("cuda", "auto") else 0)
        first.settings = replace(settings, device=chosen[0])
        yield [first, *(stack.enter_context(make(replace(settings, device=device))) for device in chosen[1:])]


def outcomes(
    confirmers: Sequence[Confirmer],
    findings: Sequence[tuple[Finding, Source]],
    began: Callable[[Finding], None] = lambda finding: None,
) -> list[Outcome]:
    """The outcomes of ``findings`` in their order; ``began`` is told when one is taken up. Raises `run.TrialError`."""
    free: queue.SimpleQueue[Confirmer] = queue.SimpleQueue()
    for confirmer in confirmers:
        free.put(confirmer)

    def taken(found: tuple[Finding, Source]) -> Outcome:
        confirmer = free.get()
        try:
            began(found[0])
            return confirmed(confirmer, found, findings)
        finally:
            free.put(confirmer)

    if len(confirmers) == 1:
        return [taken(found) for found in findings]
    with ThreadPoolExecutor(len(confirmers)) as pool:
        try:
            return list(pool.map(taken, findings))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for confirmer in confirmers:
                confirmer.close()  # else the pool would wait for what still runs
            raise


def confirmed(
    confirmer: Confirmer, found: tuple[Finding, Source], findings: Sequence[tuple[Finding, Source]]
) -> Outcome:
    """The outcome of one of ``findings``. What is not confirmed is tried again with the others of its function repaired
    in both arms. Raises `run.TrialError`."""
    outcome = confirmer.outcome(*found)
    before = outcome.verdict.before
    ran = outcome.verdict.measure or (before is not None and before.iterations >= FEW)
    if outcome.verdict.status != CONFIRMED and ran and found[0].fix and found[0].fix.edits:
        rest = alone(*found, [finding for finding, source in findings if source is found[1]])
        again = confirmer.outcome(found[0], rest) if rest is not None else outcome
        if again.verdict.status == CONFIRMED:
            return replace(again, verdict=replace(again.verdict, reason=ALONE))
    return outcome
