"""VariationalLSTM, VariationalGRU and VariationalRNN: torch's layers with the paper's masks.

Constructor, call, shapes and parameter names are those of ``torch.nn.LSTM``, ``GRU`` and ``RNN``; ``dropout`` takes a
``Dropout`` (a float p means tied p_W = p_U = p). State dicts load in both directions between ours and torch's.
"""

import torch

from varrnn.cells import CANDIDATE_ACTIVATIONS, GATE_ACTIVATIONS, Activation, GRUCell, LSTMCell, RNNCell
from varrnn.dropout import CELL_SCALINGS, Dropout
from varrnn.stack import RecurrentLayers


class VariationalLSTM(RecurrentLayers):
    """``torch.nn.LSTM`` with masks repeated at all time steps (equations tied-weights-dropout, non-tied-weights).

    Args beside those of ``torch.nn.LSTM`` (``proj_size`` must stay 0):
        dropout: a ``Dropout``, or a float p for tied p_W = p_U = p. Unlike torch's, which acts between layers only, it
            drops the input of EVERY layer, the first included, and the recurrent state.
        backend: "auto", or "reference" (second derivatives need it), "torch", "c" or "builtin": see ``varrnn.kernels``.
        cell_scaling: how Moon's mask on the memory keeps its mean, "read" (h is scaled where it is read), or "step" and
            "inverted", which show why not.
        gate_activation: "sigmoid" or "hard_sigmoid".
        candidate_activation: "tanh", "sigmoid" or "relu".
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float | Dropout = 0.0,
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
        if cell_scaling not in CELL_SCALINGS:
            raise ValueError(f"cell_scaling={cell_scaling!r}: choose one of {', '.join(CELL_SCALINGS)}")
        gate, candidate = _activations(gate_activation, candidate_activation)
        cell = LSTMCell(gate_activation=gate, candidate_activation=candidate)
        sizes = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(cell, *sizes, backend=backend, cell_scaling=cell_scaling, device=device, dtype=dtype)


class VariationalGRU(RecurrentLayers):
    """``torch.nn.GRU`` with masks repeated at all time steps.

    Args beside those of ``torch.nn.GRU``:
        dropout: a ``Dropout`` without p_c, or a float p for tied p_W = p_U = p. Unlike torch's, which acts between
            layers only, it drops the input of EVERY layer, the first included, and the recurrent state.
        backend: "auto", or "reference" (second derivatives need it), "torch", "c" or "builtin": see ``varrnn.kernels``.
        reset_after: False resets h before its product, as Cho et al. do, and not after it, as torch does.
        gate_activation: "sigmoid" or "hard_sigmoid".
        candidate_activation: "tanh", "sigmoid" or "relu".
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float | Dropout = 0.0,
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
        gate, candidate = _activations(gate_activation, candidate_activation)
        cell = GRUCell(gate_activation=gate, candidate_activation=candidate, reset_after=reset_after)
        sizes = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(cell, *sizes, backend=backend, device=device, dtype=dtype)


class VariationalRNN(RecurrentLayers):
    """``torch.nn.RNN`` with masks repeated at all time steps.

    Args beside those of ``torch.nn.RNN`` (``nonlinearity``: "tanh" or "relu"):
        dropout: a ``Dropout`` without p_c, or a float p for tied p_W = p_U = p. Unlike torch's, which acts between
            layers only, it drops the input of EVERY layer, the first included, and the recurrent state.
        backend: "auto", "reference" or "builtin" (torch's own layer, which cannot mask h): see ``varrnn.kernels``.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float | Dropout = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        backend: str = "auto",
    ) -> None:
        """The arguments are those of the class."""
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"nonlinearity={nonlinearity!r}: choose tanh or relu")
        self.nonlinearity = nonlinearity
        cell = RNNCell(nonlinearity=CANDIDATE_ACTIVATIONS[nonlinearity])
        sizes = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(cell, *sizes, backend=backend, device=device, dtype=dtype)


def _activations(gate: str, candidate: str) -> tuple[Activation, Activation]:
    if gate not in GATE_ACTIVATIONS:
        raise ValueError(f"gate_activation={gate!r}: choose one of {', '.join(GATE_ACTIVATIONS)}")
    if candidate not in CANDIDATE_ACTIVATIONS:
        raise ValueError(f"candidate_activation={candidate!r}: choose one of {', '.join(CANDIDATE_ACTIVATIONS)}")
    return GATE_ACTIVATIONS[gate], CANDIDATE_ACTIVATIONS[candidate]
