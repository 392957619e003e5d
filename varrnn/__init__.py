"""Dropout for recurrent networks as approximate Bayesian inference (Gal & Ghahramani, 2016)."""

from varrnn import calibration, uncertainty
from varrnn.dropout import Dropout, Masks, mc_dropout
from varrnn.embedding import WordEmbedding
from varrnn.errors import UserError
from varrnn.layers import VariationalGRU, VariationalLSTM, VariationalRNN
from varrnn.predict import Prediction, mc_predict
from varrnn.version import __version__

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
