"""The optimizers (the authors' SGD, Adam) and the learning rate schedule."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from varrnn.config import schema
from varrnn.layers import VariationalRNNBase


def learning_rate(optim: schema.OptimConfig, epoch: int) -> float:
    """The learning rate of an epoch (from 1): divided by `decay` at the end of every epoch k > max_epoch."""
    if optim.schedule == "constant":
        return optim.lr
    return optim.lr * optim.decay ** -max(0, epoch - (optim.max_epoch + 1))


FUSED_DEVICES = ("cuda",)
HOST_DEVICES = ("cpu",)  # reading a number from another device would synchronise with it


def rate_tensor(lr: float | Tensor, device: torch.device) -> Tensor:
    """The learning rate as a tensor on the device; a CUDA graph gives one, whose value it changes between replays."""
    return lr if isinstance(lr, Tensor) else torch.full((), lr, dtype=torch.float32, device=device)


def multiply_all(tensors: list[Tensor], factor: float | Tensor) -> None:
    """tensor *= factor for every tensor, in one call if torch has it."""
    if hasattr(torch, "_foreach_mul_"):  # a private function, which may be missing
        torch._foreach_mul_(tensors, factor)
    else:
        for tensor in tensors:
            tensor.mul_(factor)


def subtract_all(tensors: list[Tensor], others: list[Tensor], alpha: float = 1.0) -> None:
    """tensor -= alpha * other for every pair, in one call if torch has it."""
    if hasattr(torch, "_foreach_sub_"):  # a private function, which may be missing
        torch._foreach_sub_(tensors, others, alpha=alpha)
    else:
        for tensor, other in zip(tensors, others):
            tensor.sub_(other, alpha=alpha)


def subtract_scaled(parameters: list[Tensor], gradients: list[Tensor], scale: Tensor) -> None:
    """parameter -= scale * gradient, with the scale on the device; in one pass if torch has a fused kernel."""
    fused = getattr(torch, "_fused_sgd_", None)  # a private function, which may be missing
    if fused is not None and scale.device.type in FUSED_DEVICES:
        off = {"weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0}
        fused(parameters, gradients, [], lr=scale, **off, nesterov=False, maximize=False, is_first_step=False)
    else:
        multiply_all(gradients, scale)
        subtract_all(parameters, gradients)


class SGD:
    """Plain SGD, clipped by the global norm over all parameters, with separate weight decay after the step.

    Differs: weight decay multiplies every parameter by (1 - weight_decay) after the clipped step, independently of the
    learning rate, as in the authors' code. The paper only says that weight decay was tuned; torch's rule differs.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], clip: float, weight_decay: float) -> None:
        self.parameters: list[Tensor] = list(parameters)
        self.clip, self.weight_decay = clip, weight_decay

    @torch.no_grad()
    def step(self, lr: float | Tensor) -> Tensor:
        """Do a step, clear the gradients, and return the gradient norm before clipping, as a tensor on its device."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        scale = lr if isinstance(lr, Tensor) else norm.new_full((), lr)
        if self.clip:
            scale = scale * torch.where(norm > self.clip, self.clip / norm, torch.ones_like(norm))
        updated = [p for p in self.parameters if p.grad is not None]
        if scale.device.type in HOST_DEVICES:
            subtract_all(updated, gradients, alpha=float(scale))
        else:  # without reading a number from the device
            subtract_scaled(updated, gradients, scale)
        if self.weight_decay:
            multiply_all(self.parameters, 1.0 - self.weight_decay)
        for parameter in self.parameters:
            parameter.grad = None
        return norm

    def state_tensors(self) -> list[Tensor]:
        """Plain SGD has no state."""
        return []

    def capturing(self) -> AbstractContextManager[None]:
        """Nothing to prepare for the capture of a CUDA graph."""
        return nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """Plain SGD has no state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""


class Penalty(NamedTuple):
    """factor * sum w^2 over the given rows of one parameter."""

    parameter: nn.Parameter
    rows: slice
    factor: float


class Adam:
    """Adam (Kingma and Ba, 2015) on the loss plus weight_decay * sum w^2: L2 inside the loss, not AdamW.

    Every row of the embedding changes at every step, also for words that are not in the batch: penalty and momentum are
    dense, as in the authors' code.
    Differs: epsilon is added after the bias correction, as published; in the authors' Keras before it.
    """

    def __init__(self, model: nn.Module, clip: float, weight_decay: float, decay_rule: str = "all") -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.clip = clip
        self.penalties = one_gate(model, weight_decay) if decay_rule == "one_gate" else []
        apart = {id(penalty.parameter) for penalty in self.penalties}
        groups = [
            {"params": [p for p in self.parameters if id(p) not in apart], "weight_decay": 2.0 * weight_decay},
            {"params": [p for p in self.parameters if id(p) in apart], "weight_decay": 0.0},
        ]
        self.adam = torch.optim.Adam([group for group in groups if group["params"]], fused=True)

    @torch.no_grad()
    def step(self, lr: float | Tensor) -> Tensor:
        """Do a step, clear the gradients, and return the norm of the loss's gradient without the penalty."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.clip:
            multiply_all(gradients, torch.where(norm > self.clip, self.clip / norm, torch.ones_like(norm)))
        for parameter, rows, factor in self.penalties:
            assert parameter.grad is not None
            parameter.grad[rows].add_(parameter[rows], alpha=2.0 * factor)
        self._update(lr if norm.device.type in HOST_DEVICES else rate_tensor(lr, norm.device))
        self.adam.zero_grad(set_to_none=True)
        return norm

    def _update(self, lr: float | Tensor) -> None:
        """On a GPU the rate is always a tensor, so that a step in a CUDA graph computes what a step outside does."""
        before = [group["lr"] for group in self.adam.param_groups]
        for group in self.adam.param_groups:
            group["lr"] = lr
        self.adam.step()
        if isinstance(lr, Tensor):  # a checkpoint holds numbers
            for group, number in zip(self.adam.param_groups, before):
                group["lr"] = number

    def state_tensors(self) -> list[Tensor]:
        """Both moments and the number of steps of every parameter, which begin as zeros at the first step."""
        states = self.adam.state.values()
        return [value for state in states for value in state.values() if isinstance(value, Tensor)]

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """torch's Adam rejects the capture of a CUDA graph unless it is capturable; checkpoints store False."""
        for group in self.adam.param_groups:
            group["capturable"] = True
        try:
            yield
        finally:
            for group in self.adam.param_groups:
                group["capturable"] = False

    def state_dict(self) -> dict[str, Any]:
        """Both moments and the number of steps."""
        return self.adam.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned. Raises ValueError where a moment does not fit its parameter."""
        self.adam.load_state_dict(state)
        for parameter in self.parameters:
            for name, value in self.adam.state[parameter].items():
                if not isinstance(value, Tensor) or value.shape != (() if name == "step" else parameter.shape):
                    raise ValueError(f"{name} of a parameter of shape {tuple(parameter.shape)}")


def one_gate(model: nn.Module, weight_decay: float) -> list[Penalty]:
    """The penalty of the authors' Keras fork, a bug: it reaches only the last gate of recurrent layers, once per gate.

    One regulariser object is assigned to each gate in turn and keeps the last: 4 lambda on W_o, U_o and b_o of an LSTM,
    3 lambda on the candidate's parameters of a GRU; both gates are last in torch's order too.
    """
    found = []
    for layers in (module for module in model.modules() if isinstance(module, VariationalRNNBase)):
        rows = slice((layers.cell.num_gates - 1) * layers.hidden_size, None)
        for parameter in layers.parameters():
            if parameter.requires_grad:
                found.append(Penalty(parameter, rows, layers.cell.num_gates * weight_decay))
    return found


def build(config: schema.RunConfig, model: nn.Module) -> SGD | Adam:
    """The optimizer that the config names."""
    optim = config.optim
    if optim.method == "adam":
        return Adam(model, optim.clip, optim.weight_decay, optim.decay_rule)
    return SGD(model.parameters(), optim.clip, optim.weight_decay)
