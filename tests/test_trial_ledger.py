"""The ledger counts storages exactly, and the pretended GPU knows what lies where."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from memlint.trial.fake import FakeLedger, pretended_gpu  # noqa: E402
from memlint.trial.ledger import BLOCK, Ledger, OverLimit  # noqa: E402


def rounded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


@pytest.mark.parametrize("elements", [1, 127, 128, 129, 1000])
def test_a_storage_counts_rounded_up_and_once(elements: int) -> None:
    with Ledger() as ledger:
        tensor = torch.empty(elements)
        view = tensor[:1].view(1, 1)
        assert ledger.live == ledger.peak == rounded(4 * elements)
        del tensor
        assert ledger.live == rounded(4 * elements), "the view keeps the storage"
        del view
        assert ledger.live == 0
        assert ledger.peak == ledger.churn == rounded(4 * elements)


def test_what_autograd_saves_is_alive_until_backward() -> None:
    weight = torch.ones(256, 256, requires_grad=True)
    with Ledger() as ledger:
        x = torch.ones(64, 256)
        loss = (x @ weight).relu().sum()
        held = ledger.live
        loss.backward()
        assert weight.grad is not None
        freed = rounded(64 * 256 * 4)  # relu's result; matmul saved its inputs, which live on
        assert ledger.live == held - freed + rounded(256 * 256 * 4)


def test_peak_starts_again_from_what_is_alive() -> None:
    with Ledger() as ledger:
        kept = torch.empty(1000)
        torch.empty(100_000)
        assert ledger.peak == rounded(4000) + rounded(400_000)
        ledger.reset_peak()
        assert ledger.peak == ledger.live == rounded(4000)
        del kept


def test_a_storage_that_grows_counts_by_its_new_size() -> None:
    with Ledger() as ledger:
        tensor = torch.empty(128)
        tensor.resize_(1024)
        assert ledger.live == 4096


def test_the_limit_is_an_out_of_memory_error() -> None:
    with Ledger(limit=1 << 20), pytest.raises(OverLimit):
        torch.empty(1 << 20)


def test_transfers_move_bytes_between_host_and_gpu() -> None:
    ledger = FakeLedger()
    with pretended_gpu(ledger):
        tensor = torch.ones(1024)
        assert (ledger.host, ledger.live) == (4096, 0)
        there = tensor.to("cuda")
        assert (ledger.host, ledger.live) == (4096, 4096)
        assert there.device.type == "cuda" and there.is_cuda and tensor.device.type == "cpu"
        back = (there * 2).cpu()
        assert back.device.type == "cpu"
        assert (ledger.host, ledger.live) == (8192, 4096)
        assert there.to("cuda") is there


def test_a_module_moves_in_place_and_trains_on_the_gpu() -> None:
    ledger = FakeLedger()
    with pretended_gpu(ledger):
        model = torch.nn.Linear(32, 32)
        weight = model.weight
        model.to("cuda")
        assert model.weight is weight and weight.device.type == "cuda"
        assert (ledger.host, ledger.live) == (0, 4096 + 512)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(4, 32, device="cuda")).sum().backward()
        optimizer.step()
        assert weight.grad is not None and weight.grad.device.type == "cuda"
        assert optimizer.state[weight]["exp_avg"].device.type == "cuda"
        half = torch.nn.Linear(8, 8).half()
        assert half.weight.dtype is torch.float16


def test_values_are_ones_and_a_branch_on_one_is_doubtful() -> None:
    ledger = FakeLedger()
    with pretended_gpu(ledger):
        tensor = torch.zeros(3, device="cuda")
        assert tensor.sum().item() == 1.0
        assert f"{tensor.sum():.2f}" == "1.00"
        assert tensor.cpu().numpy().tolist() == tensor.tolist() == [1.0, 1.0, 1.0]
        assert ledger.doubt == ""
        if tensor.sum() > 0:
            pass
        assert "branch" in ledger.doubt


def test_torch_cuda_answers_and_is_itself_again_afterwards() -> None:
    before = torch.cuda.is_available
    ledger = FakeLedger()
    with pretended_gpu(ledger):
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1
        kept = torch.empty(256, device="cuda")
        assert torch.cuda.memory_allocated() == 1024
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert (kept.view(16, 16) @ kept.view(16, 16)).dtype is torch.bfloat16
        loader = torch.utils.data.DataLoader(list(range(4)), batch_size=2, num_workers=2, pin_memory=True)
        assert [tuple(batch.shape) for batch in loader] == [(2,), (2,)]
    assert torch.cuda.is_available is before
    assert not isinstance(torch.ones(1), torch._subclasses.FakeTensor)


def test_a_copy_to_the_host_takes_nothing_of_the_gpu() -> None:
    ledger = FakeLedger()
    with pretended_gpu(ledger):
        there = torch.ones(1024, device="cuda")
        ledger.reset_peak()
        host = there.to("cpu", dtype=torch.float64)
        assert (ledger.peak, ledger.churn, host.dtype) == (4096, 4096, torch.float64)
        back = host.cuda()
        assert (ledger.live, back.device.type) == (4096 + 8192, "cuda")
        assert (there + 1).is_cuda and ledger.churn == 4096 + 8192 + 4096


def test_what_is_saved_comes_back_on_its_side_unless_told_another(tmp_path: Path) -> None:
    ledger = FakeLedger()
    with pretended_gpu(ledger):
        model = torch.nn.Linear(512, 512, bias=False).to("cuda")
        file = tmp_path / "weights.pt"
        torch.save({"model": model.state_dict(), "epoch": 3}, file)
        alone = ledger.live
        back = torch.load(file)
        assert back["epoch"] == 3 and back["model"]["weight"].is_cuda
        assert ledger.live == alone + 4 * 512 * 512
        model.load_state_dict(back["model"])
        del back
        assert ledger.live == alone
        told = [torch.load(file, map_location=where) for where in ("cpu", lambda storage, location: storage)]
        assert not any(each["model"]["weight"].is_cuda for each in told)
        assert ledger.live == alone
