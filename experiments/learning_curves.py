"""Size small (ours): validation perplexity against epochs, and test perplexity against the number of MC samples."""

from pathlib import Path

from matplotlib.axes import Axes

from varrnn.records.store import Group, Records
from varrnn.reporting.style import VARIANTS
from varrnn.reproduction.artefact import Artefact, main
from varrnn.reproduction.figures import decorate, error_band, figure, not_run_panel, reference
from varrnn.reproduction.grids import best_on_validation
from varrnn.reproduction.published import PUBLISHED_SMALL
from varrnn.reproduction.runs import TABLE1_MODELS, language_model

RUNS = {model: language_model("small", model) for model in TABLE1_MODELS}
ORDER = sorted(RUNS, key=lambda model: VARIANTS[model].order)


def render(records: Records, folder: Path) -> list[Path]:
    groups = {model: best_on_validation(records, RUNS[model]) for model in ORDER}
    with figure(folder, "learning_curves", panels=2, height=3.4) as (panels, files):
        epochs_panel(panels[0], groups)
        samples_panel(panels[1], groups)
    return files


def epochs_panel(axes: Axes, groups: dict[str, Group]) -> None:
    lowest = []
    for model, group in groups.items():
        line_style, curve = VARIANTS[model], group.curve("valid_ppl")
        if len(curve.epochs):
            label = f"{line_style.label} (n={curve.n})"
            axes.plot(curve.epochs, curve.mean, color=line_style.colour, linestyle=line_style.line, label=label)
            error_band(axes, curve, line_style.colour)
            lowest.append(curve.mean.min())
    if not lowest:
        not_run_panel(axes, list(RUNS.values()))
    else:
        reference(axes, PUBLISHED_SMALL[0].valid, "no dropout, Zaremba et al.")
        axes.set_ylim(0.97 * min(lowest), 1.75 * min(lowest))
    decorate(axes, "PTB, 200 units", ylabel="validation perplexity")


def samples_panel(axes: Axes, groups: dict[str, Group]) -> None:
    """MC dropout against the dropout approximation (the horizontal line of the same colour)."""
    for model, group in groups.items():
        record = group.records[0] if group.records else None
        curve = (record.content.get("mc_curve") or {}) if record else {}
        if record and curve.get("samples") and model.startswith("variational"):
            line_style = VARIANTS[model]
            label = f"{line_style.label}, seed {record.seed}"
            axes.plot(curve["samples"], curve["ppl"], "o-", ms=3, color=line_style.colour, label=f"{label}: MC")
            plain = record.metric("test_ppl")
            if plain is not None:
                axes.axhline(plain, color=line_style.colour, linestyle="--", lw=0.9, label=f"{label}: approximation")
    if axes.lines:
        axes.set_xscale("log")
    else:
        not_run_panel(axes, [RUNS["variational_tied"], RUNS["variational_untied"]])
    decorate(axes, "MC dropout", xlabel="MC samples", ylabel="test perplexity")


ARTEFACT = Artefact(
    "learning_curves", "Size small: learning curves and MC samples", render, runs=tuple(RUNS[model] for model in ORDER)
)

if __name__ == "__main__":
    main(ARTEFACT)
