"""Table of every sentiment run that has a record: final error, lowest error, and the gap between them."""

import numpy as np

from varrnn.config.identity import identity_of
from varrnn.records.store import Group, Records
from varrnn.reporting.style import VARIANTS
from varrnn.reporting.table import DASH, Table
from varrnn.reproduction.artefact import main, unique
from varrnn.reproduction.claims import CLAIMS
from varrnn.reproduction.runs import Run, figure3
from varrnn.reproduction.statistics import TRAIN, final_mean, mc_epochs, overfitting_gap, per_seed
from varrnn.reproduction.tables import seeds_cell, table_artefact

COLUMNS = (
    "Model",
    "cell",
    "T",
    "p_E",
    "p_W",
    "p_U",
    "p_y",
    "λ",
    "test RMSE, MC",
    "approximation",
    "lowest (epoch)",
    "gap",
    "train RMSE, MC",
    "epochs",
    "n",
)
NOTE = """\
RMSE in rating units on the Cornell film reviews, mean over the last 10 % of epochs ± standard deviation over n \
seeds. "test RMSE, MC" is by MC dropout, "approximation" by the dropout approximation, which for models without \
dropout is their only error. All columns use only the epochs at which MC dropout is measured (every 5th after the \
20th), also for models without dropout; runs of equal length are thus averaged over the same epochs, in this table \
and in the claims. Lowest: the lowest value of the curve and its epoch. Gap: the final value minus the lowest. λ: \
weight decay. For comparison, the test RMSE of simple predictors: """


FIGURE3 = (*figure3("lstm").values(), *figure3("gru").values())
RUNS = tuple(run for claim in CLAIMS for run in claim.runs.values() if run[0] == "experiment=cornell")


def _mean_sd(values: list[float]) -> str:
    if not values:
        return DASH
    return f"{np.mean(values):.4f}" + (f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else "")


def row_cells(run: Run, group: Group) -> list[str]:
    options = identity_of(run).options
    rates = [f"{options[f'model.{name}']:g}" for name in ("p_E", "p_W", "p_U", "p_y")]
    at = mc_epochs(group)  # the same epochs for all columns
    rule = " (one gate)" if options.get("optim.decay_rule") == "one_gate" else ""
    curve = group.curve(group.records[0].error_column)
    use = np.isin(curve.epochs, at)
    epochs, mean = curve.epochs[use], curve.mean[use]
    lowest = f"{mean.min():.4f} ({epochs[mean.argmin()]})" if len(epochs) else DASH
    return [
        VARIANTS[str(options["model.name"])].label,
        str(options["cell"]),
        str(options["task.steps"]),
        *rates,
        f"{options['optim.weight_decay']:g}{rule}",
        _mean_sd(per_seed(group, final_mean, "test_rmse_mc", at)),
        _mean_sd(per_seed(group, final_mean, "test_rmse", at)),
        lowest,
        _mean_sd(per_seed(group, overfitting_gap, at=at)),
        _mean_sd(per_seed(group, final_mean, TRAIN, at)),
        str(group.epochs),
        seeds_cell(group),
    ]


def references(groups: dict[Run, Group]) -> str:
    """The constant predictor and ridge regression for each T that was run."""
    lengths: dict[int, str] = {}
    for run, group in groups.items():
        constant, ridge = group.mean("constant_rmse"), group.mean("ridge_rmse")
        if constant is not None and ridge is not None:
            lengths[identity_of(run).options["task.steps"]] = (
                f"mean training rating {constant:.4f}, ridge regression on a bag of words {ridge:.4f}"
            )
    return "; ".join(f"T={length}: {text}" for length, text in sorted(lengths.items())) or "none yet"


def table(records: Records, runs: tuple[Run, ...] = RUNS) -> Table:
    groups = {run: records.group(run) for run in unique(runs)}
    found = {run: group for run, group in groups.items() if group.records}
    rows = [row_cells(run, group) for run, group in found.items()]
    missing = len(groups) - len(found)
    open_runs = f" {missing} of {len(groups)} runs have no record yet." if missing else ""
    return Table(
        "sentiment",
        "Sentiment analysis, the runs of figures 3 to 15",
        COLUMNS,
        rows,
        f"{NOTE}{references(found)}.{open_runs}",
    )


ARTEFACT = table_artefact(
    __file__,
    "All runs of the sentiment task",
    lambda records: [table(records)],
    runs=RUNS,
    claims=tuple(c.id for c in CLAIMS if any(run[0] == "experiment=cornell" for run in c.runs.values())),
)

if __name__ == "__main__":
    main(ARTEFACT)
