"""What a figure's titles and labels say is what its curves are."""

import re

import pytest

from varrnn.config.identity import identity_of
from varrnn.records.store import Records
from varrnn.reporting.style import VARIANTS
from varrnn.reproduction import figures
from varrnn.reproduction.artefact import experiment

NAMES = {"p_E": "model.p_E", "p_U": "model.p_U", "p": "model.p_W", "T": "task.steps", "λ": "optim.weight_decay"}
PANELS = {3: 3, 4: 3, 5: 1, 6: 2, 7: 1, 8: 1, 9: 2, 10: 2, 11: 1, 12: 2, 13: 1, 14: 1, 15: 1}
CURVES = {3: 3, 4: 4, 5: 6, 6: 4, 7: 4, 8: 6, 9: 4, 10: 3, 11: 2, 12: 8, 13: 3, 14: 3, 15: 4}  # of the first panel


@pytest.mark.parametrize("number", PANELS)
def test_curves_are_what_they_are_called(number, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(figures, "plot_curves", lambda axes, records, curves, of: seen.append((axes, curves, of)))
    experiment(f"figure{number}").ARTEFACT.render(Records(), tmp_path)
    assert len(seen) == PANELS[number] and len(seen[0][1]) == CURVES[number]
    for axes, curves, of in seen:
        title = axes.get_title()
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
