"""What names mean over files, asked directly."""

from __future__ import annotations

import ast

from known import class_of, function_of, module_of, names_of, project_of

from memlint.extract import Definition
from memlint.names import Names
from memlint.source import Source
from memlint.trace import Trace, tracing


def names_in(files: dict[str, str], loaded: dict[str, tuple[str, str]] | None = None) -> Names:
    def load(dotted: str, importer: str) -> Source | None:
        return Source(*(loaded or {})[dotted]) if dotted in (loaded or {}) else None

    return Names([Source(path, text) for path, text in files.items()], load if loaded else None)


def test_files_are_called_by_their_packages() -> None:
    names = names_in({"x/a/__init__.py": "", "x/a/b/__init__.py": "", "x/a/b/c.py": "", "x/d.py": ""})
    assert [module.name for module in names.modules.values()] == ["a", "a.b", "a.b.c", "d"]


def test_two_files_of_one_name_have_labels_of_their_own() -> None:
    names = names_in({"model.py": "", "lib/train.py": "", "other/model.py": ""})
    assert [module.label for module in names.modules.values()] == ["model", "train", "other.model"]


def test_the_nearest_of_several_files_is_meant() -> None:
    files = {"x/a/util/io.py": "", "x/b/util/io.py": "", "x/b/train.py": ""}
    for order in (list(files), list(files)[::-1]):
        names = names_in({path: files[path] for path in order})
        found = names.module("util.io", names.modules["x/b/train.py"])
        assert found is names.modules["x/b/util/io.py"]


def test_a_file_of_a_package_is_not_meant_by_its_last_name_alone() -> None:
    names = names_in({"p/__init__.py": "", "p/helper.py": "", "train.py": "import helper\n"})
    assert names.module("helper", names.modules["train.py"]) is None
    assert names.module("p.helper", names.modules["train.py"]) is names.modules["p/helper.py"]


def test_what_is_imported_is_read() -> None:
    names = names_in({"a.py": "from p.tools import f\n"}, {"p.tools": ("elsewhere/p/tools.py", "def f():\n    pass\n")})
    module = names.module("p.tools", names.modules["a.py"])
    assert module is not None and module.name == "p.tools"
    found = names.local("f", names.modules["a.py"].top)
    assert isinstance(found, Definition) and found.module is module


REBOUND = "import model\n\nmodel = model.Model().cuda()\n\n\ndef f():\n    model(1)\n"


def test_a_name_that_is_bound_to_what_it_made_is_that_to_functions() -> None:
    names = names_in({"a.py": REBOUND})
    module = names.modules["a.py"]
    (inside,) = (d for d in module.definitions if d.name == "f")
    trace = Trace()
    with tracing(trace), trace.question("asked"):
        made = names.local("model", inside)
    assert isinstance(made, ast.Call)
    assert trace.asked_by[("name", module, "model")] == {"asked"}
    assert names.local("model", module.top) == "model"


def test_stars() -> None:
    names = names_in({"a.py": "from torch import *\n", "b.py": "from mystery import *\n", "c.py": "from a import *\n"})
    assert names.member(names.modules["a.py"], "relu") == "torch.relu"
    assert names.member(names.modules["b.py"], "relu") is None
    assert names.member(names.modules["c.py"], "relu") == "torch.relu"


def test_imports_in_a_circle_end_in_a_name() -> None:
    names = names_in(
        {"a.py": "from b import x\n", "b.py": "from a import x\n\n\ndef f():\n    from a import x\n    x\n"}
    )
    (inside,) = (d for d in names.modules["b.py"].definitions if d.name == "f")
    assert isinstance(names.local("x", inside), str)


def test_dotted_paths_lead_into_classes_and_through_packages() -> None:
    files = {
        "p/__init__.py": "",
        "p/net.py": "class Net:\n    def forward(self):\n        pass\n",
        "q/__init__.py": "from p import net\n",
        "a.py": "",
    }
    names = names_in(files)
    here, net = names.modules["a.py"], names.modules["p/net.py"]
    (cls,) = names.classes(net)
    assert names.dotted("p.net.Net.forward", here) is cls.methods["forward"]
    assert names.dotted("q.net.Net", here) is cls
    assert names.dotted("torch.nn.Linear", here) == "torch.nn.Linear"


CLASSES = """
Base = nn.Module


class Net(Base):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)


class Deep(Net):
    def __init__(self):
        super().__init__()


class Odd(unknown, nn.Module):
    pass


def make():
    class Inner(nn.Module):
        pass

    class Outer(Inner):
        pass
"""


def test_what_classes_derive_from() -> None:
    project = project_of(CLASSES)
    orders = {name: names_of(project.names.mro(class_of(project, name))) for name in ("Net", "Odd", "Outer")}
    assert orders == {
        "Net": ["Net", "torch.nn.Module"],
        "Odd": ["Odd", "torch.nn.Module"],
        "Outer": ["Outer", "Inner", "torch.nn.Module"],
    }


def test_constructors_that_a_constructor_calls() -> None:
    project = project_of(CLASSES)
    helpers = list(project.names.helpers(function_of(project, "Deep.__init__")))
    assert helpers == [function_of(project, "Net.__init__")]
    assert module_of(project).top not in helpers
