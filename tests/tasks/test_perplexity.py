"""MC dropout of language models against its plain definition: one sample at a time, probabilities averaged."""

import math

import pytest
import torch
from helpers.runs import CPU, small

from varrnn import rng
from varrnn.tasks import perplexity
from varrnn.tasks.perplexity import MCPerplexity

VARIANTS = ("naive", "moon_emb", "variational_tied", "variational_untied")


def build(*overrides: str, rows: int = 5, memory_mb: int = 1, word_dropout: bool = False) -> MCPerplexity:
    task, made = small("model.p_W=0.4", "model.p_y=0.4", *overrides)
    model = task.model(made).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)  # far from uniform predictions, so that averaging logs would show
    return MCPerplexity(model, task.test[:120], made.seed, word_dropout, rows, memory_mb)


def finish(sampler: MCPerplexity, samples: int) -> MCPerplexity:
    while sampler.done < samples:
        sampler.advance(samples)
    return sampler


def one_at_a_time(sampler: MCPerplexity, samples: int) -> torch.Tensor:
    """log p of every target under each sample alone: (samples, N - 1)."""
    found = []
    for i in range(samples):
        draw = rng.make_generator(CPU, rng.MONTE_CARLO, sampler.seed, i, 0)
        masks = sampler.model.sample_document_masks(1, sampler.word_dropout, None, draw)
        with torch.no_grad():
            parts = [
                log_p for log_p in perplexity.log_probabilities(sampler.model, sampler.text.unsqueeze(1), 50, masks)
            ]
        found.append(torch.cat(parts)[:, 0])
    return torch.stack(found)


@pytest.mark.parametrize("variant", ["moon_emb", "variational_tied", "variational_untied"])
@pytest.mark.parametrize("word_dropout", [False, True])
def test_samples_as_rows_equal_the_sequential_definition(variant, word_dropout):
    sampler = finish(build(f"model={variant}", word_dropout=word_dropout), 23)
    alone = one_at_a_time(sampler, 23)
    assert len(alone.unique(dim=0)) > 20
    expected = alone.exp().mean(0).log().mean().neg().exp().item()
    averaged_logs = alone.mean(0).mean().neg().exp().item()
    assert sampler.result()[0] == pytest.approx(expected, rel=1e-5)
    assert averaged_logs > expected * 1.001
    curve = sampler.curve_ppl()
    assert curve["samples"] == [1, 2, 5, 10, 20]
    for samples, ppl in zip(curve["samples"], curve["ppl"]):
        assert ppl == pytest.approx(alone[:samples].exp().mean(0).log().mean().neg().exp().item(), rel=1e-5)


@pytest.mark.slow
def test_the_number_of_rows_and_the_memory_change_nothing():
    results = {finish(build(rows=rows, memory_mb=memory), 12).result() for rows, memory in ((1, 1), (5, 1), (12, 100))}
    first = next(iter(results))
    assert all(result == pytest.approx(first, rel=1e-6) for result in results)


@pytest.mark.slow
def test_word_dropout_is_off_unless_requested():
    masks = perplexity.sample_mask_batch(build("model.p_E=0.5").model, range(3), 1, False, 0, 9)
    assert masks.words.unique().tolist() == [1.0]
    dropped = perplexity.sample_mask_batch(build("model.p_E=0.5").model, range(3), 1, True, 0, 9).words
    assert dropped.shape == (3, 40) and set(dropped.unique().tolist()) == {0.0, 2.0}


@pytest.mark.slow
def test_masks_of_a_sample_are_held_over_the_whole_text():
    sampler = build("model=variational_untied", rows=2)
    seen = []
    original = sampler.model.features
    sampler.model.features = lambda words, state, masks: seen.append(masks) or original(words, state, masks)
    sampler.memory_mb = 0  # windows of one step
    finish(sampler, 4)
    assert len(seen) == 2 * 119
    assert all(masks is seen[0] for masks in seen[:119]) and seen[119] is not seen[0]


@pytest.mark.slow
def test_naive_masks_are_new_in_every_window():
    sampler = build("model=naive", rows=2)
    first, second = (
        setattr(sampler, "position", p) or sampler.__setattr__("pass_rows", 2) or sampler._window_masks(4)
        for p in (0, 4)
    )
    assert first.layers[0].z_x.shape[0] == 4 and not torch.equal(first.layers[0].z_x, second.layers[0].z_x)
    assert math.isfinite(finish(build("model=naive"), 6).result()[0])


@pytest.mark.slow
def test_stopping_inside_a_pass_and_resuming_is_bit_identical():
    whole = finish(build(memory_mb=0), 12)
    sampler = build(memory_mb=0)
    for _ in range(150):  # in the middle of the second pass
        sampler.advance(12)
    assert sampler.position > 0 and sampler.done == 5
    resumed = build(memory_mb=0)
    resumed.load_state_dict(sampler.state_dict())
    assert finish(resumed, 12).result() == whole.result()
    assert resumed.curve_ppl() == whole.curve_ppl()


@pytest.mark.slow
def test_a_pass_can_be_discarded_and_finished_ones_stay():
    sampler = build(memory_mb=0)
    for _ in range(150):
        sampler.advance(12)
    sampler.restart_pass()
    assert sampler.done == 5 and finish(sampler, 12).result() == finish(build(memory_mb=0), 12).result()


def test_more_samples_can_be_added_later():
    sampler = finish(finish(build(), 5), 12)
    assert sampler.result() == pytest.approx(finish(build(), 12).result(), rel=1e-9)


def test_no_dropout_gives_the_deterministic_perplexity():
    sampler = finish(build("model.p_W=0", "model.p_U=0", "model.p_E=0", "model.p_y=0"), 3)
    expected = perplexity.perplexity(sampler.model, sampler.text.unsqueeze(1), 50)
    assert sampler.result()[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("samples", [3, 23])
def test_the_standard_error_is_the_jackknife_over_groups_of_samples(samples):
    sampler = finish(build(), samples)
    alone, group = one_at_a_time(sampler, samples).double(), torch.arange(samples) % perplexity.GROUPS
    n = len(group.unique())
    left_out = torch.stack([alone[group != one].exp().mean(0).log().mean() for one in range(n)])
    expected = sampler.result()[0] * (left_out.var(correction=0) * (n - 1)).sqrt().item()
    assert n == min(samples, 20) and sampler.result()[1] == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
def test_the_standard_error_is_about_the_spread_of_repetitions():
    results = []
    for seed in range(12):
        sampler = build(rows=20)
        sampler.seed = seed
        results.append(finish(sampler, 40).result())
    values, errors = zip(*results)
    spread = torch.tensor(values).std().item()
    assert 0.4 < (sum(errors) / len(errors)) / spread < 2.5


@pytest.mark.parametrize(
    ("asked", "words", "device", "expected"),
    [
        ((0, 0), 10_000, "cpu", (100, 256)),
        ((0, 0), 10_000, "cuda", (1000, 1024)),
        ((0, 0), 10**7, "cuda", (26, 1024)),
        ((0, 1), 10**7, "cpu", (1, 1)),
        ((7, 5), 10**7, "cuda", (7, 5)),
    ],
)
def test_the_batch_of_samples_depends_on_device_and_vocabulary(asked, words, device, expected):
    assert perplexity.choose_batch(*asked, words, torch.device(device)) == expected
