"""Runs the trials in the rules' pages, keeps what they cost, and writes the figures into the pages.

``python -m memlint.trial.record --device cuda --out fixtures/costs`` runs and keeps; ``--pages`` writes the kept
figures into the pages. Where memlint's own dependencies are missing, ``--plan FILE`` elsewhere and ``--from FILE``
there part the two halves.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from memlint.rule import Claim
from memlint.trial.evidence import Origin
from memlint.trial.judge import Verdict, judge
from memlint.trial.run import Limits, Spec, Trials

START, END = "<!-- costs -->", "<!-- /costs -->"
STEPS = 12
FILE = "/nonexistent/memlint_trial_page.py"
_COLUMNS = (
    ("device_peak", 2**20, "MiB"),
    ("device_growth", 2**10, "KiB"),
    ("host_growth", 2**10, "KiB"),
    ("churn", 2**20, "MiB"),
    ("seconds", 1e-3, "ms"),
)

_IN_SHORT = {
    "device_peak": ("peak", 2**20, "MiB"),
    "device_growth": ("growth", 2**10, "KiB a step"),
    "host_growth": ("host growth", 2**10, "KiB a step"),
    "churn": ("allocated", 2**20, "MiB a step"),
    "seconds": ("time", 1e-3, "ms a step"),
    "kept": ("kept", 2**20, "MiB"),
}

Planned = dict[str, Any]


class RecordError(Exception):
    """A page's trial that cannot be planned; the message names the page and says why."""


def plan(pages: Sequence[Path]) -> Iterator[Planned]:
    """The trials of ``pages``. Raises `RecordError` where the rule finds nothing in one, or several things."""
    from memlint.page import read

    for path in pages:
        page = read(path)
        by_hand = {page.trial(block): block.text for block in page.repaired}
        for block in page.trials:
            name = page.trial(block)
            yield plan_one(page.name, name, block.text, by_hand.get(name))


def plan_one(rule: str, name: str, text: str, repaired: str | None = None) -> Planned:
    """One trial: the finding of ``rule`` in ``text``, ``repaired`` by the page, else by memlint's edit if any.

    Watched is the loop around the finding, or where the function called has none there, the first that it has.
    Raises `RecordError`.
    """
    from memlint.check import Options, check_paths
    from memlint.edits import apply_edits
    from memlint.trial.evidence import origin
    from memlint.trial.harness import around
    from memlint.trial.watch import called, locate

    path = "memlint_trial_page.py"
    report = check_paths([path], Options(select=(rule,), cache=False, overlay={path: text.encode()}))
    found = [finding for finding in report.findings if finding.name == rule]
    if len(found) != 1:
        raise RecordError(f"{rule}, trial {name}: {len(found)} findings in place of one")
    finding, source = found[0], report.sources[path]
    edits = finding.fix.edits if finding.fix else ()
    place = around(finding, source, called(text) or locate(text, finding.span.line, finding.span.column).function)
    return {
        "rule": rule,
        "trial": name,
        "fix": finding.fix.applicability.value if finding.fix else "none",
        "claim": (finding.claim or Claim.GROWTH).value,
        "function": place.function,
        "loop": place.loop,
        "origin": {**asdict(origin(finding, source)), "path": FILE, "lines": sorted(origin(finding, source).lines)},
        "before": source.text,
        "after": repaired or (apply_edits(source, edits) if edits else None),
    }


def run(planned: Sequence[Planned], device: str, limits: Limits) -> Iterator[dict[str, Any]]:
    """One row of figures for each planned trial on ``device``."""
    with Trials(limits) as trials:
        for item in planned:
            arms = {arm: item[arm] for arm in ("before", "after") if item[arm] is not None}
            place = item["function"], item["loop"]
            spec = Spec(FILE, "memlint_trial_page", "/nonexistent", (), *place, arms, None, device, STEPS)
            answer = trials.run(spec)
            where = Origin(**{**item["origin"], "lines": frozenset(item["origin"]["lines"])})
            verdict = judge(Claim(item["claim"]), answer, "harness", device, where)
            row = {key: item[key] for key in ("rule", "trial", "fix")}
            row |= {
                **verdict.as_json(),
                "evidence": _share(verdict),
                "measure": verdict.measure,
                "torch": answer.data.get("torch", ""),
            }
            for arm, measured in (("before", verdict.before), ("after", verdict.after)):
                if measured is not None:
                    row[arm] = {**measured.as_json(), "kept": measured.kept, "workspace": measured.workspace}
            row["date"] = datetime.date.today().isoformat()
            if answer.log and verdict.status == "undecided":
                print(answer.log[-2000:], file=sys.stderr)
            yield row


def _share(verdict: Verdict) -> float | None:
    """How much of what allocation stacks tell of leads to the finding, None where they tell nothing."""
    evidence = verdict.evidence
    return round(evidence.leading / evidence.total, 3) if evidence and evidence.total else None


def slug(device: str) -> str:
    """A file name for a device's name."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def write(rows: Sequence[dict[str, Any]], folder: Path) -> Path:
    """Keep ``rows``, sorted, in ``folder`` under the device's name, beside those of other rules that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{slug(rows[0]['device'])}.json"
    measured = {row["rule"] for row in rows}
    kept = [row for row in json.loads(path.read_text()) if row["rule"] not in measured] if path.exists() else []
    ordered = sorted((*kept, *rows), key=lambda row: (row["rule"], row["trial"]))
    path.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    return path


def table(rule: str, folder: Path) -> str:
    """The figures kept for ``rule`` as a Markdown table, "" where there are none."""
    rows = [r for file in sorted(folder.glob("*.json")) for r in json.loads(file.read_text()) if r["rule"] == rule]
    if not rows:
        return ""
    lines = [
        "| trial | device | peak, written / repaired | growth a step | host growth | allocated | time | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda r: (r["trial"], r["device"])):
        cells = [row["trial"], f"{row['device']}, torch {row['torch']}", *_figures(row), _said(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def in_short(rule: str, folder: Path) -> str:
    """What a rule's first trial costs, as written and repaired, on a GPU where one was measured; "" where none was."""
    rows = [r for file in folder.glob("*.json") for r in json.loads(file.read_text()) if r["rule"] == rule]
    rows = [row for row in rows if row["measure"] in _IN_SHORT and row["measure"] in row["before"]]
    for row in sorted(rows, key=lambda r: (r["device"] == "fake", r["status"] == "undecided", r["trial"])):
        word, factor, unit = _IN_SHORT[row["measure"]]
        figures = [row[arm][row["measure"]] / factor for arm in ("before", "after") if row[arm]]
        return f"{word} {' → '.join(f'{figure:,.1f}' for figure in figures)} {unit}"
    return ""


def _figures(row: dict[str, Any]) -> list[str]:
    """The measured cells of a row, both arms or the one as written; empty ones where nothing is measured."""
    if not row["measure"]:
        return [""] * len(_COLUMNS)
    arms = [row[arm] for arm in ("before", "after") if row[arm]]
    cells = [f"{' / '.join(f'{arm[key] / unit:,.1f}' for arm in arms)} {name}" for key, unit, name in _COLUMNS]
    if row["device"] == "fake":
        cells[-1] = ""  # how long pretending takes says nothing of a GPU
    if taken := row["before"]["workspace"]:
        cells[0] += f" (and once {taken / 2**20:,.1f} MiB of cuBLAS workspace)"
    return cells


def _said(row: dict[str, Any]) -> str:
    """The verdict, or why there is none."""
    if row["after"] is None and row["measure"]:
        return "as written; no edit"
    if row["status"] != "undecided":
        return str(row["status"])
    return f"undecided: {row['reason']}".replace("|", "\\|")


def with_table(text: str, figures: str) -> str:
    """A page's text with ``figures`` between the markers, which go to its end where it has none yet."""
    block = f"{START}\n{figures}\n{END}"
    if START in text:
        return re.sub(re.escape(START) + ".*?" + re.escape(END), lambda _: block, text, flags=re.S)
    return f"{text.rstrip()}\n\n{block}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status: 0 all confirmed, 1 not all, 2 no trial could be planned."""
    parser = argparse.ArgumentParser(prog="python -m memlint.trial.record", description=__doc__)
    parser.add_argument("--device", default="fake")
    parser.add_argument("--rules", type=Path, default=Path("rules"), help="the folder of the pages")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="the rules whose trials are run; all where not given")
    parser.add_argument("--out", type=Path, default=Path("fixtures/costs"))
    parser.add_argument("--plan", type=Path, help="write the planned trials there and run nothing")
    parser.add_argument("--from", dest="planned", type=Path, help="run trials planned earlier")
    parser.add_argument("--pages", action="store_true", help="write the kept figures into the pages and run nothing")
    parser.add_argument("--timeout", type=float, default=300.0)
    given = parser.parse_args(arguments)
    pages = sorted(p for p in given.rules.glob("*.md") if not given.only or p.stem.replace("_", "-") in given.only)
    if given.pages:
        for page in pages:
            if figures := table(page.stem.replace("_", "-"), given.out):
                page.write_text(with_table(page.read_text(encoding="utf-8"), figures), encoding="utf-8")
        return 0
    try:
        planned = json.loads(given.planned.read_text()) if given.planned else list(plan(pages))
    except RecordError as error:
        print(f"record: {error}", file=sys.stderr)
        return 2
    if given.plan:
        given.plan.write_text(json.dumps(planned, indent=1) + "\n")
        return 0
    device = "cuda:0" if given.device == "cuda" else given.device
    rows = []
    for row in run(planned, device, Limits(given.timeout, None)):
        rows.append(row)
        print(_line(row), flush=True)
        write(rows, given.out)  # each time, so that a run cut short keeps what it has
    return int(not all(map(_holds, rows)))


def _holds(row: dict[str, Any]) -> bool:
    """Whether the trial shows what its page says: the repair's saving, or where there is no repair, a cost."""
    return row["status"] == "confirmed" or (row["fix"] in ("hint", "none") and bool(row["measure"]))


def _line(row: dict[str, Any]) -> str:
    head = f"{row['rule']} {row['trial']}: {row['status']} {row['measure']} {row['results']} {row['reason']}"
    if row["evidence"] is not None:
        head += f", {row['evidence']:.0%} of the bytes lead there"
    arms = [(name, row[name]) for name in ("before", "after") if row[name]]
    return head + "".join(
        f"\n  {name:6} peak {arm['device_peak'] / 2**20:,.1f} MiB, growth {arm['device_growth'] / 2**10:,.1f} KiB,"
        f" host {arm['host_growth'] / 2**10:,.2f} KiB, churn {arm['churn'] / 2**20:,.1f} MiB,"
        f" {1000 * arm['seconds']:.1f} ms, workspace {arm['workspace'] / 2**20:.1f} MiB"
        for name, arm in arms
    )


if __name__ == "__main__":
    sys.exit(main())
