"""The thread that analyses: it takes in changes, asks the workspace again, and hands over what it says of each file."""

from __future__ import annotations

import gc
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from memlint.check import Options
from memlint.config import ConfigError, Configs
from memlint.files import MissingPath, shown
from memlint.registry import RegistryError
from memlint.rule import Finding, Level
from memlint.source import Source
from memlint.workspace import Workspace

DEPTH, STACK = 20_000, 512 * 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """What the editor's settings say. ``debounce`` is in seconds."""

    options: Options = field(default_factory=Options)
    min_level: Level = Level.NOTE
    debounce: float = 0.01
    whole: bool = True


@dataclass
class State:
    """What is known of one file: the text that was looked at, and the findings in it."""

    source: Source | None
    findings: list[Finding]


class Analyst(threading.Thread):
    """Keeps ``states`` up to date. ``tell`` is called, in this thread, with each path whose findings are new; ``say``
    with what the user should know."""

    def __init__(
        self, folders: Iterable[str], settings: Settings, tell: Callable[[str], None], say: Callable[[str], None]
    ) -> None:
        super().__init__(daemon=True, name="memlint-analyst")
        self.states: dict[str, State] = {}
        self.workspace: Workspace | None = None
        self._folders = list(folders)
        self._settings = settings
        self._tell, self._say = tell, say
        self._condition = threading.Condition()
        self._changes: dict[str, bytes | None] = {}
        self._open: dict[str, bytes] = {}
        self._reload = True
        self._stopped = False
        self._waiting: list[tuple[str, Callable[[], None]]] = []

    # ------------------------------------------------------------------ called from the server's thread

    def change(self, path: str, text: bytes | None) -> None:
        """``text`` stands in for the file from now on; None: what the disk holds."""
        path = shown(path)
        with self._condition:
            if text is None:
                self._open.pop(path, None)
            else:
                self._open[path] = text
            self._changes[path] = text
            self._condition.notify()

    def reload(self, folders: Iterable[str] | None = None, settings: Settings | None = None) -> None:
        """Read everything again: files have come or gone, or other settings hold."""
        with self._condition:
            self._folders = self._folders if folders is None else list(folders)
            self._settings = settings or self._settings
            self._reload = True
            self._condition.notify()

    def stop(self) -> None:
        """End the thread when it is done with the file at hand."""
        with self._condition:
            self._stopped = True
            self._condition.notify()

    def when_current(self, path: str, call: Callable[[], None]) -> None:
        """Call, in this thread, when the findings of a file are those of its text as it is now."""
        with self._condition:
            self._waiting.append((shown(path), call))
            self._condition.notify()

    @property
    def min_level(self) -> Level:
        """Findings below are not shown."""
        return self._settings.min_level

    # ------------------------------------------------------------------ the thread

    def start(self) -> None:
        """Start the thread, with a stack for code that is nested deeply."""
        sys.setrecursionlimit(max(sys.getrecursionlimit(), DEPTH))
        size = threading.stack_size(STACK)
        try:
            super().start()
        finally:
            threading.stack_size(size)

    def run(self) -> None:
        gc.disable()  # a collection amid an answer goes through the whole project: `Workspace.tidy` asks for them
        while True:
            with self._condition:
                self._condition.wait_for(self._pending)
            if self._stopped:
                return
            try:
                self._work()
            except (ConfigError, RegistryError, MissingPath) as error:
                self._say(" ".join(str(error).split()))
                self._fall_back()
            except Exception:  # one file, or one rule, must not end the server
                self._say(f"internal error: {traceback.format_exc(limit=-3)}")
                self._release(everything=True)

    def _pending(self) -> bool:
        due = self.workspace is not None and self.workspace.due
        return bool(self._stopped or self._reload or self._changes or self._waiting or due)

    def _interrupted(self) -> bool:
        return bool(self._changes or self._reload or self._stopped)

    def _work(self) -> None:
        self._take()
        if self.workspace is None:
            return
        for path, findings in self.workspace.check(tuple(self._open), self._interrupted):
            self._found(path, findings)
            self._release()
        self._release()
        if not self._interrupted():
            self.workspace.tidy()

    def _take(self) -> None:
        """Take in what has changed, when nothing more has for a moment."""
        with self._condition:
            deadline = time.monotonic() + 10 * self._settings.debounce
            while self._changes and time.monotonic() < deadline:
                known = dict(self._changes)
                self._condition.wait(self._settings.debounce)
                if known == self._changes:
                    break
            changes, self._changes = self._changes, {}
            reload, self._reload = self._reload, False
            texts, folders, settings = dict(self._open), self._folders, self._settings
        if reload or self.workspace is None:
            options = settings.options
            gone = set(self.states)
            self.workspace = Workspace(
                folders if settings.whole else (),
                Options(options.select, options.extend_select, options.ignore, options.target, False, texts),
                Configs(),
            )
            for path in gone - set(self.workspace.due):
                self._found(path, [])
            return
        for path, text in changes.items():
            self.workspace.put(path, text)
            if path not in self.workspace.due and path not in self.workspace.sources and path in self.states:
                self._found(path, [])

    def _found(self, path: str, findings: list[Finding]) -> None:
        assert self.workspace is not None
        self.states[path] = State(self.workspace.sources.get(path), findings)
        self._tell(path)

    def _release(self, everything: bool = False) -> None:
        """Call back those who wait for files that are current."""
        due = set(self.workspace.due) if self.workspace is not None and not everything else set()
        with self._condition:
            ready = [w for w in self._waiting if w[0] not in due and w[0] not in self._changes]
            self._waiting = [w for w in self._waiting if w not in ready]
        for _, call in ready:
            call()

    def _fall_back(self) -> None:
        """Go on with settings that hold for sure, or without any finding."""
        if self._settings.options != Options():
            with self._condition:
                self._settings, self._reload = Settings(), True
        else:
            self.workspace = None
            self._release(everything=True)
