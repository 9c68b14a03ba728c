"""``memlint confirm``: the command."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from memlint.check import Report
    from memlint.config import Config, Configs
    from memlint.rule import Finding
    from memlint.source import Source
    from memlint.trial.confirm import Outcome

_LINE = re.compile(r"(.+):(\d+)$")
_DEVICE = re.compile(r"auto|fake|cpu|cuda(:\d+)?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", re.I)
_CONFIGURABLE = ("device", "steps", "timeout", "memory_limit", "harness")
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def _size(ctx: click.Context, parameter: click.Parameter, value: str) -> int:
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is no size: write 512M or 8G")
    return int(float(match[1]) * 2 ** _UNITS[match[2].upper()])


def _device(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if not _DEVICE.fullmatch(value):
        raise click.BadParameter(f"{value!r} is none of auto, fake, cpu, cuda, cuda:N")
    return value


def _words(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for value in values for word in value.replace(",", " ").split())


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH[:LINE] | PAGE.md]…")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    callback=_device,
    metavar="auto|cuda|cuda:N|cpu|fake",
    help="Where to run; auto takes a GPU, else fake tensors, else the CPU.",
)
@click.option(
    "--steps", default=8, show_default=True, type=click.IntRange(4, 10_000), metavar="N", help="Iterations to measure."
)
@click.option(
    "--timeout",
    default=60.0,
    show_default=True,
    type=click.FloatRange(1),
    metavar="SECONDS",
    help="Seconds that the trials of one finding may take.",
)
@click.option(
    "--memory-limit", default="8G", show_default=True, callback=_size, metavar="SIZE", help="Host memory for one trial."
)
@click.option(
    "--harness",
    type=click.Path(exists=True, dir_okay=False),
    help="A Python file with setup(device) that gives the arguments; code that has its own setup(device) needs none.",
)
@click.option(
    "--write-harness",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Write the harnesses there, to read, edit and keep.",
)
@click.option(
    "--ray",
    is_flag=False,
    flag_value="auto",
    metavar="[ADDRESS]",
    help="Run the trials as tasks of the Ray cluster at ADDRESS, else of that of RAY_ADDRESS or of this machine: one a "
    "GPU, or one a CPU where it has no GPU. The project's files travel, up to 64 MiB; the nodes need torch.",
)
@click.option("--select", multiple=True, callback=_words, metavar="RULE,…", help="Only these rules.")
@click.option(
    "--report", type=click.Path(dir_okay=False), metavar="FILE.html", help="Write the verdicts as a page to look at."
)
@click.option(
    "--fix-confirmed",
    is_flag=True,
    help="Apply the fixes that save what they claim and leave the results as they are: safe ones identical, "
    "unsafe ones identical or close.",
)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--json", "output_format", flag_value="json", help="The same as --output-format json.")
@click.pass_context
def confirm(ctx: click.Context, /, paths: tuple[str, ...], **options: Any) -> int:
    """Run what `check` flags, as written and as repaired, and say what the repair saves.

    Of a rule's page the trials are run: what the rule is about, on your device.

    This imports and runs your code, in a child process with limits on time and memory and in a temporary folder: a
    protection from accidents, not from hostile code. Exit status: 1 if a finding is confirmed, 0 if none is.
    """
    from memlint.check import run_config
    from memlint.config import Configs
    from memlint.trial.confirm import Settings
    from memlint.trial.run import Limits, TrialError
    from memlint.trial.workers import outcomes as all_outcomes
    from memlint.trial.workers import workers

    ray = options["ray"]
    if ray and (os.path.exists(ray) or (_LINE.fullmatch(ray) and os.path.exists(_LINE.sub(r"\1", ray)))):
        ray, paths = "auto", (ray, *paths)  # it is the first of the paths
    lines = dict(filter(None, map(_place, paths)))
    named = tuple(_LINE.sub(r"\1", path) if path in lines else path for path in paths) or (".",)
    configs = Configs()
    options |= _configured(ctx, run_config(named, configs))
    report, found = _found(named, options, configs)
    _tell(report, lines)
    found = [pair for pair in found if pair[0].code not in ("MEM000", "MEM099") and _asked(pair[0], lines)]
    text = _read(options["harness"]) if options["harness"] else None
    folder = _made(options["write_harness"]) if options["write_harness"] else None
    page = _writable(options["report"]) if options["report"] else None
    limits = Limits(options["timeout"], options["memory_limit"])
    settings = Settings(options["device"], options["steps"], limits, text)
    outcomes: list[Outcome] = []
    torch, numbers = "", itertools.count(1)

    def began(finding: Finding) -> None:
        _progress(f"{next(numbers)}/{len(found)} {finding.path}:{finding.span.line} {finding.name}")

    try:
        if found:
            from memlint.trial import cluster

            with cluster.workers(settings, ray) if ray else workers(settings) as confirmers:
                outcomes = all_outcomes(confirmers, found, began)
                torch = confirmers[0].torch
    except TrialError as error:
        raise click.ClickException(str(error)) from None
    finally:
        _progress("")
    if folder:
        _write(outcomes, folder)
    if page:
        _report(outcomes, report, torch, page)
    if options["fix_confirmed"]:
        _fix(outcomes, report)
    _print(report, outcomes, options["output_format"])
    for failure in report.errors:
        click.echo(f"memlint: {failure}", err=True)
    if report.errors:
        return 2
    return int(any(outcome.verdict.status == "confirmed" for outcome in outcomes))


def _found(
    paths: tuple[str, ...], options: dict[str, Any], configs: Configs
) -> tuple[Report, list[tuple[Finding, Source]]]:
    """What `check` finds in the files among ``paths``, and what the trials of the rules' pages among them flag."""
    from memlint.check import Options, Report, check_paths
    from memlint.page import PageError
    from memlint.source import Source
    from memlint.trial.pages import findings, is_page

    pages = [path for path in dict.fromkeys(paths) if is_page(path)]
    files = [path for path in paths if not is_page(path)]
    if pages and (options["fix_confirmed"] or options["select"]):
        raise click.UsageError("--fix-confirmed and --select are for code, not for a rule's page")
    report = check_paths(files, Options(select=options["select"] or None), configs) if files else Report()
    found = [(finding, report.sources[finding.path]) for finding in report.findings]
    try:
        for page in pages:
            trials = list(findings(page, configs))
            found += trials
            report.sources |= {f.path: Source(f.path, Path(page).read_text(encoding="utf-8")) for f, _ in trials}
    except PageError as error:
        raise click.ClickException(str(error)) from None
    report.findings = [finding for finding, _ in found]
    return report, found


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"the harness {path} cannot be read: {error}") from None


def _made(path: str) -> Path:
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"harnesses cannot be written: {error}") from None
    return Path(path)


def _configured(ctx: click.Context, config: Config) -> dict[str, Any]:
    """What ``[tool.memlint.confirm]`` says where the command line says nothing. Raises `ConfigError`."""
    from memlint.config import ConfigError
    from memlint.registry import nearest

    known = {name.replace("_", "-"): p for p in ctx.command.params if (name := p.name or "") in _CONFIGURABLE}
    found: dict[str, Any] = {}
    for key, value in config.confirm.items():
        if key not in known:
            raise ConfigError(f"[tool.memlint.confirm]: unknown key {key!r}{nearest(key, known)}")
        parameter = known[key]
        name = parameter.name or ""
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            continue
        given = os.path.join(config.folder, str(value)) if key == "harness" else str(value)
        try:
            found[name] = parameter.process_value(ctx, given)
        except click.BadParameter as error:
            raise ConfigError(f"[tool.memlint.confirm]: {key}: {error.message}") from None
    return found


def _place(path: str) -> tuple[str, tuple[str, int]] | None:
    """``PATH:LINE`` apart, unless a file is really called so."""
    match = _LINE.fullmatch(path)
    return (path, (match[1], int(match[2]))) if match and not os.path.exists(path) else None


def _asked(finding: Finding, lines: dict[str, tuple[str, int]]) -> bool:
    from memlint.files import shown

    wanted = [line for path, line in lines.values() if shown(path) == finding.path]
    return not wanted or any(finding.span.line <= line <= finding.span.end_line for line in wanted)


def _tell(report: Report, lines: dict[str, tuple[str, int]]) -> None:
    """Say which files could not be read, and at which of the lines that were named nothing is found."""
    for finding in report.findings:
        if finding.code == "MEM000" and not finding.trail:
            click.echo(f"memlint: {finding.path}:{finding.span.line}: {finding.message}", err=True)
    from memlint.files import shown

    for word, (path, line) in lines.items():
        there = (f for f in report.findings if f.path == shown(path) and f.span.line <= line <= f.span.end_line)
        if all(finding.code == "MEM099" for finding in there):
            click.echo(f"memlint: {word}: no finding stands there", err=True)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text[:100]}")
        sys.stderr.flush()


def _write(outcomes: list[Outcome], folder: Path) -> None:
    for outcome in outcomes:
        if outcome.harness:
            finding = outcome.finding
            file = folder / f"{Path(finding.path).stem}_{finding.span.line}_{finding.code.lower()}.py"
            try:
                file.write_text(outcome.harness, encoding="utf-8")
            except (OSError, UnicodeEncodeError) as error:
                raise click.ClickException(f"harnesses cannot be written: {error}") from None
            click.echo(f"memlint: {file}", err=True)


def _writable(path: str) -> Path:
    """The path, if its folder is there to take a file: better told before the trials than after."""
    page = Path(path)
    if not os.access(page.parent, os.W_OK) or (page.exists() and not os.access(page, os.W_OK)):
        raise click.ClickException(f"the report {path} cannot be written")
    return page


def _report(outcomes: list[Outcome], report: Report, torch: str, page: Path) -> None:
    from memlint.trial import html

    command = " ".join(["memlint", *map(shlex.quote, sys.argv[1:])])
    try:
        page.write_text(html.page(outcomes, report.sources, torch, command), encoding="utf-8", errors="replace")
    except OSError as error:
        raise click.ClickException(f"the report {page} cannot be written: {error.strerror}") from None
    click.echo(f"memlint: {page}", err=True)


def _fix(outcomes: list[Outcome], report: Report) -> None:
    """Apply the fixes that proved themselves, each file at once."""
    from memlint.apply import apply_fixes, write
    from memlint.source import SourceError

    if any(o.verdict.status == "confirmed" and o.verdict.device == "fake" for o in outcomes):
        unproven = "fake tensors hold no numbers to compare: --fix-confirmed needs --device cpu or cuda"
        click.echo(f"memlint: {unproven}", err=True)
    for path, source in report.sources.items():
        proven = [o.finding for o in outcomes if o.finding.path == path and o.proven]
        if not proven:
            continue
        text, count = apply_fixes(source, proven)
        try:
            write(source, text)
        except SourceError as error:
            report.errors.append(f"{path} {error.reason}")
            continue
        report.fixed += count
        click.echo(f"memlint: {path}: {count} of {len(proven)} proven fixes applied", err=True)


def _print(report: Report, outcomes: list[Outcome], output_format: str) -> None:
    report.findings = [replace(o.finding, verdict=o.verdict.as_json()) for o in outcomes]
    if output_format == "json":
        from memlint.report import render

        click.echo(render("json", report), nl=False)
        return
    from memlint.trial.show import render_outcomes

    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    click.echo(render_outcomes(outcomes, color), nl=False)
