"""VariationalLSTMCell, VariationalGRUCell and VariationalRNNCell: one time step, for a custom time loop."""

from typing import Any

import torch
from torch import Tensor

from varrnn.cells import Cell, State
from varrnn.dropout import Masks, Rates, is_held
from varrnn.layers import VariationalRNNBase, gru_cell, lstm_cell, rnn_cell


class VariationalCellBase(VariationalRNNBase):
    """One time step of a recurrent layer: torch's cell with masks.

    A cell does not know where a sequence begins. In train() and under ``mc_dropout`` the caller draws the masks once
    per sequence, in one of two ways; without either, a call raises, because new masks at every step would be wrong:

    - ``masks = cell.sample_masks(batch_size)`` before the loop, ``cell(x, state, masks)`` inside it;
    - ``with hold_masks(model):`` around the loop.
    """

    def __init__(
        self,
        cell: Cell,
        input_size: int,
        hidden_size: int,
        bias: bool,
        dropout: Rates,
        cell_scaling: str = "read",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        sizes = (input_size, hidden_size, 1, bias, False, dropout, False)
        super().__init__(cell, *sizes, cell_scaling=cell_scaling, device=device, dtype=dtype)

    def forward(  # type: ignore[override]
        self, input: Tensor, hx: Any = None, masks: Masks | tuple[Masks, ...] | None = None
    ) -> Any:
        """One step from (B, I), or (I,), and the state (B, H), or (H,): a pair of them for an LSTM."""
        name = type(self).__name__
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}: input is a {type(input).__name__}; give a tensor")
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: input has {input.dim()} axes; give one time step, (B, I) or (I,)")
        batched = input.dim() == 2
        x = input.unsqueeze(0) if batched else input.view(1, 1, -1)
        _, final = super().forward(x, self._with_layer_axis(hx, x.shape[1], batched), masks)
        states: State = (final,) if isinstance(final, Tensor) else final
        new = tuple(h[0] if batched else h[0, 0] for h in states)
        return new if self.cell.num_states > 1 else new[0]

    def sample_masks(  # type: ignore[override]
        self, batch_size: int, generator: torch.Generator | None = None
    ) -> tuple[Masks, ...]:
        """Draw masks for ``batch_size`` sequences; pass them to the call of every step."""
        return super().sample_masks(batch_size, 1, generator)

    def _draw_masks(self, batch_size: int, steps: int) -> tuple[Masks, ...]:
        rates = self.dropout
        if rates.for_layers().is_active and not rates.per_step and not is_held(self):
            raise RuntimeError(
                f"{type(self).__name__} sees one step and does not know where a sequence begins: draw masks once per "
                "sequence, masks = cell.sample_masks(batch_size), and pass them to every step, or open "
                "hold_masks(model) around the loop"
            )
        key = (batch_size, rates, *self._factory_kwargs().values())
        if rates.per_step:
            return self.sample_masks(batch_size)
        return self.sample_unless_held(key, self.sample_masks, batch_size)

    def _with_layer_axis(self, hx: Any, batch_size: int, batched: bool) -> State | Tensor | None:
        """Check the state and add the axis of layers that the states of whole layers have."""
        if hx is None:
            return None
        given = tuple(hx) if self.cell.num_states > 1 and isinstance(hx, (tuple, list)) else (hx,)
        if len(given) != self.cell.num_states or not all(isinstance(h, Tensor) for h in given):
            wanted = "(h, c), two tensors" if self.cell.num_states > 1 else "h, a tensor"
            raise TypeError(f"{type(self).__name__}: hx is a {type(hx).__name__}; give {wanted}")
        shape = (batch_size, self.hidden_size) if batched else (self.hidden_size,)
        if any(tuple(h.shape) != shape for h in given):
            shapes = [tuple(h.shape) for h in given]
            raise ValueError(f"{type(self).__name__}: hx has shapes {shapes}, expected {shape}")
        state = tuple(h.unsqueeze(0) if batched else h[None, None] for h in given)
        return state if self.cell.num_states > 1 else state[0]

    def _weight_names(self, index: int) -> tuple[str, ...]:
        return ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[: 4 if self.bias else 2]

    def reset_parameters(self) -> None:
        """Initialise as torch does; without bias, ``bias_ih`` and ``bias_hh`` are None, as in torch's cells."""
        if not self.bias:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        super().reset_parameters()


class VariationalLSTMCell(VariationalCellBase):
    """``torch.nn.LSTMCell`` with the masks of ``VariationalLSTM``, which the caller holds over a sequence.

    Args:
        input_size, hidden_size, bias, device, dtype: as in ``torch.nn.LSTMCell``; parameters have its names too.
        dropout: as in ``VariationalLSTM``.
        cell_scaling, gate_activation, candidate_activation: as in ``VariationalLSTM``.

    Shape:
        - input: (B, I) or (I,).
        - hx (optional): (h, c), each (B, H) or (H,); zeros if not given.
        - masks (optional): what ``sample_masks`` gives, used in any mode.
        - output: (h, c) like hx.

    Example:
        >>> cell = VariationalLSTMCell(3, 4, dropout=DropoutRates.variational(p_W=0.5, p_U=0.5))
        >>> masks, state = cell.sample_masks(batch_size=2), None
        >>> for x in torch.randn(5, 2, 3):
        ...     state = cell(x, state, masks)
        >>> state[0].shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        dropout: Rates = 0.0,
        cell_scaling: str = "read",
        gate_activation: str = "sigmoid",
        candidate_activation: str = "tanh",
    ) -> None:
        """The arguments are those of the class."""
        cell = lstm_cell(cell_scaling, gate_activation, candidate_activation)
        super().__init__(cell, input_size, hidden_size, bias, dropout, cell_scaling, device, dtype)


class VariationalGRUCell(VariationalCellBase):
    """``torch.nn.GRUCell`` with the masks of ``VariationalGRU``, which the caller holds over a sequence.

    Args:
        input_size, hidden_size, bias, device, dtype: as in ``torch.nn.GRUCell``; parameters have its names too.
        dropout: as in ``VariationalGRU``.
        reset_after, gate_activation, candidate_activation: as in ``VariationalGRU``.

    Shape:
        - input: (B, I) or (I,).
        - hx (optional): (B, H) or (H,); zeros if not given.
        - masks (optional): what ``sample_masks`` gives, used in any mode.
        - output: like hx.

    Example:
        >>> cell = VariationalGRUCell(3, 4, dropout=DropoutRates.variational(p_W=0.5, p_U=0.5))
        >>> h = None
        >>> with hold_masks(cell):
        ...     for x in torch.randn(5, 2, 3):
        ...         h = cell(x, h)
        >>> h.shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        dropout: Rates = 0.0,
        reset_after: bool = True,
        gate_activation: str = "sigmoid",
        candidate_activation: str = "tanh",
    ) -> None:
        """The arguments are those of the class."""
        cell = gru_cell(reset_after, gate_activation, candidate_activation)
        super().__init__(cell, input_size, hidden_size, bias, dropout, device=device, dtype=dtype)


class VariationalRNNCell(VariationalCellBase):
    """``torch.nn.RNNCell`` with the masks of ``VariationalRNN``, which the caller holds over a sequence.

    Args:
        input_size, hidden_size, bias, nonlinearity, device, dtype: as in ``torch.nn.RNNCell``; parameters have its
            names too.
        dropout: as in ``VariationalRNN``.

    Shape:
        - input: (B, I) or (I,).
        - hx (optional): (B, H) or (H,); zeros if not given.
        - masks (optional): what ``sample_masks`` gives, used in any mode.
        - output: like hx.

    Example:
        >>> cell = VariationalRNNCell(3, 4).eval()
        >>> cell(torch.randn(2, 3)).shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        dropout: Rates = 0.0,
    ) -> None:
        """The arguments are those of the class."""
        self.nonlinearity = nonlinearity
        super().__init__(rnn_cell(nonlinearity), input_size, hidden_size, bias, dropout, device=device, dtype=dtype)
