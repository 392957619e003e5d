"""The candidates of the benchmark: training steps of every variant, of the alternatives, and matrix products alone."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from varrnn.config import compose
from varrnn.dropout import DropoutRates, identity_mask, sample_mask
from varrnn.kernels import c_library
from varrnn.kernels.matmul import GateGradient, Recurrence, chunks, input_projection, linear
from varrnn.tasks import sentiment_model
from varrnn.tasks.model import ModelMasks, SequenceModel
from varrnn.training import optim
from varrnn.training.optim import SGD

Step = Callable[[], object]


@dataclass(frozen=True)
class Shape:
    """The sizes of a model and of its batches, and its dropout rates, which do not affect the time of a step."""

    units: int
    layers: int
    steps: int
    batch: int
    words: int
    outputs: int
    p_W: float
    p_U: float
    clip: float

    @property
    def last_only(self) -> bool:
        return self.outputs == 1


SHAPES = {
    "small": Shape(200, 2, 35, 20, 10_000, 10_000, 0.25, 0.1, 5.0),
    "medium": Shape(650, 2, 35, 20, 10_000, 10_000, 0.35, 0.2, 5.0),
    "large": Shape(1500, 2, 35, 20, 10_000, 10_000, 0.5, 0.3, 10.0),
    "sentiment": Shape(128, 1, 200, 128, 20_003, 1, 0.25, 0.25, 0.0),
}


class TorchModel(nn.Module):
    """nn.LSTM with ordinary dropout on the embedding, between the layers and on the output."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.words, shape.units)
        between = shape.p_W if shape.layers > 1 else 0.0
        self.layers = nn.LSTM(shape.units, shape.units, shape.layers, dropout=between)
        self.drop, self.output = nn.Dropout(shape.p_W), nn.Linear(shape.units, shape.outputs)
        self.last_only = shape.last_only

    def forward(self, words: Tensor) -> tuple[Tensor, object]:
        h, state = self.layers(self.drop(self.embedding(words)))
        return self.output(self.drop(h[-1] if self.last_only else h)), state


class LoopModel(TorchModel):
    """The usual implementation of recurrent dropout: a Python loop over time steps under autograd.

    Untied masks take four products per step."""

    def __init__(self, shape: Shape, tied: bool) -> None:
        super().__init__(shape)
        self.shape, self.tied = shape, tied

    def forward(self, words: Tensor) -> tuple[Tensor, object]:
        h = self.embedding(words)
        for layer in range(self.shape.layers):
            w_ih, w_hh, b_ih, b_hh = self.layers.all_weights[layer]
            h = self.one_layer(h, w_ih, w_hh, b_ih + b_hh)
        return self.output(self.drop(h[-1] if self.last_only else h)), None

    def product(self, x: Tensor, z: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.tied:
            return F.linear(x * z[0], weight, bias)
        biases = [None] * 4 if bias is None else bias.chunk(4)
        return torch.cat([F.linear(x * one, w, b) for one, w, b in zip(z, weight.chunk(4), biases)], dim=-1)

    def one_layer(self, x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor) -> Tensor:
        masks = (1 if self.tied else 4, x.shape[1], x.shape[2])
        z_x, z_h = (sample_mask(masks, p, None, device=x.device) for p in (self.shape.p_W, self.shape.p_U))
        inputs = self.product(x, z_x, w_ih, bias)  # of all steps at once
        h = c = x.new_zeros(x.shape[1:])
        out = []
        for a in inputs:
            i, f, g, o = (a + self.product(h, z_h, w_hh)).chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            out.append(h)
        return torch.stack(out)


class Products:
    """The limit: only the matrix products that an exact implementation must compute, in the layout of the kernels."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        rows, size = shape.steps * shape.batch, shape.units
        self.shape = shape
        self.x = torch.randn(rows, size, device=device)
        self.d = torch.randn(rows, 4 * size, device=device)
        self.w_ih, self.w_hh = (torch.randn(4 * size, size, device=device) for _ in range(2))
        one = identity_mask(device=device)
        self.forward_product = Recurrence(self.w_hh, one, 4, (shape.steps, shape.batch))
        self.backward_product = Recurrence(self.w_hh, one, 4, (shape.steps, shape.batch), backwards=True)
        self.buffer = torch.empty_like(self.d)
        self.out = torch.randn(shape.outputs, size, device=device)
        features = shape.batch if shape.last_only else rows
        self.read, self.d_out = self.x[:features], torch.randn(features, shape.outputs, device=device)

    def __call__(self) -> None:
        batch = self.shape.batch
        for _ in range(self.shape.layers):
            sums: list[Tensor | None] = [None, None]
            for start, stop in chunks(self.x.unflatten(0, (-1, batch)), 4 * self.shape.units):
                rows = slice(start * batch, stop * batch)
                a = input_projection(self.x[rows], self.w_ih, None, 4, out=self.buffer[rows])
                for t in range(stop - start):
                    self.forward_product.forward(a[t * batch : (t + 1) * batch], self.x[:batch], 0)
                for t in range(start, stop):
                    self.backward_product.backward(self.d[t * batch : (t + 1) * batch], 0)
                gradient = GateGradient(self.d[rows], 4)
                sums = [gradient.weight_grad(self.x[rows], total) for total in sums]
                linear(self.d[rows], self.w_ih.t())
        linear(self.read, self.out)
        linear(self.d_out, self.out.t())
        linear(self.read.t(), self.d_out.t())


def variants(shape: Shape) -> dict[str, DropoutRates]:
    """The dropout variants of Table 1 that are timed."""
    tied = DropoutRates(p_E=shape.p_U, p_W=shape.p_W, p_U=shape.p_U, p_y=shape.p_W)
    return {
        "variational_tied": tied,
        "variational_untied": replace(tied, per_gate=True),
        "naive": DropoutRates.naive(shape.p_W),
        "moon": DropoutRates.moon(shape.p_U),
    }


def ours(shape: Shape, dropout: DropoutRates) -> SequenceModel:
    sizes = (shape.words, shape.units, shape.layers, shape.outputs)
    return SequenceModel(*sizes, dropout, last_only=shape.last_only)


def training_step(model: nn.Module, shape: Shape, device: torch.device) -> Step:
    """Embedding, layers, output, loss, backward, clipping and SGD on one batch of random words."""
    words = torch.randint(0, shape.words, (shape.steps + 1, shape.batch), device=device)
    ratings = torch.randn(shape.batch, 1, device=device)
    model.to(device).train()
    optimizer = SGD(model.parameters(), shape.clip, 0.0)

    def step() -> None:
        if shape.last_only:
            loss = F.mse_loss(model(words[:-1])[0], ratings)
        elif isinstance(model, SequenceModel):
            features, _ = model.features(words[:-1])
            loss = -model.target_log_probabilities(features, words[1:]).sum() / shape.batch
        else:
            logits = model(words[:-1])[0].flatten(0, 1)
            loss = F.cross_entropy(logits, words[1:].flatten(), reduction="sum") / shape.batch
        loss.backward()
        optimizer.step(1e-3)

    return step


def candidates(shape: Shape, device: torch.device) -> dict[str, Step]:
    """The training step of every candidate, by name; the limit is the first."""
    models: dict[str, nn.Module] = {
        "nn_lstm": TorchModel(shape),
        "loop_tied": LoopModel(shape, tied=True),
        "loop_untied": LoopModel(shape, tied=False),
        **{name: ours(shape, dropout) for name, dropout in variants(shape).items()},
    }
    steps = {name: training_step(model, shape, device) for name, model in models.items()}
    if device.type == "cpu" and c_library.get_library() is not None:
        tied = ours(shape, variants(shape)["variational_tied"])
        steps["variational_tied_torch"] = without_c(training_step(tied, shape, device))
    if can_raise_speed(device):
        untied = ours(shape, variants(shape)["variational_untied"])
        steps["variational_untied_high"] = at_high_precision(training_step(untied, shape, device))
    return {"limit": Products(shape, device), **steps, **protocol_candidates(shape, device)}


def without_c(step: Step) -> Step:
    """The same step in torch operations: it should not be faster where `choose_backend` chooses the C code."""

    def disabled() -> None:
        with c_library.disabled():
            step()

    return disabled


def can_raise_speed(device: torch.device) -> bool:
    """Whether this machine computes faster with precision=high, and computes in float32 now: a CPU with AMX."""
    if device.type != "cpu" or c_library.split_status()[0] is None:
        return False
    return c_library.needs_float32_products()


def at_high_precision(step: Step) -> Step:
    """The same step with precision=high."""

    def faster() -> None:
        torch.set_float32_matmul_precision("high")
        try:
            step()
        finally:
            torch.set_float32_matmul_precision("highest")

    return faster


def protocol_step(protocol: str, cell: str, shape: Shape, device: torch.device) -> Step:
    """One training step of a sentiment run, with the activations, masks, weight decay and optimizer of its protocol."""
    sizes = (f"size.units={shape.units}", f"size.layers={shape.layers}")
    made = compose.compose(
        ["experiment=cornell", "model=variational_untied", f"protocol={protocol}", f"cell={cell}", *sizes]
    )
    model = sentiment_model.build(made, shape.words).to(device).train()
    optimizer = optim.build(made, model)
    words = torch.randint(0, shape.words, (shape.steps, shape.batch), device=device)
    ratings = torch.randn(shape.batch, device=device)

    def step() -> None:
        predicted, _ = model(words, masks=model.sample_masks(words))
        (predicted[:, 0] - ratings).square().mean().backward()
        optimizer.step(1e-3)

    return step


def protocol_candidates(shape: Shape, device: torch.device) -> dict[str, Step]:
    """The training steps of the sentiment task under both protocols, LSTM and GRU.

    The steps of the other tasks do not depend on the protocol."""
    if not shape.last_only:
        return {}
    pairs = [(protocol, cell) for protocol in ("paper", "authors_code") for cell in ("lstm", "gru")]
    return {f"{protocol}_{cell}": protocol_step(protocol, cell, shape, device) for protocol, cell in pairs}


def mc_candidates(shape: Shape, device: torch.device, rows: int) -> dict[str, tuple[Step, int]]:
    """MC evaluation of one window, with its number of words x samples.

    The candidates are the Python loop and ours with one sample at a time, and ours with samples batched as rows, on a
    CPU with AMX with precision=high too."""
    model = ours(shape, variants(shape)["variational_untied"]).to(device).eval()
    words = torch.randint(0, shape.words, (shape.steps + 1, rows), device=device)
    one, all_rows = model.sample_document_masks(1), model.sample_document_masks(rows)
    loop = LoopModel(shape, tied=False).to(device)

    def usual() -> Tensor:
        return loop(words[:-1, :1])[0].log_softmax(-1)

    def own(masks: ModelMasks, streams: Tensor) -> Tensor:
        return model.target_log_probabilities(model.features(streams[:-1], None, masks)[0], streams[1:])

    batched = without_gradient(lambda: own(all_rows, words))
    found = {
        "loop": (without_gradient(usual), shape.steps),
        "sequential": (without_gradient(lambda: own(one, words[:, :1])), shape.steps),
        "batched": (batched, shape.steps * rows),
    }
    if can_raise_speed(device):
        found["batched_high"] = (at_high_precision(batched), shape.steps * rows)
    return found


def without_gradient(call: Callable[[], Tensor]) -> Step:
    def step() -> None:
        with torch.no_grad():
            call()

    return step


def saved_mb(model: nn.Module, shape: Shape) -> float:
    """Megabytes that autograd saves for the backward pass of the recurrent layers, without the weights."""
    layers = model.layers
    assert isinstance(layers, nn.Module)
    own = {parameter.untyped_storage().data_ptr() for parameter in layers.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if not tensor.is_mkldnn:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    device = next(layers.parameters()).device
    x = torch.randn(shape.steps, shape.batch, shape.units, device=device, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layers(x)
    return sum(size for pointer, size in kept.items() if pointer not in own) / 2**20
