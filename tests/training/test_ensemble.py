"""Ensembles average probabilities over models and samples, one model at a time."""

import gc
import json
import math
import weakref

import pytest
import torch
from helpers.runs import make_run, python

from varrnn.config import compose
from varrnn.errors import UserError
from varrnn.tasks import base
from varrnn.tasks import perplexity as task_perplexity
from varrnn.tasks.perplexity import MCPerplexity, log_probabilities
from varrnn.training import ensemble, evaluation

SAMPLES = "mc.samples=3"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Three trained models: two seeds with dropout, one model without; run from their own folder."""
    folder = tmp_path_factory.mktemp("ensemble")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        names = [make_run("model.p_U=0.3", "model.p_W=0.4", f"seed={seed}", SAMPLES) for seed in (1, 2)]
        yield folder, [*names, make_run("model=none", "seed=5")]


@torch.no_grad()
def by_definition(folder, samples):
    """p(word) of every word of the test text, samples drawn one after the other; 0 samples: masks of ones."""
    made = compose.load_config(folder)
    task = base.build(made, torch.device("cpu"))
    model = task.model(made)
    evaluation.load_reported_weights(model, made, folder)
    text = task.test.unsqueeze(1)
    drawn = (
        task_perplexity.sample_mask_batch(model, range(i, i + 1), made.seed, False, 0, len(text))
        for i in range(samples)
    )
    masks = list(drawn) or [None]
    return sum(next(log_probabilities(model, text, len(text), m)).exp() for m in masks).squeeze(1) / len(masks)


def perplexity(*probabilities):
    return math.exp(-(sum(probabilities) / len(probabilities)).log().mean())


def average(folders, *sampled):
    return ensemble.average([ensemble.load_member(f, m) for f, m in zip(folders, sampled)])


@pytest.mark.slow
def test_samples_that_a_run_has_left_are_used_and_kept(folders, monkeypatch):
    """A request for fewer samples neither draws them again nor replaces the existing ones."""
    monkeypatch.setattr(MCPerplexity, "advance", None)  # sampling again would fail
    folder = folders[1][0]
    before = (folder / "mc.pt").read_bytes()
    made = ensemble.average([ensemble.load_member(folder, True, ["mc.samples=2"])])
    assert made["mc_samples"] == 3 and (folder / "mc.pt").read_bytes() == before


@pytest.mark.parametrize("sampled", [(False, False), (True, True), (False, True)])
def test_equal_to_the_definition(folders, sampled):
    _, (one, two, _) = folders
    made = average((one, two), *sampled)
    p = [by_definition(f, 3 * is_mc) for f, is_mc in zip((one, two), sampled)]
    assert made["metrics"]["test_ppl"] == pytest.approx(perplexity(*p), rel=1e-6)
    assert made["member_test_ppl"] == pytest.approx([perplexity(one) for one in p], rel=1e-6)
    assert made["curve"]["test_ppl"] == pytest.approx([perplexity(p[0]), perplexity(*p)], rel=1e-6)
    logs = math.exp(-sum(one.log().mean() for one in p) / 2)  # averaging log-probabilities is something else
    assert abs(made["metrics"]["test_ppl"] - logs) > 1e-3
    assert made["mc"] is all(sampled) and made["member_samples"] == [3 * is_mc for is_mc in sampled]


def test_one_member_is_the_run_itself(folders):
    _, (one, *_) = folders
    metrics = json.loads((one / "summary.json").read_text())["metrics"]
    assert average([one], False)["metrics"]["test_ppl"] == pytest.approx(metrics["test_ppl"], rel=1e-6)
    assert average([one], True)["metrics"]["test_ppl"] == pytest.approx(metrics["test_ppl_mc"], rel=1e-9)


def test_samples_already_drawn_are_used_again_and_more_are_added(folders):
    _, (_, two, _) = folders
    before = (two / "mc.pt").stat().st_mtime_ns
    average([two], True)
    assert (two / "mc.pt").stat().st_mtime_ns == before
    made = ensemble.average([ensemble.load_member(two, True, ["mc.samples=5"])])
    assert made["member_samples"] == [5]
    assert made["metrics"]["test_ppl"] == pytest.approx(perplexity(by_definition(two, 5)), rel=1e-6)


@pytest.mark.slow
def test_only_one_model_is_in_memory(folders, monkeypatch):
    _, names = folders
    alive, most = weakref.WeakSet(), []
    real = evaluation.load_reported_weights

    def watched(model, *rest):
        gc.collect()
        alive.add(model)
        most.append(len(alive))
        real(model, *rest)

    monkeypatch.setattr(evaluation, "load_reported_weights", watched)
    average(names, False, False, False)
    assert most == [1, 1, 1]


def test_a_model_without_dropout_has_nothing_to_sample(folders):
    _, (one, _, plain) = folders
    made = average((one, plain), True, True)
    assert made["member_mc"] == [True, False] and made["mc"] is False
    assert made["choices"]["model"] == "mixed" and made["choices"]["task"] == "text"


@pytest.mark.slow
def test_command_line_and_record(folders):
    folder, (one, two, _) = folders
    done = python("scripts/ensemble.py", str(one), str(two), "--mc", "device=cpu", folder=folder)
    assert done.returncode == 0, done.stderr
    (file,) = (folder / "runs" / "ensembles").glob("*.json")
    assert file.name.startswith("text_tiny_variational_untied_lstm_paper_2_mc_model.p_E=0.3")
    made = json.loads(file.read_text())
    assert (made["schema"], made["kind"], made["members"], made["member_seeds"]) == (1, "ensemble", 2, [1, 2])
    assert (
        made["mc"] is True
        and made["mc_samples"] >= 3
        and made["mc_word_dropout"] is False
        and len(made["data"]["sha256"]) == 64
    )
    assert {"versions", "hardware", "commit", "choices"} <= made.keys()


def test_no_two_ensembles_share_a_file(folders):
    _, (one, _, _) = folders
    members = [ensemble.load_member(one, False)]
    task = base.build(members[0].config, torch.device("cpu"))
    made = ensemble.make_record(members, task, torch.device("cpu"), [])
    others = [{"diff": {}}, {"diff": {"model.p_U": 0.4}}, {"diff": "mixed"}, {"mc": True}, {"member_mc": [True, False]}]
    others += [{"members": 3}, {"choices": made["choices"] | {"cell": "gru"}}, {"member_seeds": [4]}]
    others += [{"mc_word_dropout": True}]
    assert len({ensemble.file_name(made | change) for change in ({}, *others)}) == 1 + len(others)
    assert ensemble.file_name(made | {"diff": {}}) == "text_tiny_variational_untied_lstm_paper_1_seeds=1"


def test_word_dropout_in_mc_is_recorded(folders):
    _, (one, two, _) = folders
    members = [ensemble.load_member(folder, True, ["mc.word_dropout=true"]) for folder in (one, two)]
    task = base.build(members[0].config, torch.device("cpu"))
    assert ensemble.make_record(members, task, torch.device("cpu"), [])["mc_word_dropout"] is True
    plain = [ensemble.load_member(one, False, ["mc.word_dropout=true"])]
    assert ensemble.make_record(plain, task, torch.device("cpu"), [])["mc_word_dropout"] is False


@pytest.mark.slow
def test_mistakes_are_one_clear_error(folders, tmp_path):
    _, (one, two, _) = folders
    with pytest.raises(UserError, match="given twice"):
        average([one, one], False, False)
    with pytest.raises(UserError, match="not a run's folder"):
        ensemble.load_member(tmp_path, False)
    with pytest.raises(UserError, match=r"mc\.samples=1000"):
        ensemble.load_member(one, True, ["mc.samples=0"])
    with pytest.raises(UserError, match="no runs given"):
        ensemble.average([])
    both = [ensemble.load_member(folder, False) for folder in (one, two)]
    for member in both:
        member.summary["data"]["sha256"] = "0" * 64
    with pytest.raises(UserError, match=r"the data has changed since .* was trained"):
        ensemble.average(both)
    other = ensemble.load_member(two, False)
    other.summary["data"]["sha256"] = "0" * 64
    with pytest.raises(UserError, match="other data"):
        ensemble.average([ensemble.load_member(one, False), other])


@pytest.mark.slow
def test_what_the_command_line_rejects_before_averaging(folders):
    folder, (one, _, _) = folders
    (folder / "a.txt").write_text("")
    for words, message in (
        (["--out", "a.txt/foo.json"], "a.txt: cannot be written (a.txt is a file, not a folder)"),
        (["--out", "runs"], "runs: is a folder; give the name of a file"),
        (["runs/no=where"], "runs/no=where: no such run folder"),
    ):
        done = python("scripts/ensemble.py", str(one), *words, folder=folder)
        assert done.returncode == 1 and done.stderr.startswith(f"error: {message}"), done.stderr
        assert done.stderr.count("\n") == 1 and "together" not in done.stdout
