"""The sentiment task in the one training loop: errors, cadence, MC dropout, held-out reviews, resume, mistakes."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from varrnn import hold_masks, mc_predict, rng
from varrnn.config import compose as compose_config
from varrnn.data import registry, synthetic
from varrnn.data.reviews import cut_segments
from varrnn.errors import UserError
from varrnn.tasks import sentiment
from varrnn.tasks.sentiment import SentimentTask, Split, deterministic_predictions, mc_predictions
from varrnn.training import checkpoint
from varrnn.training import run as training_run
from varrnn.training import trainer as training_loop
from varrnn.training.progress import RunMonitor
from varrnn.training.signals import Clock

CPU = torch.device("cpu")
SMALL = ("task=synthetic_reviews", "size.units=8", "threads=1", "progress=false", "task.mc_samples=2", "mc.samples=3")
DATA = cut_segments(synthetic.load(count=150, max_length=12), 14)


@pytest.fixture(autouse=True)
def _few_reviews(monkeypatch: pytest.MonkeyPatch) -> None:
    few = synthetic.load(count=150, max_length=12)
    monkeypatch.setitem(registry.REVIEWS, "synthetic", replace(registry.REVIEWS["synthetic"], load=lambda task: few))


def compose(tmp_path: Path, *overrides: str) -> compose_config.RunConfig:
    where = (f"runs_root={tmp_path}", "task.steps=14", "task.batch_size=50", "optim.epochs=2")
    return compose_config.compose([*SMALL, *where, *overrides])


def make(tmp_path: Path, *overrides: str) -> tuple[SentimentTask, sentiment.SentimentModel]:
    made = compose(tmp_path, *overrides)
    task = sentiment.load(made, CPU)
    return task, task.model(made).eval()


@pytest.mark.slow
def test_one_batch_can_be_overfitted(tmp_path: Path):
    made = compose(tmp_path, "model=none", "size.units=32", "task.batch_size=120")
    task = sentiment.load(made, CPU)
    model = task.model(made)
    trainer = training_loop.Trainer(task, model, made, tmp_path, None, CPU)  # type: ignore[arg-type]
    losses = [float(trainer.training_step(epoch, 0, None, 0.01, None)[0].loss_for_log) for epoch in range(80)]
    assert losses[0] == pytest.approx(1.0, abs=0.2), "standardised ratings have variance 1"
    assert losses[-1] < 0.05


@pytest.mark.slow
def test_errors_are_in_units_of_the_ratings(tmp_path: Path):
    task, model = make(tmp_path)
    found = task.epoch_metrics(model, 1)
    predicted = model(torch.from_numpy(DATA.test_x).t())[0][:, 0].detach().numpy() * DATA.std + DATA.mean
    assert found["test_rmse"] == pytest.approx(np.sqrt(np.mean((predicted - DATA.test_y) ** 2)), rel=1e-5)
    first = model(torch.from_numpy(DATA.train_x[:100]).t())[0][:, 0].detach().numpy()
    error = np.sqrt(np.mean((first - DATA.train_y[:100]) ** 2)) * DATA.std
    assert found["train_rmse_100"] == pytest.approx(error, rel=1e-5)
    assert len(task.measured_rows) == 120, "all training segments where there are fewer than 2,655"
    assert len(sentiment.train_eval_indices(10_620)) == 2655


def test_log_likelihood_of_one_sample_is_the_normal_density():
    part = Split(torch.zeros(3, 1), torch.tensor([0.1, 0.5, 0.9]), 0)
    samples = torch.tensor([[0.2, 0.2, 0.2]])
    normal = torch.distributions.Normal(samples[0].double(), math.sqrt(1 / 0.1))
    assert part.log_likelihood(samples) == pytest.approx(float(normal.log_prob(part.y.double()).mean()))
    both = part.log_likelihood(torch.tensor([[0.2, 0.2, 0.2], [5.0, 5.0, 5.0]]))
    densities = [normal.log_prob(part.y.double()).exp(), 0]
    other = torch.distributions.Normal(torch.full((3,), 5.0).double(), math.sqrt(1 / 0.1))
    densities[1] = other.log_prob(part.y.double()).exp()
    assert both == pytest.approx(float(((densities[0] + densities[1]) / 2).log().mean())), "densities are averaged"


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["paper", "authors_code"])
def test_mc_mean_settles_as_samples_grow(tmp_path: Path, protocol: str):
    _, model = make(tmp_path, f"protocol={protocol}", "model.p_U=0.5", "model.p_W=0.5")
    with torch.no_grad():
        model.output.weight.mul_(20)
    x = torch.from_numpy(DATA.test_x)
    target = mc_predictions(model, x, 2000, (9, 9)).mean(0)
    means = [torch.stack([mc_predictions(model, x, n, (k, n)).mean(0) for k in range(10)]) for n in (4, 64)]
    distance = [float((mean - target).square().mean().sqrt()) for mean in means]
    assert distance[0] > 0
    assert 3 < distance[0] / distance[1] < 5, "16 times the samples, a quarter of the error"


def test_samples_as_rows_are_batched_single_passes(tmp_path: Path):
    """Row (sample, segment) of the batched pass is the result of the segment alone with its masks."""
    _, model = make(tmp_path)
    x = torch.from_numpy(DATA.test_x)[:5]
    rows = mc_predictions(model, x, 3, (4, 2))
    assert rows.shape == (3, 5) and len(rows.unique()) == 15
    masks = model.sample_mc_masks(x.t(), 3, rng.make_generator("cpu", rng.MONTE_CARLO, 4, 2, 0, 0))
    layer = masks.layers[0]
    for sample, segment in ((0, 0), (1, 3), (2, 4)):
        row = slice(sample * 5 + segment, sample * 5 + segment + 1)
        own = layer._replace(z_x=layer.z_x[:, :, row], z_h=layer.z_h[:, :, row])
        one = masks._replace(words=masks.words[:, row], layers=(own,), output=masks.output[:, row])
        found = model(x[segment : segment + 1].t(), masks=one)[0]
        torch.testing.assert_close(found[0, 0], rows[sample, segment])


@pytest.mark.slow
def test_chunks_change_nothing_but_the_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    task, model = make(tmp_path)
    whole = deterministic_predictions(model, task.x)
    monkeypatch.setattr(sentiment, "ROWS", 7)
    torch.testing.assert_close(deterministic_predictions(model, task.x), whole)
    rows = mc_predictions(model, task.x, 3, (1,))
    assert rows.shape == (3, 120) and len(rows.unique()) == 360, "every chunk has separate masks"
    assert torch.equal(rows, mc_predictions(model, task.x, 3, (1,)))
    assert not torch.equal(rows, mc_predictions(model, task.x, 3, (2,)))


def test_mc_without_word_dropout_keeps_all_words(tmp_path: Path):
    task, model = make(tmp_path, "model.p_E=0.9", "model.p_U=0", "model.p_W=0", "model.p_y=0")
    kept = mc_predictions(model, task.x, 2, (1,), word_dropout=False)
    torch.testing.assert_close(kept[0], deterministic_predictions(model, task.x))
    assert not torch.allclose(mc_predictions(model, task.x, 2, (1,))[0], kept[0])


@pytest.mark.parametrize("steps", [1, 5, 9])
@pytest.mark.slow
def test_mc_continues_from_its_state(tmp_path: Path, monkeypatch, steps: int):
    monkeypatch.setattr(sentiment, "ROWS", 60)
    config = compose(tmp_path, "mc.samples=25")
    task, model = make(tmp_path, "mc.samples=25")
    whole, stopped, resumed, other = (task.sampler(model, config) for _ in range(4))
    read = [whole.advance(25) for _ in iter(lambda: whole.done < 25, False)]
    assert sum(read) == whole.words(25) == whole.words_done()
    assert sum(stopped.advance(25) for _ in range(steps)) == stopped.words_done()
    resumed.resume(stopped.state_dict(), 25, same_device=True)
    assert resumed.words_done() == stopped.words_done()
    while resumed.done < 25:
        resumed.advance(25)
    assert resumed.metrics() == whole.metrics()
    other.resume(stopped.state_dict(), 26, same_device=True)
    assert other.words_done() == 0, "another number of samples has other chunks"
    other.resume(stopped.state_dict(), 25, same_device=False)
    assert other.words_done() == 0, "another device draws other masks"


@pytest.mark.parametrize("overrides", [(), ("task.scaling=inverted",), ("protocol=authors_code",)])
@pytest.mark.slow
def test_the_library_samples_the_same_model(tmp_path: Path, overrides: tuple[str, ...]):
    """`mc_predict` and a plain call in train() mask as the task does, for each scaling of masks."""
    task, model = make(tmp_path, "model.p_E=0.4", "model.p_U=0.4", "model.p_W=0.4", "model.p_y=0.4", *overrides)
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.4, 0.4)
    x = task.x[:6]
    own = mc_predictions(model.eval(), x, 600, (1,))
    library = mc_predict(model, x.t(), samples=600, apply=lambda out: out[:, 0], seed=1)
    trained = torch.stack([model.train()(x.t())[0][:, 0].detach() for _ in range(600)])
    error = own.std(0) / 600**0.5
    for found in (library.mean, trained.mean(0)):
        assert ((found - own.mean(0)).abs() < 5 * error).all()
    for found in (library.std, trained.std(0)):
        assert (found / own.std(0) - 1).abs().max() < 0.25
    with hold_masks(model):
        first, second = model(x.t())[0], model(x.t())[0]
    assert torch.equal(first, second) and not torch.equal(first, model(x.t())[0])


def run(tmp_path: Path, *overrides: str) -> tuple[dict, Path]:
    made = compose(tmp_path, *overrides)
    return training_run.run(made), compose_config.run_dir(made)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize(
    "model", ["variational_untied", "variational_tied", "naive", "naive_recurrent", "none", "moon"]
)
@pytest.mark.parametrize("protocol", ["paper", "authors_code"])
@pytest.mark.slow
def test_every_variant_runs(tmp_path: Path, protocol: str, model: str, cell: str):
    if model == "moon" and cell == "gru":
        pytest.skip("a GRU has no memory cell")
    summary, folder = run(tmp_path, f"model={model}", f"cell={cell}", f"protocol={protocol}", "optim.epochs=1")
    metrics = summary["metrics"]
    wanted = {"train_rmse", "train_rmse_100", "test_rmse", "test_ll", "constant_rmse", "ridge_rmse"}
    drawn = {"test_rmse_mc", "test_rmse_mc3", "test_ll_mc3"}
    assert wanted <= metrics.keys() and all(math.isfinite(metrics[name]) for name in wanted)
    assert not drawn & metrics.keys() if model == "none" else drawn <= metrics.keys()
    assert len(summary["batches"]["train_loss"]) == 3
    assert json.loads((folder / "summary.json").read_text())["choices"]["task"] == "synthetic_reviews"


@pytest.mark.slow
def test_mc_is_measured_up_to_epoch_20_then_every_few_epochs_and_at_the_last(tmp_path: Path):
    task, model = make(tmp_path, "optim.epochs=28")
    due = [epoch for epoch in range(1, 29) if "test_rmse_mc" in task.epoch_metrics(model, epoch)]
    assert due == [*range(1, 21), 25, 28]


@pytest.mark.slow
def test_the_last_tenth_is_measured_with_fifty_samples(tmp_path: Path):
    task, model = make(tmp_path, "optim.epochs=40")
    assert {epoch: task.samples(epoch) for epoch in (1, 20, 21, 35, 36, 37, 40)} == {
        **{1: 2, 20: 2, 21: 0, 35: 2},
        **{36: 0, 37: 0, 40: 50},
    }
    assert task.epoch_metrics(model, 40)["mc_samples"] == 50 and task.epoch_metrics(model, 35)["mc_samples"] == 2
    assert "mc_samples" not in task.epoch_metrics(model, 36)
    many, _ = make(tmp_path, "optim.epochs=20", "task.mc_samples=100")
    assert (many.samples(18), many.samples(19)) == (100, 100), "no fewer than were asked for"
    none, _ = make(tmp_path, "task.mc_samples=0")
    assert none.samples(2) == 0


@pytest.mark.slow
def test_fifty_samples_are_those_of_the_held_out_reviews(tmp_path: Path):
    task, model = make(tmp_path, "task.hold_out=0.1")
    drawn = task._ratings(mc_predictions(model, task.valid.x, 50, (1, 2, sentiment.VALID)))
    assert task.epoch_metrics(model, 2)["valid_rmse_mc"] == task.valid.rmse(drawn.mean(0))


@pytest.mark.slow
def test_the_summary_repeats_the_last_epoch(tmp_path: Path):
    """The same samples of the same masks: a claim and a table read one and the same number."""
    summary, _ = run(tmp_path)
    names = ("train_rmse", "train_rmse_mc", "train_rmse_100_mc", "test_rmse", "test_rmse_mc", "test_ll")
    assert {n: summary["metrics"][n] for n in names} == {n: summary["history"][n][-1] for n in names}
    assert summary["history"]["mc_samples"] == [2, 50] and summary["metrics"]["mc_samples"] == 3


@pytest.mark.slow
def test_train_error_by_mc_where_the_test_error_is(tmp_path: Path):
    task, model = make(tmp_path, "optim.epochs=30")
    found = task.epoch_metrics(model, 3)
    drawn = mc_predictions(model, task.x[:100], 2, (1, 3, sentiment.TRAIN_FIRST)).mean(0).numpy()
    error = np.sqrt(np.mean((drawn - DATA.train_y[:100]) ** 2)) * DATA.std
    assert found["train_rmse_100_mc"] == pytest.approx(error, rel=1e-5)
    assert found["train_rmse_mc"] != found["train_rmse"]
    names = {"train_rmse_mc", "train_rmse_100_mc"}
    assert not names & task.epoch_metrics(model, 21).keys(), "MC is not due"
    for override in ("task.hold_out=0.1", "model=none"):
        task, model = make(tmp_path, override)
        assert not names & (task.epoch_metrics(model, 1).keys() | task.final_metrics(model).keys()), override


@pytest.mark.slow
@pytest.mark.parametrize("override", ["model=none", "model=naive", "task.hold_out=0.1"])
def test_the_last_epoch_is_not_measured_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str):
    task, model = make(tmp_path, override, "optim.epochs=3")
    earlier, last = ({"epoch": epoch, "lr": 0.1, **task.epoch_metrics(model, epoch)} for epoch in (2, 3))
    wanted = task.final_metrics(model)
    assert task.final_metrics(model, earlier) == wanted
    monkeypatch.setattr(SentimentTask, "_train_errors", None)
    assert task.final_metrics(model, last) == wanted


@pytest.mark.slow
def test_held_out_reviews_replace_the_test_curve_and_choose(tmp_path: Path):
    summary, _ = run(tmp_path, "task.hold_out=0.1")
    assert {"valid_rmse", "valid_rmse_mc", "valid_ll"} <= summary["history"].keys()
    assert not any(name.startswith("test") for name in summary["history"]), "the test curve chooses nothing"
    metrics = summary["metrics"]
    assert metrics["best_epoch"] == 1 + int(np.argmin(summary["history"]["valid_rmse"]))
    assert metrics["valid_rmse_best"] == pytest.approx(min(summary["history"]["valid_rmse"]))
    assert {"test_rmse", "test_rmse_mc", "valid_rmse_mc3", "valid_ll_mc3"} <= metrics.keys()
    assert "test_rmse_mc3" not in metrics, "MC with many samples reads the held-out reviews too"
    plain, _ = run(tmp_path)
    assert "best_epoch" not in plain["metrics"] and "valid_rmse" not in plain["history"]


class StopAt:
    """Simulates a signal: requests a stop after the given number of updates."""

    def __init__(self, updates: int) -> None:
        self.left = updates
        self.clock = Clock()

    @property
    def signum(self) -> str | None:
        self.left -= 1
        return "stop" if self.left < 0 else None

    def stop(self, words: str) -> None:
        raise KeyboardInterrupt(words)


def fit(made: compose_config.RunConfig, folder: Path, interrupts) -> training_loop.Trainer:
    """As training/run.py does, from the checkpoint in the folder."""
    folder.mkdir(exist_ok=True)
    task = sentiment.load(made, CPU)
    with RunMonitor(interrupts, False, 60.0, "") as monitor:
        trainer = training_loop.Trainer(task, task.model(made), made, folder, monitor, CPU)
        trainer.restore()
        trainer.fit("commit")
    return trainer


@pytest.mark.parametrize("model", ["variational_untied", "naive"])
@pytest.mark.slow
def test_resume_is_bit_identical(tmp_path: Path, model: str):
    made = compose(tmp_path, f"model={model}", "optim.epochs=3")
    whole = fit(made, tmp_path / "whole", StopAt(10_000))
    for asked in (2, 2, 1):  # stops inside epochs and at their ends
        with pytest.raises(KeyboardInterrupt):
            fit(made, tmp_path / "parts", StopAt(asked))
    parts = fit(made, tmp_path / "parts", StopAt(10_000))
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, parts.model.state_dict()[name]), name
    assert whole.progress.batches == parts.progress.batches
    for name, column in whole.progress.history.items():
        if not name.startswith(("wps", "seconds")):
            assert column == parts.progress.history[name], name
    saved = checkpoint.load(tmp_path / "parts" / training_loop.CHECKPOINT)
    assert saved["progress"]["epoch"] == 4


def test_every_segment_is_read_once_per_epoch(tmp_path: Path):
    task, _ = make(tmp_path)
    assert task.updates_per_epoch == 3 and [task.words(i) for i in range(3)] == [700, 700, 280], (
        "the last batch is kept"
    )
    first, second = task._shuffled(1).clone(), task._shuffled(2)
    assert torch.equal(first.sort().values, torch.arange(120)) and not torch.equal(first, second)


def test_the_loop_does_not_know_the_task():
    for module in (training_loop, training_run):
        assert "sentiment" not in Path(module.__file__).read_text().lower()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("task.word_mask=batch", "task.word_mask=batch: allowed are sequence, minibatch"),
        ("task.hold_out=1.5", "hold_out=1.5"),
        ("task.recurrent_gain=0", "recurrent_gain=0.0: must be above 0"),
        ("task.mc_every=0", "task.mc_every=0: must be at least 1"),
    ],
)
def test_users_mistakes_are_named(tmp_path: Path, override: str, message: str):
    with pytest.raises(UserError, match=message):
        make(tmp_path, override)


@pytest.mark.slow
def test_user_reviews_need_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"set task\.path="):
        sentiment.load(compose_config.compose(["task=reviews"]), CPU)
    file = tmp_path / "mine.csv"
    file.write_text("text,rating\n" + "".join(f"word{i % 3} is fine,{i % 5}\n" for i in range(20)))
    task = sentiment.load(compose_config.compose(["task=reviews", f"task.path={file}", "task.steps=5"]), CPU)
    assert (task.name, task.updates_per_epoch, len(task.test.x)) == ("reviews", 1, 4)
    with pytest.raises(UserError, match=r"task\.path=other\.csv and task\.csv=.*mine\.csv"):
        sentiment.load(compose_config.compose(["task=reviews", "task.path=other.csv", f"task.csv={file}"]), CPU)


@pytest.mark.data
@pytest.mark.parametrize(("cell", "parameters"), [("lstm", 2_692_097), ("gru", 2_659_201)])
@pytest.mark.slow
def test_figures_of_the_real_reviews(monkeypatch: pytest.MonkeyPatch, cell: str, parameters: int):
    monkeypatch.undo()
    made = compose_config.compose(["experiment=cornell", f"cell={cell}"])
    task = sentiment.load(made, CPU)
    assert (len(task.x), len(task.test.x), task.updates_per_epoch) == (10_620, 2655, 83)
    assert (task.data.mean, task.data.std) == (pytest.approx(0.58917, abs=1e-5), pytest.approx(0.18391, abs=1e-5))
    assert task.reference_metrics()["constant_rmse"] == pytest.approx(0.19146, abs=1e-5)
    assert task.reference_metrics()["ridge_rmse"] == pytest.approx(0.152, abs=1e-3)
    assert sum(p.numel() for p in task.model(made).parameters() if p.requires_grad) == parameters


@pytest.mark.cuda
@pytest.mark.parametrize("protocol", ["paper", "authors_code"])
def test_a_gpu_computes_the_same(tmp_path: Path, protocol: str):
    made = compose(tmp_path, f"protocol={protocol}")
    gpu = torch.device("cuda")
    here, there = sentiment.load(made, CPU), sentiment.load(made, gpu)
    expected = deterministic_predictions(here.model(made).eval(), here.x)
    found = deterministic_predictions(there.model(made).eval(), there.x)
    torch.testing.assert_close(found.cpu(), expected, atol=1e-4, rtol=1e-4)
    trainer = training_loop.Trainer(there, there.model(made), made, tmp_path, None, gpu)  # type: ignore[arg-type]
    draws = rng.make_generator(gpu, rng.MASKS, 1)
    assert math.isfinite(float(trainer.training_step(1, 0, None, 0.001, draws)[0].loss_for_log))
    assert mc_predictions(there.model(made).eval(), there.test.x, 3, (1,)).shape == (3, len(there.test.x))
