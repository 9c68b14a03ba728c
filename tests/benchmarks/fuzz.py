"""Feed `memlint check` and its fixes what nobody would write, and see that nothing comes out but findings.

    python tests/benchmarks/fuzz.py [--inputs N] [--seed N] [--generated N] [--write] [FOLDER …]

Inputs are real files (memlint's own rules' pages and code, and those of the folders named) that have been cut, doubled,
mixed, filled with bytes and indented otherwise; notebooks, one for every ten of them, likewise; and, where hypothesmith
is installed, programs that it makes up. Each
is checked with all rules in this process, and repaired, with safe fixes and with unsafe ones. It fails where memlint
raises, reports an internal error, gives more than one `MEM000`, or where a fix makes a file that does not parse, or
that a second round changes again. Every failure is written out whole with the seed that makes it again. The last line
counts what was tried; ``--write`` keeps the counts in ``fixtures/fuzz.json``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from memlint.apply import fix_paths  # noqa: E402
from memlint.check import Options, applicable, check_paths  # noqa: E402
from memlint.source import Source  # noqa: E402

RESULTS = ROOT / "fixtures" / "fuzz.json"
BYTES = (
    b"\0",
    b"\x0c",
    b"\t",
    b"\r",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xc3\x28",
    b"\\\n",
    b"'''",
    b"#",
    b"\xe2\x80\xa8",
)
HEADS = (
    b"",
    b"import torch\n",
    b"\xef\xbb\xbf",
    b"# coding: latin-1\n",
    b"# coding: nonsense\n",
    b"# -*- coding: utf-16 -*-\n",
)
TOKENS = [
    token.encode()
    for token in """( ) [ ] { : = * ** @ lambda: await yield if else: async del global with for while try: except* match
    := None torch.no_grad() .backward() .zero_grad() .append( self. super() f'{x!r:>{y}}' return import""".split()
]


def mutated(data: bytes, other: bytes, dice: random.Random) -> bytes:
    """One file with a few things done to it."""
    for _ in range(dice.randint(1, 4)):
        lines = data.splitlines(keepends=True) or [b""]
        at = dice.randrange(len(lines))
        to = min(len(lines), at + dice.randint(1, 30))
        spot = dice.randrange(len(data) + 1)
        match dice.randrange(11):
            case 0:
                data = data[:spot]
            case 1:
                data = b"".join(lines[:at] + lines[to:])
            case 2:
                data = b"".join(lines[:to] + lines[at:to] + lines[to:])
            case 3:
                dice.shuffle(lines)
                data = b"".join(lines)
            case 4:
                data = data[:spot] + dice.choice(BYTES) + data[spot:]
            case 5:
                data = data[:spot] + dice.choice(TOKENS) + data[spot:]
            case 6:
                theirs = other.splitlines(keepends=True)
                cut = dice.randrange(len(theirs) + 1)
                data = b"".join(lines[:at] + theirs[cut : cut + 40] + lines[at:])
            case 7:
                data = data.replace(b"\n", dice.choice((b"\r\n", b"\r")))
            case 8:
                data = b"".join(b"    " + line for line in lines[at:to])
                data = dice.choice((b"while x:\n", b"if x:\n", b"class A:\n", b"def f(x):\n", b"with x:\n")) + data
            case 9:
                words = data.split(b" ")
                i, j = dice.randrange(len(words)), dice.randrange(len(words))
                words[i], words[j] = words[j], words[i]
                data = b" ".join(words)
            case _:
                data = dice.choice(HEADS) + data
    return data


def seeds(folders: list[Path]) -> list[bytes]:
    """Real code: what the pages show, memlint's own, and what stands in the folders."""
    found = []
    for page in sorted((ROOT / "rules").glob("*.md")):
        found += [block.partition("\n")[2].encode() for block in page.read_text(encoding="utf-8").split("```")[1::2]]
    files = [
        f
        for folder in (ROOT / "memlint", ROOT / "rules", ROOT / "fixtures", *folders)
        for f in sorted(folder.rglob("*.py"))
    ]
    return [*found, *(f.read_bytes() for f in files if f.stat().st_size < 40_000)]


def generated(count: int, seed: int) -> Iterator[bytes]:
    """Programs that hypothesmith makes up; none where it is not installed."""
    if count < 1:
        return
    try:
        import hypothesis

        hypothesmith = importlib.import_module("hypothesmith")
    except ImportError:
        return
    made: list[str] = []
    settings = hypothesis.settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )

    @hypothesis.seed(seed)
    @settings
    @hypothesis.given(hypothesmith.from_node())
    def collect(text: str) -> None:
        made.append(text)

    collect()
    yield from (text.encode("utf-8", "surrogatepass") for text in made)


def failure(data: bytes, counts: Counter[str], name: str = "fuzzed.py") -> str:
    """What goes wrong with one input; "" where nothing does."""
    options = Options(select=("ALL",), cache=False, overlay={name: data})
    try:
        report = check_paths([name], options)
        if report.errors:
            return report.errors[0]
        unreadable = sum(f.code == "MEM000" for f in report.findings)
        if unreadable > 1:
            return "more than one MEM000"
        counts["unreadable"] += unreadable
        counts["findings"] += len(report.findings) - unreadable
        for unsafe in (False, True):
            if any(applicable(f.fix, unsafe) for f in report.findings):
                if wrong := badly_fixed(name, options, unsafe, counts):
                    return wrong
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "".join(traceback.format_exception(error)[-3:])
    return ""


def badly_fixed(name: str, options: Options, unsafe: bool, counts: Counter[str]) -> str:
    """What is wrong with the input once it is repaired; "" where nothing is."""
    fixed = fix_paths([name], options, unsafe=unsafe)
    if fixed.errors:
        return fixed.errors[0]
    for source, text in fixed.changes.values():
        counts["repaired, with unsafe fixes" if unsafe else "repaired"] += 1
        data = source.to_bytes(text)
        _ = Source.from_bytes(name, data).tree
        again = replace(options, overlay={name: data})
        if fix_paths([name], again, unsafe=unsafe).changes:
            return "a second --fix changes it again"
    return ""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--inputs", type=int, default=2000, help="mutated files to try (default: 2000)")
    parser.add_argument("--generated", type=int, default=200, help="programs made up by hypothesmith (default: 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help=f"keep the counts in {RESULTS.relative_to(ROOT)}")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    known = seeds([folder.resolve() for folder in given.folders])
    failures = 0
    counts = Counter[str]()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        dice = random.Random(given.seed)
        inputs = (mutated(dice.choice(known), dice.choice(known), dice) for _ in range(given.inputs))
        books = [path.read_bytes() for path in sorted((ROOT / "fixtures").rglob("*.ipynb"))]
        notebooks = (mutated(dice.choice(books), dice.choice(books), dice) for _ in range(given.inputs // 10))
        made = generated(given.generated, given.seed)
        for kind, source in (("mutated", inputs), ("notebooks", notebooks), ("generated", made)):
            for data in source:
                counts[kind] += 1
                if wrong := failure(data, counts, "fuzzed.ipynb" if kind == "notebooks" else "fuzzed.py"):
                    failures += 1
                    print(f"--- {kind} input {counts[kind]} of seed {given.seed}: {wrong}\n{data!r}\n", flush=True)
    seconds = time.perf_counter() - started
    tried = counts["mutated"] + counts["notebooks"] + counts["generated"]
    print(f"{tried} inputs tried, {failures} failures, seed {given.seed}, {seconds:.0f} s: {dict(counts)}")
    if given.write:
        row = {"date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "seed": given.seed}
        row |= {"failures": failures, "seconds": round(seconds), **counts}
        RESULTS.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
