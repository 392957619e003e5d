"""Selection of dropout and weight decay for sentiment, on a held-out tenth of the training reviews.

The grid is the appendix's, with the weight decay of 1e-3 that it states as the optimum.
"""

import numpy as np

from varrnn.config.identity import Identity, identity_of, matches
from varrnn.records.selection import lowest
from varrnn.records.store import Group, Record, Records, group_by_seed
from varrnn.reporting.style import VARIANTS
from varrnn.reporting.table import DASH, Table
from varrnn.reproduction.artefact import main
from varrnn.reproduction.runs import WEIGHT_DECAYS, Run, grid_point, no_recurrent, sentiment
from varrnn.reproduction.statistics import final_mean, per_seed, seed_mean, shared_epochs
from varrnn.reproduction.tables import seeds_cell, table_artefact

CURVE = ("lowest (epoch)", "epochs", "n")
RATE_COLUMNS = ("p_E", "p_W", "p_U", "p_y", "λ")
COLUMNS = ("Model", "cell", *RATE_COLUMNS, "masks", "held-out RMSE", *CURVE, "shared epochs", "grid")
NOTE = """\
RMSE on a tenth of the training reviews that were held out (task.hold_out=0.1), by MC dropout if the model has \
dropout: mean over the last 10 % of the first 20 epochs (of a shorter run: its last epoch), and over n seeds. λ: \
weight decay. Bold: the setting that is chosen, the lowest of its model and cell among the settings of the grid with \
20 epochs, on the seeds that they share. "additional": not in the grid and not used for the choice; runs with fewer \
than 20 epochs are not used either. "shared epochs": the same error at the end of the epochs that all settings of the \
model and cell have. The test reviews are not used for the choice; the authors used them. The paper's optimum for the \
Variational LSTM is p=.25 and λ=1e-3, which is outside its own grid. Masks: "retain" are 0 and 1, with a factor 1 - p \
in the dropout approximation, as in the paper's text; "inverted" are 0 and 1 / (1 - p) (task.scaling=inverted), an \
ablation, with which the dropout rates were chosen at first."""
RATES = ("model.p_E", "model.p_W", "model.p_U", "model.p_y", "optim.weight_decay")
COMPARED = (*RATES, "task.scaling")  # options that may differ between the settings of the table
Setting = tuple[str, tuple[float, ...]]  # the scaling of masks, and the rates


CELLS = ("lstm", "gru")
DEFAULT_SCALING = "retain"
EPOCHS = 20  # of every run of the grid
COMPARED_EPOCHS = np.arange(1, EPOCHS + 1)  # their last tenth is averaged


def grid() -> tuple[Run, ...]:
    """The planned grid: p in {.25, .5} for both models, weight decay for the variational model only."""
    variational = [grid_point(cell, p, decay) for cell in CELLS for p in (0.25, 0.5) for decay in WEIGHT_DECAYS]
    naive = [sentiment("naive", cell, p_W=p, p_y=p) for cell in CELLS for p in (0.25, 0.5)]
    return tuple(map(held_out, (*variational, *naive)))


def extra_runs() -> tuple[Run, ...]:
    """Further runs, not used for the choice: the variational model without its recurrent mask."""
    return tuple(held_out(no_recurrent(cell, p)) for cell in CELLS for p in (0.25, 0.5))


def held_out(run: Run) -> Run:
    return (*run, f"optim.epochs={EPOCHS}", "task.hold_out=0.1")


def setting_of(run: Identity) -> Setting:
    return str(run.options.get("task.scaling", DEFAULT_SCALING)), tuple(float(run.options[key]) for key in RATES)


def planned_grid() -> set[tuple[str, str, Setting]]:
    """Model, cell and setting of every run of the grid."""
    found = map(identity_of, grid())
    return {(run.choices["model"], run.choices["cell"], setting_of(run)) for run in found}


def column(record: Record) -> str:
    return "valid_rmse_mc" if len(record.column("valid_rmse_mc")[0]) else "valid_rmse"


def groups(records: Records) -> dict[tuple[str, str], dict[Setting, Group]]:
    """(model, cell) -> setting -> the records of its seeds."""
    found: dict[tuple[str, str], dict[Setting, list[Record]]] = {}
    for record in records.runs:
        cornell_paper = record.choices["task"] == "cornell" and record.choices["protocol"] == "paper"
        kind = (record.choices["model"], record.choices["cell"])
        if cornell_paper and matches(record.identity, identity_of(held_out(sentiment(*kind))), COMPARED):
            found.setdefault(kind, {}).setdefault(setting_of(record.identity), []).append(record)
    made = {kind: {key: group_by_seed(points[key]) for key in sorted(points)} for kind, points in sorted(found.items())}
    return {kind: {key: group for key, group in points.items() if group.records} for kind, points in made.items()}


def scores(group: Group) -> dict[int, float]:
    """Seed -> the error at the end of the first 20 epochs."""
    each = {
        record.seed: per_seed(Group((record,)), final_mean, column(record), COMPARED_EPOCHS) for record in group.records
    }
    return {seed: values[0] for seed, values in each.items() if values}


def table(records: Records) -> Table:
    rows, wanted = [], planned_grid()
    for (model, cell), points in groups(records).items():
        inside = {setting: group for setting, group in points.items() if (model, cell, setting) in wanted}
        best = lowest({setting: scores(group) for setting, group in inside.items() if group.epochs >= EPOCHS})
        at = shared_epochs(points.values(), (column(next(iter(points.values())).records[0]),))
        for setting, group in points.items():
            mark = "**" if setting == best else ""
            measured = column(group.records[0])
            curve = group.curve(measured)
            reached = f"{curve.mean.min():.4f} ({curve.epochs[curve.mean.argmin()]})" if len(curve.epochs) else DASH
            masks, rates = setting
            shared = f"{seed_mean(group, final_mean, measured, at):.4f}"
            error = float(np.mean([*scores(group).values()] or [np.inf]))
            cells = [VARIANTS[model].label, cell, *(f"{value:g}" for value in rates), masks]
            ends = [f"{mark}{error:.4f}{mark}", reached, str(group.epochs), seeds_cell(group), shared]
            rows.append([*cells, *ends, "grid" if setting in inside else "additional"])
    return Table("selection", "Sentiment analysis: selection of dropout and weight decay", COLUMNS, rows, NOTE)


ARTEFACT = table_artefact(
    __file__,
    "Sentiment analysis: selection of dropout and weight decay",
    lambda records: [table(records)],
    runs=(*grid(), *extra_runs()),
    seeds=(1,),
)

if __name__ == "__main__":
    main(ARTEFACT)
