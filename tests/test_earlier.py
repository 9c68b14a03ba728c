"""A later run finds what one without memory does, and looks only where something may have changed."""

from __future__ import annotations

import json
import os
import random
import struct
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_workspace import PROJECTS, SMALL, copied, copy_of, edits, parses

from memlint import check, wire
from memlint.check import Options, Report, Run, check_paths, with_deep_stack
from memlint.config import Configs
from memlint.earlier import Earlier, File, Memory, _module, _other_parts
from memlint.extract import Class, Definition, Module
from memlint.files import Loader
from memlint.grounds import SHARED, Ground, Grounds, part_of, root
from memlint.outline import outline
from memlint.project import Project
from memlint.registry import Registry
from memlint.source import Source
from memlint.trace import tracing, unseen
from memlint.workspace import TracedDefinition, TracedModule, TracedSource


@pytest.fixture(autouse=True)
def every_run_is_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setattr(check, "_REMEMBERED", 0)
    monkeypatch.setenv("MEMLINT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that rules were run on, since the list was cleared."""
    seen: list[str] = []
    run = Run._of_file

    def noted(self: Run, project: Project, source: Source, rules: Registry) -> object:
        seen.append(source.path)
        return run(self, project, source, rules)

    monkeypatch.setattr(Run, "_of_file", noted)
    return seen


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in SMALL.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def packed(report: Report) -> list[object]:
    assert not report.errors
    return [wire.pack(finding) for finding in report.findings]


def agree(paths: Sequence[str] = (".",), **options: int) -> Report:
    """A run that may keep what an earlier one found, and finds what one does that may not."""
    kept = check_paths(paths, Options(**options))  # type: ignore[arg-type]
    assert packed(kept) == packed(check_paths(paths, Options(cache=False, **options)))  # type: ignore[arg-type]
    return kept


@pytest.mark.parametrize("project", PROJECTS, ids=[path.name for path in PROJECTS])
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_after_random_edits(project: Path, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    with copy_of(project, tmp_path_factory) as files:
        rnd = random.Random(seed)
        agree()
        for _ in range(6):
            path = Path(rnd.choice(files))
            text = path.read_text()
            how = rnd.randrange(12)
            if not parses(text):
                path.write_bytes((project / path).read_bytes())
            elif not how:
                path.write_text("def (\n")
            elif how == 1:
                path.with_name("another.py").write_text(text)
            else:
                path.write_text(next(new for new in edits(text, rnd) if parses(new) and new.strip()))
            agree()


# ---------------------------------------------------------------------- what findings rest on


def grounds_of(folder: Path, module: type[Module]) -> tuple[Grounds, list[str]]:
    """What all rules look at in a project, file by file."""
    run = Run([str(folder)], Options(cache=False), Configs())
    sources, _ = run.readable()
    traced = issubclass(module, TracedModule)
    for source in sources if traced else ():
        source.__class__ = TracedSource
    project = Project(sources, loader=Loader(sources), module=module)
    grounds, rules = Grounds(), run.rules()
    for source in sources:
        project.forget_functions()
        with tracing(grounds), grounds.question(root(source.path)):
            list(run._run_rules(project, source, list(rules)))
    return grounds, [source.path for source in sources]


class Told(TracedDefinition):
    """A function that tells who looks at more of it than where it stands, what it holds, and what is noted by hand."""

    def __getattribute__(self, name: str) -> object:
        if name in ("first_line", "last_line", "line", "is_top", "functions", "classes", "imports", "calls_own"):
            with unseen():
                return object.__getattribute__(self, name)
        return super().__getattribute__(name)


class Whole(TracedModule):
    """A file that tells of everything but what all files have in common: `memlint.grounds` has that by itself."""

    definition = Told
    spells = Module.spells


@pytest.mark.parametrize("project", PROJECTS, ids=[path.name for path in PROJECTS])
def test_nothing_is_looked_at_without_a_note(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every function and class that is looked at on the way to a file's findings is of a file that these rest on."""
    copied(project, tmp_path)
    monkeypatch.chdir(tmp_path)

    def go() -> None:
        coarse, paths = grounds_of(Path("."), Module)
        fine, _ = grounds_of(Path("."), Whole)
        for path in paths:
            known = coarse.of(path)
            for what in fine.everything(path):
                if isinstance(what, (Definition, Class)):
                    own = {part_of(what), part_of(what.module)}
                    assert not own.isdisjoint(known.parts), f"{path}: {what.full_name}"

    with_deep_stack(go)


# ---------------------------------------------------------------------- what is looked at again


def change(path: str, old: str, new: str) -> None:
    text = Path(path).read_text()
    assert old in text
    Path(path).write_text(text.replace(old, new))


def test_who_calls_a_function_that_changes(small: Path, looked_at: list[str]) -> None:
    assert [finding.name for finding in agree().findings] == ["graph-tensor-append"]
    looked_at.clear()
    change("step.py", "return loss\n", "return loss.detach()\n")
    assert agree().findings == []
    assert looked_at[:-3] == ["loop.py", "step.py"]  # the last three are of the run that may not keep anything


@pytest.mark.parametrize(
    "path, old, new, again",
    [
        ("other.py", "relu", "gelu", ["other.py"]),
        ("other.py", "(x):", "(x):  # a remark", ["other.py"]),
        ("loop.py", "curve = []", "curve = list()", ["loop.py", "step.py"]),  # `step` is asked who calls it
    ],
)
def test_nobody_else(small: Path, looked_at: list[str], path: str, old: str, new: str, again: list[str]) -> None:
    agree()
    looked_at.clear()
    change(path, old, new)
    check_paths(["."], Options())
    assert looked_at == again


def test_what_one_file_has_in_common_with_all(small: Path, looked_at: list[str]) -> None:
    """A function elsewhere that calls `step` as well concerns those who asked for its callers."""
    agree()
    looked_at.clear()
    change("other.py", "import torch\n", "import torch\nfrom step import step\n")
    change("other.py", "return torch.relu(x)", "return step(x, x, x, x)")
    agree()
    assert looked_at[:-3] == ["loop.py", "other.py", "step.py"]


def test_a_file_that_comes_and_goes(small: Path, looked_at: list[str]) -> None:
    text = Path("step.py").read_text()
    agree()
    os.unlink("step.py")
    looked_at.clear()
    assert agree().findings == []  # nobody knows any more what `step` returns
    assert looked_at[0] == "loop.py"
    Path("step.py").write_text(text)
    assert [finding.path for finding in agree().findings] == ["loop.py"]


def test_a_package_that_begins(small: Path, looked_at: list[str]) -> None:
    agree()
    Path("__init__.py").write_text("")
    looked_at.clear()
    agree()
    assert looked_at[:4] == ["__init__.py", "loop.py", "other.py", "step.py"]


def test_another_target(small: Path, looked_at: list[str]) -> None:
    """What is configured for a file is a part of it."""
    change("step.py", "optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)")
    agree()
    (small / "memlint.toml").write_text('ignore = ["MEM201"]\n')
    looked_at.clear()
    found = agree().findings
    assert "MEM201" not in {finding.code for finding in found}


def test_a_file_outside_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked_at: list[str]) -> None:
    """What a run brought in from beside its paths counts as its own files do."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "src").mkdir()
    for name, text in SMALL.items():
        (tmp_path / ("step.py" if name == "step.py" else f"src/{name}")).write_text(text)
    assert [finding.path for finding in agree(["src"]).findings] == ["src/loop.py"]
    looked_at.clear()
    change("step.py", "return loss\n", "return loss.item()\n")
    assert agree(["src"]).findings == []
    assert looked_at[0] == "src/loop.py"
    (tmp_path / "tests.py").write_text("def test_nothing():\n    pass\n")
    looked_at.clear()
    agree(["src"])
    assert len(looked_at) == 2  # a neighbour without a word of it: only the run that keeps nothing looks again


def test_rules_of_the_user(small: Path, looked_at: list[str]) -> None:
    """They may look at anything, without a note."""
    (small / "own").mkdir()
    (small / "memlint.toml").write_text('rule-folders = ["own"]\n')
    agree()
    looked_at.clear()
    change("other.py", "relu", "gelu")
    agree()
    assert looked_at[:3] == ["loop.py", "other.py", "step.py"]


def test_in_several_processes(small: Path) -> None:
    for n in range(5):
        (small / f"loop{n}.py").write_text(SMALL["loop.py"])
    agree(jobs=2)
    change("step.py", "return loss\n", "return loss.detach()\n")
    assert agree(jobs=2).findings == []


# ---------------------------------------------------------------------- what is kept


HEAD = struct.Struct("!IQ")


def damaged(kept: bytes) -> Iterator[object]:
    yield None
    yield "text"
    yield kept[:-10]
    yield b""
    yield kept[:-1] + bytes([kept[-1] ^ 1])  # in the text of a file
    _, length = HEAD.unpack_from(kept)
    data = json.loads(zlib.decompress(kept[HEAD.size : HEAD.size + length]))

    def other(data: object) -> bytes:
        first = zlib.compress(json.dumps(data).encode())
        rest = first + kept[HEAD.size + length :]
        return HEAD.pack(zlib.crc32(rest), len(first)) + rest

    assert Earlier.load(other(data)) is not None

    yield other([])
    for key in data:
        yield other({k: v for k, v in data.items() if k != key})
    yield other({**data, "grounds": {**data["grounds"], "loop.py": [[99], []]}})
    yield other({**data, "found": {}})


def test_what_is_damaged_is_as_if_it_were_not_there(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bytes] = []
    dump = Earlier.dump

    def dumped(self: Earlier) -> bytes:
        kept.append(dump(self))
        return kept[-1]

    monkeypatch.setattr(Earlier, "dump", dumped)
    agree()
    assert Earlier.load(kept[0]) is not None
    for data in damaged(kept[0]):
        assert Earlier.load(data) is None


def test_a_failure_is_not_kept(small: Path, monkeypatch: pytest.MonkeyPatch, looked_at: list[str]) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Run, "_run_rules", lambda *_: 1 / 0)
        assert check_paths(["."], Options()).errors
    looked_at.clear()
    agree()
    assert looked_at[:3] == ["loop.py", "other.py", "step.py"]


PARTS = """import os

@known
def f():
    return 1

class A(Base):
    x = 1

    def g(self):
        def h():
            return 2

        return h

    y = 3

last = A()
"""
LINES = ["", "f", "f", "f", "A", "A", "A.g", "A.g", "A.g", "A.g", "A", ""]


def test_a_change_is_in_the_part_that_its_line_is_of() -> None:
    before = Module(Source("here.py", PARTS), "here", False)
    lines = PARTS.splitlines()
    places = [number for number, line in enumerate(lines) if line]
    assert len(places) == len(LINES)
    for place, name in zip(places, LINES, strict=True):
        changed = [line + "  # more" * (number == place) for number, line in enumerate(lines)]
        after = Module(Source("here.py", "\n".join(changed) + "\n"), "here", False)
        assert _other_parts(before, after) == {f"here.py\0{name}"}
    assert _other_parts(before, Module(Source("here.py", PARTS), "here", False)) == set()


def test_what_another_process_brought_in_is_kept(small: Path) -> None:
    (small / "pack").mkdir()
    (small / "pack" / "__init__.py").write_text("x = 1\n")
    memory = Memory(None)
    project = Project([Source.read("loop.py")])
    assert memory.begin(project, [], {"loop.py": "as set"}, {}) == ([], [])
    memory.keep("loop.py", [], (Ground((), ()), {"step.py": "", "pack/__init__.py": "pack", "gone.py": ""}))
    memory.end(project)
    kept = Earlier.load(memory.dump())
    assert kept is not None and sorted(kept.files) == ["loop.py", "pack/__init__.py", "step.py"]
    assert kept.files["pack/__init__.py"].outline[0] == [Source.read("pack/__init__.py").digest, "pack", True]
    assert kept.files["loop.py"].setting == "as set" and not kept.files["step.py"].setting
    again = Project([Source.read("loop.py")])
    kept.brought |= {"step.py": "lib.step", "loop.py": "other.loop"}  # as imports call them
    kept.bring(again)
    assert [m.name for m in again.names.modules.values()] == ["loop", "lib.step", "pack"]
    later = Memory(kept.dump())
    later.begin(again, [], {}, {})
    later.end(again)
    renamed = Earlier.load(later.dump())
    assert renamed is not None and renamed.files["step.py"].name == renamed.files["step.py"].outline[0][1] == "lib.step"


TOLD_APART = [
    ("name", "here.py\0rate", "rate = 1\n", "rate = 2\n"),
    ("name", "here.py\0rate", "import a as rate\n", "import b as rate\n"),
    ("name", "here.py\0rate", "def rate(): ...\n", "class rate: ...\n"),
    ("methods_named", "step", "class A:\n    def step(self): ...\n", "class B:\n    def step(self): ...\n"),
]


@pytest.mark.parametrize(("kind", "about", "before", "after"), TOLD_APART)
def test_what_files_contribute_is_told_apart(kind: str, about: str, before: str, after: str) -> None:
    one, other = (Module(Source("here.py", text), "here", False) for text in (before, after))
    assert SHARED[kind](Project([]), one)(about) != SHARED[kind](Project([]), other)(about)


def test_what_is_inside_a_function_is_a_part_of_it() -> None:
    text = "def f():\n    def g():\n        class B:\n            def h(self): ...\n\n\n"
    module = Module(Source("here.py", text + "class A:\n    def m(self):\n        def k(): ...\n"), "here", False)
    parts = {d.name: part_of(d) for d in module.definitions} | {c.name: part_of(c) for c in module.every_class()}
    inside, method = "here.py\0f", "here.py\0A.m"
    assert parts == {
        **{"f": inside, "g": inside, "h": inside, "B": inside},
        **{"m": method, "k": method, "A": "here.py\0A", "<module>": "here.py\0"},
    }
    assert part_of(module) == "here.py"


def test_what_files_have_in_common_is_followed_only_where_packages_hand_it_on() -> None:
    grounds = Grounds()
    asked: dict[Hashable, list[Hashable]] = {
        root("a.py"): [("imported", "a"), ("mentioning", "x"), "f"],
        ("imported", "a"): [("imported", "b")],
        ("mentioning", "x"): ["unseen"],
        "f": ["g"],
    }
    for question, answers in asked.items():
        with grounds.question(question):
            for each in answers:
                grounds.note(each)
    assert set(grounds.everything("a.py")) == {("imported", "a"), ("imported", "b"), ("mentioning", "x"), "f", "g"}


def test_files_beside_the_run_that_say_what_was_sought(small: Path) -> None:
    (small / "one.py").write_text("from step import backward_step\n")
    (small / "two.py").write_text("x = 1\n")
    earlier = Earlier(grounds={"loop.py": Ground((), (("sought", "backward_step"), ("sought", "unheard_of")))})
    moved = earlier._moved(Project([]), [], ["one.py", "gone.py", "two.py"])
    assert moved == {("sought", "backward_step")}


def test_a_file_beside_the_run_counts_where_it_changed(small: Path) -> None:
    (small / "beside.py").write_text("import torch\nfrom loop import score\n")
    source = Source.read("loop.py")
    file = File(source.digest, "loop", "", outline(Module(source, "loop", False)), zlib.compress(source.text.encode()))
    ground = Ground(("loop.py",), (("sought", "score"),))
    earlier = Earlier({"loop.py": file}, {"loop.py": []}, {"loop.py": ground}, {}, {"beside.py": [1, 1]})
    project = Project([source])
    assert earlier.due(project, {}, {"beside.py": [1, 1]}) == set()
    assert earlier.due(project, {}, {"beside.py": [1, 2]}) == {"loop.py"}
    assert earlier._moved(project, [], []) == Earlier()._moved(project, [], ["beside.py"]) == set()


def test_each_file_that_was_brought_in_is_told_of_once(small: Path) -> None:
    memory, source = Memory(None), Source.read("loop.py")
    project = Project([source])
    for path in ("step.py", "other.py"):
        project.names.add(Source.read(path))
        assert memory.notes(project, source)[1] == {path: ""}


def test_a_text_that_cannot_be_parsed_holds_nothing() -> None:
    module = _module("a.py", "def f(:\n", "a")
    assert [(d.name, d.module.name) for d in module.definitions] == [("<module>", "a")] and not module.source.text


@pytest.mark.parametrize("kind", sorted(SHARED))
def test_what_files_have_in_common(kind: str) -> None:
    """Each kind tells a file that contributes something from one that holds nothing."""
    text, about = COMMON[kind]
    project = Project([Source("here.py", text)])
    module = project.names.modules["here.py"]
    nothing = Module(Source("here.py", ""), "here", False)
    contributes: Callable[[str], object] = SHARED[kind](project, module)
    assert contributes(about) != SHARED[kind](project, nothing)(about)
    assert contributes(about) == SHARED[kind](project, Module(Source("here.py", text), "here", False))(about)
    if kind not in ("derived", "imports", "wide"):
        assert contributes("unheard_of\0word") == SHARED[kind](project, nothing)("unheard_of\0word")


NET = "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return self.body(x)\n"
COMMON = {
    "name": (NET, "here.py\0Net"),
    "mentioning": (NET, "body"),
    "saying": (NET, "body\0return"),
    "spells": (NET, "here.py\0orwa"),
    "methods_named": (NET, "forward"),
    "named": (NET, "here.Net"),
    "derived": (NET, "here.Net"),
    "written": ("class A:\n    def __init__(self):\n        self.head = 1\n", "here.A"),
    "calls_own": ("def go():\n    pass\n\n\ngo()\n", "here.py"),
    "prolific": ("class A:\n    pass\n\n\nclass B(A):\n    pass\n", "here.A"),
    "family_use": (NET, "here.Net\0body"),
    "imports": (NET, ""),
    "imported": (NET, "here.py"),
    "rebinds": ("rate = 1\nrate = 2\n", "here.py\0rate"),
    "holds": (NET, "body"),
    "hook": ("net.register_forward_hook(watch)\n", "watch"),
    "layer": ("class A:\n    def __init__(self):\n        self.head = 1\n", "head"),
    "option": ("parser.add_argument('--rate', default=3)\n", "rate"),
    "sought": (NET, "body"),
    "wide": (
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.head = torch.nn.Linear(8, 50257)\n\n    def forward(self, x):\n        return self.head(x)\n",
        "",
    ),
}
