"""memlint's own failures as findings: where it failed, and what a report of it should say."""

from __future__ import annotations

import os
import platform
from collections import deque
from types import TracebackType

from memlint import __version__
from memlint.config import ConfigError
from memlint.files import shown
from memlint.registry import BUILT_IN, RegistryError
from memlint.rule import Finding, Level, Span, Step
from memlint.source import Source

FRAMES = 5
"""So many of memlint's own frames go into a report, the innermost last."""


def failed(
    path: str, source: Source | None, doing: str, error: Exception, line: int = 1, function: str = ""
) -> Finding:
    """An internal error as a finding at a line of the file's text. ``doing`` is what memlint was at: a rule's title,
    say. The trail holds its own frames. Raises the error itself where the call is at fault and not memlint
    (`ConfigError`, `RegistryError`), or with ``MEMLINT_DEBUG`` set."""
    if isinstance(error, (ConfigError, RegistryError)) or os.environ.get("MEMLINT_DEBUG"):
        raise error
    said = " ".join(str(error).split())[:200]
    frames = list(_frames(error.__traceback__))
    at = f" ({os.path.basename(frames[-1].path)}:{frames[-1].line})" if frames else ""
    message = f"internal error: {doing} raised {type(error).__name__}: {said}{at}; please report it"
    on = f"memlint {__version__}, Python {platform.python_version()}, {platform.system()}"
    place = Step(path, line, f"{doing}{f' in `{function}`' if function else ''}, by {on}")
    span = Span(line, 1, line, len(source.line(line)) + 1 if source else 1)
    return Finding(
        "MEM000", BUILT_IN["MEM000"], Level.ERROR, path, span, message, trail=(place, *frames), function=function
    )


def _frames(trace: TracebackType | None) -> deque[Step]:
    """The last frames that are memlint's own or a rule's."""
    found: deque[Step] = deque(maxlen=FRAMES)
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_globals.get("__name__", "").startswith("memlint"):
            found.append(Step(shown(frame.f_code.co_filename), trace.tb_lineno, f"in `{frame.f_code.co_name}`"))
        trace = trace.tb_next
    return found
