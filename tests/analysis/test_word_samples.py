"""What the report shows for k samples is what read_text measures with k samples."""

import base64

import numpy as np
import pytest
import torch
from helpers.runs import learnable_texts

from varrnn.analysis.word_samples import MEASURES, read_samples, report_words
from varrnn.analysis.word_uncertainty import read_text
from varrnn.config import compose
from varrnn.dropout import DropoutRates
from varrnn.errors import UserError
from varrnn.tasks.model import SequenceModel, initialise
from varrnn.training import open_run
from varrnn.training import run as training_run


@pytest.mark.parametrize("memory_mb", (0, 64))  # a window of one word, and of many
@pytest.mark.slow
def test_row_k_equals_the_result_of_k_samples(memory_mb):
    model = SequenceModel(30, 8, 2, 30, DropoutRates.variational(p_W=0.3, p_U=0.2, p_y=0.3, p_E=0.2, tied=False))
    initialise(model, 0.5, 1)
    text = torch.randint(30, (25,))
    found = read_samples(model.eval(), text, samples=6, seed=3, memory_mb=memory_mb)
    for count in (1, 2, 6):
        wanted = read_text(model, text, samples=count, seed=3)
        for name in MEASURES:
            torch.testing.assert_close(getattr(found, name)[count - 1], getattr(wanted, name), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found.likeliest_p[count - 1, :, 0], wanted.confidence)
    assert found.likeliest.shape == (6, 24, 5) and (found.likeliest_p.diff(dim=-1) <= 0).all()


@pytest.mark.slow
def test_the_page_can_decode_the_numbers(tmp_path):
    training_run.run(compose.compose([*learnable_texts(tmp_path), f"run_dir={tmp_path / 'run'}"]))
    run = open_run(tmp_path / "run")
    text = "w1 w4 w13 w0 w1 w4\nw13 w0 w2"
    found = report_words(run, text, words=10, samples=4)
    assert [len(one["words"]) for one in found["texts"]] == [10, 10]
    assert sorted(found["texts"][0]["words"]) == sorted(found["texts"][1]["words"])
    wanted = read_samples(run.model, run.encode(text), 4, run.config.seed)
    packed = np.frombuffer(base64.b64decode(found["texts"][0]["measures"]["surprise"]), "<u2").reshape(4, 9)
    np.testing.assert_allclose(packed / 65535 * found["scales"]["surprise"], wanted.surprise, atol=1e-3)
    ids = np.frombuffer(base64.b64decode(found["texts"][0]["likeliest_ids"]), "<u2").reshape(4, 9, 5)
    likeliest = [found["vocabulary"][number] for number in ids[-1, 0]]
    assert likeliest == [run.vocabulary.words[number] for number in wanted.likeliest[-1, 0]]


@pytest.mark.slow
def test_a_model_without_dropout_has_nothing_to_shade(tmp_path):
    training_run.run(compose.compose([*learnable_texts(tmp_path), "model=none", f"run_dir={tmp_path / 'run'}"]))
    with pytest.raises(UserError, match="model=none has no dropout"):
        report_words(open_run(tmp_path / "run"))
