"""``memlint run``: the command."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from memlint.check import Report
    from memlint.trial.confirm import Outcome
    from memlint.trial.program import Program

ALL = "all"


class _BeforeProgram(click.Command):
    """Takes options up to the script, or up to ``-m``; everything from there on is the program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        valued = {name for p in self.params if isinstance(p, click.Option) and not p.is_flag for name in p.opts}
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] not in ("-", "-m", "--"):
            at += 2 if args[at] in valued else 1
        return super().parse_args(ctx, [*args[:at], "--", *args[at + (args[at : at + 1] == ["--"]) :]])


def _steps(ctx: click.Context, parameter: click.Parameter, value: str) -> int | None:
    if value == ALL:
        return None
    if not value.isdigit() or int(value) < 4:
        raise click.BadParameter(f"{value!r} is neither a number from 4 on nor {ALL!r}")
    return int(value)


def _words(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for value in values for word in value.replace(",", " ").split())


@click.command(cls=_BeforeProgram)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT|-m MODULE [ARG]…")
@click.option(
    "--steps",
    default="20",
    show_default=True,
    callback=_steps,
    metavar=f"N|{ALL}",
    help="Iterations to measure of each flagged loop, after which it ends, and the program when all have had theirs; "
    f"{ALL}: the program runs to its own end.",
)
@click.option(
    "--ab",
    is_flag=True,
    help="Run the program again with the fixes laid over it, and compare: once, unless one loop has several.",
)
@click.option("--select", multiple=True, callback=_words, metavar="RULE,…", help="Only these rules.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Short for --output-format json.")
@click.option(
    "--output-file", type=click.Path(dir_okay=False), help="Write the verdicts there instead of to standard error."
)
def run(program: tuple[str, ...], **options: Any) -> int:
    """Run your own program with the loops watched that `check` flags in it, and say what they cost.

    The program is checked first: its script and whatever it imports of the project. Ticks, and with --ab the fixes, are
    laid over it in memory. Its streams, arguments, working folder, signals and exit status are as without memlint; the
    verdicts follow on standard error.
    """
    from memlint.check import Options, check_paths
    from memlint.trial import program as programs

    wanted = _program(program)
    try:
        entry = wanted.entry()
        report = check_paths(programs.files_of(entry), Options(select=options["select"] or None)) if entry else None
        findings = [f for f in report.findings if f.code not in ("MEM000", "MEM099")] if report else []
        watching = programs.Watching(findings, report.sources if report else {})
        before = programs.run(wanted, watching, options["steps"], {})
        rounds = watching.rounds(before) if options["ab"] else None
        after = None
        if rounds is not None:
            after = [(each, programs.run(wanted, watching, options["steps"], each.texts)) for each in rounds]
    except programs.ProgramError as error:
        raise click.ClickException(str(error)) from None
    outcomes = programs.outcomes(watching, before, after)
    _print(report, outcomes, "json" if options["as_json"] else options["output_format"], options["output_file"])
    for failure in report.errors if report else ():
        click.echo(f"memlint: {failure}", err=True)
    return _ended(before.status)


def _program(words: tuple[str, ...]) -> Program:
    from memlint.trial.program import Program

    if not words:
        raise click.UsageError("missing the SCRIPT to run, or -m MODULE")
    if words[0] != "-m":
        return Program(script=words[0], arguments=words[1:])
    if len(words) < 2:
        raise click.UsageError("-m needs a MODULE")
    return Program(module=words[1], arguments=words[2:])


def _print(report: Report | None, outcomes: list[Outcome], output_format: str, file: str | None) -> None:
    if report is not None and output_format == "json":
        from memlint.report import render

        report.findings = [replace(o.finding, verdict=o.verdict.as_json()) for o in outcomes]
        text = render("json", report)
    else:
        from memlint.trial.show import render_outcomes

        color = not file and sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        text = render_outcomes(outcomes, color)
    if not file:
        click.echo(text, nl=False, err=True)
        return
    try:
        with open(file, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}") from None


def _ended(status: int) -> int:
    """The program's exit status; where a signal ended it, this process ends by the same."""
    if status >= 0:
        return status
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core is enough
    with contextlib.suppress(OSError, ValueError):
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    return 128 - status
