"""Figures: reproducible files, panels without data, legends with the number of seeds."""

import numpy as np
import pytest
from helpers import records as synthetic
from matplotlib.colors import to_rgb

from varrnn.records.store import Records, load
from varrnn.reporting.style import VARIANTS, sweep
from varrnn.reproduction.figures import (
    Panel,
    batch_curve,
    collect_figures,
    curve_figure,
    decorate,
    error_panel,
    figure,
    history_curve,
    loss_panel,
    plot_curves,
    sweep_curves,
    variant_curves,
)
from varrnn.reproduction.perplexity_figures import learning_curve_figure, validation_panel
from varrnn.reproduction.runs import language_model, sentiment

RUNS = {model: language_model("medium", model) for model in ("naive", "variational_tied")}


@pytest.fixture
def records(tmp_path) -> Records:
    contents = [c for c in synthetic.table1_records("medium") if c["choices"]["model"] == "naive"]
    return load(synthetic.save(contents, tmp_path / "records"))


def words(axes) -> str:
    return " ".join(text.get_text() for text in axes.texts)


def labels(axes) -> list[str]:
    return axes.get_legend_handles_labels()[1]


@pytest.mark.slow
def test_partial_evidence_is_named_in_the_legend(records: Records, tmp_path) -> None:
    with figure(tmp_path, "x") as (panels, files):
        drawn = plot_curves(panels[0], records, variant_curves(RUNS), history_curve("valid_ppl_authors"))
        decorate(panels[0], "a title", ylabel="perplexity")
        assert labels(panels[0]) == ["Naive dropout (n=3)"]
        assert len(drawn) == 1 and drawn[0].n == 3 and len(panels[0].collections) == 1  # one band
    assert all(path.is_file() for path in files)


def test_a_figure_has_data_only_if_it_shows_a_record(tmp_path) -> None:
    """A run that only a claim needs is not shown."""
    shown, other = sentiment("naive"), sentiment("none")
    panel = Panel(error_panel, variant_curves({"naive": shown}), "a title")
    artefact = curve_figure("figure99.py", "Figure 99", panel, runs=(other,))
    of_other, of_shown = (
        load(synthetic.save([synthetic.sentiment_run(run, 1, 10)], tmp_path / str(n)))
        for n, run in enumerate((other, shown))
    )
    assert not artefact.has_data(of_other) and artefact.has_data(of_shown)
    assert set(artefact.runs) == {shown, other}


def test_an_empty_panel_names_the_command(tmp_path) -> None:
    with figure(tmp_path, "x") as (panels, _):
        assert plot_curves(panels[0], Records(), variant_curves(RUNS)) == []
        text = words(panels[0]).replace("\n", " ")
        assert "not run" in text
        assert "python run.py -m experiment=ptb_medium model=variational_tied,naive seed=1,2,3" in text
        assert not panels[0].lines


def zooms(contents, folder) -> list:
    """The insets of the panel of validation perplexities, with a published value for each model."""
    records = load(synthetic.save(contents, folder / "records"))
    groups = {model: records.group(run) for model, run in RUNS.items()}
    with figure(folder, "x") as (panels, _):
        validation_panel(panels[0], groups, RUNS, "valid_ppl", "a title", {"naive": 500.0, "variational_tied": 90.0})
        return [(inset.get_xlim(), inset.get_ylim()) for inset in panels[0].child_axes]


@pytest.mark.slow
def test_the_panel_ends_above_its_highest_value(tmp_path) -> None:
    """Unless the first epochs are more than about three times the lowest value."""
    content = synthetic.table1_records("medium")[0]
    for number, (first, expected) in enumerate(((200.0, 210.0), (900.0, 320.0))):
        content["history"] = {"epoch": [1, 2, 3], "valid_ppl": [first, 100.0, 110.0]}
        records = load(synthetic.save([content], tmp_path / f"records{number}"))
        runs = {content["choices"]["model"]: language_model("medium", content["choices"]["model"])}
        with figure(tmp_path, "x") as (panels, _):
            validation_panel(panels[0], {m: records.group(run) for m, run in runs.items()}, runs, "valid_ppl", "title")
            assert panels[0].get_ylim()[1] == pytest.approx(expected)


@pytest.mark.slow
def test_last_epochs_are_zoomed_where_a_curve_has_its_minimum(tmp_path) -> None:
    """A model that was stopped early has no part in the range of the inset, nor has its published value."""
    early, late = (
        next(c for c in synthetic.table1_records("medium") if c["choices"]["model"] == model) for model in RUNS
    )
    early["history"] = {"epoch": [1, 2, 3, 4, 5], "valid_ppl": [200.0, 100.0, 110.0, 150.0, 200.0]}
    late["history"] = {"epoch": list(range(1, 21)), "valid_ppl": [200.0 - 5 * epoch for epoch in range(1, 21)]}
    assert zooms([early], tmp_path / "early") == []
    [((start, end), (low, high))] = zooms([early, late], tmp_path / "both")
    assert (start, end) == (12, 20) and 85 < low < 90 and 140 < high < 145


@pytest.mark.slow
def test_unstable_runs_are_counted_in_the_legend(tmp_path) -> None:
    contents = [c for c in synthetic.table1_records("medium") if c["choices"]["model"] == "naive"]
    contents[1] |= {"status": "unstable"}
    records = load(synthetic.save(contents, tmp_path / "records"))
    with figure(tmp_path, "x") as (panels, _):
        plot_curves(panels[0], records, variant_curves({"naive": RUNS["naive"]}), history_curve("valid_ppl_authors"))
        assert labels(panels[0]) == ["Naive dropout (n=2, 1 unstable)"]


@pytest.mark.slow
def test_files_are_the_same_each_time(records: Records, tmp_path) -> None:
    contents = []
    for folder in ("one", "two"):
        with figure(tmp_path / folder, "x") as (panels, files):
            plot_curves(panels[0], records, variant_curves(RUNS), history_curve("valid_ppl_authors"))
            decorate(panels[0])
        contents.append([path.read_bytes() for path in files])
    assert contents[0] == contents[1]


@pytest.mark.slow
def test_reference_lines_come_from_the_records(tmp_path) -> None:
    run = sentiment("naive")
    records = load(synthetic.save([synthetic.sentiment_run(run, seed) for seed in (1, 2)], tmp_path / "records"))
    with figure(tmp_path, "x") as (panels, _):
        error_panel(panels[0], records, variant_curves({"naive": run}), "title")
        assert labels(panels[0]) == ["Naive dropout (n=2)", "mean rating 0.1915", "ridge regression 0.152"]


def test_train_loss_is_thinned_to_about_a_hundred_points(tmp_path) -> None:
    run = sentiment("naive")
    records = load(synthetic.save([synthetic.sentiment_run(run, 1, epochs=100)], tmp_path / "records"))
    curve = batch_curve(records.group(run))
    assert 90 <= len(curve.epochs) <= 110 and 8000 < curve.epochs[-1] < 8300  # 83 batches an epoch
    with figure(tmp_path, "x") as (panels, _):
        plot_curves(panels[0], records, variant_curves({"naive": run}), batch_curve)
        assert panels[0].lines[0].get_marker() == "None"  # evenly spaced: a line, no points


def test_train_losses_of_seeds_with_other_epochs_are_at_their_batches(tmp_path) -> None:
    """A longer run is recorded with fewer points per epoch."""
    run = sentiment("naive")
    contents = [synthetic.sentiment_run(run, seed, epochs) for seed, epochs in ((1, 40), (2, 100))]
    for content, (every, points) in zip(contents, ((4, 830), (9, 922))):
        middles = (np.arange(points) + 0.5) * every
        content["batches"] = {"train_loss": (1 - middles / 10000).tolist(), "every": every}
    curve = batch_curve(load(synthetic.save(contents, tmp_path / "records")).group(run))
    assert curve.n == 2 and len(curve.epochs) == 100 and 3290 < curve.epochs[-1] < 3320
    np.testing.assert_allclose(curve.mean, 1 - curve.epochs / 10000, atol=4e-4)
    assert curve.std.max() < 5e-4


def test_variants_are_distinguished() -> None:
    assert len({look.colour for look in VARIANTS.values()}) == len(VARIANTS)
    assert len({look.order for look in VARIANTS.values()}) == len(VARIANTS)
    assert len({look.label for look in VARIANTS.values()}) == len(VARIANTS)


def test_a_sweep_goes_from_dark_to_light() -> None:
    looks = list(sweep(["0", "0.1", "0.2", "0.5"]).values())
    lightness = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (to_rgb(look.colour) for look in looks)]
    assert lightness == sorted(lightness) and max(lightness) < 0.75
    assert [look.label for look, _ in sweep_curves({"0": RUNS["naive"], "0.5": RUNS["naive"]}, "p_U").values()] == [
        "p_U=0",
        "p_U=0.5",
    ]


def test_panels_without_a_record_are_left_out(records, tmp_path) -> None:
    """All panels are drawn while none has a record; the panel of MC dropout needs a run with MC dropout."""
    runs = (RUNS["naive"], RUNS["variational_tied"])
    panels = [Panel(loss_panel, variant_curves({"naive": run}), "title") for run in runs]
    curves = curve_figure("figure99.py", "title", *panels)
    learning = learning_curve_figure("figure98.py", "title", "medium", "title", "valid_ppl", height=2.0)
    for artefact in (curves, learning):
        for given, count in ((records, 1), (Records(), 2)):
            with collect_figures() as figures:
                artefact.render(given, tmp_path)
            assert len([axes for axes in figures[0].axes if axes.get_title()]) == count
