"""Titles and labels of figures agree with the runs of their curves."""

import re

import pytest
from matplotlib.figure import Figure

from varrnn.config.identity import identity_of
from varrnn.records.store import Records
from varrnn.reporting.style import VARIANTS
from varrnn.reproduction import figures
from varrnn.reproduction.artefact import experiment
from varrnn.reproduction.report import charts

NAMES = {"p_E": "model.p_E", "p_U": "model.p_U", "p": "model.p_W", "T": "task.steps", "λ": "optim.weight_decay"}
PANELS = {3: 3, 4: 3, 5: 1, 6: 2, 7: 1, 8: 1, 9: 2, 10: 2, 11: 1, 12: 2, 13: 1, 14: 1, 15: 1}
CURVES = {3: 3, 4: 4, 5: 6, 6: 4, 7: 4, 8: 6, 9: 4, 10: 3, 11: 2, 12: 8, 13: 3, 14: 3, 15: 4}  # of the first panel


@pytest.mark.costly(4)
@pytest.mark.parametrize("number", PANELS)
def test_curves_are_what_they_are_called(number, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(figures, "plot_curves", lambda axes, records, curves, of: seen.append((axes, curves, of)))
    with figures.collect_figures():  # drawn, and not saved
        experiment(f"figure{number}").ARTEFACT.render(Records(), tmp_path)
    assert len(seen) == PANELS[number] and len(seen[0][1]) == CURVES[number]
    for axes, curves, of in seen:
        title = axes.get_title().replace("$", "")
        assert ("approximation" not in title) or of not in (figures.error_curve, figures.batch_curve)
        assert ("MC" not in title) or of in (figures.error_curve, figures.train_curve)
        for look, run in curves.values():
            options = identity_of(run).options
            said = re.findall(r"\b(p_E|p_U|p|T|λ)=([\d.e-]+)", f"{title} {look.label}")
            assert [options[NAMES[name]] for name, _ in said] == [float(value) for _, value in said], (
                title,
                look.label,
            )
            assert options["cell"] == ("gru" if "GRU" in title else "lstm")
            assert options["optim.decay_rule"] == ("one_gate" if "one gate" in title else "all")
            known = [model for model, other in VARIANTS.items() if other.label == look.label]
            assert not known or options["model.name"] == known[0]


def test_a_point_outside_the_range_shown_is_marked():
    axes = Figure().subplots()
    axes.plot([1, 2, 3, 4], [0.30, 0.16, 0.20, 0.15], color="red")
    axes.axhline(0.19, label="constant 0.19")
    figures.limit_y(axes, 0.145, 0.175)
    assert axes.get_ylim() == (0.145, 0.175)
    assert [text.get_text() for text in axes.texts] == ["0.2000 at epoch 3"], "the first epochs need no mark"
    marks = [line for line in axes.lines if line.get_marker() == "^"]
    assert [(mark.get_xdata()[0], mark.get_ydata()[0], mark.get_color()) for mark in marks] == [(3, 0.175, "red")]
    assert axes.lines[1].get_label() == "constant 0.19 (above the range shown)"


def test_a_reference_line_is_not_hidden_by_the_frame():
    """It may lie inside of the panel, but closer to its edge than the margin of a curve."""
    axes = Figure().subplots()
    axes.plot([1, 2], [0.154, 0.19])
    low = axes.get_ylim()[0]
    figures.reference_line(axes, low + 1e-4, "ridge regression")
    assert axes.get_ylim()[0] < low - 1e-3


def test_a_shared_legend_fits_one_panel(tmp_path):
    """Three entries side by side are wider than a column."""
    with figures.collect_figures() as drawn, figures.figure(tmp_path, "x", shared_legend=True) as (panels, _):
        for label in ("Variational (untied) (n=1)", "Naive dropout (n=1)", "Standard (no dropout) (n=1)"):
            panels[0].plot([1, 2], [1, 2], label=label)
        figures.decorate(panels[0])
    drawn[0].canvas.draw()
    box = drawn[0].legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= drawn[0].bbox.width


def test_one_legend_for_all_panels(tmp_path):
    with figures.collect_figures() as drawn, figures.figure(tmp_path, "x", panels=2, shared_legend=True) as (panels, _):
        for axes, labels in zip(panels, (("a", "b"), ("b", "c"))):
            for label in labels:
                axes.plot([1, 2], [1, 2], label=label)
            figures.decorate(axes)
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["a", "b", "c"]
    assert all(axes.get_legend() is None for axes in drawn[0].axes)


def test_rates_are_typeset_in_figures_and_on_the_page():
    assert figures.typeset("(b) p_U sweep, p_E=0") == "(b) $p_U$ sweep, $p_E$=0"
    assert charts.html("(b) $p_U$ sweep, $p_E$=0") == "(b) p<sub>U</sub> sweep, p<sub>E</sub>=0"
    assert figures.typeset("valid_ppl, step_Emb") == "valid_ppl, step_Emb"
