"""Hugging Face: the Trainer, a saved and reloaded model, and the Hub's mixin with rates in its config."""

import json

import pytest
import torch
from torch import nn

from varrnn import VariationalLSTM, WordEmbedding, mc_predict

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
huggingface_hub = pytest.importorskip("huggingface_hub")


class Config(transformers.PretrainedConfig):
    model_type = "varrnn_test"

    def __init__(self, dropout=None, **kwargs) -> None:
        super().__init__(**kwargs)
        self.dropout = dropout or {}


class Classifier(transformers.PreTrainedModel):
    config_class = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.words = WordEmbedding(12, 6, p_E=0.1, batch_first=True)
        self.rnn = VariationalLSTM(6, 8, batch_first=True, dropout=config.dropout)
        self.out = nn.Linear(8, 2)
        self.post_init()

    def _init_weights(self, module) -> None:
        """The modules initialise their parameters in their constructors."""

    def forward(self, input_ids, labels=None):
        logits = self.out(self.rnn(self.words(input_ids))[0][:, -1])
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


@pytest.mark.filterwarnings("ignore")
def test_trainer(tmp_path):
    model = Classifier(Config(dropout={"p_W": 0.2, "p_U": 0.2}))
    data = [{"input_ids": torch.randint(12, (5,)), "labels": torch.tensor(n % 2)} for n in range(16)]
    options = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=2, per_device_train_batch_size=4, report_to=[], use_cpu=True
    )
    before = model.rnn.weight_hh_l0.detach().clone()
    transformers.Trainer(model=model, args=options, train_dataset=data).train()
    assert not torch.equal(model.rnn.weight_hh_l0, before)
    model.save_pretrained(tmp_path / "saved")
    loaded = Classifier.from_pretrained(tmp_path / "saved").eval()
    assert loaded.rnn.dropout == model.rnn.dropout and loaded.rnn.dropout.p_W == 0.2
    words = torch.randint(12, (3, 5))
    torch.testing.assert_close(loaded(words)["logits"], model.eval()(words)["logits"])
    prediction = mc_predict(loaded, {"input_ids": words}, samples=5, apply=lambda out: out["logits"].softmax(-1))
    assert prediction.mean.shape == (3, 2) and (prediction.std > 0).all()


class Mixed(nn.Module, huggingface_hub.PyTorchModelHubMixin):
    def __init__(self, dropout: dict) -> None:
        super().__init__()
        self.rnn = VariationalLSTM(3, 4, dropout=dropout)

    def forward(self, x):
        return self.rnn(x)[0]


def test_hub_mixin(tmp_path):
    pytest.importorskip("safetensors")
    model = Mixed(dropout={"p_W": 0.25, "per_gate": True})
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dropout"] == {"p_W": 0.25, "per_gate": True}
    loaded = Mixed.from_pretrained(tmp_path)
    assert loaded.rnn.dropout == model.rnn.dropout
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(loaded.eval()(x), model.eval()(x))
