"""The network of every table: the arguments that it rejects."""

import pytest

from varrnn import DropoutRates
from varrnn.tasks.model import SequenceModel


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="cell='LSTM': choose one of lstm, gru, rnn"):
        SequenceModel(11, 4, 1, 11, DropoutRates.none(), cell="LSTM")
    with pytest.raises(ValueError, match=r"batch_first=True is not supported; give words as \(T, B\)"):
        SequenceModel(11, 4, 1, 11, DropoutRates.none(), batch_first=True)  # the words and the outputs would not follow
