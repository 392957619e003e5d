"""Dropout for recurrent networks as approximate Bayesian inference (Gal & Ghahramani, 2016).

Modules that need torch are imported on first use, so that commands that only read configs or records start fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

from varrnn.errors import UserError
from varrnn.version import __version__

if TYPE_CHECKING:
    from varrnn import calibration, uncertainty
    from varrnn.cell_modules import VariationalGRUCell, VariationalLSTMCell, VariationalRNNCell
    from varrnn.convert import from_torch, to_torch
    from varrnn.dropout import DropoutRates, Masks, hold_masks, mc_dropout
    from varrnn.embedding import WordEmbedding
    from varrnn.layers import VariationalGRU, VariationalLSTM, VariationalRNN
    from varrnn.predict import GaussianPrediction, Prediction, mc_predict
    from varrnn.sequence_dropout import SequenceDropout

__all__ = [
    "DropoutRates",
    "GaussianPrediction",
    "Masks",
    "Prediction",
    "SequenceDropout",
    "UserError",
    "VariationalGRU",
    "VariationalGRUCell",
    "VariationalLSTM",
    "VariationalLSTMCell",
    "VariationalRNN",
    "VariationalRNNCell",
    "WordEmbedding",
    "__version__",
    "calibration",
    "from_torch",
    "hold_masks",
    "mc_dropout",
    "mc_predict",
    "to_torch",
    "uncertainty",
]
_MODULE_OF = {
    **dict.fromkeys(("VariationalGRUCell", "VariationalLSTMCell", "VariationalRNNCell"), "varrnn.cell_modules"),
    **dict.fromkeys(("from_torch", "to_torch"), "varrnn.convert"),
    **dict.fromkeys(("DropoutRates", "Masks", "hold_masks", "mc_dropout"), "varrnn.dropout"),
    "WordEmbedding": "varrnn.embedding",
    **dict.fromkeys(("VariationalGRU", "VariationalLSTM", "VariationalRNN"), "varrnn.layers"),
    **dict.fromkeys(("GaussianPrediction", "Prediction", "mc_predict"), "varrnn.predict"),
    "SequenceDropout": "varrnn.sequence_dropout",
}
_MODULES = (
    *("calibration", "cell_modules", "convert", "dropout", "embedding", "layers", "predict", "sequence_dropout"),
    "uncertainty",
)


def __getattr__(name: str) -> Any:
    """Import a public name, or a module of the library, when it is first used."""
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"varrnn.{name}")
    else:
        raise AttributeError(f"module 'varrnn' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_MODULES})
