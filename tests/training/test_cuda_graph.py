"""train.cuda_graph: the step as a CUDA graph, emulated on the CPU, trains bit for bit as eager steps do."""

import math
import os
import shutil
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from helpers.graph_emulator import Emulation, Recording, pretend_gpu
from helpers.runs import CPU, small
from torch import nn

from varrnn import rng, torch_modes
from varrnn.config import compose
from varrnn.config.identity import config_identity
from varrnn.errors import UserError
from varrnn.kernels import record_backends
from varrnn.records.schema import SUMMARY_FILE
from varrnn.tasks import base
from varrnn.tensor_trees import tensors
from varrnn.training import checkpoint, cuda_graph, optim
from varrnn.training import run as training_run
from varrnn.training import summary as run_summary
from varrnn.training.signals import RunStopped
from varrnn.training.trainer import CHECKPOINT, Trainer

MODELS = ("none", "naive", "moon_emb", "moon_cell_only", "variational_tied", "variational_untied")
TRAINED = [(model, "lstm") for model in MODELS] + [(model, "gru") for model in ("none", "naive", "variational_untied")]


class Monitor:
    """The part of a RunMonitor that ``prepare_graph`` uses."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.log = self.lines.append


def trainer_of(task, made, graph):
    made = replace(made, train=replace(made.train, cuda_graph=graph))
    trainer = Trainer(task, task.model(made).train(), made, None, Monitor(), CPU)
    trainer.prepare_graph()
    assert (trainer.graph is not None) == graph, trainer.progress.cuda_graph
    return trainer


def train_windows(trainer, updates, rates):
    """Losses, norms, and everything that training changes, as copies."""
    state, found = None, []
    for update, lr in zip(updates, rates):
        state = None if update == 0 else state
        draws = rng.make_generator(CPU, rng.MASKS, 1, 1, update)
        step, norm = trainer.training_step(1, update, state, lr, draws)
        state = step.state
        parts = tensors(state)
        found += [t.detach().clone() for t in (step.loss_for_log, norm, *parts, *trainer.model.parameters())]
        found += [t.clone() for t in trainer.optimizer.state_tensors()]
    return found


def assert_equal(found, expected):
    assert len(found) == len(expected)
    assert all(torch.equal(one, other) for one, other in zip(found, expected))


@pytest.mark.parametrize(("variant", "cell"), TRAINED)
@pytest.mark.slow
def test_eight_windows_with_a_changing_rate_equal_eager_training_to_the_bit(variant, cell, monkeypatch):
    recorders = pretend_gpu(monkeypatch)
    task, made = small(f"model={variant}", f"cell={cell}", "optim.clip=0.5", "optim.weight_decay=1e-4")
    updates, rates = [0, 1, 2, 3, 4, 0, 1, 2], [1.0, 1.0, 0.9, 0.7, 0.7, 0.3, 0.2, 0.1]
    eager = train_windows(trainer_of(task, made, False), updates, rates)
    graphed = trainer_of(task, made, True)
    assert graphed.progress.cuda_graph == cuda_graph.EQUAL
    before = recorders[0].replays
    with record_backends() as used:
        assert_equal(train_windows(graphed, updates, rates), eager)
    assert recorders[0].replays - before == 8 and not used  # Python ran at the capture only


def sentiment(*overrides):
    words = ["task=synthetic_reviews", "size.units=6", "task.steps=9", "task.batch_size=32", "task.max_words=50"]
    made = compose.compose([*words, *overrides])
    return base.build(made, CPU), made


@pytest.mark.parametrize("protocol", ["paper", "authors_code"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.slow
def test_adam_and_the_last_batch_equal_eager_training_to_the_bit(protocol, cell, monkeypatch):
    """The last batch of an epoch is smaller and runs eagerly between two replays."""
    recorders = pretend_gpu(monkeypatch)
    task, made = sentiment(f"protocol={protocol}", f"cell={cell}", "model=variational_untied")
    last = task.updates_per_epoch - 1
    assert task.words(last) < task.words(0)
    updates, rates = [0, 1, last, 2, 3, last, 4, 5], [1e-3, 1e-3, 1e-3, 5e-4, 5e-4, 5e-4, 1e-4, 1e-4]
    eager = train_windows(trainer_of(task, made, False), updates, rates)
    graphed = trainer_of(task, made, True)
    before = recorders[0].replays
    assert_equal(train_windows(graphed, updates, rates), eager)
    assert recorders[0].replays - before == 6


@pytest.mark.slow
def test_preparing_leaves_parameters_moments_and_gradients_as_they_were(monkeypatch):
    pretend_gpu(monkeypatch)
    task, made = sentiment()
    fresh = trainer_of(task, made, True)
    assert all(not tensor.any() for tensor in fresh.optimizer.state_tensors()) and fresh.optimizer.state_tensors()
    assert all(parameter.grad is None for parameter in fresh.model.parameters())
    assert_equal(list(fresh.model.parameters()), list(task.model(made).parameters()))
    train_windows(fresh, [0, 1], [1e-3, 1e-3])
    trained = [t.detach().clone() for t in (*fresh.model.parameters(), *fresh.optimizer.state_tensors())]
    fresh.prepare_graph()  # as after a resume
    assert_equal([*fresh.model.parameters(), *fresh.optimizer.state_tensors()], trained)
    assert not any(group["capturable"] for group in fresh.optimizer.adam.param_groups)
    assert all(isinstance(group["lr"], float) for group in fresh.optimizer.state_dict()["param_groups"])


def run(words, folder):
    return training_run.run(compose.compose([*words, f"run_dir={folder}"]), describe=False)


def stop_at(monkeypatch, epoch, update):
    original = Trainer.training_step

    def step(self, *position):
        if position[:2] == (epoch, update):
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *position)

    monkeypatch.setattr(Trainer, "training_step", step)


@pytest.mark.slow
def test_a_stopped_run_resumes_to_the_bit_with_and_without_the_graph(tiny, tmp_path, monkeypatch, capsys):
    pretend_gpu(monkeypatch)
    words = [*tiny, "mc.samples=0", "train.log_every=4"]
    eager = run([*words, "train.cuda_graph=false"], tmp_path / "eager")
    whole = run([*words, "train.cuda_graph=true"], tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(RunStopped):
        stop_at(patch, 2, 5)
        run([*words, "train.cuda_graph=true"], tmp_path / "true")
    shutil.copytree(tmp_path / "true", tmp_path / "false")
    resumed = {second: run([*words, f"train.cuda_graph={second}"], tmp_path / second) for second in ("true", "false")}
    expected, *found = (
        list(checkpoint.load(tmp_path / name / CHECKPOINT)["model"].values())
        for name in ("eager", "whole", "true", "false")
    )
    for parameters in found:
        assert_equal(parameters, expected)
    assert "cuda_graph" not in eager["hardware"]
    for summary in (whole, *resumed.values()):
        assert summary["metrics"]["test_ppl"] == eager["metrics"]["test_ppl"]
        assert summary["hardware"]["cuda_graph"] == cuda_graph.EQUAL
    assert "warning: started on" not in capsys.readouterr().out and (tmp_path / "whole" / SUMMARY_FILE).is_file()


class Rounding(Emulation):
    """A graph whose library takes another algorithm: the last operation's results are off by a rounding error."""

    def __init__(self, factor: float = 1 + 1e-6) -> None:
        super().__init__()
        self.factor = factor

    def replay(self) -> None:
        super().replay()
        with torch.no_grad():
            self.written.mul_(self.factor)

    def capture(self, function):
        out = super().capture(function)
        self.written = out[1]  # the norm
        return out


@pytest.mark.parametrize(
    ("factor", "note"), [(1 + 1e-5, "equal to eager steps up to rounding"), (1.5, "not used: a replay differs")]
)
def test_what_a_replay_computes_decides_whether_it_is_used(factor, note, monkeypatch):
    pretend_gpu(monkeypatch)
    monkeypatch.setattr(cuda_graph, "make_recorder", lambda _: Rounding(factor))
    task, made = small("train.cuda_graph=true")
    trainer = Trainer(task, task.model(made).train(), made, None, Monitor(), CPU)
    trainer.prepare_graph()
    assert trainer.progress.cuda_graph.startswith(note) and trainer.monitor.lines[0].startswith(
        f"train.cuda_graph: {note}"
    )
    assert trainer._environment().endswith(", CUDA graph") == note.startswith("equal")
    assert (trainer.graph is None) == note.startswith("not used")
    assert trainer.progress.graph_record() == {"cuda_graph": trainer.progress.cuda_graph}


@pytest.mark.parametrize("place", range(3))
def test_nan_in_any_tensor_of_a_replay_counts(place):
    """Python's max() drops a NaN unless it comes first, and the loss comes first."""
    one = torch.ones(())

    class Graph:
        def step(self, *_):
            return base.Step(one, one, (one, one, one)), one

        def __call__(self, *_):
            return base.Step(one, one, tuple(one * math.nan if i == place else one for i in range(3))), one

    snapshot = SimpleNamespace(changes=list, restore=list)
    assert math.isnan(cuda_graph.compare(Graph(), snapshot, None, None, 0.1))


@pytest.mark.slow
def test_a_graph_that_rounds_is_part_of_the_environment(tiny, tmp_path, monkeypatch, capsys):
    """Resuming such a run without the graph prints a warning; resuming it with the graph does not."""
    pretend_gpu(monkeypatch)
    monkeypatch.setattr(cuda_graph, "make_recorder", lambda _: Rounding())
    for second, warned in (("true", False), ("false", True)):
        words, folder = [*tiny, "mc.samples=0"], tmp_path / second
        with monkeypatch.context() as patch, pytest.raises(RunStopped):
            stop_at(patch, 1, 3)
            run([*words, "train.cuda_graph=true"], folder)
        run([*words, f"train.cuda_graph={second}"], folder)
        assert ("CUDA graph, resuming on" in capsys.readouterr().out) == warned


MISTAKES = {
    "masks drawn inside": "the capture failed (operation not permitted when stream is capturing: uniform_)",
    "the host waits": "the capture failed (operation not permitted when stream is capturing: _local_scalar_dense)",
    "a batch of the capture": "a replay differs from an eager step by",
    "a rate of the capture": "a replay differs from an eager step by",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_step_that_no_graph_can_repeat_is_not_replayed(mistake, monkeypatch):
    """Each of these trains wrongly when it is replayed, or cannot be captured; the reason is named."""
    pretend_gpu(monkeypatch)
    task, made = small("train.cuda_graph=true")
    trainer = Trainer(task, task.model(made).train(), made, None, Monitor(), CPU)
    own, first = trainer._compute, task.prepare_batch(trainer.model, 1, 0, rng.make_generator(CPU, 1))

    def step(batch, state, lr):
        if mistake == "masks drawn inside":
            batch = batch[0], trainer.model.sample_masks(batch[0][:-1])
        if mistake == "a batch of the capture" and torch_modes._dispatch_mode_depth():
            batch = first
        if mistake == "a rate of the capture" and torch.is_tensor(lr):
            lr = torch.full_like(lr, 0.01)
        outcome = own(batch, state, lr)
        if mistake == "the host waits":
            outcome[1].item()
        return outcome

    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    trainer._compute = step
    trainer.prepare_graph()
    assert trainer.graph is None and f"not used: {MISTAKES[mistake]}" in trainer.progress.cuda_graph
    assert_equal(list(trainer.model.parameters()), before)


def test_another_error_than_that_of_a_capture_is_raised(monkeypatch):
    pretend_gpu(monkeypatch)
    task, made = small("train.cuda_graph=true")
    trainer = Trainer(task, task.model(made).train(), made, None, Monitor(), CPU)
    monkeypatch.setattr(trainer, "_compute", lambda *_: {}["a mistake"])
    with pytest.raises(KeyError):
        trainer.prepare_graph()


def test_a_graph_is_of_one_integer_in_its_batch():
    batch = torch.ones(2)
    assert cuda_graph.signature((batch, 1)) == cuda_graph.signature((2 * batch, 1))
    assert cuda_graph.signature((batch, 1)) != cuda_graph.signature((batch, 2))


def test_the_emulation_runs_no_python_again():
    weight = nn.Parameter(torch.ones(3))
    source, calls = torch.zeros(3), []

    def function():
        calls.append(1)
        loss = (weight * source).square().sum()
        loss.backward()
        gradient, weight.grad = weight.grad, None
        return loss.detach(), gradient

    emulation = Emulation()
    loss, gradient = emulation.capture(function)
    source.copy_(torch.tensor([1.0, 2.0, 3.0]))
    emulation.replay()
    assert loss.item() == 14 and gradient.tolist() == [2, 8, 18] and calls == [1]
    with pytest.raises(RuntimeError, match="not permitted"), Recording():
        torch.empty(2).bernoulli_(0.5)


@pytest.mark.slow
def test_on_a_cpu_it_is_one_clear_line(tiny, tmp_path):
    with pytest.raises(UserError, match=r"^train\.cuda_graph=true: needs a CUDA GPU, this run computes on the cpu; "):
        training_run.run(compose.compose([*tiny, "train.cuda_graph=true"]), tmp_path / "run", False)
    assert not (tmp_path / "run" / CHECKPOINT).exists()


@pytest.mark.slow
def test_it_is_not_part_of_the_identity():
    usual, graph = (compose.compose(["experiment=ptb_large", *more]) for more in ([], ["train.cuda_graph=true"]))
    assert not usual.train.cuda_graph and graph.train.cuda_graph
    assert config_identity(usual) == config_identity(graph)
    assert compose.run_dir(usual) == compose.run_dir(graph)


@pytest.mark.slow
def test_tensor_rates_of_the_optimizers_equal_numbers(monkeypatch):
    """With a GPU's branches, and as a checkpoint's content: a number."""
    monkeypatch.setattr(optim, "HOST_DEVICES", ())
    for method in ("sgd", "adam"):
        found = []
        for rate in (0.001, torch.tensor(0.001)):
            torch.manual_seed(0)
            model = nn.Linear(3, 2)
            made = compose.compose(["optim=" + method])
            optimizer = optim.build(made, model)
            for _ in range(3):
                model(torch.ones(4, 3)).square().sum().backward()
                optimizer.step(rate)
            found.append([p.detach().clone() for p in model.parameters()])
        assert_equal(*found)


@pytest.mark.cuda
@pytest.mark.parametrize("variant", MODELS)
def test_a_graph_on_a_gpu_equals_eager_training(variant):
    gpu = torch.device("cuda")
    task, made = small(f"model={variant}", device=gpu)
    found = []
    for graph in (False, True):
        asked = replace(made, train=replace(made.train, cuda_graph=graph))
        trainer, state = Trainer(task, task.model(asked).train(), asked, None, Monitor(), gpu), None
        trainer.prepare_graph()
        assert (trainer.graph is not None) == graph, trainer.progress.cuda_graph
        for update, lr in enumerate([1.0, 1.0, 0.9, 0.7, 0.7, 0.3, 0.2, 0.1]):
            step, _ = trainer.training_step(1, update, state, lr, rng.make_generator(gpu, rng.MASKS, 1, 1, update))
            state = step.state
        found.append([parameter.detach().cpu() for parameter in trainer.model.parameters()])
        equal = trainer.progress.cuda_graph == cuda_graph.EQUAL
    for one, other in zip(*found):
        assert torch.equal(one, other) if equal else torch.allclose(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.cuda
def test_a_run_with_a_graph_resumes_to_the_bit_on_a_gpu(tiny, tmp_path, monkeypatch):
    words = [*tiny, "device=cuda", "mc.samples=0", "train.cuda_graph=true"]
    whole = run(words, tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(RunStopped):
        stop_at(patch, 2, 5)
        run(words, tmp_path / "stopped")
    resumed = run(words, tmp_path / "stopped")
    assert resumed["metrics"]["test_ppl"] == whole["metrics"]["test_ppl"]
    assert whole["hardware"]["cuda_graph"].startswith("equal to eager steps")
    assert run_summary.is_finished(resumed)
