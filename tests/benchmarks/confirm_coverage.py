"""How many findings on real code get a verdict without help.

``python tests/benchmarks/confirm_coverage.py --out FILE NAME@COMMIT=FOLDER…``, or with a file of such lines as
``--corpus``. Each folder is checked as a project of its own, with all rules and levels. Of its findings those are left
out that no trial without a GPU can decide: whose claim is time, and whose claim is a comparison (a lower peak, say)
with a repair that memlint only describes and has no edit for. The others are drawn in an order that ``--seed`` and
their places fix, and at most ``--each`` of a project are confirmed, at most ``--of-rule`` of one rule and one of a
file. The rows (repository, commit, path, line, rule, verdict; no code) go to ``--out``, beside those of other projects
that are there, and a table by tier and reason to standard output.
"""

from __future__ import annotations

import argparse
import collections
import csv
import datetime
import hashlib
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
from memlint.trial.workers import confirmed

COLUMNS = ("repository", "commit", "path", "line", "rule", "status", "tier", "device", "reason", "seconds")
KINDS = (
    ("hangs on the sizes of batches", r"with these sizes"),
    ("in the loop, torch computes with what is absent", r"is to compute with"),
    ("the bytes come from elsewhere", r"leads neither to"),
    ("files are missing", r"FileNotFoundError|No such file"),
    ("no repair to compare with", r"no edit to compare"),
    ("no such loop, or too few iterations", r"the loop made"),
    ("the flagged line was not reached", r"not reached"),
    ("statements fail with stand-ins", r"were passed over"),
    ("the repair changes nothing in what is run", r"does the same once repaired|as a whole takes no less"),
    ("the repaired run goes another way", r"went another way"),
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


def drawn(findings: Iterable[Finding], seed: int, each: int, of_rule: int) -> list[Finding]:
    """At most ``each`` findings, at most ``of_rule`` of one rule and one of a file, in an order that ``seed`` fixes."""

    def order(finding: Finding) -> bytes:
        place = f"{seed} {finding.path} {finding.span.line} {finding.span.column} {finding.code}"
        return hashlib.sha256(place.encode()).digest()

    rules: collections.Counter[str] = collections.Counter()
    files: set[str] = set()
    chosen: list[Finding] = []
    for finding in sorted(findings, key=order):
        if measurable(finding) and len(chosen) < each and rules[finding.code] < of_rule and finding.path not in files:
            chosen.append(finding)
            rules[finding.code] += 1
            files.add(finding.path)
    return sorted(chosen, key=lambda finding: finding.order)


def measurable(finding: Finding) -> bool:
    """Whether a trial without a GPU can decide: there is an edit to compare with, or the claim is growth as written."""
    if finding.code in ("MEM000", "MEM099") or finding.claim is Claim.TIME:
        return False
    return finding.claim is Claim.GROWTH or bool(finding.fix and finding.fix.edits)


def kind(outcome: Outcome) -> str:
    """The reason of an undecided verdict in a few words."""
    if outcome.verdict.status != "undecided":
        return ""
    return next((name for name, words in KINDS if re.search(words, outcome.verdict.reason)), "other")


def survey(project: str, given: argparse.Namespace, confirmer: Confirmer) -> Iterator[tuple[Row, Outcome]]:
    """The verdicts on the findings of ``NAME@COMMIT=FOLDER``, whose folder becomes the working folder."""
    name, _, folder = project.rpartition("=")
    repository, _, commit = name.partition("@")
    home = os.getcwd()
    os.chdir(folder)
    try:
        report = check_paths(["."], Options())
        for finding in drawn(report.findings, given.seed, given.each, given.of_rule):
            start = time.monotonic()
            others = [(f, report.sources[f.path]) for f in report.findings if f.path in report.sources]
            outcome = confirmed(confirmer, (finding, report.sources[finding.path]), others)
            verdict = outcome.verdict
            place = (repository or Path(folder).name, commit, finding.path, str(finding.span.line), finding.name)
            values = (*place, verdict.status, verdict.tier, verdict.device, kind(outcome))
            yield dict(zip(COLUMNS, (*values, f"{time.monotonic() - start:.1f}"), strict=True)), outcome
    finally:
        os.chdir(home)


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
    reasons = collections.Counter((row["reason"], row["tier"]) for row in rows if row["reason"])
    lines += [f"| {name} | {tier} | {count} |" for (name, tier), count in reasons.most_common()]
    seconds = sorted(float(row["seconds"]) for row in rows)
    if seconds:
        lines += ["", f"seconds a finding: median {seconds[len(seconds) // 2]}, most {seconds[-1]}"]
    return "\n".join(lines)


def write(rows: list[Row], path: Path, torch: str, given: argparse.Namespace) -> None:
    """Keep ``rows``, under a line that says when and how they were made, beside those of other projects."""
    mine = {row["repository"] for row in rows}
    kept = [row for row in read(path) if row["repository"] not in mine] if path.exists() else []
    how = f"--device {given.device} --seed {given.seed} --each {given.each} --of-rule {given.of_rule}"
    how += f" --steps {given.steps} --timeout {given.timeout:g}"
    with path.open("w", newline="") as file:
        file.write(f"# {datetime.date.today().isoformat()}, torch {torch}, {how}\n")
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted([*kept, *rows], key=lambda row: row["repository"].lower()))


def read(path: Path) -> list[Row]:
    """The rows that `write` kept."""
    with path.open(newline="") as file:
        return list(csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t"))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("projects", nargs="*", metavar="NAME@COMMIT=FOLDER")
    parser.add_argument("--corpus", type=Path, help="a file with more projects, one a line")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=int, default=4, help="findings of one project at most")
    parser.add_argument("--of-rule", type=int, default=1, help="findings of one rule in one project at most")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one finding")
    parser.add_argument("--out", type=Path, help="write the rows there")
    parser.add_argument("--table", type=Path, help="run nothing: the table of rows written earlier")
    parser.add_argument("--log", type=Path, help="write harnesses and whole reasons there, to read")
    given = parser.parse_args()
    if given.table:
        print(table(read(given.table)))
        return 0
    projects = [*given.projects, *(given.corpus.read_text().split() if given.corpus else ())]
    settings = Settings(given.device, given.steps, Limits(given.timeout))
    rows: list[Row] = []
    log = given.log.open("w") if given.log else None
    with Confirmer(settings) as confirmer:
        for project in projects:
            for row, outcome in survey(project, given, confirmer):
                rows.append(row)
                if given.out:  # each time, so that a run cut short keeps what it has
                    write(rows, given.out, confirmer.torch, given)
                print("\t".join(row.values()), outcome.verdict.reason, sep="\t", file=sys.stderr, flush=True)
                if log:
                    print(*row.values(), outcome.verdict, outcome.harness, "-" * 80, sep="\n", file=log, flush=True)
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
