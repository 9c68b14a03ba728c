"""What a trial must not do, whatever the code under trial does: change the user's tree, or start other programs."""

from __future__ import annotations

import os
import re
import sys
import types
from typing import Any

import torch

WRITES = {
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.truncate",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.chown",
}
STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.spawn", "os.posix_spawn"}
NOT_FOUND = 127 << 8  # what a shell's command that is not there ends with
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")


def protect(root: str, folder: str) -> None:
    """Refuse, by accident and not by attack, every change under ``root``, the user's tree, but for ``folder``, and
    every program that the user's code would start: it may install something, or send it away."""
    inside, own = (os.path.realpath(path).rstrip(os.sep) + os.sep for path in (root, folder))
    save, system = torch.save, os.system

    def refuse(path: Any) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        real = os.path.realpath(os.fsdecode(path))
        if real.startswith(inside) and not real.startswith(own):
            raise PermissionError(f"a trial writes nothing in the project: {os.fsdecode(path)}")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = (
                any(c in mode for c in "wax+")
                if isinstance(mode, str)
                else flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            )
            if writes:
                refuse(path)
        elif event in STARTS and _starts(inside):
            raise PermissionError(f"a trial starts no programs: {_command(arguments)}")
        elif event in WRITES:
            for path in arguments[:2]:
                refuse(path)

    def guarded_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        refuse(f)  # torch's own writer opens files without telling Python
        return save(obj, f, *args, **kwargs)

    def guarded_system(command: Any) -> int:
        return NOT_FOUND if _starts(inside) else system(command)

    torch.save = guarded_save
    os.system = guarded_system
    sys.addaudithook(hook)


def _starts(inside: str) -> bool:
    """Whether it is the user's code, below the folder ``inside``, and no library, that starts a program now."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if _INSTALLED.search(file):
            return False
        if os.path.realpath(file).startswith(inside):
            return True
        frame = frame.f_back
    return False


def _command(arguments: tuple[Any, ...]) -> str:
    """A program and what it is told, in one line, as an audit event has them."""
    words = next((a for a in arguments if isinstance(a, (list, tuple))), arguments[:1])
    return " ".join(os.fsdecode(w) if isinstance(w, (str, bytes, os.PathLike)) else str(w) for w in words)[:100]
