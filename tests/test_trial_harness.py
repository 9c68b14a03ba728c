"""Harnesses are readable source that fits the function; what cannot be called says why."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from memlint.rule import Claim, Finding, Level, Span
from memlint.source import Source
from memlint.trial import harness
from memlint.trial.guess import kinds
from memlint.trial.roles import own_models


def finding(text: str, at: str) -> Finding:
    line = next(n for n, row in enumerate(text.splitlines(), 1) if at in row)
    column = text.splitlines()[line - 1].index(at) + 1
    span = Span(line, column, line, column + len(at))
    return Finding(
        "MEM103", "graph-tensor-append", Level.ERROR, "project/train.py", span, "it grows", claim=Claim.GROWTH
    )


def first(text: str, at: str) -> str:
    return next(harness.written(finding(text, at), Source("project/train.py", text), 8))


def setup(text: str) -> str:
    """The statements of a harness's ``setup``, without the spaces between."""
    return text[text.index("def setup(device):\n") + len("def setup(device):\n") :]


def test_a_training_function() -> None:
    text = """
def train(model, train_loader, optimizer, criterion, device, epoch, scheduler=None, log_interval=10):
    for i, (images, labels) in enumerate(tqdm(train_loader)):
        images, labels = images.to(device), labels.to(device)
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
"""
    made = first(text, "losses.append")
    compile(made, "harness.py", "exec")
    assert "MEM103 graph-tensor-append at project/train.py:9" in made
    assert 'target = "train"' in made and "STEPS = 8" in made
    assert setup(made).splitlines() == [
        '    model = StandIn("images").to(device)',
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)",
        "    return {",
        '        "model": model,',
        '        "train_loader": Batches(STEPS, lambda: (inputs("images"), targets("images"))),',
        '        "criterion": loss_of("images"),',
        '        "optimizer": optimizer,',
        '        "device": device,',
        '        "epoch": 1,',
        "    }",
    ]


def test_options_are_a_namespace_of_what_is_read_from_them() -> None:
    text = """
def run(args, net, loader):
    for epoch in range(args.epochs):
        for x, y in loader:
            kept.append(net(x.to(args.device)))
        if epoch % args.log_interval == 0:
            print(args.name)
"""
    made = setup(first(text, "kept.append"))
    assert 'Options(device=device, epochs=1, log_interval=10, name="trial")' in made


def test_an_epoch_loop_gets_its_steps_and_short_loaders() -> None:
    text = """
def fit(model, train_loader, epochs=3):
    for epoch in range(epochs):
        optimizer = torch.optim.Adam(model.parameters())
        run_epoch(model, train_loader, optimizer)
"""
    made = setup(first(text, "torch.optim"))
    assert "Batches(1, " in made and '"epochs": STEPS' in made


@pytest.mark.parametrize(
    ("body", "batch"),
    [
        (
            "    for batch in loader:\n        x, y = batch\n        kept.append(model(x))\n",
            '(inputs("classes"), targets("classes"))',
        ),
        ("    for batch in loader:\n        kept.append(model(batch[0]))\n", '(inputs("classes"),)'),
        (
            "    for batch in loader:\n        kept.append(model(batch['image'], batch['label']))\n",
            'Output(image=inputs("images"), label=targets("images"))',
        ),
        ("    for batch in loader:\n        kept.append(model(**batch).loss)\n", "Output(input_ids="),
        ("    for x in loader:\n        kept.append(model(x))\n", 'inputs("classes")'),
        ("    kept = [model(x) for x, _ in loader]\n", '(inputs("classes"), targets("classes"))'),
        (
            "    it = iter(loader)\n    while True:\n        x, y = next(it)\n        kept.append(model(x))\n",
            "(inputs(",
        ),
    ],
)
def test_batches_have_the_structure_that_the_loop_takes_apart(body: str, batch: str) -> None:
    assert f"lambda: {batch}" in setup(first(f"def go(model, loader):\n{body}", "model("))


@pytest.mark.parametrize(
    ("use", "gives"),
    [
        ("out = model(x)\n        kept.append(out.loss)", 'gives="output"'),
        ("loss = model(x)\n        kept.append(loss)", 'gives="loss"'),
        ("logits, loss = model(x)\n        kept.append(loss)", 'gives="logits,loss"'),
        ("kept.append(model(x))", 'StandIn("classes")'),
    ],
)
def test_a_stand_in_gives_what_is_asked_of_the_model(use: str, gives: str) -> None:
    assert gives in setup(first(f"def go(model, loader):\n    for x in loader:\n        {use}\n", "kept.append"))


@pytest.mark.parametrize(
    ("signature", "use", "made"),
    [
        ("x, width: int", "x.view(width)", '"width": TOKENS'),
        ("x, often: int", "often", '"often": COUNT'),
        ("x, num_classes: int", "num_classes", '"num_classes": 10'),
        ("x, kernel: Sequence[int]", "kernel[0]", '"kernel": (8, 8, 8)'),
        ("x, sigma: tuple[float, float]", "sigma[0]", '"sigma": (0.5, 0.5, 0.5)'),
        ("x, d_model", "nn.Linear(d_model, 3)", '"d_model": WIDTH'),
        ("x, data", "data['mask'].shape", "Output(mask=torch.ones(BATCH, TOKENS, dtype=torch.bool).to(device))"),
        ("x, frames", "frames.permute(0, 2, 1)", '"frames": torch.rand(BATCH, TOKENS, WIDTH).to(device)'),
        ("x, labels", "a, b = labels.shape", '"labels": torch.randint(2, (BATCH, TOKENS)).to(device)'),
        ("x, best_loss", "best_loss - 1 if print(best_loss) else 2", '"best_loss": 0'),
        ("x, net", "net.inner.state_dict()", "also={'inner': 'model'}"),
        ("x, nets", "[n.parameters() for n in nets]", 'ModuleList(StandIn("classes") for _ in range(STEPS + 1))'),
    ],
)
def test_what_an_argument_is_follows_from_its_use(signature: str, use: str, made: str) -> None:
    body = f"def go(model, loader, {signature}):\n    kept = []\n    for y in loader:\n        {use}\n"
    text = f"from torch import nn\n{body}        kept.append(model(y))\n    return kept\n"
    assert made in setup(first(text, "model(")), setup(first(text, "model("))


def test_the_files_own_model_comes_first() -> None:
    text = """
from torch import nn

class Part(nn.Module): ...

class Net(nn.Module):
    def __init__(self, width=8):
        self.part = Part()

class Sized(nn.Module):
    def __init__(self, width): ...

def go(model, loader):
    for x, y in loader:
        kept.append(model(x))
"""
    assert own_models(ast.parse(text)) == ["module.Net()"]
    made = setup(first(text, "kept.append"))
    assert "model = module.Net().to(device)\n    kind, batch = fitted(model, device)" in made
    drafts = list(harness.drafts(finding(text, "kept.append"), Source("project/train.py", text), 8))
    assert [draft.tier for draft in drafts] == ["called", "called", "isolated"]
    assert [len(draft.guesses) for draft in drafts] == [1, 6, 6]


def test_a_method_gets_an_instance() -> None:
    text = """
class Trainer:
    def __init__(self, model, optimizer, device):
        self.model = model
        self.optimizer = optimizer
        self.device = device
        self.losses = []

    def train(self, loader):
        for x, y in loader:
            loss = self.model(x.to(self.device)).sum()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss)
"""
    made = setup(first(text, "self.losses.append"))
    assert 'owner = instance(module.Trainer, {"model": its_model, "optimizer": its_optimizer, "device": device}' in made
    assert '"losses": []' in made and '"self": owner' in made


def test_kinds_are_guessed_from_words() -> None:
    assert kinds(ast.parse("def f(tokens): ..."))[0] == "tokens"
    assert kinds(ast.parse("def f(x): F.mse_loss(x, x)"))[0] == "values"
    assert sorted(kinds(ast.parse("pass"))) == ["classes", "images", "maps", "same", "tokens", "values"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("async def go(x):\n    kept.append(x)\n", "coroutine"),
        ("class A:\n    kept.append(1)\n", "class body"),
    ],
)
def test_what_cannot_be_called_says_why(text: str, words: str) -> None:
    with pytest.raises(harness.CannotRun, match=words):
        list(harness.written(finding(text, "kept.append"), Source("project/train.py", text), 8))


def test_how_a_file_is_imported(tmp_path: Path) -> None:
    package = tmp_path / "src" / "pack" / "sub"
    package.mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "mod.py").touch()
    (tmp_path / "01-script.py").touch()
    module = harness.module_of(str(package / "mod.py"))
    assert (module.name, module.root) == ("pack.sub.mod", str(tmp_path))
    assert module.paths[0] == str(tmp_path / "src")
    assert harness.module_of(str(package / "__init__.py")).name == "pack.sub"
    assert harness.module_of(str(tmp_path / "01-script.py")).name.isidentifier()
