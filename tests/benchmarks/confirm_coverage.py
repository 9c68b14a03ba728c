"""How many findings on real code get a verdict without help: ``python tests/benchmarks/confirm_coverage.py FOLDER…``.

Each folder is checked as a project of its own and at most ``--each`` of its findings are confirmed, spread over its
files. The rows (repository, path, line, rule, verdict; no code) go to ``--out``, and a table by tier and reason to
standard output.
"""

from __future__ import annotations

import argparse
import collections
import csv
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from memlint.check import Options, check_paths
from memlint.rule import Claim, Finding
from memlint.trial.confirm import Confirmer, Outcome, Settings
from memlint.trial.run import Limits

COLUMNS = ("repository", "path", "line", "rule", "status", "tier", "device", "kind", "seconds")
KINDS = (
    ("hangs on the sizes of batches", r"with these sizes"),
    ("in the loop, torch computes with what is absent", r"is to compute with"),
    ("the bytes come from elsewhere", r"leads neither to"),
    ("files are missing", r"FileNotFoundError|No such file"),
    ("no repair to compare with", r"no edit to compare"),
    ("no such loop, or too few iterations", r"the loop made"),
    ("the flagged line was not reached", r"not reached"),
    ("nothing is allocated", r"allocates nothing"),
    ("import fails", r"\bimport: "),
    ("set-up fails", r"\bsetup: "),
    ("cannot be called", r"module level|class body|coroutine|defined inside|notebook|decorates"),
    ("time or memory", r"did not end in time|limit of host memory"),
    ("torch is newer than the project's", r"is about torch"),
    ("depends on values", r"fake tensors do not have"),
    ("memlint fails", r"memlint fails"),
    ("the run fails", r"as written, |repaired, "),
)

Row = dict[str, str]


def spread(findings: Iterable[Finding], most: int) -> list[Finding]:
    """At most ``most`` findings, one of each file before a second of any. Left out is what costs time alone, of which
    only a GPU can tell."""
    seen: collections.Counter[str] = collections.Counter()
    ranked: list[tuple[int, str, int, int, Finding]] = []
    for finding in findings:
        if finding.code not in ("MEM000", "MEM099") and finding.claim is not Claim.TIME:
            ranked.append((seen[finding.path], finding.path, finding.span.line, len(ranked), finding))
            seen[finding.path] += 1
    return [finding for *_, finding in sorted(ranked, key=lambda entry: entry[:4])[:most]]


def kind(outcome: Outcome) -> str:
    """The reason of an undecided verdict in a few words."""
    if outcome.verdict.status != "undecided":
        return ""
    return next((name for name, words in KINDS if re.search(words, outcome.verdict.reason)), "other")


def survey(folder: Path, most: int, confirmer: Confirmer) -> Iterator[tuple[Row, Outcome]]:
    """The verdicts on the findings in ``folder``, which becomes the working folder."""
    os.chdir(folder)
    report = check_paths(["."], Options())
    for finding in spread(report.findings, most):
        start = time.monotonic()
        outcome = confirmer.outcome(finding, report.sources[finding.path])
        verdict = outcome.verdict
        place = (folder.name, finding.path, str(finding.span.line), finding.name)
        values = (*place, verdict.status, verdict.tier, verdict.device, kind(outcome))
        yield dict(zip(COLUMNS, (*values, f"{time.monotonic() - start:.1f}"), strict=True)), outcome


def table(rows: list[Row]) -> str:
    """Counts by tier and status, and by reason where undecided, as Markdown."""
    tiers = sorted({row["tier"] for row in rows})
    lines = ["| tier | confirmed | refuted | undecided | decided |", "|---|---|---|---|---|"]
    for tier in [*tiers, "all"]:
        counts = collections.Counter(row["status"] for row in rows if tier in (row["tier"], "all"))
        decided = counts["confirmed"] + counts["refuted"]
        share = 100 * decided / max(1, sum(counts.values()))
        lines.append(
            f"| {tier} | {counts['confirmed']} | {counts['refuted']} | {counts['undecided']} | {share:.0f} % |"
        )
    lines += ["", "| undecided because | tier | findings |", "|---|---|---|"]
    reasons = collections.Counter((row["kind"], row["tier"]) for row in rows if row["kind"])
    lines += [f"| {name} | {tier} | {count} |" for (name, tier), count in reasons.most_common()]
    seconds = sorted(float(row["seconds"]) for row in rows)
    return "\n".join([*lines, "", f"seconds a finding: median {seconds[len(seconds) // 2]}, most {seconds[-1]}"])


def write(rows: list[Row], path: Path) -> None:
    """Keep ``rows``."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--each", type=int, default=10, help="findings of one folder at most")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one trial")
    parser.add_argument("--out", type=Path, help="write the rows there")
    parser.add_argument("--table", type=Path, help="run nothing: the table of rows written earlier")
    parser.add_argument("--log", type=Path, help="write harnesses and whole reasons there, to read")
    given = parser.parse_args()
    if given.table:
        print(table(list(csv.DictReader(given.table.open(), delimiter="\t"))))
        return 0
    settings = Settings(given.device, 8, Limits(given.timeout))
    rows: list[Row] = []
    log = given.log.open("w") if given.log else None
    with Confirmer(settings) as confirmer:
        for folder in [folder.resolve() for folder in given.folders]:
            for row, outcome in survey(folder, given.each, confirmer):
                rows.append(row)
                if given.out:
                    write(rows, given.out)  # each time, so that a run cut short keeps what it has
                print("\t".join(row.values()), outcome.verdict.reason, sep="\t", file=sys.stderr, flush=True)
                if log:
                    print(*row.values(), outcome.verdict, outcome.harness, "-" * 80, sep="\n", file=log, flush=True)
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
