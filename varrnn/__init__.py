"""Dropout for recurrent networks as approximate Bayesian inference (Gal & Ghahramani, 2016).

What needs torch is imported on first use: commands that only read configs or records answer without it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from varrnn.errors import UserError
from varrnn.version import __version__

if TYPE_CHECKING:
    from varrnn import calibration, uncertainty
    from varrnn.dropout import Dropout, Masks, mc_dropout
    from varrnn.embedding import WordEmbedding
    from varrnn.layers import VariationalGRU, VariationalLSTM, VariationalRNN
    from varrnn.predict import Prediction, mc_predict

__all__ = [
    "Dropout",
    "Masks",
    "Prediction",
    "UserError",
    "VariationalGRU",
    "VariationalLSTM",
    "VariationalRNN",
    "WordEmbedding",
    "__version__",
    "calibration",
    "mc_dropout",
    "mc_predict",
    "uncertainty",
]
_MODULE_OF = {
    **dict.fromkeys(("Dropout", "Masks", "mc_dropout"), "varrnn.dropout"),
    "WordEmbedding": "varrnn.embedding",
    **dict.fromkeys(("VariationalGRU", "VariationalLSTM", "VariationalRNN"), "varrnn.layers"),
    **dict.fromkeys(("Prediction", "mc_predict"), "varrnn.predict"),
}
_MODULES = ("calibration", "dropout", "embedding", "layers", "predict", "uncertainty")


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
