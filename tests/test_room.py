"""Runs over more files than syntax trees are kept of."""

from __future__ import annotations

import gc
import shutil
import weakref
from pathlib import Path

import pytest

from memlint import knowledge, names
from memlint.check import Options, check_paths
from memlint.names import Names
from memlint.source import Source

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
    monkeypatch.setattr(names, "ROOM", 0)
    text = "LIMIT = 3\n\n\nclass A:\n    x = 1\n\n    @staticmethod\n    def f(a: int) -> None:\n        return g(a)\n"
    module = Names([Source("a.py", text)]).modules["a.py"]
    assert not module.loaded
    (f, top), cls = module.definitions, module.classes["A"]
    assert f.text == text[text.index("    @static") :] and f.parameters == ("a",) and module.saying("g(") == {f, top}
    assert not module.loaded  # no tree is needed for any of this
    assert f.node is cls.node.body[1] and module.variables["LIMIT"] is top.body[0].value  # type: ignore[attr-defined]
    assert cls.variables["x"] is cls.node.body[0].value  # type: ignore[attr-defined]


def test_a_tree_is_let_go_of_without_a_search_for_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "ROOM", 0)
    found = Names([Source("a.py", "class A:\n    def f(self):\n        return 1\n")])
    module = found.modules["a.py"]
    assert found.loaded == 0
    gc.disable()
    try:
        tree = weakref.ref(module.classes["A"].node)
        assert tree() is not None and found.loaded == len(module.source.text)
        found.drop()
        assert tree() is None and found.loaded == 0
    finally:
        gc.enable()


def test_code_without_docstring_and_comments_needs_no_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "ROOM", 0)
    text = 'class A:\n    @known\n    def f(self):\n        """Call\n        g()."""\n        return h()  # not k()\n'
    module = Names([Source("a.py", text)]).modules["a.py"]
    f = module.definitions[0]
    assert set(f.called) == {"h"} and f.bound and f.positional == ("self",)
    assert not module.loaded
