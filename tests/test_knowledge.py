"""What is known of the files of a run."""

from __future__ import annotations

import pytest
from known import Disk, function_of, module_of, project_of

from memlint import knowledge
from memlint.names import OF_TREE
from memlint.source import Source
from memlint.target import Target


@pytest.mark.parametrize("word", sorted(knowledge.TENSOR_WORDS))
def test_a_file_that_says_one_of_these_words_matters(word: str) -> None:
    assert word == word.lower()
    project = project_of({"a.py": f"import x\n\n\ndef f():\n    x.{word}()\n", "b.py": "import y\n"})
    assert project.relevant(module_of(project))
    assert not project.relevant(module_of(project, "b.py"))


@pytest.mark.parametrize("word", sorted(knowledge.ENGLISH))
def test_a_library_with_a_word_of_english_for_a_name_matters_where_it_is_imported(word: str) -> None:
    text = f"def f():\n    from {word} import g\n"
    project = project_of(
        {"a.py": text, "b.py": f"import x  # {word}s it\n{word} = 1\n", "c.py": f"from {word} import *\n"}
    )
    assert project.relevant(module_of(project)) and project.relevant(module_of(project, "c.py"))
    assert not project.relevant(module_of(project, "b.py"))


def test_backward_matters_where_it_is_called() -> None:
    project = project_of(
        {"a.py": "def f(loss):\n    loss.backward()\n", "b.py": "x = 1  # kept for backward compatibility\n"}
    )
    assert project.relevant(module_of(project)) and not project.relevant(module_of(project, "b.py"))


def test_a_file_of_another_framework_does_not_matter() -> None:
    project = project_of({"a.py": "import paddle\n\nloss.backward()\n", "b.py": "import paddle, torch\n"})
    assert not project.relevant(module_of(project))
    assert project.relevant(module_of(project, "b.py"))


def test_a_file_that_imports_one_that_matters() -> None:
    project = project_of({"a.py": "from b import f\n", "b.py": "import torch\n", "c.py": "import a\n"})
    assert project.relevant(module_of(project)) and not project.relevant(module_of(project, "c.py"))


def test_what_is_imported_from_elsewhere_is_looked_for() -> None:
    def load(dotted: str, importer: str) -> Source | None:
        return Source("lib/tools.py", "import torch\n") if (dotted, importer) == ("tools", "a.py") else None

    project = project_of({"a.py": "import tools\n"}, loader=load)
    assert project.relevant(module_of(project))
    assert list(project.names.modules) == ["a.py", "lib/tools.py"]


def test_files_beside_the_project_are_known_by_their_paths() -> None:
    disk = Disk({"b.py": "import torch\nfrom a import score\n\n\ndef g(x):\n    return score(x)\n"})
    texts = {"a.py": "import torch\n\n\ndef score(x):\n    return x\n"}
    project = project_of(texts, loader=disk, neighbours=("b.py",))
    assert len(project.callers(function_of(project, "score"))) == 1


def test_every_file_has_a_target() -> None:
    assert project_of("").target_of("a.py") == Target()


def test_memory_that_trees_take_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    project = project_of("x = 1\n")
    characters = project.names.loaded
    assert characters > 20 and not project.full
    monkeypatch.setattr(knowledge, "MEMORY", characters * OF_TREE)
    assert not project.full
    monkeypatch.setattr(knowledge, "MEMORY", characters * OF_TREE - 1)
    assert project.full
