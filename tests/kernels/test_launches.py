"""The work of a GPU, counted on meta tensors: the number of kernel launches, their devices, and no synchronisation.

Views and allocations launch nothing. The counts decide the speed of small layers on a GPU.
"""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from helpers.fused_cells import pretend_cuda
from helpers.runs import small
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from varrnn import DropoutRates, VariationalGRU, VariationalLSTM
from varrnn.benchmark import candidates, launches
from varrnn.kernels import fused
from varrnn.training.trainer import Trainer

META = torch.device("meta")
FREE = {"empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "_unsafe_view", "detach", "set_"}
# what makes the host wait for a GPU; on meta most of them raise
WAITING = {"_local_scalar_dense", "item", "nonzero", "is_nonzero", "equal", "masked_select", "_unique2", "unique_dim"}


class Launches(TorchDispatchMode):
    """Counts the operations that launch a kernel, and checks where their tensors are."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert name not in WAITING, f"{function} makes the host wait"
        out = function(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, torch.Tensor)]
        stray = [t for t in tensors if t.device.type != "meta" and t.dim() > 0]
        assert not stray, f"{function} has a tensor of shape {tuple(stray[0].shape)} on {stray[0].device}"
        if not (function.is_view or name in FREE):
            self.count[name] += 1
        return out


def counted(function):
    with Launches() as launches:
        out = function()
    return out, launches.count.total()


def per_step(make, rates: DropoutRates, **options) -> tuple[float, float]:
    """Launches of one step of one layer, forward and backward."""
    totals = []
    for steps in (10, 20):
        layer = make(6, 8, dropout=rates, device="meta", **options)
        x, masks = torch.randn(steps, 3, 6, device="meta"), layer.sample_masks(3, steps)
        (out, _), forward = counted(lambda: layer(x, masks=masks))  # noqa: B023
        _, backward = counted(lambda: out.backward(torch.empty_like(out)))  # noqa: B023
        totals.append((forward, backward))
    return tuple((many - few) / 10 for few, many in zip(*totals))


TIED = DropoutRates(p_W=0.3, p_U=0.2)
PER_STEP = [
    (VariationalLSTM, DropoutRates.none(), (0, 0)),
    (VariationalLSTM, DropoutRates.naive(0.3).for_layers(), (0, 0)),
    (VariationalLSTM, replace(TIED, per_batch=True), (0, 0)),
    (VariationalLSTM, TIED, (3, 3)),
    (VariationalLSTM, replace(TIED, per_gate=True), (3, 5)),
    (VariationalLSTM, DropoutRates.moon(0.3).for_layers(), (4, 5)),
    (VariationalGRU, TIED, (4, 5)),
    (VariationalGRU, replace(TIED, per_gate=True), (4, 6)),
]


@pytest.mark.parametrize(("make", "rates", "most"), PER_STEP)
def test_launches_of_a_step(make, rates, most, monkeypatch):
    pretend_cuda(monkeypatch)
    found = per_step(make, rates)
    assert found[0] <= most[0] and found[1] <= most[1], found


def window(shape: candidates.Shape, rates: DropoutRates) -> int:
    """Launches of a training step: masks, embedding, layers, loss, backward pass, clipping and SGD."""
    model = candidates.ours(shape, rates)
    step = candidates.training_step(model, shape, META)
    return counted(step)[1]


@pytest.mark.parametrize(
    ("size", "tied", "untied"), [("small", 600, 720), ("sentiment", 1450, 1850)]
)  # all PTB sizes have the same steps and layers
@pytest.mark.slow
def test_launches_of_a_window(size, tied, untied, monkeypatch):
    pretend_cuda(monkeypatch)
    shape = replace(candidates.SHAPES[size], units=8, words=30, outputs=30 if size == "small" else 1, batch=3)
    variants = candidates.variants(shape)
    assert window(shape, variants["variational_tied"]) < tied
    assert window(shape, variants["variational_untied"]) < untied
    assert window(shape, variants["naive"]) < 100


@pytest.mark.slow
def test_the_published_counts_are_those_of_the_kernels(monkeypatch):
    """results/tables/launches.md, counted by the library at the paper's sizes, and by the tools of this file."""
    for name, (tied, untied) in {"Penn Treebank": (600, 720), "sentiment": (1450, 1850)}.items():
        shape = launches.WINDOWS[name]
        found = launches.count_window(shape)
        assert set(found) == set(launches.LABELS)
        assert found["variational_tied"] < tied and found["variational_untied"] < untied and found["naive"] < 100
        assert found["graph"] < 40 and found["nn_lstm"] < 50
        assert found["loop_tied"] > 3 * found["variational_tied"]
        with monkeypatch.context() as patch:
            pretend_cuda(patch)
            for variant in ("moon", "variational_tied", "variational_untied"):
                rates = candidates.variants(shape)[variant]
                with torch.device("meta"):
                    model = candidates.ours(shape, rates)
                mine = counted(candidates.training_step(model, shape, META))[1]
                assert mine - found[variant] == 1  # SGD: scaling and subtracting here, one pass on a GPU


def test_counting_restores_everything():
    with launches.count_launches() as count:
        assert torch.empty(1, device="meta").is_cuda
        torch.ones(2, device="meta") + 1
    assert count == {"ones": 1, "add": 1}
    assert (
        not torch.empty(1, device="meta").is_cuda and fused.DEVICES == ("cuda",) and "is_cuda" not in vars(torch.Tensor)
    )


MODELS = ("none", "naive", "moon", "moon_emb", "moon_cell_only", "variational_tied", "variational_untied")
TRAINED = [
    (model, cell) for model in MODELS for cell in ("lstm", "gru", "rnn") if cell == "lstm" or "moon" not in model
]


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize(("variant", "cell"), TRAINED)
@pytest.mark.slow
def test_a_training_step_stays_on_its_device_and_never_synchronises(variant, cell, gpu, monkeypatch):
    """Masks are on, two windows, the state is carried; with a GPU's branches and without them."""
    monkeypatch.setattr("varrnn.kernels.is_traced_or_transformed", lambda: False)
    if gpu and not (cell == "gru" and variant in ("none", "naive")) and cell != "rnn":  # those are torch's own kernels
        pretend_cuda(monkeypatch)
    task, made = small(f"model={variant}", f"cell={cell}", "model.p_E=0.1" if variant != "none" else "model.p_E=0")
    for name in ("train", "valid", "test"):
        setattr(task, name, getattr(task, name).to("meta"))
    trainer = Trainer(task, task.model(made).train(), made, None, None, META)
    with Launches() as launches:
        step, _ = trainer.training_step(1, 0, None, 1.0, None)
        trainer.training_step(1, 1, step.state, 1.0, None)
    assert launches.count.total() > 50
    assert variant == "none" or launches.count["bernoulli_"] > 0


def test_a_tensor_on_another_device_and_a_synchronisation_are_detected():
    """Plain meta tensors would detect neither of them."""
    x = torch.randn(3, device="meta")
    with pytest.raises(AssertionError, match="on cpu"):
        counted(lambda: torch.add(x, 1, out=x) + torch.ones(3))
    with pytest.raises(AssertionError, match="makes the host wait"):
        counted(lambda: float(torch.ones(())))
