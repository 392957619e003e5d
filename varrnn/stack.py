"""A stack of recurrent layers under the paper's masks; layers.py names its three kinds."""

import math
import warnings
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from varrnn import dropout as rules
from varrnn.autocast import autocast_on, without_autocast
from varrnn.cells import Cell, State, Weights
from varrnn.dropout import Dropout, MaskedModule, Masks
from varrnn.followed import followed
from varrnn.kernels import BACKENDS, run_sequence
from varrnn.sequences import Sequences

DEFAULTS = {
    "num_layers": 1,
    "bias": True,
    "batch_first": False,
    "dropout": Dropout.none(),
    "bidirectional": False,
    "backend": "auto",
    "cell_scaling": "read",
}


class RecurrentLayers(MaskedModule):
    """A stack of recurrent layers with the same network units dropped at each time step (section 4 of the paper).

    In train() each call draws masks, one per sequence; in eval() nothing is dropped (the dropout approximation).
    ``sample_masks`` and ``masks=`` give them into the caller's hands.
    """

    proj_size = 0  # torch's name for what these layers do not have
    weight_hh_l0: Tensor

    def __init__(
        self,
        cell: Cell,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float | Dropout,
        bidirectional: bool,
        backend: str = "auto",
        cell_scaling: str = "read",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.cell, self.cell_scaling = cell, cell_scaling
        if min(input_size, hidden_size, num_layers) < 1:
            raise ValueError(f"input_size={input_size}, hidden_size={hidden_size}, num_layers={num_layers}: all from 1")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.bidirectional, self.backend = bias, batch_first, bidirectional, backend
        self._dropout = self._check(dropout)
        for index in range(num_layers * self.directions):
            for name, shape in zip(self._names(index), self._shapes(index)):
                self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """U(-1/sqrt(H), 1/sqrt(H)) for everything, as torch does."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Any = None,
        masks: Masks | tuple[Masks, ...] | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor | State]:
        """Like torch's layer; ``masks`` (in h_n's order: layer, direction) replaces the masks of this call."""
        sequences = Sequences.read(input, self.batch_first, self.input_size)
        layers = self.num_layers * self.directions
        hidden = sequences.initial(hx, (layers, self.hidden_size), self.cell.states, type(self).__name__)
        drawn = self._masks(masks, sequences)
        dtype = self._precision(sequences.steps)
        hidden = tuple(h.to(dtype) for h in hidden)
        with without_autocast(sequences.steps.device.type):  # everything is cast once, before the first step
            out, final = self._forward(sequences, hidden, drawn, dtype)
        return sequences.restore(out), final if self.cell.states > 1 else final[0]

    def _forward(
        self, sequences: Sequences, hidden: State, drawn: tuple[Masks, ...], dtype: torch.dtype
    ) -> tuple[Tensor, State]:
        out, finals = sequences.steps.to(dtype), []
        for layer in range(self.num_layers):
            outputs = []
            for index in range(layer * self.directions, (layer + 1) * self.directions):
                backwards = index % self.directions == 1
                state = tuple(h[index] for h in hidden)
                masks = Masks(*(rules.cast(z, dtype) for z in drawn[index]))
                steps = sequences.turn(out) if backwards else out
                history = self._run(steps, state, index, masks, sequences.lengths)
                finals.append(tuple(sequences.last(h) for h in history))
                outputs.append(sequences.turn(history[0]) if backwards else history[0])
            out = torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0]
        return out, tuple(sequences.restore_state(torch.stack(h)) for h in zip(*finals))

    def sample_masks(
        self, batch_size: int, steps: int | None = None, generator: torch.Generator | None = None
    ) -> tuple[Masks, ...]:
        """Draw the masks of one function from q(omega), on the layers' device; ``per_step`` rates need ``steps``."""

        def draw(index: int) -> Masks:
            sizes = (self.cell.gates, batch_size, self._shapes(index)[0][1], self.hidden_size)
            return rules.sample(self.dropout, *sizes, steps, generator, self.cell_scaling, **self._where())

        return tuple(draw(index) for index in range(self.num_layers * self.directions))

    def ones_masks(self) -> tuple[Masks, ...]:
        """The dropout approximation: masks of ones, and for Moon's rule with cell_scaling="step" of 1 - p_c."""
        return tuple(self._approximation() for _ in range(self.num_layers * self.directions))

    def _approximation(self) -> Masks:
        return rules.approximation(self.dropout, self.cell_scaling, **self._where())

    def flatten_parameters(self) -> None:
        """Nothing to do; here because code written for torch's layers calls it."""

    @property
    def dropout(self) -> Dropout:
        """The rates; may be set, to a float or a ``Dropout``, as in the constructor."""
        return self._dropout

    @dropout.setter
    def dropout(self, dropout: float | Dropout) -> None:
        self._dropout = self._check(dropout)

    @property
    def backend(self) -> str:
        """The implementation to run (see ``varrnn.kernels``): "auto" chooses, a name forces it; may be set."""
        return self._backend

    @backend.setter
    def backend(self, backend: str) -> None:
        if backend not in BACKENDS:
            raise ValueError(f"{type(self).__name__}: backend={backend!r}; choose one of {', '.join(BACKENDS)}")
        self._backend = backend

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters of each layer and direction, as torch's layers list them."""
        return [[getattr(self, name) for name in self._names(i)] for i in range(self.num_layers * self.directions)]

    def _run(self, x: Tensor, state: State, index: int, masks: Masks, lengths: Tensor | None) -> State:
        weights = self._weights(index, x.dtype)
        return run_sequence(self.cell, x, state, weights, masks, lengths, self.backend)

    def _weights(self, index: int, dtype: torch.dtype) -> Weights:
        """The parameters of a layer and direction, none of another shape: C code reads as far as it is told."""
        found = {name: getattr(self, name) for name in self._names(index)}
        for (name, tensor), shape in zip(found.items(), self._shapes(index)):
            if not torch.jit.is_tracing() and tuple(tensor.shape) != shape:
                raise ValueError(f"{type(self).__name__}: {name} has shape {tuple(tensor.shape)}, expected {shape}")
        return Weights(*(tensor.to(dtype) for tensor in found.values()))

    def _precision(self, x: Tensor) -> torch.dtype:
        """The dtype to compute in: the layer's own, or autocast's."""
        own = self._where()["dtype"]
        if autocast_on(x.device.type) and x.is_floating_point() and torch.float64 not in (own, x.dtype):
            return torch.get_autocast_dtype(x.device.type)
        if x.dtype != own:
            raise ValueError(f"{type(self).__name__} has {own} parameters and got {x.dtype} input; cast one of them")
        return own

    def _names(self, index: int) -> list[str]:
        layer, direction = divmod(index, self.directions)
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[: 4 if self.bias else 2]
        return [f"{kind}_l{layer}{'_reverse' if direction else ''}" for kind in kinds]

    def _shapes(self, index: int) -> list[tuple[int, ...]]:
        rows = self.cell.gates * self.hidden_size
        columns = self.input_size if index < self.directions else self.hidden_size * self.directions
        return [(rows, columns), (rows, self.hidden_size), (rows,), (rows,)]

    def _where(self) -> dict[str, Any]:
        return rules.like(self.weight_hh_l0)

    def _check(self, dropout: float | Dropout) -> Dropout:
        if not isinstance(dropout, Dropout):
            rules.check_probability("dropout", dropout)
            dropout = Dropout.variational(p_W=dropout, p_U=dropout)
        name = type(self).__name__
        if dropout.p_c and self.cell.states < 2:
            raise ValueError(f"{name}: dropout on the memory (p_c={dropout.p_c}) needs an LSTM; use it or set p_c=0")
        if dropout.p_E or dropout.p_y:
            warnings.warn(
                f"{name} applies p_W, p_U and p_c only; p_E={dropout.p_E} belongs to WordEmbedding, p_y={dropout.p_y} "
                "to what reads the output. Pass dropout.for_layers() to say that you know.",
                stacklevel=4,
            )
        return dropout

    def _masks(self, masks: Masks | tuple[Masks, ...] | None, sequences: Sequences) -> tuple[Masks, ...]:
        if masks is None:
            if self.masks_on:
                return self.sample_masks(sequences.batch_size, sequences.steps.shape[0])
            return (self._approximation(),) * (self.num_layers * self.directions)  # nobody else can write into these
        given = (masks,) if isinstance(masks, Masks) else masks
        if not (isinstance(given, tuple | list) and all(isinstance(one, Masks) for one in given)):
            raise TypeError(
                f"{type(self).__name__}: masks is a {type(masks).__name__}; give a Masks for each layer and direction "
                "in a tuple, as sample_masks makes them"
            )
        given = tuple(given)
        if len(given) != self.num_layers * self.directions:
            raise ValueError(
                f"{type(self).__name__}: {len(given)} masks for {self.num_layers} layers x {self.directions} directions"
            )
        for index, one in enumerate(given):
            self._check_masks(index, one, sequences)
        return given

    def _check_masks(self, index: int, masks: Masks, sequences: Sequences) -> None:
        steps, batch = sequences.steps.shape[:2]
        sizes = (self._shapes(index)[0][1], self.hidden_size, self.hidden_size)
        gates = (self.cell.gates, self.cell.gates, 2)
        for name, z, gate, size in zip(Masks._fields, masks, gates, sizes):
            full = (steps, gate, batch, size)
            if not isinstance(z, Tensor):
                raise TypeError(
                    f"{type(self).__name__}: {name} is a {type(z).__name__}; no dropout is the mask of ones"
                )
            if z.dim() != 4 or any(n not in (1, whole) for n, whole in zip(z.shape, full)):
                raise ValueError(
                    f"{type(self).__name__}: {name} of layer x direction {index} has shape {tuple(z.shape)}; expected "
                    f"(time, gate, batch, unit) = {full}, or 1 on any axis that shares the mask"
                )
        if self.cell.states < 2 and not plain(masks.z_c):
            raise ValueError(f"{type(self).__name__} has no memory to mask: z_c must be ones, or use an LSTM")

    def extra_repr(self) -> str:
        """The sizes, and every option that is not at its default."""
        options = [(name, getattr(self, name), default) for name, default in DEFAULTS.items()]
        options += [(field.name, getattr(self.cell, field.name), field.default) for field in fields(self.cell)]
        named = [f"{name}={getattr(value, '__name__', value)}" for name, value, default in options if value != default]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *named])


def plain(z: Tensor) -> bool:
    """Whether a mask is ones, as far as can be told without making a device wait, or cutting a graph in two."""
    if z.device.type != "cpu" or torch.compiler.is_compiling() or followed():
        return True
    return rules.is_ones(z) or bool((z == 1).all())
