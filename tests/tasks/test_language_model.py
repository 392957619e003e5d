"""Windows, loss and perplexities of the language-model task, on a small text and on the real one."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from helpers.runs import CPU, small

from varrnn import dropout as rules
from varrnn import rng
from varrnn.config import compose
from varrnn.tasks import base, perplexity
from varrnn.training.trainer import Trainer

VARIANTS = ("none", "naive", "moon", "moon_emb", "moon_cell_only", "variational_tied", "variational_untied")


def draws(update: int = 0) -> torch.Generator:
    return rng.make_generator(CPU, rng.MASKS, 1, 1, update)


def compute_step(task, model, update: int = 0, state=None, masks: int = 0) -> base.Step:
    """One window of the first epoch, as the trainer computes it; `masks` seeds the masks."""
    return task.compute_loss(model, task.prepare_batch(model, 1, update, draws(masks)), state)


def test_windows_follow_each_other_and_targets_are_the_next_words():
    task, _ = small()
    assert task.train.shape == (300, 4) and task.updates_per_epoch == 299 // 7 == 42
    assert task.train[0].tolist() != task.train[1].tolist()


def test_the_loss_is_summed_over_time_and_averaged_over_the_batch():
    task, made = small("model=none")
    model = task.model(made)
    step = compute_step(task, model)
    words = task.train[:8]
    mean = F.cross_entropy(model(words[:-1])[0].flatten(0, 1), words[1:].flatten())
    assert step.objective.item() == pytest.approx(7 * mean.item(), rel=1e-5)
    assert step.loss_for_log.item() == pytest.approx(mean.item(), rel=1e-5)


def test_the_state_is_carried_into_the_next_window():
    task, made = small("model=none")
    model = task.model(made)
    first = compute_step(task, model)
    carried, fresh = (compute_step(task, model, 1, state).loss_for_log for state in (first.state, None))
    whole = model(task.train[:14])[0][7:]
    expected = F.cross_entropy(whole.flatten(0, 1), task.train[8:15].flatten())
    assert carried.item() == pytest.approx(expected.item(), rel=1e-5)
    assert carried.item() != pytest.approx(fresh.item(), rel=1e-5)
    assert not any(part.requires_grad for part in first.state)


def test_masks_are_new_in_every_window_and_the_same_for_the_same_draw():
    task, made = small("model=variational_untied", "model.p_U=0.5", "model.p_W=0.5")
    model = task.model(made).train()
    one, again, other = (compute_step(task, model, masks=k).loss_for_log.item() for k in (0, 0, 1))
    assert one == again != other


def test_validation_perplexity_exact_and_of_the_authors():
    task, made = small("model=none")
    model = task.model(made).eval()
    measured = perplexity.validation_perplexity(model, task.valid, 7)
    rows = len(task.valid)
    assert rows == 101 and (rows - 1) // 7 == 14
    windows = task.valid[: 14 * 7 + 1]
    mean = F.cross_entropy(model(windows[:-1])[0].flatten(0, 1), windows[1:].flatten()).item()
    assert measured["valid_ppl"] == pytest.approx(math.exp(mean), rel=1e-5)
    assert measured["valid_ppl_authors"] == pytest.approx(math.exp(mean * 14 / (100 / 7)), rel=1e-5)


@pytest.mark.slow
def test_the_test_text_is_one_stream_to_its_last_word():
    task, made = small("model=none")
    model = task.model(made).eval()
    text = task.test.unsqueeze(1)
    expected = F.cross_entropy(model(text[:-1])[0].flatten(0, 1), text[1:].flatten()).exp().item()
    for steps in (1, 13, 300, 1000):
        assert perplexity.perplexity(model, text, steps) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_evaluation_is_deterministic_even_for_a_model_in_training_mode():
    task, made = small("model=variational_untied")
    model = task.model(made).train()
    assert perplexity.perplexity(model, task.test.unsqueeze(1), 50) == perplexity.perplexity(
        model, task.test.unsqueeze(1), 50
    )


@pytest.mark.slow
def test_every_parameter_starts_uniform_and_depends_on_the_seed_alone():
    task, made = small("size.init=0.3", "size.units=32")
    model, same = task.model(made), task.model(made)
    for (name, a), b in zip(model.named_parameters(), same.parameters()):
        assert torch.equal(a, b)
        assert 0.2 < a.abs().max() <= 0.3, name
    assert not torch.equal(task.model(small("size.units=32", "seed=2")[1]).output.weight, model.output.weight)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
@pytest.mark.slow
def test_a_training_step_on_the_meta_device_stays_there_and_never_synchronises(variant, cell):
    if variant.startswith("moon") and cell != "lstm":
        pytest.skip("the memory mask needs an LSTM")
    task, made = small(f"model={variant}", f"cell={cell}")
    for name in ("train", "valid", "test"):
        setattr(task, name, getattr(task, name).to("meta"))
    model = task.model(made).train()
    trainer = Trainer(task, model, made, None, None, torch.device("meta"))
    step, norm = trainer.training_step(1, 0, None, 1.0, None)
    step, norm = trainer.training_step(1, 1, step.state, 1.0, None)
    assert step.loss_for_log.device.type == norm.device.type == "meta"


@pytest.mark.cuda
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_training_step_on_a_gpu_equals_the_cpu_and_never_synchronises(variant):
    """With the rates of the variant; both devices use the masks drawn on the CPU."""
    task, made = small(f"model={variant}")
    gpu = torch.device("cuda")
    there, _ = small(f"model={variant}", device=gpu)
    results, drawn = [], {}
    for where in (task, there):
        model = where.model(made).train()
        model.sample_masks = partial(masks_of_the_cpu, type(model).sample_masks, model, drawn, where.train.device)
        trainer = Trainer(where, model, made, None, None, where.train.device)
        try:
            torch.cuda.set_sync_debug_mode("error" if where is there else "default")
            step, norm = trainer.training_step(1, 0, None, 1.0, draws())
        finally:
            torch.cuda.set_sync_debug_mode("default")
        results.append((step.loss_for_log.item(), norm.item()))
    assert results[0] == pytest.approx(results[1], rel=1e-4)


def masks_of_the_cpu(sample, model, drawn, device, words, generator=None):
    """The masks of the first call, drawn on the CPU, used again on a GPU; masks of ones keep their mark."""

    def moved(z):
        return (
            rules.identity_mask(device=device, dtype=z.dtype)
            if rules.is_identity(z)
            else z.to(device, non_blocking=True)
        )

    if "masks" not in drawn:
        drawn["masks"] = sample(model, words, generator)
    masks = drawn["masks"]
    layers = tuple(type(one)(*(moved(z) for z in one)) for one in masks.layers)
    return masks._replace(words=moved(masks.words), layers=layers, output=moved(masks.output))


@pytest.mark.cuda
@pytest.mark.parametrize("variant", VARIANTS)
def test_updates_on_a_gpu_repeat_to_the_bit(variant):
    """What exact resuming needs: the same parameters, masks and windows give the same bits."""
    gpu = torch.device("cuda")
    task, made = small(f"model={variant}", device=gpu)
    found = []
    for _ in range(2):
        model = task.model(made).train()
        trainer, state = Trainer(task, model, made, None, None, gpu), None
        for update in range(3):
            generator = rng.make_generator(gpu, rng.MASKS, 1, 1, update)
            step, _ = trainer.training_step(1, update, state, 1.0, generator)
            state = step.state
        found.append([parameter.detach().cpu() for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.slow
def test_masks_that_are_moved_give_the_same_step(variant):
    """The tools of the GPU tests above, between two CPU models."""
    task, made = small(f"model={variant}")
    results, drawn = [], {}
    for _ in range(2):
        model = task.model(made).train()
        model.sample_masks = partial(masks_of_the_cpu, type(model).sample_masks, model, drawn, CPU)
        step, norm = Trainer(task, model, made, None, None, CPU).training_step(1, 0, None, 1.0, draws())
        results.append((step.loss_for_log.item(), norm.item()))
    assert results[0] == results[1] and "masks" in drawn


@pytest.mark.parametrize(
    ("units", "expected"), [(200, 4_653_200), (650, 19_780_400), (1250, 50_030_000), (1500, 66_034_000)]
)
def test_parameter_counts_at_ten_thousand_words(units, expected):
    made = compose.compose(["task=ptb", f"size.units={units}"])
    with torch.device("meta"):
        model = base.build_model(made, {"words": ["word"] * 10_000})
    assert sum(p.numel() for p in model.parameters()) == expected


@pytest.mark.data
@pytest.mark.parametrize("variant", ["none", "variational_untied"])
def test_the_first_window_of_the_real_text(variant):
    made = compose.compose(["experiment=ptb_medium", f"model={variant}", "size.units=100"])
    task = base.build(made, CPU)
    assert task.updates_per_epoch == 1327 and task.num_words == 10_000
    model = task.model(made).train()
    trainer = Trainer(task, model, made, None, None, CPU)
    step, norm = trainer.training_step(1, 0, None, 1.0, draws())
    assert step.loss_for_log.exp().item() == pytest.approx(10_000, rel=0.05)
    assert 3 < norm.item() < 7  # near 4 where the loss is summed over time; near 0.12 where it is averaged
