"""How the parameters move: the authors' SGD, Adam, and the learning-rate schedule."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from varrnn import schema


def learning_rate(optim: schema.Optim, epoch: int) -> float:
    """The rate of an epoch (from 1): divided by `decay` at the end of every epoch k > max_epoch, strictly."""
    if optim.schedule == "constant":
        return optim.lr
    return optim.lr * optim.decay ** -max(0, epoch - (optim.max_epoch + 1))


class SGD:
    """Plain SGD with one global norm over all parameters, and weight decay on its own after the step.

    Differs: weight decay multiplies every parameter by (1 - weight_decay) after the clipped step, whatever the learning
    rate is: the rule of the authors' code. The paper only says that weight decay was tuned; torch's own rule differs.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], clip: float, weight_decay: float) -> None:
        self.parameters = list(parameters)
        self.clip, self.weight_decay = clip, weight_decay

    @torch.no_grad()
    def step(self, lr: float) -> Tensor:
        """Move, forget the gradients, and return the gradient's norm before clipping, still on its device."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        scale = norm.new_full((), lr)
        if self.clip:
            scale = scale * torch.where(norm > self.clip, self.clip / norm, torch.ones_like(norm))
        torch._foreach_mul_(gradients, scale)
        torch._foreach_sub_([p for p in self.parameters if p.grad is not None], gradients)
        if self.weight_decay:
            torch._foreach_mul_(self.parameters, 1.0 - self.weight_decay)
        for parameter in self.parameters:
            parameter.grad = None
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Plain SGD remembers nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""


def build(config: schema.Config, model: nn.Module) -> SGD:
    """The optimiser that the config names."""
    optim = config.optim
    return SGD(model.parameters(), optim.clip, optim.weight_decay)
