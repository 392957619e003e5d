"""skorch: fit, predict, clone with other rates, a search over them."""

import numpy as np
import pytest
from torch import nn

from varrnn import VariationalGRU

skorch = pytest.importorskip("skorch")
model_selection = pytest.importorskip("sklearn.model_selection")


class Net(nn.Module):
    def __init__(self, p: float = 0.2) -> None:
        super().__init__()
        self.rnn = VariationalGRU(2, 8, batch_first=True, dropout={"p_W": p, "p_U": p})
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


@pytest.mark.filterwarnings("ignore")
def test_fit_and_search():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 5, 2)).astype(np.float32)
    y = (x[:, -1, 0] > 0).astype(np.int64)
    net = skorch.NeuralNetClassifier(
        Net, criterion=nn.CrossEntropyLoss, max_epochs=12, lr=0.5, verbose=0, train_split=None, batch_size=20
    )
    net.fit(x, y)
    assert net.predict_proba(x).shape == (60, 2) and net.score(x, y) > 0.7
    np.testing.assert_array_equal(net.predict(x), net.predict(x))  # nothing is dropped in prediction
    search = model_selection.GridSearchCV(net, {"module__p": [0.1, 0.4]}, cv=2, scoring="accuracy").fit(x, y)
    assert search.best_estimator_.module_.rnn.dropout.p_W in (0.1, 0.4)
