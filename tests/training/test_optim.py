"""The schedule and the step of the authors' code."""

import pytest
import torch
from torch import nn

from varrnn.config import compose
from varrnn.training import optim
from varrnn.training.optim import SGD, learning_rate


@pytest.mark.parametrize(
    ("overrides", "epoch", "expected"),
    [
        (["experiment=ptb_large"], 11, 1.0),
        (["experiment=ptb_large"], 12, 0.8696),
        (["experiment=ptb_large"], 55, 0.00213),
        (["experiment=ptb_large", "model=naive"], 15, 1.0),
        (["experiment=ptb_large", "model=naive"], 55, 0.00373),
        (["experiment=ptb_medium"], 7, 1.0),
        (["experiment=ptb_medium"], 8, 0.8333),
        (["experiment=ptb_medium"], 39, 0.00293),
        (["experiment=ptb_small", "model=none"], 5, 1.0),
        (["experiment=ptb_small", "model=none"], 13, 0.0039),
        (["experiment=ptb_medium", "optim=no_decay"], 39, 1.0),
    ],
)
def test_the_rate_falls_after_max_epoch_strictly(overrides, epoch, expected):
    assert learning_rate(compose.compose(overrides).optim, epoch) == pytest.approx(expected, rel=5e-3)


def parameters(*values):
    return [nn.Parameter(torch.tensor(v, dtype=torch.float64)) for v in values]


def test_a_long_gradient_is_cut_to_exactly_the_norm_and_a_short_one_left():
    for clip, scale in ((2.5, 0.5), (5.0, 1.0), (0.0, 1.0)):
        a, b = parameters([1.0, 1.0], [1.0])
        a.grad, b.grad = torch.tensor([3.0, 0.0]).double(), torch.tensor([4.0]).double()
        norm = SGD([a, b], clip, 0.0).step(0.1)
        assert norm.item() == pytest.approx(5.0)
        assert a.tolist() == pytest.approx([1 - 0.1 * scale * 3, 1.0]) and b.tolist() == pytest.approx(
            [1 - 0.1 * scale * 4]
        )
        assert a.grad is None


def test_weight_decay_is_not_multiplied_by_the_rate():
    (a,) = parameters([1.0, -2.0])
    a.grad = torch.zeros(2).double()
    SGD([a], 5.0, 0.01).step(0.001)
    assert a.tolist() == pytest.approx([0.99, -1.98])


def test_the_norm_runs_over_all_parameters_together():
    many = parameters(*([[0.0]] * 4))
    for one in many:
        one.grad = torch.ones(1).double()
    assert SGD(many, 1.0, 0.0).step(1.0).item() == pytest.approx(2.0)
    assert all(one.item() == pytest.approx(-0.5) for one in many)


@pytest.mark.parametrize("missing", [False, True])
def test_one_pass_or_two_give_the_same_step(missing, monkeypatch):
    """What a GPU runs; torch's fused SGD is private, and exists on the CPU too."""
    monkeypatch.setattr(optim, "FUSED_DEVICES", ("cpu",))
    called = []
    if missing:
        monkeypatch.delattr(torch, "_fused_sgd_")
    else:
        real = torch._fused_sgd_
        monkeypatch.setattr(torch, "_fused_sgd_", lambda *a, **b: called.append(1) or real(*a, **b))
    values = [torch.randn(3, 4), torch.randn(5)]
    gradients = [torch.randn(3, 4), torch.randn(5)]
    wanted = [v - 0.3 * g for v, g in zip(values, gradients)]
    optim.subtract_scaled(values, gradients, torch.tensor(0.3))
    torch.testing.assert_close(values, wanted)
    assert bool(called) != missing


def test_a_step_without_torchs_private_passes_over_all_parameters(monkeypatch):
    """`_foreach_mul_` and `_foreach_sub_` may have another name one day; a loop gives the same bits."""
    found = []
    for missing in ((), ("_foreach_mul_", "_foreach_sub_")):
        for host in (("cpu",), ()):  # as on a CPU, and as on a GPU
            with monkeypatch.context() as patch:
                patch.setattr(optim, "HOST_DEVICES", host)
                for name in missing:
                    patch.delattr(torch, name)
                torch.manual_seed(0)
                moved = [torch.randn(3, 4).requires_grad_(), torch.randn(5).requires_grad_()]
                for one in moved:
                    one.grad = torch.randn_like(one)
                SGD(moved, 0.5, 0.01).step(0.3)
                found.append(torch.cat([one.detach().flatten() for one in moved]))
    assert torch.equal(found[0], found[2]) and torch.equal(found[1], found[3])
    torch.testing.assert_close(found[0], found[1])
