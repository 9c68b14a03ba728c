"""How a rule's page is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.page import Block, PageError, read
from memlint.testing import wants_in

PAGE = """# bad-word (TST901)

BAD is written,
on two lines.

Level: error, warning once freed. Fix: safe.

## What it finds

```python
# target-torch: 1.9
# file: a.py
x = 1  # want: bad-word, other-rule
# file: sub/b.py
import a
```

Prose, and a block that is no test:

```text
BAD
```

## Why it costs

## The fix

```python before
x = 1
```

becomes

```python after unsafe
x = 2
```

## What it leaves alone

````python
y = '''
```
'''
````

## Trial

```python trial
def setup(device):
    return {}
```

```python
setup("cpu")
```
"""


def page(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "bad_word.md"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_a_page_holds(tmp_path: Path) -> None:
    got = read(page(tmp_path, PAGE))
    assert (got.name, got.code, got.level, got.fix) == ("bad-word", "TST901", "error, warning once freed", "safe")
    assert got.summary == "BAD is written, on two lines."
    (block,) = got.finds
    assert block.line == 11
    assert block.target == "1.9"
    assert block.files == {"a.py": "x = 1  # want: bad-word, other-rule\n", "sub/b.py": "import a\n"}
    assert wants_in(block.files) == [("a.py", 1, "bad-word"), ("a.py", 1, "other-rule")]
    ((before, after),) = got.fixes
    assert (before.text, after.text, after.words) == ("x = 1\n", "x = 2\n", ("after", "unsafe"))
    assert [b.text for b in got.leaves] == ["y = '''\n```\n'''\n"]
    assert [b.text for b in got.trials] == ["def setup(device):\n    return {}\n"]
    assert got.sections["The fix"].startswith("```python before")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("# bad-word (TST901)", "# Bad word", "the title is not"),
        ("Level: error, warning once freed. Fix: safe.", "", "no line 'Level"),
        ("## Why it costs", "## Why", "the headings are not"),
        ("## Why it costs", "## The fix", "stands twice"),
        ("```python after unsafe", "```python", "without its 'after'"),
        ("```python before", "```python", "without its 'before'"),
        ('setup("cpu")\n```', 'setup("cpu")', "not closed"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in PAGE
    with pytest.raises(PageError, match=message):
        read(page(tmp_path, PAGE.replace(old, new, 1)))


def test_a_block_without_file_lines_is_one_file() -> None:
    block = Block("x = 1\n# want: later\n", 1)
    assert block.files == {"block.py": "x = 1\n# want: later\n"}
    assert block.target is None
