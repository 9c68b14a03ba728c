"""``junit``: the XML that Jenkins and most other services read as test results. A file is a test case."""

from __future__ import annotations

from itertools import groupby
from xml.etree import ElementTree

from memlint.check import Report
from memlint.report.style import Screen, printable


def render(report: Report, screen: Screen) -> str:
    """One suite. A file with findings is a failed case, a failure for each; a failure of memlint's own is an error."""
    by_path = {path: list(group) for path, group in groupby(report.findings, key=lambda f: f.path)}
    paths = sorted({*report.sources, *by_path})
    counts = {"tests": len(paths), "failures": len(by_path), "errors": len(report.errors)}
    attributes = {**{key: str(count) for key, count in counts.items()}, "time": f"{report.seconds:.3f}"}
    suites = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "memlint", **attributes})
    for path in paths:
        case = ElementTree.SubElement(suite, "testcase", {"classname": "memlint", "name": printable(path)})
        for f in by_path.get(path, []):
            text = f"line {f.span.line}, column {f.span.column}: {printable(f.message)}"
            if f.fix:
                text += f"\n{printable(f.fix.title)}"
            kind = {"type": f.level.value, "message": f"{f.code} {f.name}"}
            ElementTree.SubElement(case, "failure", kind).text = text
    for error in report.errors:
        case = ElementTree.SubElement(suite, "testcase", {"classname": "memlint", "name": "memlint itself"})
        ElementTree.SubElement(case, "error", {"type": "internal", "message": printable(error)})
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"
