"""Peak and growth of whole training steps on fake tensors, beside a GPU: ``python -m tests.benchmarks.predicted_peak``.

``--device cuda`` measures, ``--device fake`` predicts; ``--out FOLDER`` keeps the rows there, in a file named after the
device. The models are plain ones of the usual sizes; the optimizer is AdamW.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from memlint.trial.arms import device_for

STEPS = 5
MIB = 2**20


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.inputs, self.outputs = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = (t.view(rows, length, self.heads, -1).transpose(1, 2) for t in self.inputs(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.outputs(mixed.transpose(1, 2).reshape(rows, length, width))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.attention = Attention(width, heads, causal)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))  # type: ignore[no-any-return]


class Gpt2(nn.Module):
    """Six layers of GPT-2 small, with its vocabulary."""

    def __init__(self, width: int = 768, words: int = 50257) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.blocks = nn.Sequential(*(Block(width, 12, True) for _ in range(6)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return F.linear(self.norm(self.blocks(x)), self.words.weight)


class Vit(nn.Module):
    """A vision transformer of ViT-B's width, six layers, 16 x 16 patches."""

    def __init__(self, width: int = 768) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.places = nn.Parameter(torch.zeros(1, 196, width))
        self.blocks = nn.Sequential(*(Block(width, 12, False) for _ in range(6)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.blocks(x).mean(1))  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            *(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
        )
        plain = stride == 1 and inputs == 4 * width
        self.short = (
            nn.Identity()
            if plain
            else nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.main(x) + self.short(x))  # type: ignore[no-any-return]


def resnet50() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            layers.append(Bottleneck(inputs, width, stride if number == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Unet(nn.Module):
    """Four levels from 32 to 256 channels, transposed convolutions on the way up."""

    def __init__(self) -> None:
        super().__init__()
        widths = 32, 64, 128, 256
        self.down = nn.ModuleList(self.convolutions(i, o) for i, o in zip((3, *widths), widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
        self.join = nn.ModuleList(self.convolutions(2 * w, w) for w in widths[-2::-1])
        self.head = nn.Conv2d(32, 4, 1)

    @staticmethod
    def convolutions(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)),
            *(nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for number, block in enumerate(self.down):
            x = block(x if number == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for up, join, skip in zip(self.up, self.join, kept[-2::-1], strict=True):
            x = join(torch.cat([skip, up(x)], 1))
        return self.head(x)  # type: ignore[no-any-return]


class Lstm(nn.Module):
    """A language model of two layers of 1,024."""

    def __init__(self, words: int = 10000, width: int = 1024) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.lstm = nn.LSTM(width, width, 2, dropout=0.1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.words(ids))[0])  # type: ignore[no-any-return]


def images(rows: int, size: int, classes: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 3, size, size, device=device), torch.randint(classes, (rows,), device=device)


def words(rows: int, length: int, count: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(count, (rows, length), device=device)
    return ids, ids.clone()


def masks(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(8, 3, 256, 256, device=device), torch.randint(4, (8, 256, 256), device=device)


Batch = Callable[[torch.device], tuple[torch.Tensor, torch.Tensor]]
MODELS: dict[str, tuple[Callable[[], nn.Module], Batch]] = {
    "GPT-2, 6 layers, 4 x 512": (Gpt2, lambda device: words(4, 512, 50257, device)),
    "ResNet-50, 32 x 224": (resnet50, lambda device: images(32, 224, 1000, device)),
    "ViT-B/16, 6 layers, 32 x 224": (Vit, lambda device: images(32, 224, 1000, device)),
    "U-Net, 8 x 256": (Unet, masks),
    "LSTM, 2 x 1,024, 128 x 64": (Lstm, lambda device: words(128, 64, 10000, device)),
}


def measure(name: str, autocast: bool, device_name: str) -> dict[str, Any]:
    """Peak and growth of training steps, in bytes; the peak above what was alive before the model was built."""
    build, batch = MODELS[name]
    with device_for(device_name, None) as (device, make_meter, _):
        meter = make_meter()
        model = build().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        meter.begin()
        for _ in range(STEPS):
            inputs, targets = batch(device)
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                outputs = model(inputs)
                if outputs.dim() == 3:
                    outputs, targets = outputs.flatten(0, 1), targets.flatten()
                loss = F.cross_entropy(outputs, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            del inputs, targets, outputs, loss
            meter.read()
        held = 0
        if device.type == "cuda" and device_name != "fake":
            before = torch.cuda.memory_allocated(device)
            torch._C._cuda_clearCublasWorkspaces()
            held = before - torch.cuda.memory_allocated(device)
        steady = meter.readings[2:]
        return {
            "model": name,
            "autocast": autocast,
            "peak": max(reading["peak"] for reading in meter.readings) - held,
            "growth": (steady[-1]["live"] - steady[0]["live"]) / (len(steady) - 1),
            "churn": (steady[-1]["churn"] - steady[0]["churn"]) / (len(steady) - 1),
            "workspace": held,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="fake")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    device = "cuda:0" if given.device == "cuda" else given.device
    rows = []
    for name in MODELS:
        if given.only in name:
            for autocast in (False, True):
                row = measure(name, autocast, device)
                print(f"{name:30} {'bf16' if autocast else 'fp32'} peak {row['peak'] / MIB:9,.1f} MiB, ", end="")
                print(f"growth {row['growth']:.0f} B, workspace {row['workspace'] / MIB:.1f} MiB", flush=True)
                rows.append(row)
    if given.out:
        machine = "fake" if device == "fake" else torch.cuda.get_device_name()
        document = {"device": machine, "torch": torch.__version__, "date": date.today().isoformat(), "rows": rows}
        path = given.out / f"{'fake' if device == 'fake' else 'gpu'}.json"
        path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
