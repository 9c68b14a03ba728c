"""Findings as plain data: the ``json`` contract, and the same with what memlint itself needs to read them back."""

from __future__ import annotations

from typing import Any

from memlint.rule import Applicability, Claim, Edit, Finding, Fix, Level, Span, Step


def to_dict(finding: Finding) -> dict[str, Any]:
    """The finding as the ``json`` format promises it: lines and columns from 1, columns in characters."""
    fix = finding.fix
    return {
        "code": finding.code,
        "name": finding.name,
        "level": finding.level.value,
        "path": finding.path,
        **_span(finding.span),
        "cell": finding.cell,
        "message": finding.message,
        "trail": [step_to_dict(step) for step in finding.trail],
        "fix": fix
        and {
            "title": fix.title,
            "applicability": fix.applicability.value,
            "edits": [{**_span(edit.span), "text": edit.text} for edit in fix.edits],
        },
        "verdict": finding.verdict,
        "fingerprint": finding.fingerprint,
    }


def step_to_dict(step: Step) -> dict[str, Any]:
    """One step of a trail."""
    return {"path": step.path, "line": step.line, "message": step.message}


def pack(finding: Finding) -> dict[str, Any]:
    """`to_dict` and what the contract leaves out, for `unpack`. The fix keeps its edits and not its operations."""
    data = to_dict(finding)
    data["claim"] = finding.claim and finding.claim.value
    data["function"] = finding.function
    data["reason"] = finding.fix.reason if finding.fix else ""
    return data


def unpack(data: dict[str, Any]) -> Finding:
    """The finding that `pack` wrote. Raises KeyError, TypeError or ValueError where the data is of another form."""
    fix = data["fix"]
    return Finding(
        code=data["code"],
        name=data["name"],
        level=Level(data["level"]),
        path=data["path"],
        span=_read_span(data),
        message=data["message"],
        fix=fix
        and Fix(
            fix["title"],
            applicability=Applicability(fix["applicability"]),
            reason=data["reason"],
            edits=tuple(Edit(_read_span(edit), edit["text"]) for edit in fix["edits"]),
        ),
        trail=tuple(Step(step["path"], step["line"], step["message"]) for step in data["trail"]),
        claim=Claim(data["claim"]) if data["claim"] else None,
        function=data["function"],
        cell=data["cell"],
        verdict=data["verdict"],
        fingerprint=data["fingerprint"],
    )


def _span(span: Span) -> dict[str, int]:
    return {"line": span.line, "column": span.column, "end_line": span.end_line, "end_column": span.end_column}


def _read_span(data: dict[str, Any]) -> Span:
    return Span(data["line"], data["column"], data["end_line"], data["end_column"])
