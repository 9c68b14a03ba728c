"""The command line."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import click

from memlint import __version__
from memlint.config import ConfigError, Configs, level
from memlint.files import MissingPath, shown
from memlint.registry import BUILT_IN, BUILT_IN_PAGES, RegistryError
from memlint.rule import Level
from memlint.target import parse

if TYPE_CHECKING:
    from memlint.check import Options, Report

FORMATS = ("text", "concise", "json", "jsonl", "lsp", "sarif", "github", "gitlab", "junit")
LEVELS = tuple(each.value for each in Level)


class _Commands(click.Group):
    """Commands, of which `confirm` and `run` are loaded only when they are called for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "confirm", "run"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "confirm":
            from memlint.trial.command import confirm

            return confirm
        if cmd_name == "run":
            from memlint.trial.run_command import run

            return run
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # before click turns it into an empty line and an Abort
            raise click.exceptions.Exit(_say("interrupted", 130)) from None
        except OSError as error:  # before click makes a closed pipe exit with 1, which means findings
            if error.filename is not None:
                raise
            raise click.exceptions.Exit(_unwritten(error)) from None


def _version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(_environment() if ctx.params.get("json") else f"memlint {__version__}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", is_flag=True, is_eager=True, help="With --version: as JSON, with what memlint runs on.")
@click.option("--version", is_flag=True, callback=_version, expose_value=False, help="Show the version and exit.")
@click.pass_context
def cli(ctx: click.Context, json: bool) -> None:
    """Find, repair and measure memory anti-patterns in PyTorch code."""
    if json:
        raise click.UsageError("--json goes with --version", ctx)


def _environment() -> str:
    """What a report of a fault should say: versions of memlint, of Python and of what memlint uses, none imported."""
    import json
    import platform
    from importlib import metadata

    def version(name: str) -> str | None:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    packages = ("click", "libcst", "pathspec", "torch", "pygls", "watchfiles")
    facts = {
        "memlint": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in packages},
    }
    return json.dumps(facts, indent=2)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 nothing found, 1 findings, 2 the call or memlint is at fault, 130 Ctrl-C."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a narrow terminal must not end the run
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # what is done cannot be interrupted any more
    atexit.register(gc.freeze)
    try:
        status = cli.main(arguments, prog_name="memlint", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        status = 2
    except click.ClickException as error:
        status = _say(error.format_message())
    except (ConfigError, RegistryError, MissingPath) as error:
        status = _say(str(error))
    except (click.Abort, KeyboardInterrupt):
        status = _say("interrupted", 130)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:
            status = _unwritten(error)
        else:
            from memlint.failure import failed

            status = _say(failed("memlint", None, "memlint", error).message)
    sys.exit(status if isinstance(status, int) else 0)


def _unwritten(error: OSError) -> int:
    """The exit status after a write to standard output failed with ``error``; what is still buffered is dropped. The
    only other error that names no file is that of a working folder which somebody has deleted."""
    try:
        os.getcwd()
    except OSError:
        return _say("the working folder is gone")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 141
    return _say(f"standard output cannot be written: {error.strerror or error}")


def _say(message: str, status: int = 2) -> int:
    click.echo(f"memlint: {' '.join(message.split())}", err=True)
    return status


def _split(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for value in values for word in value.replace(",", " ").split())


def _target(ctx: click.Context, parameter: click.Parameter, value: str | None) -> object:
    try:
        return None if value is None else parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _level(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Level | None:
    try:
        return None if value is None else level(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _rule_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: rules whose names or codes begin so, after the last comma. Pages name them; no rule is loaded."""
    from memlint.registry import rules_folder

    before, comma, begin = incomplete.rpartition(",")
    words = []
    for path in sorted(rules_folder().glob("*.md")):
        with open(path, encoding="utf-8") as page:
            words += page.readline().translate({ord(each): " " for each in "#()"}).split()
    return [before + comma + word for word in sorted(words) if word.startswith(begin)]


def _rules_option(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, multiple=True, callback=_split, shell_complete=_rule_names, metavar="RULE,…", help=text)


@cli.command()
@click.argument("paths", nargs=-1, metavar="[PATH]…")
@click.option("--fix", is_flag=True, help="Apply safe fixes: the program computes the same numbers.")
@click.option("--unsafe-fixes/--no-unsafe-fixes", default=None, help="With --fix or --diff: unsafe fixes, too.")
@click.option("--diff", is_flag=True, help="Show what --fix would change and change nothing.")
@_rules_option("--select", "Only these rules: names, codes, beginnings of codes (MEM1), or ALL.")
@_rules_option("--extend-select", "These rules as well.")
@_rules_option("--ignore", "Not these rules.")
@click.option("--fail-on", callback=_level, metavar="|".join(LEVELS), help="Exit with 1 from this level on.")
@click.option("--min-level", callback=_level, metavar="|".join(LEVELS), help="Show findings from this level on.")
@click.option("--output-format", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--output-file", type=click.Path(dir_okay=False), help="Write the report there.")
@click.option("--stdin-filename", metavar="PATH", help="What to call the file that '-' reads.")
@click.option("--target-torch", callback=_target, metavar="X.Y", help="The torch version that the code is meant for.")
@click.option("--baseline", type=click.Path(dir_okay=False), help="Report only findings that are not in this file.")
@click.option("--update-baseline", is_flag=True, help="Write today's findings to the baseline.")
@click.option("--statistics", is_flag=True, help="Count findings by rule instead of showing them.")
@click.option("--no-cache", is_flag=True, help="Neither use nor keep earlier results.")
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="So many processes; 0, the default: one for each processor where that pays.",
)
@click.option("--exit-zero", is_flag=True, help="Exit with 0 though there are findings.")
@click.option("--watch", is_flag=True, help="Check again whenever a file changes, until Ctrl-C.")
@click.option(
    "--color/--no-color", default=None, help="Colour, or none. Default: on a terminal, unless NO_COLOR is set."
)
def check(paths: tuple[str, ...], **options: Any) -> int:
    """Check files, folders, notebooks, or standard input ('-'). Nothing is imported or run."""
    paths = paths or (".",)
    if options.pop("watch"):
        return _watch(paths, **options)
    if not (options["fix"] or options["diff"]):  # which take several runs
        gc.disable()  # the process ends with this: a look for cycles in all that a run has made would be in vain
    return _Check(paths, **options).status()


def _watch(paths: tuple[str, ...], **options: Any) -> int:
    """Check, and again after every change of a file that counts, until Ctrl-C."""
    if "-" in paths or options["fix"] or options["update_baseline"]:
        raise click.UsageError("--watch goes neither with '-' nor with --fix or --update-baseline")
    try:
        from watchfiles import watch
    except ImportError:
        raise click.ClickException("--watch needs watchfiles: pip install 'torch-memlint[watch]'") from None

    def counts(change: object, path: str) -> bool:
        return path.endswith((".py", ".pyi", ".ipynb", ".toml", ".cfg", ".txt"))

    changes = watch(*paths, watch_filter=counts, rust_timeout=100, yield_on_timeout=True, raise_interrupt=True)
    next(changes)  # it watches from here on: no change during a check is lost
    while True:
        try:
            _Check(paths, **options).status()
        except (ConfigError, RegistryError) as error:  # being edited, perhaps
            _say(str(error))
        sys.stdout.flush()
        click.echo("Waiting for changes; Ctrl-C ends.", err=True)
        changed = sorted({shown(path) for _, path in next(filter(None, changes))})
        click.echo(f"\nChanged: {', '.join(changed[:3])}{' …' * (len(changed) > 3)}", err=True)


class _Progress:
    """A line on standard error that says how far a long run is, gone once it is done."""

    def __init__(self, patience: float = 1.0) -> None:
        self._next = time.monotonic() + patience
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done < total and now >= self._next:
            self._next, self._shown = now + 0.1, True
            self._write(f"{done:{len(str(total))}} of {total} files")
        elif done == total and self._shown:
            self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


class _Check:
    """One call of `check`."""

    def __init__(self, paths: tuple[str, ...], **options: Any) -> None:
        self.given = options
        self.configs = Configs()
        overlay: dict[str, bytes] = {}
        self.stdin = ""
        if "-" in paths:
            if len(paths) > 1:
                raise click.UsageError("'-' stands alone: no other path beside it")
            self.stdin = shown(options["stdin_filename"] or "stdin.py")
            overlay[self.stdin] = sys.stdin.buffer.read()
            paths = (self.stdin,)
        elif options["stdin_filename"]:
            raise click.UsageError("--stdin-filename goes with the path '-'")
        self.paths = paths
        if options["statistics"] and options["output_format"] not in ("text", "concise"):
            raise click.UsageError("--statistics goes with the formats text and concise")
        if options["unsafe_fixes"] and not (options["fix"] or options["diff"]):
            raise click.UsageError("--unsafe-fixes goes with --fix or --diff")
        from memlint.check import Options, run_config

        self.config = run_config(paths, self.configs)
        self.options: Options = Options(
            select=options["select"] or None,
            extend_select=options["extend_select"],
            ignore=options["ignore"],
            target=options["target_torch"],
            cache=not options["no_cache"] and not self.stdin,
            overlay=overlay,
            progress=_Progress() if sys.stderr.isatty() else None,
            jobs=options["jobs"],
        )

    def status(self) -> int:
        """Do it, and give the exit status."""
        given = self.given
        if given["fix"] or given["diff"]:
            report, text_out = self._fixed()
        else:
            from memlint.check import check_paths

            report, text_out = check_paths(self.paths, self.options, self.configs), ""
        if not report.files:
            _say(f"no Python file or notebook under {', '.join(self.paths)}")
        failing = self._new_ones(report)
        if text_out:
            click.echo(text_out, nl=False)
        if not given["diff"]:
            self._print(report, to_stderr=bool(text_out))
        own = [error for error in report.errors if error.startswith("internal error")]
        for error in (e for e in report.errors if e not in own):
            _say(error)
        if own:  # one fault may show in every function, and the report has them all
            more = f"; {len(own) - 1} more such" if len(own) > 1 else ""
            _say(f"{own[0]}{more}; the report shows {'them' if more else 'it'} as MEM000")
        if report.errors:
            return 2
        return 1 if failing and not given["exit_zero"] else 0

    def _fixed(self) -> tuple[Report, str]:
        """The report to show after fixing, and what goes to standard output: a diff, or standard input repaired."""
        from memlint.apply import diff, fix_paths, write
        from memlint.source import SourceError

        fixed = fix_paths(self.paths, self.options, unsafe=self.given["unsafe_fixes"], configs=self.configs)
        report = fixed.after
        report.errors += [error for error in fixed.errors if error not in report.errors]
        if self.given["diff"]:
            left = len(fixed.after.findings)
            count = fixed.after.fixed
            click.echo(f"Would fix {count} finding{'' if count == 1 else 's'}; {left} would be left.", err=True)
            fixed.before.errors += report.errors
            return fixed.before, "".join(diff(source, text) for source, text in fixed.changes.values())
        if self.stdin:
            source = fixed.before.sources.get(self.stdin)
            data = self.options.overlay[self.stdin]
            if source is not None and self.stdin in fixed.changes:
                data = source.to_bytes(fixed.changes[self.stdin][1])
            return report, data.decode(source.encoding if source else "utf-8", "backslashreplace")
        for path, (source, text) in fixed.changes.items():
            try:
                write(source, text)
            except SourceError as error:
                report.errors.append(f"{path} {error.reason}")
                report.fixed -= fixed.counts[path]
                kept = [f for f in fixed.before.findings if f.path == path]
                report.findings = sorted([f for f in report.findings if f.path != path] + kept, key=lambda f: f.order)
                report.sources[path] = source
        return report, ""

    def _new_ones(self, report: Report) -> bool:
        """Leave out known findings and those below the level to show; say whether one that counts is left."""
        path = self.given["baseline"] or self.config.baseline
        if self.given["update_baseline"] and not path:
            raise click.UsageError("--update-baseline needs --baseline FILE, or a baseline in the configuration")
        if path:
            from memlint import baseline

            try:
                if self.given["update_baseline"]:
                    baseline.write(path, report.findings)
                    _say(f"{len(report.findings)} known findings in {path}")
                known = baseline.read(path)
            except baseline.BaselineError as error:
                raise click.ClickException(str(error)) from None
            report.findings = [f for f in report.findings if f.fingerprint not in known]
        fail_on = self.given["fail_on"]
        failing = any(f.level.rank >= (fail_on or self.configs.of(f.path).fail_on).rank for f in report.findings)
        if lowest := self.given["min_level"]:
            report.findings = [f for f in report.findings if f.level.rank >= lowest.rank]
        return failing

    def _print(self, report: Report, to_stderr: bool) -> None:
        from memlint.report import Screen, render

        stream = sys.stderr if to_stderr else sys.stdout
        if self.given["statistics"]:
            text = _statistics(report)
        else:
            color = self.given["color"]
            screen = Screen(bool(color)) if self.given["output_file"] else Screen.of(stream, color)
            text = render(self.given["output_format"], report, screen)
        if file := self.given["output_file"]:
            try:
                with open(file, "w", encoding="utf-8", errors="backslashreplace") as out:
                    out.write(text)
            except OSError as error:
                raise click.ClickException(f"{file} cannot be written: {error.strerror}") from None
        else:
            stream.write(text)


def _statistics(report: Report) -> str:
    from collections import Counter

    counts = Counter((f.code, f.name) for f in report.findings)
    rows = [(n, code, name) for (code, name), n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    digits = max((len(str(n)) for n, _, _ in rows), default=1)
    return "".join(f"{n:{digits}} {code} {name}\n" for n, code, name in rows)


@cli.command("lsp")
@click.option("--stdio", is_flag=True, help="Speak on standard input and output, as it does anyway.")
def language_server(stdio: bool) -> None:
    """Serve an editor by the Language Server Protocol, on standard input and output."""
    try:
        from memlint.lsp.server import make
    except ImportError as error:
        if error.name and error.name.split(".")[0] in ("pygls", "lsprotocol"):
            raise click.ClickException("the language server needs pygls: pip install 'torch-memlint[lsp]'") from None
        raise
    make().start_io()
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # the server has closed it


@cli.command("rule")
@click.argument("word", metavar="NAME|CODE", shell_complete=_rule_names)
def show_rule(word: str) -> None:
    """Show a rule's page."""
    from memlint import registry
    from memlint.check import run_config

    known = registry.load(run_config((), Configs()).rule_folders)
    for code, name in BUILT_IN.items():
        if word.upper() == code or word == name:
            click.echo(BUILT_IN_PAGES[code], nl=False)
            return
    rule = known.find(word)
    if rule.page is None:
        raise click.ClickException(f"the rule {rule.name} has no page")
    click.echo(rule.page.read_text(encoding="utf-8"), nl=False)


@cli.command("rules")
@click.option("--output-format", type=click.Choice(("text", "json")), default="text", show_default=True)
def list_rules(output_format: str) -> None:
    """List the rules."""
    from memlint import page, registry
    from memlint.check import run_config

    rows = []
    for rule in registry.load(run_config((), Configs()).rule_folders):
        row = {"code": rule.code, "name": rule.name, "level": "", "fix": "", "summary": "", "claim": rule.claim.value}
        if rule.page is not None:
            with suppress(page.PageError):  # somebody's own page may have another form
                read = page.read(rule.page)
                row |= {"level": read.level, "fix": read.fix, "summary": read.summary}
        rows.append(row)
    if output_format == "json":
        import json

        click.echo(json.dumps(rows, indent=2))
        return
    wide = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        level = row["level"].partition(",")[0] or "-"  # the page says when it is another
        click.echo(f"{row['code']} {row['name']:{wide}}  {level:8} {row['summary']}")
