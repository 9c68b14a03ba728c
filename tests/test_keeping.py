"""Questions about what is kept for nothing."""

from __future__ import annotations

import pytest
from known import module_of, project_of

from memlint import names
from memlint.keeping import has_wide

NET = """from sizes import TOKENS
from torch import nn

WORDS = 30_000


class Net(nn.Module):
    def __init__(self, wide, narrow=20_000):
        super().__init__()
        few = 100_000
        self.body = nn.Linear(8, 50257)
        self.head = {head}

    def forward(self, x):
        {end}
"""
RETURN = "return self.head(x)"
WIDTHS = [
    ("nn.Linear(8, 50257)", RETURN, True),
    ("nn.Linear(8, 50_257, bias=False)", "return (\n            self.head(x)\n        )", True),
    ("nn.Linear(max(wide, 8), WORDS)", RETURN, True),
    ("nn.Linear(wide, out_features=TOKENS)", RETURN, True),
    ("nn.Linear(out_features=10_000, in_features=8)", RETURN, True),
    ("nn.Linear(8, 9999)", RETURN, False),
    ("nn.Linear(8, wide)", RETURN, False),
    ("nn.Linear(8, narrow)", RETURN, False),
    ("nn.Linear(8, few)", RETURN, False),
    ("nn.Linear(50257, 8)", RETURN, False),
    ("nn.Linear(8, 50257)", "return self.head(x).sum()", False),
    ("nn.Linear(8, 50257)", "return x", False),
]


@pytest.mark.parametrize(("head", "end", "wide"), WIDTHS)
def test_a_forward_that_gives_many_numbers(head: str, end: str, wide: bool) -> None:
    project = project_of({"sizes.py": "TOKENS = 60_000\n", "net.py": NET.format(head=head, end=end)})
    assert has_wide(project, module_of(project, "net.py")) is wide


def test_a_file_without_one_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "ROOM", 0)
    project = project_of({"net.py": NET.format(head="nn.Linear(8, wide)", end=RETURN).replace(", 50257", ", wide")})
    assert not has_wide(project, module_of(project, "net.py"))
    assert not module_of(project, "net.py").loaded
