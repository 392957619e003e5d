"""Tables: the three formats, full, partial and empty evidence, and that what is committed is what the records give."""

import csv
import io
import runpy

import matplotlib.pyplot as plt
import pytest
from helpers import ROOT
from helpers import records as synthetic

from varrnn.benchmark import library
from varrnn.benchmark.chart import LABELS, draw_speeds
from varrnn.errors import UserError
from varrnn.records.store import Group, Records, load
from varrnn.reporting.table import DASH, Table
from varrnn.reproduction.artefact import experiment, names
from varrnn.reproduction.claims import judge_all
from varrnn.reproduction.machines import name_libraries
from varrnn.reproduction.readme import (
    begin_marker,
    end_marker,
    medium_part,
    readme_section,
    replace_section,
    results_section,
)
from varrnn.reproduction.runs import language_model
from varrnn.reproduction.tables import difference, mc_cell, mean_sd, seeds_cell, thousands


def rows(table: Table) -> dict[str, dict[str, list[str]]]:
    """label -> column -> cells."""
    found: dict[str, dict[str, list[str]]] = {}
    for row in table.rows:
        cells: dict[str, list[str]] = {}
        for column, cell in zip(table.columns, row):
            cells.setdefault(column, []).append(cell)
        found[row[0]] = cells
    return found


def test_three_formats(tmp_path) -> None:
    table = Table("x", "A title", ("Model", "valid_ppl"), [("a & b", "81.8 ± 0.2"), ("c", DASH)], "A note.")
    written = table.write(tmp_path)
    assert [path.suffix for path in written] == [".md", ".tex", ".csv"]
    assert "| a & b | 81.8 ± 0.2 |" in written[0].read_text() and "A note." in written[0].read_text()
    assert r"a \& b & 81.8 $\pm$ 0.2 \\" in written[1].read_text() and r"valid\_ppl" in written[1].read_text()
    assert list(csv.reader(io.StringIO(written[2].read_text())))[1] == ["a & b", "81.8 ± 0.2"]


def test_mc_cells_count_the_runs_that_have_mc_and_leave_the_ablation_out(records_of) -> None:
    run = language_model("medium", "variational_untied")
    contents = [synthetic.language_run(run, seed, 81.9, 79.7, mc, 39) for seed, mc in ((1, 78.6), (2, None), (3, 70.0))]
    contents[2]["mc"] = {"samples": 1000, "word_dropout": True}
    records = records_of(contents)
    assert mc_cell(records.group(run)) == "78.6 (n=1)"
    medium, _ = experiment("table1").tables(records)
    plain, mc = (rows(medium)[f"Variational (untied weights{kind})"] for kind in ("", ", MC"))
    assert (plain["n"], mc["n"], mc["test, ours"]) == (["3"], ["1"], ["78.6"])
    assert mc["difference, test"][0].strip("+-") == "0.0"


def test_table1_with_the_papers_numbers(records_of) -> None:
    table1 = experiment("table1")
    medium, large = table1.tables(records_of(synthetic.table1_records("medium")))
    row = rows(medium)["Variational (untied weights)"]
    assert row["valid, ours"] == ["81.9 ± 0.1"] and [
        row[f"difference, {part}"][0].strip("+-") for part in ("valid", "test")
    ] == ["0.0", "0.0"]
    assert row["valid, ours (exact)"] == ["83.1 ± 0.1"] and row["n"] == ["3"] and row["words/s, ours"] == ["4.8K"]
    assert row["hardware"] == ["Example CPU, 2 threads"]
    moved = synthetic.table1_records("medium")
    for record in moved:
        record["hardware"] = {"cpu": "Example CPU", "gpu": "Example GPU", "earlier": ["cuda, Older GPU"]}
        record["hardware"]["precision"] = "high"
    row = rows(table1.tables(records_of(moved))[0])["Variational (untied weights)"]
    assert row["hardware"] == ["Example GPU, precision high; started on cuda, Older GPU"]
    assert row["words/s, ours"] == ["–"]
    assert rows(medium)["Variational (untied weights, MC)"]["test, ours"] == ["78.6 ± 0.1"]
    assert rows(large)["Variational (untied weights)"]["test, ours"] == ["not run"]
    assert rows(large)["Variational (untied weights, MC)"]["valid / test, corrected"] == ["73.3"]


def test_table1_counts_unstable_runs(records_of) -> None:
    contents = synthetic.table1_records("medium")
    contents = [c | {"status": "unstable", "metrics": {}} if c["seed"] == 2 else c for c in contents]
    medium = experiment("table1").tables(records_of(contents))[0]
    assert rows(medium)["Moon et al."]["n"] == ["2 (1 unstable)"]


def test_mc_with_few_samples_says_so(records_of) -> None:
    contents = [synthetic.language_run(language_model("medium", "variational_tied"), 1, 82.0, 80.0, 79.0)]
    contents[0]["metrics"]["mc_samples"] = 50
    medium = experiment("table1").tables(records_of(contents))[0]
    assert rows(medium)["Variational (tied weights, MC)"]["test, ours"] == ["79.0 (50 samples)"]


def test_the_small_table_has_published_baselines_and_the_chosen_rates(records_of) -> None:
    run = language_model("small", "variational_untied", "model.p_U=0.05", "model.p_W=0.15")
    contents = [
        synthetic.language_run(language_model("small", "variational_untied"), 1, 97.0, 93.0, 92.0, 22),
        synthetic.language_run(run, 1, 96.0, 94.0, 93.0, 22),
    ]
    records = records_of(contents)
    row = rows(experiment("small").table(records))["Variational (untied)"]
    assert (
        row["dropout rates"] == ["p_E=0.05 p_W=0.15 p_U=0.05 p_y=0.15"]
        and row["test"] == ["94.0"]
        and row["epochs"] == ["22"]
    )
    table = experiment("small").table(records)
    assert rows(table)["Inan et al. 2016, VD-LSTM"]["test"] == ["87.3"]
    assert rows(table)["Naive dropout"]["valid"] == ["not run"]
    assert row["grid"] == ["2 of 4, corner"] and rows(table)["Naive dropout"]["grid"] == ["0 of 3"]
    grid = experiment("small_grid").table(records)
    assert sorted(row[6] for row in grid.rows) == ["**97.44** (corner)", "98.45"]
    assert not any("words/s" in column for column in table.columns)  # the runs shared their machine


@pytest.mark.parametrize(("rate", "corner"), [(0.15, True), (0.25, False), (0.35, True)])
def test_a_chosen_rate_at_the_edge_of_its_grid_is_a_corner(records_of, rate, corner) -> None:
    run = language_model("small", "naive", f"model.p_W={rate}")
    records = records_of([synthetic.language_run(run, 1, 97.0, 93.0)])
    row = rows(experiment("small").table(records))["Naive dropout"]
    assert row["grid"] == [f"1 of 3{', corner' if corner else ''}"]
    grid = experiment("small_grid").table(records)
    assert any("(corner)" in cell for row in grid.rows for cell in row) is corner


def test_selection_table_uses_held_out_reviews_only(records_of) -> None:
    selection = experiment("selection")
    contents = []
    first, second, third, *_ = selection.grid()
    lucky = (first, 2, 0.11)  # a seed that the others do not have
    for run, seed, level in ((first, 1, 0.17), lucky, (second, 1, 0.15), (third, 1, 0.16)):
        content = synthetic.sentiment_run(run, seed, 100)
        epochs = content["history"]["epoch"]
        content["history"] |= {"valid_rmse_mc": [level] * len(epochs), "test_rmse_mc": [1 - level] * len(epochs)}
        contents.append(content)
    contents.append(synthetic.sentiment_run(first[:-1], 1, 100))  # not held out
    fourth = selection.grid()[3]
    for run in ((*first[:-1], "task.hold_out=0.2"), (*first, "task.steps=50"), (*first, "optim.decay_rule=one_gate")):
        contents.append(synthetic.sentiment_run(run, 1, 100))  # not comparable
        contents[-1]["history"]["valid_rmse_mc"] = [0.01] * 100
    for run, level, length in (((*first, "task.scaling=inverted"), 0.13, 100), (selection.extra_runs()[0], 0.12, 100),
                               (fourth, 0.11, 10)):  # fmt: skip
        trial = synthetic.sentiment_run(run, 1, length)
        trial["history"]["valid_rmse_mc"] = [level] * length
        contents.append(trial)
    table = selection.table(records_of(contents))
    assert [[*row[7:9], row[-1]] for row in table.rows] == [
        ["inverted", "0.1300", "additional"],  # not in the grid: not used for the choice
        ["retain", "0.1200", "additional"],  # without the recurrent mask
        ["retain", "0.1400", "grid"],
        ["retain", "**0.1500**", "grid"],
        ["retain", "0.1600", "grid"],
        ["retain", "0.1100", "grid"],  # too short to choose
    ]


def test_selection_compares_the_same_epochs(records_of) -> None:
    """A longer run is compared at the epoch at which the others end."""
    selection = experiment("selection")
    first, second, *_ = selection.grid()
    contents = [synthetic.sentiment_run(run, 1, length) for run, length in ((first, 20), (second, 40))]
    contents[0]["history"]["valid_rmse_mc"] = [0.15] * 20
    contents[1]["history"]["valid_rmse_mc"] = [0.17] * 18 + [0.16] * 2 + [0.14] * 20
    table = selection.table(records_of(contents))
    assert [row[8] for row in table.rows] == ["**0.1500**", "0.1600"]
    assert len(selection.grid()) == 20 and len(selection.extra_runs()) == 4
    epochs = {dict(word.split("=", 1) for word in run)["optim.epochs"] for run in selection.ARTEFACT.runs}
    assert epochs == {"20"}


def test_ensemble_table(records_of) -> None:
    contents = [
        synthetic.ensemble("large", "variational_untied", 10, 68.9),
        synthetic.ensemble("small", "naive", 3, 95.0),
    ]
    table = experiment("ensemble").table(records_of(contents))
    assert ["large", "10", "68.7", "68.9", "69.5", "not run"] in [list(row) for row in table.rows]
    assert ["small", "3", DASH, DASH, DASH, "95.0"] in [list(row) for row in table.rows]


def test_speed_table() -> None:
    speed = experiment("speed")
    table = speed.table(Records(benchmarks=(synthetic.benchmark(),)))
    rows = [list(row) for row in table.rows]
    assert ["medium: untied / tied (the paper's GPU: 0.57)", "0.99"] in rows
    assert ["large: untied / tied (the paper's GPU: 0.67)", "0.99"] in rows
    assert ["medium: several runs with one thread each / one run with all threads", "1.07"] in rows
    assert not any(row[0].startswith("large: several runs") for row in rows)  # not measured
    assert "Not run" in speed.table(Records()).note


def test_every_processor_has_its_column() -> None:
    """Machines of one name are distinguished by instructions and caches; early records have the name only."""
    first, second = synthetic.benchmark(), synthetic.benchmark()
    second["machine"] |= {"instructions": "AVX2", "caches": {"l1_kb": 32, "l2_kb": 512, "l3_kb": 32768}}
    del second["large"]
    second["medium"] |= {"variational_tied": 700, "nn_lstm": 1000}
    table = experiment("speed").table(Records(benchmarks=(first, second)))
    assert tuple(table.columns) == ("", "A", "B")
    cells = {row[0]: row[1:] for row in table.rows}
    assert [cell.split()[0] for cell in cells["medium: ours, variational tied"]] == ["1,400", "700"]
    assert (
        cells["medium: ours, variational tied"][1] == "700 (0.70)"
        and cells["medium: nn.LSTM, ordinary dropout"][1] == "1,000"
    )
    assert (
        cells["large: ours, variational tied"][0].startswith("350")
        and cells["large: ours, variational tied"][1] == DASH
    )
    assert "A: cpu Example CPU, cores 2" in table.note and "B: cpu Example CPU, instructions AVX2" in table.note
    assert "L3 32768 KB" in table.note and len({len(row) for row in table.rows}) == 1


def test_speed_chart_has_the_same_rows_in_every_panel_and_a_marker_for_each_machine() -> None:
    """Only the first panel has labels; a machine that did not measure a size has no marker there."""
    record = synthetic.benchmark()
    record["sentiment"] = record["medium"] | {"paper_gru": 1500, "authors_code_gru": 1500}
    other = {"medium": record["medium"] | {"moon": 10 * record["medium"]["nn_lstm"]}}
    figure, panels = plt.subplots(1, 2)
    draw_speeds(list(panels), {"A": record, "B": other}, ["medium", "sentiment"])
    labels = [text.get_text() for text in panels[0].get_yticklabels()]
    assert labels == [LABELS[key] for key in LABELS if key in record["medium"] and key != "nn_lstm"]
    assert [axes.get_yticklabels()[0].get_text() for axes in panels] == [labels[0], ""]
    drawn = [[points.get_offsets() for points in axes.collections] for axes in panels]
    assert [[len(points) for points in own] for own in drawn] == [[len(labels)] * 2, [len(labels)]]
    moon = labels.index(LABELS["moon"])
    assert list(drawn[0][1][moon]) == [10, moon] and panels[0].get_xlim()[1] > 10
    plt.close(figure)


def test_library_table() -> None:
    """A row per processor, number of threads and shape, with the ratios of each cell or a dash."""
    ratios = dict(zip(library.COLUMNS, (1.04, 1.02, 0.951, 1.1), strict=True))
    first, second = library.choose_rows("", 2)[0], library.choose_rows("gru T1,B256", 2)[1]
    record = {"machine": synthetic.benchmark()["machine"] | {"threads": 2}}
    record["library"] = {row.name: {"ratio": ratios} for row in (first, second)}
    table = experiment("library").table(Records(libraries=(record,)))
    shown, rows = "1.04 / 1.02 / .95 / 1.10", [list(row) for row in table.rows]
    assert rows == [
        ["A", "1", "T50, B64, I64, H64", shown, DASH, DASH],
        ["A", "2", "T1, B256, I128, H128", DASH, shown, DASH],
    ]
    assert "A: cpu Example CPU, cores 2, threads 2" in table.note
    assert "Not run" in experiment("library").table(Records()).note


def test_a_machine_has_the_same_letter_in_both_speed_tables() -> None:
    names = {"avx2": {"instructions": "AVX2"}, "avx512": {"instructions": "AVX512"}, "other": {"instructions": "none"}}
    machines = {name: {"machine": synthetic.benchmark()["machine"] | more} for name, more in names.items()}
    benchmarks, libraries = ("avx2", "avx512"), ("avx512", "other")
    found = name_libraries([machines[name] for name in libraries], [machines[name] for name in benchmarks])
    assert {letter: one["machine"]["instructions"] for letter, one in found.items()} == {"B": "AVX512", "C": "none"}


def test_cells() -> None:
    assert mean_sd(Group(), "x") == "not run" and seeds_cell(Group(unstable=1)) == "0 (1 unstable)"
    assert difference(Group(), "x", 3.0) == DASH and thousands(4700) == "4.7K"


@pytest.mark.slow
def test_readme_section(records_of) -> None:
    records = records_of([*synthetic.table1_records("medium"), synthetic.benchmark()])
    modules = {name: experiment(name) for name in names()}
    text = readme_section(modules, records, judge_all(records))
    assert "| Variational (tied weights) | 81.8 ± 0.2 | 81.8 ± 0.1 |" in text and "large model" in text
    detail = results_section(modules, records, judge_all(records))
    assert "Words per second" in detail and "python experiments/figure3.py --missing" in detail
    assert "figure3.png" not in detail
    empty = results_section(modules, Records(), judge_all(Records()))
    assert "not run" in empty and "![" not in empty


@pytest.mark.slow
def test_readme_shows_figure3_when_it_is_complete(records_of) -> None:
    modules = {name: experiment(name) for name in names()}
    contents = [synthetic.sentiment_run(run, 1, 100) for run in modules["figure3"].ARTEFACT.runs]
    for made, shown in ((contents[:-2], False), (contents, True)):
        records = records_of(made)
        assert ("(results/figures/figure3.png)" in readme_section(modules, records, judge_all(records))) is shown


def test_readme_shows_the_medium_curves_once_two_variants_can_be_compared(records_of) -> None:
    module = experiment("learning_curves_medium")
    none, untied = (language_model("medium", model) for model in ("none", "variational_untied"))
    alone = synthetic.language_run(none, 1, 121.1, 121.7, epochs=11)
    assert medium_part(module, records_of([alone])) == []
    for mc in (None, 78.6):
        (shown,) = medium_part(module, records_of([alone, synthetic.language_run(untied, 1, 81.9, 79.7, mc)]))
        assert "learning_curves_medium.png" in shown and ("number of samples" in shown) is bool(mc)


def test_readme_markers() -> None:
    old = f"# title\n{begin_marker('x')}\nold\n{end_marker('x')}\nrest\n"
    new = replace_section(old, "x", "new")
    assert new == f"# title\n{begin_marker('x')}\nnew\n{end_marker('x')}\nrest\n"
    assert replace_section(new, "x", "new") == new
    with pytest.raises(UserError, match="once each"):
        replace_section("no markers", "x", "new")


@pytest.mark.slow
def test_committed_tables_claims_and_readme_are_what_the_records_give() -> None:
    find_outdated = runpy.run_path(str(ROOT / "scripts" / "make_results.py"))["find_outdated"]
    stale = [str(path.relative_to(ROOT)) for path in find_outdated(load())]
    assert not stale, f"run `make paper`: {', '.join(stale)}"
