"""Which other Python reads a text that the running one does not: a newer one, or Python 2."""

from __future__ import annotations

import re
import sys

from memlint.notebook import parses

_NAMES = r"[\w.]{1,99}"
_PARAMETERS = r"\[(?:[^][\n]|\[[^][\n]{0,99}\]){1,300}\]"
_HEADER = r"((?:def|class)[ \t]+\w{1,99})[ \t]*"

# Syntax by the Python that brought it, and what says nearly the same to those before. Only the whole text, parsed with
# it, proves anything: what a pattern changes inside a string does no harm.
_BROUGHT = (
    ((3, 11), r"\bexcept[ \t]*\*", "except "),
    ((3, 11), r"(\[[^][\n*]{0,99})\*(?=\w)", r"\1"),
    ((3, 12), rf"^([ \t]*)type[ \t]+(\w{{1,99}})[ \t]*(?:{_PARAMETERS})?[ \t]*=", r"\1\2 ="),
    ((3, 12), rf"{_HEADER}\[(?:[^][\n=]|\[[^][\n=]{{0,99}}\]){{1,300}}\]", r"\1"),
    ((3, 12), r"(\b[fF][rR]?\"[^\"\n]{0,300}\{[^\"{}\n]{0,99})\"([^\"\n]{0,99})\"(?=[^\"{}\n]{0,99}\})", r"\1'\2'"),
    ((3, 12), r"(\b[fF][rR]?'[^'\n]{0,300}\{[^'{}\n]{0,99})'([^'\n]{0,99})'(?=[^'{}\n]{0,99}\})", r'\1"\2"'),
    ((3, 12), r"(\b[fF]([\"'])[^\"'\n]{0,300}\{[^{}\n]{0,99})\\(?=[^{}\n]{0,99}\})", r"\1"),
    ((3, 13), rf"{_HEADER}{_PARAMETERS}", r"\1"),
    ((3, 14), rf"\bexcept[ \t]*(\*?)[ \t]*({_NAMES}(?:[ \t]*,[ \t]*{_NAMES}){{1,50}})[ \t]*:", r"except\1 (\2):"),
    ((3, 14), r"\b([rR]?)[tT]([rR]?)(?=['\"])", r"\1f\2"),
    ((3, 15), r"^([ \t]*)lazy[ \t]+(?=(?:import|from)\b)", r"\1"),
    ((3, 15), r"([\[{(][ \t]*)\*{1,2}(?=[^\n]{1,300}[ \t]for[ \t])", r"\1"),
)
# What only Python 2 reads, on the line that was complained of.
_PYTHON_2 = re.compile(
    r"(?:^|:)\s*(?:print|exec)[ \t]+[^\s=.,(]|\bexcept[ \t]+[\w.]{1,99}[ \t]*,[ \t]*(?:[a-z_]\w*[ \t]*:|\()"
    r"|\bexcept[ \t]*\([^()\n]{0,300}\)[ \t]*,|\braise[ \t]+[\w.\[\]]{1,99}[ \t]*,|`[^`\n]{1,300}`|<>"
    r"|\b0[0-7]{2,99}\b|\b(?:0[xX][0-9a-fA-F]{1,99}|\d{1,99})[lL]\b|\b[uU][rR]['\"]|\blambda[ \t]*\("
    r"|\bdef[ \t]+\w{1,99}[ \t]*\([^()\n]{0,300}\("
)
# What no Python 2 reads.
_PYTHON_3 = re.compile(
    r"^(?![ \t]*#).*?(?:(?:[=(,\[{+:]|return)[ \t]*[rR]?[fF][rR]?['\"][^'\"\n]{0,300}\{|\(\w{1,99}[ \t]*:="
    r"|\)[ \t]*->[ \t]*[\w.\"'][^\n]{0,300}:[ \t]*$|\basync[ \t]+(?:def|for|with)[ \t]|=[ \t]*await[ \t]"
    r"|\byield[ \t]+from[ \t]+\w+\()"
    r"|^[ \t]*(?:[fF]['\"]|nonlocal[ \t]+\w|super\(\)\.|from __future__ import annotations)"
    r"|^[ \t]*def[ \t]+\w{1,99}[ \t]*\((?:[^():\n]{0,300}[ \t,(])?(?:\*[ \t]*,|\w+[ \t]*:)",
    re.MULTILINE,
)


def reader(text: str, error: SyntaxError) -> str:
    """Who reads ``text``, as "Python 3.12 and newer can read it" or "this is Python 2"; "" where that is not known.

    ``error`` is what the running Python says of it.
    """
    lines = text.splitlines()
    line = lines[error.lineno - 1] if error.lineno and error.lineno <= len(lines) else ""
    if _PYTHON_2.search(line) and not _PYTHON_3.search(text):
        return "this is Python 2"
    for version in sorted({since for since, _, _ in _BROUGHT if since > sys.version_info[:2]}):
        older = text
        for since, pattern, instead in _BROUGHT:
            if since == version:
                older = _rewritten(pattern, instead, older)
        if older != text and parses(older):
            return f"Python {version[0]}.{version[1]} and newer can read it"
        text = older
    return ""


def _rewritten(pattern: str, instead: str, text: str) -> str:
    for _ in range(5):  # what stands within what was found
        before, text = text, re.sub(pattern, instead, text, flags=re.MULTILINE)
        if text == before:
            break
    return text
