"""Dropout for recurrent networks as approximate Bayesian inference (Gal & Ghahramani, 2016)."""

from varrnn import calibration, uncertainty
from varrnn.cell_modules import VariationalGRUCell, VariationalLSTMCell, VariationalRNNCell
from varrnn.convert import from_torch, to_torch
from varrnn.dropout import DropoutRates, Masks, hold_masks, mc_dropout
from varrnn.embedding import WordEmbedding
from varrnn.errors import UserError
from varrnn.layers import VariationalGRU, VariationalLSTM, VariationalRNN
from varrnn.predict import GaussianPrediction, Prediction, mc_predict
from varrnn.sequence_dropout import SequenceDropout
from varrnn.version import __version__

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
