"""VariationalLSTM, VariationalGRU and VariationalRNN: torch's layers with the paper's masks.

Constructor, call, shapes and parameter names are those of ``torch.nn.LSTM``, ``GRU`` and ``RNN``; ``dropout`` takes a
``DropoutRates`` (a float p means tied p_W = p_U = p). State dicts load in both directions between ours and torch's.
"""

import functools
import math
from dataclasses import fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from varrnn import dropout as dropout_masks
from varrnn.cells import (
    CANDIDATE_ACTIVATIONS,
    GATE_ACTIVATIONS,
    Activation,
    Cell,
    GRUCell,
    LSTMCell,
    RNNCell,
    State,
    Weights,
)
from varrnn.dropout import CELL_SCALINGS, DropoutRates, MaskedModule, Masks, Rates, as_rates
from varrnn.kernels import BACKENDS, run_sequence
from varrnn.sequence_input import Sequences
from varrnn.torch_modes import autocast_disabled, autocast_enabled, is_traced_or_transformed

DEFAULTS = {  # ``extra_repr`` leaves these values out
    "num_layers": 1,
    "bias": True,
    "batch_first": False,
    "dropout": DropoutRates.none(),
    "bidirectional": False,
    "backend": "auto",
    "cell_scaling": "read",
}


class VariationalRNNBase(MaskedModule):
    """A stack of recurrent layers with the same network units dropped at each time step (section 4 of the paper).

    In train() each call draws masks, one per sequence; in eval() nothing is dropped (the dropout approximation).
    The caller can also draw masks with ``sample_masks`` and pass them as ``masks=``.
    """

    cell_type: ClassVar[type[Cell]]
    proj_size = 0  # torch's layers have this attribute; projections are not supported here
    __jit_unused_properties__ = ("backend",)
    weight_hh_l0: Tensor

    def __init__(
        self,
        cell: Cell,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: Rates,
        bidirectional: bool,
        backend: str = "auto",
        cell_scaling: str = "read",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.cell, self.cell_scaling = cell, cell_scaling
        sizes = {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}
        flags = {"bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}
        check_arguments(type(self).__name__, sizes, flags)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.bidirectional, self.backend = bias, batch_first, bidirectional, backend
        self._dropout = self._as_dropout(dropout)
        for index in range(num_layers * self.directions):
            for name, shape in zip(self._weight_names(index), self._weight_shapes(index)):
                self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise all parameters from U(-1/sqrt(H), 1/sqrt(H)), as torch does."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Any = None,
        masks: Masks | tuple[Masks, ...] | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor | State]:
        """Run the layers as torch's do; ``masks`` (in h_n's order: layer, direction) replaces drawn masks."""
        sequences = Sequences.from_input(input, self.batch_first, self.input_size, type(self).__name__)
        layers = self.num_layers * self.directions
        hidden = sequences.initial_state(hx, (layers, self.hidden_size), self.cell.num_states, type(self).__name__)
        layer_masks = self._masks(masks, sequences)
        dtype = self._compute_dtype(sequences.data)
        check_state_dtype(type(self).__name__, hidden, sequences.data)
        hidden = tuple(in_dtype(h, dtype) for h in hidden)
        with autocast_disabled(sequences.data.device.type):  # everything is cast once, before the first step
            out, final = self._forward(sequences, hidden, layer_masks, dtype)
        return sequences.to_output(out), final if self.cell.num_states > 1 else final[0]

    def _forward(
        self, sequences: Sequences, hidden: State, layer_masks: tuple[Masks, ...], dtype: torch.dtype
    ) -> tuple[Tensor, State]:
        out, final_states = in_dtype(sequences.data, dtype), []
        for layer in range(self.num_layers):
            outputs = []
            for index in range(layer * self.directions, (layer + 1) * self.directions):
                reverse = index % self.directions == 1
                state = tuple(h[index] for h in hidden)
                masks = Masks(*(dropout_masks.cast_mask(z, dtype) for z in layer_masks[index]))
                steps = sequences.reverse(out) if reverse else out
                history, final = self._run_layer(steps, state, index, masks, sequences)
                final_states.append(final)
                outputs.append(sequences.reverse(history) if reverse else history)
            out = torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0]
        return out, tuple(sequences.unbatch_state(torch.stack(h)) for h in zip(*final_states))

    def sample_masks(
        self, batch_size: int, steps: int | None = None, generator: torch.Generator | None = None
    ) -> tuple[Masks, ...]:
        """Draw the masks of one function from q(omega), a ``Masks`` for each layer and direction in h_n's order.

        Args:
            batch_size: the number of sequences; each gets separate masks.
            steps: the number of time steps, which rates with ``per_step=True`` need and others ignore.
            generator: the source of random numbers, torch's global one by default.

        Example:
            >>> layer = VariationalLSTM(3, 4, dropout=DropoutRates.variational(p_W=0.5, p_U=0.5))
            >>> masks = layer.sample_masks(batch_size=2)
            >>> [tuple(z.shape) for z in masks[0]]  # (time, gate, batch, unit), 1 where shared
            [(1, 1, 2, 3), (1, 1, 2, 4), (1, 1, 1, 1)]
            >>> x = torch.randn(5, 2, 3)
            >>> torch.equal(layer(x, masks=masks)[0], layer(x, masks=masks)[0])
            True
        """
        check_count("batch_size", batch_size, 0)
        if steps is not None:
            check_count("steps", steps, 1)

        def draw(index: int) -> Masks:
            sizes = (self.cell.num_gates, batch_size, self._weight_shapes(index)[0][1], self.hidden_size)
            return dropout_masks.sample_masks(
                self.dropout, *sizes, steps, generator, self.cell_scaling, **self._factory_kwargs()
            )

        return tuple(draw(index) for index in range(self.num_layers * self.directions))

    def mean_masks(self) -> tuple[Masks, ...]:
        """The masks of eval(): ones, and 1 - p_c on the memory cell with cell_scaling="step"."""
        return tuple(self._layer_mean_masks() for _ in range(self.num_layers * self.directions))

    def _shared_mean_masks(self) -> Masks:
        """``mean_masks`` of a layer, created once for each device and dtype; the caller never gets these tensors."""
        if torch.compiler.is_compiling() or is_traced_or_transformed() or self.dropout.p_c:
            return self._layer_mean_masks()
        return dropout_masks.shared_identity_masks(**self._factory_kwargs())

    def _layer_mean_masks(self) -> Masks:
        return dropout_masks.mean_masks(self.dropout, self.cell_scaling, **self._factory_kwargs())

    def flatten_parameters(self) -> None:
        """Do nothing; code written for torch's layers calls this method."""

    @property
    def dropout(self) -> DropoutRates:
        """The dropout rates; set them to anything that the constructor accepts."""
        return self._dropout

    @dropout.setter
    def dropout(self, dropout: Rates) -> None:
        self._dropout = self._as_dropout(dropout)

    @property
    def backend(self) -> str:
        """The implementation to run (see ``varrnn.kernels``): "auto" chooses, a name forces one. It can be set."""
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
        return [
            [getattr(self, name) for name in self._weight_names(i)] for i in range(self.num_layers * self.directions)
        ]

    def _run_layer(
        self, x: Tensor, state: State, index: int, masks: Masks, sequences: Sequences
    ) -> tuple[Tensor, State]:
        weights = self._weights(index, x.dtype)
        order = sequences.order
        if order is not None:
            masks = Masks(*(z if z.shape[2] == 1 else z.index_select(2, order) for z in masks))
        return run_sequence(self.cell, x, state, weights, masks, sequences.batch_sizes, self.backend)

    def _weights(self, index: int, dtype: torch.dtype) -> Weights:
        """The parameters of a layer and direction, checked: C code would read out of bounds of other shapes."""
        names = self._weight_names(index)
        found = [getattr(self, name) for name in names]
        if not torch.jit.is_tracing():
            for name, tensor, shape in zip(names, found, self._weight_shapes(index)):
                if tensor.shape != shape:
                    raise ValueError(f"{type(self).__name__}: {name} has shape {tuple(tensor.shape)}, expected {shape}")
        return Weights(*(in_dtype(tensor, dtype) for tensor in found))

    def _compute_dtype(self, x: Tensor) -> torch.dtype:
        """The dtype to compute in: the layer's own, or autocast's."""
        own = self._factory_kwargs()["dtype"]
        if autocast_enabled(x.device.type) and x.is_floating_point() and torch.float64 not in (own, x.dtype):
            return torch.get_autocast_dtype(x.device.type)
        if x.dtype != own:
            raise ValueError(f"{type(self).__name__} has {own} parameters and got {x.dtype} input; cast one of them")
        return own

    def _weight_names(self, index: int) -> tuple[str, ...]:
        return weight_names(*divmod(index, self.directions), self.bias)

    def _weight_shapes(self, index: int) -> list[tuple[int, ...]]:
        rows = self.cell.num_gates * self.hidden_size
        columns = self.input_size if index < self.directions else self.hidden_size * self.directions
        return [(rows, columns), (rows, self.hidden_size), (rows,), (rows,)]

    def _factory_kwargs(self) -> dict[str, Any]:
        return dropout_masks.device_and_dtype(getattr(self, self._weight_names(0)[1]))

    def _as_dropout(self, dropout: Rates) -> DropoutRates:
        return as_rates(dropout, type(self).__name__, memory=self.cell.num_states > 1, stacklevel=5)

    def _masks(self, masks: Masks | tuple[Masks, ...] | None, sequences: Sequences) -> tuple[Masks, ...]:
        if masks is None:
            if self.dropout_active:
                return self._draw_masks(sequences.batch_size, sequences.length)
            return (self._shared_mean_masks(),) * (self.num_layers * self.directions)
        given = (masks,) if isinstance(masks, Masks) else masks
        if not (isinstance(given, (tuple, list)) and all(isinstance(one, Masks) for one in given)):
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
        return tuple(Masks(*(dropout_masks.unmark_edited(z) for z in one)) for one in given)

    def _draw_masks(self, batch_size: int, steps: int) -> tuple[Masks, ...]:
        """New masks, or those of the open ``hold_masks`` block; ``per_step`` masks are always new."""
        if self.dropout.per_step:
            return self.sample_masks(batch_size, steps)
        key = (batch_size, self.dropout, *self._factory_kwargs().values())
        return self.sample_unless_held(key, self.sample_masks, batch_size)

    def _check_masks(self, index: int, masks: Masks, sequences: Sequences) -> None:
        steps, batch = sequences.length, sequences.batch_size
        sizes = (self._weight_shapes(index)[0][1], self.hidden_size, self.hidden_size)
        gates = (self.cell.num_gates, self.cell.num_gates, 2)
        for name, z, gate, size in zip(Masks._fields, masks, gates, sizes):
            full = (steps, gate, batch, size)
            if not isinstance(z, Tensor):
                raise TypeError(
                    f"{type(self).__name__}: {name} is a {type(z).__name__}; give a tensor, ones for no dropout"
                )
            if z.dim() != 4 or any(n not in (1, whole) for n, whole in zip(z.shape, full)):
                raise ValueError(
                    f"{type(self).__name__}: {name} of layer x direction {index} has shape {tuple(z.shape)}; expected "
                    f"(time, gate, batch, unit) = {full}, or 1 on any axis that shares the mask"
                )
        if self.cell.num_states < 2 and not may_be_identity(masks.z_c):
            raise ValueError(f"{type(self).__name__} has no memory cell to mask: z_c must be ones, or use an LSTM")

    def extra_repr(self) -> str:
        """The sizes, and every option that is not at its default."""
        options = [(name, getattr(self, name), default) for name, default in DEFAULTS.items()]
        options += [(field.name, getattr(self.cell, field.name), field.default) for field in fields(self.cell)]
        named = [f"{name}={getattr(value, '__name__', value)}" for name, value, default in options if value != default]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *named])


class VariationalLSTM(VariationalRNNBase):
    """``torch.nn.LSTM`` with masks repeated at all time steps (equations tied-weights-dropout, non-tied-weights).

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, bidirectional, device, dtype: as in ``torch.nn.LSTM``;
            ``proj_size`` must stay 0.
        dropout: a ``DropoutRates``, a mapping with its keys, or a float p for tied p_W = p_U = p. Unlike torch's, which
            acts between layers only, it drops the input of EVERY layer, the first included, and the recurrent state.
        backend: "auto" chooses; "reference", "torch", "c", "fused" or "builtin" forces an implementation (see
            ``varrnn.kernels``). The reference also computes second derivatives for the others.
        cell_scaling: how Moon's mask on the memory cell keeps its mean: "read" scales the output h; "step" and
            "inverted" scale the memory, which then forgets or explodes (for comparison).
        gate_activation: "sigmoid" or "hard_sigmoid".
        candidate_activation: "tanh", "sigmoid" or "relu".

    Shape:
        - input: (T, B, I), (B, T, I) with ``batch_first``, (T, I) for one sequence, or a ``PackedSequence``.
        - hx (optional): (h_0, c_0), each (layers x directions, B, H); zeros if not given.
        - masks (optional): a ``Masks`` for each layer and direction in h_n's order, as ``sample_masks`` draws them.
        - output: (output, (h_n, c_n)), as from ``torch.nn.LSTM``.

    Example:
        >>> layer = VariationalLSTM(3, 4, num_layers=2, dropout=DropoutRates.variational(p_W=0.3, p_U=0.3))
        >>> out, (h_n, c_n) = layer(torch.randn(5, 2, 3))  # (T, B, I) = (5, 2, 3)
        >>> out.shape, h_n.shape
        (torch.Size([5, 2, 4]), torch.Size([2, 2, 4]))
        >>> x = torch.randn(5, 2, 3)
        >>> torch.equal(layer(x)[0], layer(x)[0]), torch.equal(layer.eval()(x)[0], layer(x)[0])
        (False, True)
    """

    cell_type = LSTMCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: Rates = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        backend: str = "auto",
        cell_scaling: str = "read",
        gate_activation: str = "sigmoid",
        candidate_activation: str = "tanh",
    ) -> None:
        """The arguments are those of the class."""
        if proj_size:
            raise ValueError(f"VariationalLSTM: proj_size={proj_size} is not supported; leave it at 0")
        cell = lstm_cell(cell_scaling, gate_activation, candidate_activation)
        sizes = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(cell, *sizes, backend=backend, cell_scaling=cell_scaling, device=device, dtype=dtype)


class VariationalGRU(VariationalRNNBase):
    """``torch.nn.GRU`` with masks repeated at all time steps.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, bidirectional, device, dtype: as in ``torch.nn.GRU``.
        dropout: a ``DropoutRates`` without p_c, a mapping with its keys, or a float p for tied p_W = p_U = p. Unlike
            torch's, which acts between layers only, it drops the input of EVERY layer, the first included, and the
            recurrent state.
        backend: "auto" chooses; "reference", "torch", "c", "fused" or "builtin" forces an implementation (see
            ``varrnn.kernels``). The reference also computes second derivatives for the others.
        reset_after: False resets h before its product, as Cho et al. do, and not after it, as torch does.
        gate_activation: "sigmoid" or "hard_sigmoid".
        candidate_activation: "tanh", "sigmoid" or "relu".

    Shape:
        - input: (T, B, I), (B, T, I) with ``batch_first``, (T, I) for one sequence, or a ``PackedSequence``.
        - hx (optional): h_0, (layers x directions, B, H); zeros if not given.
        - masks (optional): a ``Masks`` for each layer and direction in h_n's order, as ``sample_masks`` draws them.
        - output: (output, h_n), as from ``torch.nn.GRU``.

    Example:
        >>> layer = VariationalGRU(3, 4, num_layers=2, dropout=DropoutRates.variational(p_W=0.3, p_U=0.3))
        >>> out, h_n = layer(torch.randn(5, 2, 3))  # (T, B, I) = (5, 2, 3)
        >>> out.shape, h_n.shape
        (torch.Size([5, 2, 4]), torch.Size([2, 2, 4]))
        >>> x = torch.randn(5, 2, 3)
        >>> torch.equal(layer(x)[0], layer(x)[0]), torch.equal(layer.eval()(x)[0], layer(x)[0])
        (False, True)
    """

    cell_type = GRUCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: Rates = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        backend: str = "auto",
        reset_after: bool = True,
        gate_activation: str = "sigmoid",
        candidate_activation: str = "tanh",
    ) -> None:
        """The arguments are those of the class."""
        cell = gru_cell(reset_after, gate_activation, candidate_activation)
        sizes = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(cell, *sizes, backend=backend, device=device, dtype=dtype)


class VariationalRNN(VariationalRNNBase):
    """``torch.nn.RNN`` with masks repeated at all time steps.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, bidirectional, device, dtype: as in ``torch.nn.RNN``.
        nonlinearity: "tanh" or "relu".
        dropout: a ``DropoutRates`` without p_c, a mapping with its keys, or a float p for tied p_W = p_U = p. Unlike
            torch's, which acts between layers only, it drops the input of EVERY layer, the first included, and the
            recurrent state.
        backend: "auto" chooses; "reference", "torch", "c" or "builtin" forces an implementation (see
            ``varrnn.kernels``).

    Shape:
        - input: (T, B, I), (B, T, I) with ``batch_first``, (T, I) for one sequence, or a ``PackedSequence``.
        - hx (optional): h_0, (layers x directions, B, H); zeros if not given.
        - masks (optional): a ``Masks`` for each layer and direction in h_n's order, as ``sample_masks`` draws them.
        - output: (output, h_n), as from ``torch.nn.RNN``.

    Example:
        >>> layer = VariationalRNN(3, 4, num_layers=2, dropout=DropoutRates.variational(p_W=0.3, p_U=0.3))
        >>> out, h_n = layer(torch.randn(5, 2, 3))  # (T, B, I) = (5, 2, 3)
        >>> out.shape, h_n.shape
        (torch.Size([5, 2, 4]), torch.Size([2, 2, 4]))
        >>> x = torch.randn(5, 2, 3)
        >>> torch.equal(layer(x)[0], layer(x)[0]), torch.equal(layer.eval()(x)[0], layer(x)[0])
        (False, True)
    """

    cell_type = RNNCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: Rates = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        backend: str = "auto",
    ) -> None:
        """The arguments are those of the class."""
        cell = rnn_cell(nonlinearity)
        self.nonlinearity = nonlinearity
        sizes = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(cell, *sizes, backend=backend, device=device, dtype=dtype)


# the keys are the values of the option cell=
LAYERS: dict[str, type[VariationalLSTM] | type[VariationalGRU] | type[VariationalRNN]] = {
    "lstm": VariationalLSTM,
    "gru": VariationalGRU,
    "rnn": VariationalRNN,
}


def in_dtype(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """``tensor.to(dtype)``, whose call alone costs as much as a small layer's other checks together."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


@functools.cache
def weight_names(layer: int, direction: int, bias: bool) -> tuple[str, ...]:
    """The names of the parameters of a layer and direction, as torch's layers have them."""
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[: 4 if bias else 2]
    return tuple(f"{kind}_l{layer}{'_reverse' if direction else ''}" for kind in kinds)


def check_arguments(layer: str, sizes: dict[str, int], flags: dict[str, bool]) -> None:
    """Check that sizes are positive ints and flags are bools, as torch's layers do."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"{layer}: {name}={size!r} must be an int, not a {type(size).__name__}")
        if size < 1:
            raise ValueError(f"{layer}: {name}={size} must be at least 1")
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            hint = "; give dropout as dropout=" if name == "bias" and isinstance(flag, float) else ""
            raise TypeError(f"{layer}: {name}={flag!r} must be True or False, not a {type(flag).__name__}{hint}")


def check_count(name: str, value: int, lowest: int) -> None:
    """Check a number of rows or steps; torch.jit.trace and torch.compile pass it as a tensor or a SymInt."""
    if isinstance(value, bool) or not isinstance(value, int | torch.SymInt | Tensor):
        raise TypeError(f"{name}={value!r} must be an int, not a {type(value).__name__}")
    if value < lowest:
        raise ValueError(f"{name}={value} must be at least {lowest}")


def check_state_dtype(layer: str, state: State, x: Tensor) -> None:
    """Raise unless the state has the input's dtype, as torch's layers do; autocast casts both."""
    if any(h.dtype != x.dtype for h in state) and not (
        autocast_enabled(x.device.type) and all(h.is_floating_point() for h in state)
    ):
        kinds = ", ".join(str(h.dtype) for h in state)
        raise ValueError(f"{layer}: hx has dtype {kinds} and the input {x.dtype}; give hx.to({x.dtype})")


def lstm_cell(cell_scaling: str, gate_activation: str, candidate_activation: str) -> LSTMCell:
    """The step of an LSTM from the options of its constructor."""
    if cell_scaling not in CELL_SCALINGS:
        raise ValueError(f"cell_scaling={cell_scaling!r}: choose one of {', '.join(CELL_SCALINGS)}")
    gate, candidate = _activations(gate_activation, candidate_activation)
    return LSTMCell(gate_activation=gate, candidate_activation=candidate)


def gru_cell(reset_after: bool, gate_activation: str, candidate_activation: str) -> GRUCell:
    """The step of a GRU from the options of its constructor."""
    if not isinstance(reset_after, bool):
        raise TypeError(f"reset_after={reset_after!r} must be True or False, not a {type(reset_after).__name__}")
    gate, candidate = _activations(gate_activation, candidate_activation)
    return GRUCell(gate_activation=gate, candidate_activation=candidate, reset_after=reset_after)


def rnn_cell(nonlinearity: str) -> RNNCell:
    """The step of a simple RNN from the option of its constructor."""
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"nonlinearity={nonlinearity!r}: choose tanh or relu")
    return RNNCell(nonlinearity=CANDIDATE_ACTIVATIONS[nonlinearity])


def _activations(gate: str, candidate: str) -> tuple[Activation, Activation]:
    if gate not in GATE_ACTIVATIONS:
        raise ValueError(f"gate_activation={gate!r}: choose one of {', '.join(GATE_ACTIVATIONS)}")
    if candidate not in CANDIDATE_ACTIVATIONS:
        raise ValueError(f"candidate_activation={candidate!r}: choose one of {', '.join(CANDIDATE_ACTIVATIONS)}")
    return GATE_ACTIVATIONS[gate], CANDIDATE_ACTIVATIONS[candidate]


def may_be_identity(z: Tensor) -> bool:
    """Whether a mask is ones; True where a check would synchronise a device or break a graph."""
    if z.device.type != "cpu" or torch.compiler.is_compiling() or is_traced_or_transformed():
        return True
    return dropout_masks.is_identity(z) or bool((z == 1).all())
