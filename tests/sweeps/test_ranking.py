"""Sweeps: the paper's grids, ranking by validation alone, heat map, best choice, unfinished runs."""

import fcntl
import itertools
import json
import shlex
from dataclasses import asdict, replace
from functools import cache

import pytest
import yaml
from helpers.runs import make_run, python
from omegaconf import OmegaConf

from varrnn.config import compose
from varrnn.config.compose import CONFIGS
from varrnn.config.identity import config_identity
from varrnn.config.overrides import run_command
from varrnn.errors import UserError
from varrnn.sweeps import heatmap, plan, ranking
from varrnn.sweeps.unfinished import unfinished_runs

pytestmark = pytest.mark.slow  # most of these tests train


@cache
def composed(*overrides):
    """Composing takes a quarter of a second."""
    made = compose.compose(["task=pydoc", *overrides])
    return {
        "choices": compose.choices(made),
        "diff": compose.diff(made),
        "config": json.loads(json.dumps(asdict(made))),
    }


def summary(seed=1, valid=100.0, test=100.0, status="finished", metrics=None, **options):
    """The files of a finished run with the given options."""
    metrics = {"valid_ppl": valid, "test_ppl": test} if metrics is None else metrics
    made = composed(*(f"{key}={value}" for key, value in options.items()))
    return {**made, "status": status, "seed": seed, "metrics": metrics}


def variational_grid():
    """Two by two; the lowest test perplexity is NOT where the lowest validation perplexity is."""
    cells = {(0.1, 0.2): (90, 50), (0.1, 0.5): (80, 95), (0.2, 0.2): (85, 70), (0.2, 0.5): (99, 99)}
    return [summary(valid=v, test=t, **{"model.p_U": u, "model.p_W": w}) for (u, w), (v, t) in cells.items()]


GRIDS = {
    "dropout_grid": {"model.p_U": [0.1, 0.2, 0.3, 0.4], "model.p_W": [0.2, 0.35, 0.5, 0.65]},
    "weight_decay": {"optim.weight_decay": [0, 1e-7, 1e-6, 1e-5]},
    "moon": {"model.p_c": [0.2, 0.3, 0.4, 0.5, 0.6]},
    "seeds": {"seed": [1, 2, 3]},
    "small_grid": {"model.p_U": [0.05, 0.1], "model.p_W": [0.15, 0.25]},
    "small_naive": {"model.p_W": [0.15, 0.25, 0.35]},
    "small_moon": {"model.p_c": [0.1, 0.2]},
    "sentiment_naive": {"model.p_W": [0.25, 0.5]},
    "sentiment_no_recurrent": {"model.p_W": [0.25, 0.5]},
    "sentiment_grid": {"model.p_U": [0.25, 0.5], "optim.weight_decay": [1e-6, 1e-5, 1e-4, 1e-3]},
}


def test_every_sweep_file_is_known_here():
    assert {file.stem for file in (CONFIGS / "sweep").glob("*.yaml")} == set(GRIDS)


@pytest.mark.parametrize("name", GRIDS)
def test_values_and_every_point_composes(name):
    content = yaml.safe_load((CONFIGS / "sweep" / f"{name}.yaml").read_text())
    assert content["hydra"]["mode"] == "MULTIRUN"
    params = content["hydra"]["sweeper"]["params"]
    assert {key: [float(value) for value in str(given).split(",")] for key, given in params.items()} == GRIDS[name]
    first, last = ([f"{key}={str(given).split(',')[end]}" for key, given in params.items()] for end in (0, -1))
    folders = {compose.run_dir(compose.compose([f"sweep={name}", *point])) for point in (first, last)}
    assert len(folders) == 2  # grid points do not collide


def test_the_papers_ties():
    tied = compose.compose(["sweep=dropout_grid", "model.p_U=0.3", "model.p_W=0.65"]).model
    assert (tied.p_E, tied.p_U, tied.p_W, tied.p_y) == (0.3, 0.3, 0.65, 0.65)
    all_tied = compose.compose(["sweep=sentiment_grid", "model.p_U=0.25"])
    assert {all_tied.model.p_E, all_tied.model.p_W, all_tied.model.p_U, all_tied.model.p_y} == {0.25}
    assert all_tied.task.hold_out == 0.1
    assert compose.compose(["sweep=moon", "model.p_c=0.6"]).model.p_W == 0.6


def test_only_validation_chooses():
    (grid,) = ranking.find_grids(variational_grid())
    assert [point.mean for point in grid.points] == [80, 85, 90, 99]
    assert grid.axes() == [("model.p_E", "model.p_U"), ("model.p_W", "model.p_y")]
    assert ranking.best_options(grid) == {"model.p_U": 0.1, "model.p_W": 0.5}  # tied ones follow


def test_test_values_alone_choose_nothing():
    points = [summary(metrics={"test_rmse": 0.1}, **{"model.p_U": p}) for p in (0.1, 0.3)]
    (grid,) = ranking.find_grids(points)
    assert grid.score == ""
    (grid,) = ranking.find_grids([*points, summary(valid=90.0, **{"model.p_U": 0.2})])
    assert grid.score == ""  # nor do values that some of the runs have


def test_choosing_on_test_values_is_for_authors_code_only_and_marked():
    metrics = ({"test_rmse": 0.2, "test_rmse_mc": 0.1}, {"test_rmse": 0.1, "test_rmse_mc": 0.2})
    points = [summary(metrics=m, protocol="authors_code", **{"model.p_U": p}) for m, p in zip(metrics, (0.1, 0.3))]
    (grid,) = ranking.find_grids(points)
    assert grid.score == "test_rmse_mc" and ranking.best_options(grid) == {"model.p_U": 0.1}
    assert "LEAKAGE" in ranking.best_yaml(grid) and "LEAKAGE" in ranking.ranking_table(grid).note
    validated = [summary(valid=v, protocol="authors_code", **{"model.p_U": p}) for v, p in ((9, 0.1), (8, 0.3))]
    (grid,) = ranking.find_grids(validated)
    assert grid.score == "valid_ppl" and "LEAKAGE" not in ranking.ranking_table(grid).note


def test_settings_are_compared_on_the_seeds_that_they_share():
    """As published records are: the mean of one lucky seed is no better than a mean of three."""
    points = [summary(2, 95, **{"model.p_U": 0.1})]
    points += [summary(seed, valid, **{"model.p_U": 0.3}) for seed, valid in ((1, 96), (2, 94.5), (3, 96))]
    (grid,) = ranking.find_grids(points)
    assert ranking.best_options(grid) == {"model.p_U": 0.3} and len(grid.points) == 2


def test_all_ranks_are_made_by_the_same_seeds():
    """If the common seeds were determined again after every rank, 0.5 would be third, and 0.3 before 0.1."""
    scores = {0.1: {1: 80, 2: 99}, 0.2: {1: 85, 2: 95}, 0.3: {1: 86, 2: 90}, 0.4: {1: 75}, 0.5: {2: 10}}
    scores[0.6] = {1: 70}
    points = [summary(s, v, **{"model.p_U": p}) for p, of_seed in scores.items() for s, v in of_seed.items()]
    (grid,) = ranking.find_grids(points)
    assert [grid.value(point, ("model.p_U",)) for point in grid.points] == [0.6, 0.4, 0.1, 0.2, 0.3, 0.5]
    note = ranking.ranking_table(grid).note
    assert "mean over seed 1; " in note and "come last" in note
    (grid,) = ranking.find_grids(points[:4])
    assert ranking.ranking_table(grid).note.startswith("Ranked by valid_ppl, mean over seeds 1, 2. ")
    assert "come last" not in ranking.ranking_table(ranking.find_grids(points[:-2])[0]).note


def test_the_heat_map_frames_the_first_rank(monkeypatch, tmp_path):
    """Though another cell shows a lower mean, over other seeds."""
    framed = []
    monkeypatch.setattr(heatmap, "draw_cells", lambda panel, cells, best: framed.append((cells.tolist(), best)))
    points = [summary(1, 80, **{"model.p_U": 0.1}), summary(2, 99, **{"model.p_U": 0.1})]
    (grid,) = ranking.find_grids([*points, summary(1, 81, **{"model.p_U": 0.2})])
    heatmap.draw_heatmap(grid, tmp_path)
    assert framed == [([[89.5, 81.0]], (0, 0))]


def test_seeds_are_averaged_and_an_unstable_seed_loses():
    points = [summary(1, 80, **{"model.p_U": 0.1}), summary(2, 90, **{"model.p_U": 0.1})]
    points += [summary(1, 86, **{"model.p_U": 0.3}), summary(2, 85.9, **{"model.p_U": 0.3})]
    points += [summary(1, 10, **{"model.p_U": 0.4}), summary(2, status="unstable", metrics={}, **{"model.p_U": 0.4})]
    (grid,) = ranking.find_grids(points)
    assert [grid.value(point, ("model.p_U",)) for point in grid.points] == [0.1, 0.3, 0.4]
    assert [str(point) for point in grid.points] == ["85 ± 7.07", "85.95 ± 0.0707", "unstable"]


def test_runs_that_differ_otherwise_are_another_grid():
    found = ranking.find_grids([*variational_grid(), summary(**{"optim.epochs": 3}), summary(**{"optim.lr": 0.5})])
    assert sorted(len(grid.points) for grid in found) == [1, 1, 4]
    swept = ranking.find_grids(
        [summary(valid=9, **{"optim.lr": 0.1}), summary(valid=8, **{"optim.lr": 0.5})], ["optim.lr"]
    )
    assert ranking.best_options(swept[0]) == {"optim.lr": 0.5}


def test_the_best_yaml_is_a_tuned_file():
    (grid,) = ranking.find_grids(variational_grid())
    text = ranking.best_yaml(grid)
    assert text.startswith("# @package _global_\n")
    assert yaml.safe_load(text) == {"model": {"p_U": 0.1, "p_W": 0.5}}
    words = shlex.split(ranking.next_command(grid))
    assert words[:3] == ["python", "run.py", "sweep=seeds"]
    assert config_identity(compose.compose(words[2:]))["model.p_y"] == 0.5


def test_rates_that_are_set_for_all_points_are_kept():
    """p_U and the weight decay are in GRID, but not swept here: the chosen run must have them too."""
    usual = {"model.p_U": 0.05, "optim.weight_decay": 1e-4}
    (grid,) = ranking.find_grids([summary(valid=90 + p, **usual, **{"model.p_W": p}) for p in (0.2, 0.3)])
    assert "model.p_U=0.05" in grid.title
    chosen = yaml.safe_load(ranking.best_yaml(grid))
    assert chosen["model"]["p_U"] == 0.05 and chosen["optim"]["weight_decay"] == 1e-4 and chosen["model"]["p_W"] == 0.2
    options = config_identity(compose.compose(shlex.split(ranking.next_command(grid))[2:]))
    assert {key: options[key] for key in usual} == usual and options["model.p_W"] == 0.2


def test_a_heat_map_can_have_a_value_that_is_not_set():
    assert heatmap.in_order([2, None, 0.5, 2]) == [0.5, 2, None]


def test_heat_map_marks_the_best_cell(tmp_path, monkeypatch):
    painted = []
    real = heatmap.draw_cells
    monkeypatch.setattr(heatmap, "draw_cells", lambda *given: (painted.append(given), real(*given)))
    (grid,) = ranking.find_grids(variational_grid())
    files = heatmap.draw_heatmap(grid, tmp_path)
    assert [file.suffix for file in files] == [".pdf", ".png"] and all(file.stat().st_size > 1000 for file in files)
    ((panel, cells, _),) = painted
    assert cells.tolist() == [[90, 85], [80, 99]]  # p_U across, p_W down
    assert panel.get_title() == "pydoc tiny variational_untied\nvalid_ppl"
    (frame,) = panel.patches
    assert (frame.get_x(), frame.get_y()) == (-0.48, 0.52)  # column 0, row 1
    bold = [text.get_text() for text in panel.texts if text.get_weight() == "bold"]
    assert bold == ["80"]


def test_summary_of_real_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for p_U in (0.1, 0.5):
        make_run(f"model.p_U={p_U}", "mc.samples=0")
    stopped, failed = (make_run(f"model.p_U={p_U}", "mc.samples=0") for p_U in (0.3, 0.4))
    for run in (stopped, failed):
        (run / "summary.json").unlink()  # as if killed before the end
    (failed / "error.txt").write_text("\n".join(f"line {i}" for i in range(9)))
    done = python("scripts/sweep_summary.py", folder=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "| 2 |" in done.stdout and "| 3 |" not in done.stdout
    assert f"stopped: {stopped}" in done.stdout and f"failed: {failed}" in done.stdout
    assert "line 8" in done.stdout and "line 3" not in done.stdout
    again = [line.split("again: python run.py ")[1] for line in done.stdout.splitlines() if "again:" in line]
    repeated = [compose.compose(shlex.split(words)) for words in again]
    assert {compose.run_dir(one) for one in repeated} == {stopped, failed}
    assert {one.mc.samples for one in repeated} == {0}
    (best,) = (tmp_path / "runs" / "summary" / "best").iterdir()
    assert "p_U" in best.read_text()


def test_a_running_run_is_distinguished(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = make_run("mc.samples=0")
    assert not unfinished_runs(tmp_path)
    (run / "summary.json").unlink()
    with (run / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert [one.status for one in unfinished_runs(tmp_path)] == ["running"]
    assert [one.status for one in unfinished_runs(tmp_path)] == ["stopped"]


def test_a_missing_folder_is_one_clear_error(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        list(ranking.load_summaries(tmp_path / "nothing"))


def test_a_broken_file_is_named_and_the_others_are_read(tmp_path, capsys):
    (tmp_path / "a.json").write_text('{"choices": ')
    (tmp_path / "b.json").write_text(json.dumps(summary()))
    assert len(list(ranking.load_summaries(tmp_path))) == 1
    assert f"left out: {tmp_path / 'a.json'}: not readable" in capsys.readouterr().err


def test_runs_with_unknown_choices_are_listed_too(tmp_path, monkeypatch):
    """As with --config-dir: a choice that configs/ does not have."""
    monkeypatch.chdir(tmp_path)
    run = make_run("mc.samples=0")
    (run / "summary.json").unlink()
    for name, old, new in (("mine", "name: variational", "name: mine_"), ("torn", "task:", "task: [")):
        (tmp_path / "runs" / name).mkdir()
        text = (run / "config.yaml").read_text()
        assert old in text
        (tmp_path / "runs" / name / "config.yaml").write_text(text.replace(old, new))
    (usual,) = (one for one in unfinished_runs(tmp_path) if one.failure.folder == str(tmp_path / run))
    assert usual.failure.command.startswith("python run.py ")
    assert usual.failure.last_lines[0].startswith("epoch 2: valid ppl ")
    mine, torn = (one.failure for one in unfinished_runs(tmp_path) if one.failure.folder != str(tmp_path / run))
    assert mine.command.startswith("the same command as before, with its --config-dir (task=text")
    assert mine.last_lines == ["no epoch finished yet"]
    assert torn.command == "the same command as before"


def test_an_unknown_model_names_every_option_of_an_axis():
    (grid,) = ranking.find_grids(variational_grid())
    grid.choices["model"] = "mine"
    assert ranking.best_options(grid) == {"model.p_E": 0.1, "model.p_U": 0.1, "model.p_W": 0.5, "model.p_y": 0.5}


def test_a_grid_with_a_long_name_is_shown_too():
    options = {f"optim.{key}": 0.123456789 for key in ("lr", "decay", "clip")}
    texts = {f"task.{split}": "/".join(["folder" * 5] * 4) for split in ("train", "valid", "test")}
    (grid,) = ranking.find_grids([summary(**options, **{"model.p_U": p}) for p in (0.1, 0.2)])
    grid.fixed |= texts
    chosen, _, digest = grid.name.partition("~")
    assert len(grid.name) <= 80 and "/" not in grid.name and len(digest) == 8
    assert all(f"{key}={value}" in ranking.ranking_table(grid).document() for key, value in grid.fixed.items())
    assert all(f"{key}={value}" in ranking.best_yaml(grid) for key, value in grid.fixed.items())
    first, grid.fixed["optim.lr"] = grid.name, 0.5
    assert grid.name.startswith(f"{chosen}~") and grid.name != first


def test_the_heat_maps_of_two_grids_are_two_files(tmp_path):
    rates = [summary(**{"optim.lr": lr, "model.p_U": p}) for lr in (0.5, 0.7) for p in (0.1, 0.2)]
    files = [file.name for grid in ranking.find_grids(rates) for file in heatmap.draw_heatmap(grid, tmp_path)]
    assert len(set(files)) == 4 and any(name.endswith("0.5.png") for name in files)


def test_the_next_command_can_be_pasted():
    (grid,) = ranking.find_grids(variational_grid())
    grid.fixed |= {"task.train": "my texts/a,b.txt", "task.hold_out": 0.1}
    words = shlex.split(ranking.next_command(grid))
    assert not any("hold_out" in word for word in words)  # the chosen model is trained on everything
    assert "task.train='my texts/a,b.txt'" in words and "model.p_U=0.1" in words
    assert not any("runs_root" in word for word in words)
    assert "runs_root='my runs'" in shlex.split(ranking.next_command(grid, "my runs"))
    grid.choices["model"] = "mine"
    assert ranking.next_command(grid).endswith("(with the same --config-dir as before)")


def test_command_repeats_the_run_exactly():
    words = ["task=text", "task.train='a b.txt'", "model=moon", "model.p_c=0.4", "optim=no_decay", "seed=3"]
    made = compose.compose([*words, "mc.samples=7", "runs_root=elsewhere", "threads=1", "device=cpu"])
    assert compose.compose(shlex.split(run_command(made))[2:]) == made
    for folder in ("my runs/one", "jürgen/lr=1", "true", "1e3", "null", "a~(b),'c'", "a\\b c\\", "\\'"):
        made = replace(compose.compose(words), run_dir=folder)
        assert compose.compose(shlex.split(run_command(made))[2:]) == made, folder


def test_scaling_of_masks_can_be_swept():
    """It is left out of a run's identity only where nothing is dropped."""
    sweep = {"sweeper": {"params": {"task.scaling": "inverted,retain"}}, "overrides": {"task": []}}
    assert plan.non_identity_key(OmegaConf.create({"hydra": sweep, "task": {}})) is None
    sweep["sweeper"]["params"] = {"threads": "1,2"}
    assert "threads: " in plan.non_identity_key(OmegaConf.create({"hydra": sweep, "task": {}}))


def test_the_grids_of_sentiment_are_those_of_the_table():
    """Every point of the three files, for both cells, is a run that the selection table waits for."""
    from varrnn.config.identity import identity_of
    from varrnn.reproduction.artefact import experiment

    wanted = {str(identity_of(run)) for run in experiment("selection").ARTEFACT.runs}
    made = set()
    for name in ("sentiment_grid", "sentiment_naive", "sentiment_no_recurrent"):
        keys = GRIDS[name]
        for cell, *values in itertools.product(("lstm", "gru"), *keys.values()):
            point = tuple(f"{key}={value:g}" for key, value in zip(keys, values))
            made.add(str(identity_of((f"sweep={name}", f"cell={cell}", *point))))
    assert made == wanted and len(made) == 24
