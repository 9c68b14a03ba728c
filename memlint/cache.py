"""One SQLite file of earlier results. Gone, broken, locked or of another version, it is as if empty."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

KEPT = {"result": 400, "run": 4}
"""Texts that are kept of each kind, ``run`` for all that a run knew; the ones used longest ago go first."""

_LAYOUT = 1


class Cache:
    """Texts by key. Every failure is a miss: no method raises."""

    def __init__(self, folder: str) -> None:
        self._connection: sqlite3.Connection | None = None
        import sqlite3

        self._errors: tuple[type[Exception], ...] = (sqlite3.Error, OSError)
        path = os.path.join(folder, f"results-{_LAYOUT}.sqlite")
        for attempt in range(2):
            try:
                self._connection = self._open(path)
                return
            except sqlite3.OperationalError:
                return  # locked, or no place to write
            except sqlite3.DatabaseError:
                if attempt:
                    return
                try:
                    os.unlink(path)  # broken: start a new one
                except OSError:
                    return
            except OSError:
                return

    @staticmethod
    def _open(path: str) -> sqlite3.Connection:
        import sqlite3

        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, ".gitignore"), "w", encoding="utf-8") as file:
                file.write("*\n")
        connection = sqlite3.connect(path, timeout=1.0, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = OFF")
            for kind in KEPT:
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {kind} (key TEXT PRIMARY KEY, value BLOB, used INTEGER) WITHOUT ROWID"
                )
                connection.execute(f"SELECT key, value, used FROM {kind} LIMIT 1").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def get(self, key: str, kind: str = "result") -> str | bytes | None:
        """What is kept under ``key``."""
        if self._connection is None:
            return None
        try:
            row = self._connection.execute(f"SELECT value FROM {kind} WHERE key = ?", (key,)).fetchone()
        except self._errors:
            return None
        return row[0] if row and isinstance(row[0], (str, bytes)) else None

    def put(self, key: str, value: str | bytes, kind: str = "result") -> None:
        """Keep ``value`` under ``key``, and drop what was used longest ago."""
        if self._connection is None:
            return
        import time

        try:
            self._connection.execute(f"INSERT OR REPLACE INTO {kind} VALUES (?, ?, ?)", (key, value, time.time_ns()))
            self._connection.execute(
                f"DELETE FROM {kind} WHERE used <= (SELECT used FROM {kind} ORDER BY used DESC LIMIT 1 OFFSET ?)",
                (KEPT[kind],),
            )
        except self._errors:
            return

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def folder_for(base: str) -> str:
    """Where the cache lies: ``MEMLINT_CACHE_DIR``, or ``.memlint_cache`` in ``base``."""
    return os.environ.get("MEMLINT_CACHE_DIR") or os.path.join(base, ".memlint_cache")
