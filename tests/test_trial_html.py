"""The report as a page: what it holds, that it needs nothing else, and that a browser shows it."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from memlint.rule import Applicability, Claim, Edit, Finding, Fix, Level, Span, Step
from memlint.source import Source
from memlint.trial.confirm import Outcome
from memlint.trial.evidence import Evidence
from memlint.trial.html import page
from memlint.trial.judge import Measurement, Verdict, undecided
from memlint.trial.stacks import KINDS

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SOURCE = Source("train.py", "".join(f"line{n} = {n}  # <b>&amp;\n" for n in range(1, 41)))
EDIT = Edit(Span(20, 1, 20, 7), "repaired20")
FIX = Fix("write `repaired20`", applicability=Applicability.SAFE, edits=(EDIT,))
FINDING = Finding(
    "MEM103",
    "graph-tensor-append",
    Level.ERROR,
    "train.py",
    Span(20, 1, 20, 12),
    "`line20` stays <script>alert(1)</script>",
    FIX,
    (Step("other.py", 7, "it comes from here"),),
    Claim.GROWTH,
)
MIB = 1 << 20
BEFORE = Measurement(
    *(9 * MIB, MIB, 0, 4 * MIB, 0.25),
    iterations=4,
    curve=tuple(n * MIB for n in range(5)),
    alive=dict(zip(KINDS, (2 * MIB, MIB, 0, 5 * MIB, MIB), strict=True)),
)
AFTER = replace(BEFORE, device_peak=5 * MIB, device_growth=0.0, curve=(0.0,) * 5)
STACKS = ({"frames": [["train.py", 20], ["train.py", 38]], "bytes": 3 * MIB, "leads": True},)
CONFIRMED = Outcome(
    FINDING,
    Verdict(
        *("confirmed", Claim.GROWTH, "called", "cpu", "", BEFORE, AFTER, "identical", "device_growth"),
        evidence=Evidence(3 * MIB, 4 * MIB, STACKS),
    ),
    "def setup(device):\n    return {}\n",
)
UNDECIDED = Outcome(replace(FINDING, fix=None), undecided(Claim.GROWTH, "called", "cpu", "no way in; supply --harness"))


@pytest.fixture(scope="module")
def text() -> str:
    return page([CONFIRMED, UNDECIDED], {"train.py": SOURCE}, "2.13.0", "memlint confirm train.py")


class Tags(HTMLParser):
    """Checks that what opens closes, in order."""

    VOID = ("meta", "br", "line", "polyline", "rect", "!doctype")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.addresses += [value for name, value in attrs if name in ("href", "src") and value]
        assert "onclick" not in values

    def handle_endtag(self, tag: str) -> None:
        assert tag in self.VOID or self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(text: str) -> None:
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert len(set(tags.ids)) == len(tags.ids)
    assert all(address.startswith("#") and address[1:] in tags.ids for address in tags.addresses)
    assert "<script" not in text and "url(" not in text and "@import" not in text
    assert "prefers-color-scheme: dark" in text and "@media print" in text


def test_it_says_what_was_measured(text: str) -> None:
    assert "<title>memlint: 1 confirmed, 1 undecided</title>" in text
    assert "growth an iteration 1.0 MiB as written, 0 B repaired" in text
    assert "no way in; supply --harness" in text
    assert "Live bytes over 4 iterations: as written from 0 B to 4.0 MiB; repaired from 0 B to 0 B" in text
    assert re.search(r"<strong>growth an iteration</strong></td><td[^>]*>1.0 MiB</td><td[^>]*>0 B</td>", text)
    assert re.search(r"activations</td><td[^>]*>5.0 MiB</td>", text)
    assert "optimizer state</td>" not in text  # none is alive in either arm
    assert "<code>train.py:20</code><br><code>train.py:38</code></td>" in text and "leads to the finding" in text
    assert "<code>other.py:7</code> it comes from here" in text
    assert "memlint confirm train.py</td>" in text and "<td>2.13.0</td>" in text


def test_the_code_is_a_diff_with_some_lines_around(text: str) -> None:
    shown = re.findall(r'<span class="(same|gone|new)">(.)\s*(\d*) . (\w+)', text)
    first = shown[:8]
    assert first == [
        *(("same", " ", str(n), f"line{n}") for n in (17, 18, 19)),
        ("gone", "▸", "20", "line20"),
        ("new", " ", "", "repaired20"),
        *(("same", " ", str(n), f"line{n}") for n in (21, 22, 23)),
    ]
    assert "…" not in text
    assert "# &lt;b&gt;&amp;amp;" in text


def test_time_on_fake_tensors_is_not_shown() -> None:
    on_fake = replace(CONFIRMED, verdict=replace(CONFIRMED.verdict, device="fake"))
    assert "time an iteration" in page([CONFIRMED], {}, "", "")
    assert "time an iteration" not in page([on_fake], {}, "", "")


def test_nothing_found_is_a_page_too() -> None:
    tags = Tags()
    tags.feed(page([], {}, "", "memlint confirm"))
    assert tags.open == []


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [1100, 420])
def test_a_browser_shows_it(text: str, tmp_path: Path, width: int) -> None:
    assert BROWSER is not None
    probe = """<script>
    document.querySelectorAll("details").forEach(d => { d.open = true; });
    const fits = document.documentElement.scrollWidth <= innerWidth;
    const drawn = [...document.querySelectorAll("svg")].every(s => s.getBoundingClientRect().height > 30);
    const reach = [...document.querySelectorAll("a, summary, pre[tabindex]")].every(e => { e.focus();
      return document.activeElement === e; });
    const broken = [...document.querySelectorAll(".verdict")].some(v => v.getClientRects().length > 1);
    document.title = `fits ${fits}, drawn ${drawn}, reach ${reach}, broken ${broken}`;
    </script>"""
    (tmp_path / "page.html").write_text(text.replace("</body>", f"{probe}</body>"))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'user'}"]
    command += ["--disable-background-networking", "--no-first-run", f"--window-size={width},2000", "--dump-dom"]
    address = (tmp_path / "page.html").as_uri()
    done = subprocess.run([*command, address], capture_output=True, text=True, timeout=60, check=True)
    title = re.search("<title>(.*)</title>", done.stdout)
    assert title and title[1] == "fits true, drawn true, reach true, broken false"
