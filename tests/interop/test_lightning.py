"""Lightning: training, hyper-parameters in a checkpoint that loads weights only, prediction."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from varrnn import DropoutRates, VariationalLSTM, mc_predict

lightning = pytest.importorskip("lightning")


class Forecaster(lightning.LightningModule):
    def __init__(self, dropout: DropoutRates) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.rnn = VariationalLSTM(2, 8, batch_first=True, dropout=dropout)
        self.out = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.rnn(x)[0][:, -1])

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.mse_loss(self(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


@pytest.mark.filterwarnings("ignore")
def test_train_save_load_predict(tmp_path):
    rates = DropoutRates.variational(p_W=0.2, p_U=0.2, tied=False)
    model, x = Forecaster(rates), torch.randn(32, 6, 2)
    before = model.rnn.weight_hh_l0.detach().clone()
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=tmp_path
    )
    trainer.fit(model, DataLoader(TensorDataset(x, x[:, -1, :1]), batch_size=8))
    assert not torch.equal(model.rnn.weight_hh_l0, before)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    stored = torch.load(tmp_path / "model.ckpt", weights_only=True)
    assert stored["hyper_parameters"]["dropout"] == rates
    loaded = Forecaster.load_from_checkpoint(tmp_path / "model.ckpt")
    assert loaded.rnn.dropout == rates
    torch.testing.assert_close(loaded.eval()(x), model.eval()(x))
    assert (mc_predict(loaded, x, samples=5).std > 0).any()
