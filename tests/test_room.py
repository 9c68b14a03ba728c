"""Runs over more files than syntax trees are kept of."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from memlint import knowledge, names
from memlint.check import Options, check_paths

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.mark.parametrize("weight", [0, 2_000])
def test_findings_do_not_hang_on_what_is_kept(weight: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FIXTURES / "projects", tmp_path / "projects")
    shutil.copytree(FIXTURES / "corpus", tmp_path / "corpus")
    (tmp_path / "broken.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    kept = check_paths(["."], Options(cache=False, jobs=1))
    monkeypatch.setattr(names, "ROOM", 0)
    monkeypatch.setattr(knowledge, "MEMORY", weight * knowledge.OF_READING)
    again = check_paths(["."], Options(cache=False, jobs=1))
    assert len(kept.findings) > 10 and kept.findings == again.findings


def test_a_tree_comes_back_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from memlint.names import Names
    from memlint.source import Source

    monkeypatch.setattr(names, "ROOM", 0)
    text = "LIMIT = 3\n\n\nclass A:\n    x = 1\n\n    @staticmethod\n    def f(a: int) -> None:\n        return g(a)\n"
    module = Names([Source("a.py", text)]).modules["a.py"]
    assert not module.loaded
    (f, top), cls = module.definitions, module.classes["A"]
    assert f.text == text[text.index("    @static") :] and f.parameters == ("a",) and module.saying("g(") == {f, top}
    assert not module.loaded  # no tree is needed for any of this
    assert f.node is cls.node.body[1] and module.variables["LIMIT"] is top.body[0].value  # type: ignore[attr-defined]
    assert cls.variables["x"] is cls.node.body[0].value  # type: ignore[attr-defined]
