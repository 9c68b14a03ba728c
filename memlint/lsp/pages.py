"""What a hover shows of a rule: what is found, why it costs, and what was measured last."""

from __future__ import annotations

import re
from typing import Any

from memlint.page import PageError, read
from memlint.registry import page_of
from memlint.rule import Finding

_COSTS = re.compile(r"<!-- costs -->\n(.*?)\n<!-- /costs -->", re.S)


def hover_text(finding: Finding, verdict: dict[str, Any] | None) -> str:
    """Markdown about a finding: its rule's page without tests, the figures measured last, and its own verdict."""
    parts = [f"**{finding.code} {finding.name}** ({finding.level.value}): {finding.message}"]
    if verdict:
        parts.append(f"Measured here: {verdict['message']}")
    path = page_of(finding.name)
    try:
        page = read(path) if path else None
    except (OSError, PageError):
        page = None
    if path is None or page is None:
        return "\n\n".join(parts)
    fix = page.sections["The fix"].partition("```")[0].strip()
    costs = _COSTS.search(path.read_text(encoding="utf-8"))
    why = _COSTS.sub("", page.sections["Why it costs"]).strip()
    parts += [page.summary, f"### Why it costs\n\n{why}", f"### The fix\n\n{fix}"]
    if costs:
        parts.append(f"### Measured\n\n{costs[1].strip()}")
    parts.append(f"[The whole page]({path.resolve().as_uri()})")
    return "\n\n".join(parts)
