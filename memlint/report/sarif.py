"""``sarif``: SARIF 2.1.0, as code scanning services and editors read it, with fixes, rule help and fingerprints."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from memlint import __version__, page, registry
from memlint.check import Report
from memlint.report.style import Screen, sentences
from memlint.rule import Applicability, Edit, Finding, Fix, Level, Span, Step

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVEL = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "note"}
_BASE = "%SRCROOT%"


def render(report: Report, screen: Screen) -> str:
    """One log of one run. Regions count columns in Unicode code points, as memlint does."""
    rules = {finding.code: finding.name for finding in report.findings}
    codes = sorted(rules)
    driver = {
        "name": "memlint",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(code, rules[code], report) for code in codes],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not report.errors,
                "toolExecutionNotifications": [
                    {"level": "error", "message": {"text": error}} for error in report.errors
                ],
            }
        ],
        "results": [_result(finding, codes) for finding in report.findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(code: str, name: str, report: Report) -> dict[str, Any]:
    path = registry.page_of(name, report.rule_folders)
    summary, text = name, registry.BUILT_IN_PAGES.get(code, name)
    if path:
        try:
            read = page.read(path)
            summary, text = read.summary, read.brief
        except page.PageError:  # somebody's own page may have another form
            text = path.read_text(encoding="utf-8")
    return {
        "id": code,
        "name": name,
        "shortDescription": {"text": summary},
        "help": {"text": text, "markdown": text},
    }


def _result(finding: Finding, codes: list[str]) -> dict[str, Any]:
    message = sentences(finding)
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": _LEVEL[finding.level],
        "message": {"text": message},
        "locations": [{"physicalLocation": _physical(finding.path, finding.span)}],
        "partialFingerprints": {"memlint/v1": finding.fingerprint},
    }
    if finding.function:
        result["locations"][0]["logicalLocations"] = [{"fullyQualifiedName": finding.function, "kind": "function"}]
    if finding.trail:
        result["relatedLocations"] = [_related(number, step) for number, step in enumerate(finding.trail)]
    if finding.fix and finding.fix.edits and finding.fix.applicability is not Applicability.HINT:
        result["fixes"] = [_fix(finding.path, finding.fix)]
    properties = {"cell": finding.cell, "verdict": finding.verdict}
    if kept := {key: value for key, value in properties.items() if value is not None}:
        result["properties"] = kept
    return result


def _fix(path: str, fix: Fix) -> dict[str, Any]:
    how = "safe" if fix.applicability is Applicability.SAFE else f"unsafe: {fix.reason}"
    change = {"artifactLocation": _artifact(path), "replacements": list(_replacements(fix.edits))}
    return {"description": {"text": f"{fix.title} ({how})"}, "artifactChanges": [change]}


def _replacements(edits: Iterable[Edit]) -> Iterable[dict[str, Any]]:
    for edit in edits:
        yield {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.text}}


def _related(number: int, step: Step) -> dict[str, Any]:
    place = {"artifactLocation": _artifact(step.path), "region": {"startLine": step.line}}
    return {"id": number, "physicalLocation": place, "message": {"text": step.message}}


def _physical(path: str, span: Span) -> dict[str, Any]:
    return {"artifactLocation": _artifact(path), "region": _region(span)}


def _region(span: Span) -> dict[str, int]:
    start = {"startLine": span.line, "startColumn": span.column}
    return start | {"endLine": span.end_line, "endColumn": span.end_column}


def _artifact(path: str) -> dict[str, str]:
    uri = quote(path.replace("\\", "/"), errors="surrogateescape")
    return {"uri": f"file://{uri}"} if uri.startswith("/") else {"uri": uri, "uriBaseId": _BASE}
