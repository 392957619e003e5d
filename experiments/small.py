"""Small model (200 units, not in the paper): every variant with chosen dropout rates, and published results."""

from varrnn.records.store import Group, Records
from varrnn.reporting.style import VARIANTS
from varrnn.reporting.table import DASH, NOT_RUN, Table
from varrnn.reproduction.artefact import main
from varrnn.reproduction.grids import at_corner, best_on_validation, grid_coverage
from varrnn.reproduction.published import PUBLISHED_SMALL
from varrnn.reproduction.runs import TABLE1_MODELS, Run, language_model
from varrnn.reproduction.tables import hardware, mc_cell, mean_sd, seeds_cell, table_artefact

VALID = ("valid", "valid, authors' normaliser")
COLUMNS = ("Model", "dropout rates", "grid", *VALID, "test", "test, MC", "epochs", "n", "hardware")
NOTE = """\
Perplexity, mean ± standard deviation over n seeds. The dropout rates are chosen by validation perplexity, never by \
the test text, among the settings of a grid (small_grid.md); "grid" says how many of its settings have a record. \
"corner": a chosen rate is at the edge of the grid, so a better one may exist outside it. "valid" is the exact \
validation perplexity; "valid, authors' normaliser" is computed as in the authors' code and in Table 1, which divide \
by a count that is too large. The standard model follows Zaremba et al.'s small recipe (13 epochs, windows of 20 \
words) and is reported at its best validation epoch; the others have 22 epochs ("long": 50) and windows of 35. The \
paper has no model of this size, so it decides none of the claims. Words per second are not shown, because the runs \
shared their machine: see speed.md."""


def rates_cell(group: Group) -> str:
    found = group.records[0].rates if group.records else ()
    return " ".join(f"{name}={value:g}" for name, value in found) or DASH


def grid_cell(records: Records, model: str) -> str:
    """ "1 of 4, corner": how many points of the planned grid have a record, and whether the best is at its edge."""
    done, planned = grid_coverage(records, model)
    corner = ", corner" if at_corner(model, best_on_validation(records, language_model("small", model))) else ""
    return f"{done} of {planned}{corner}" if planned else DASH


def row_cells(label: str, group: Group, grid: str = DASH) -> list[str]:
    if not group.records:
        return [label, DASH, grid, NOT_RUN, *[DASH] * 4, seeds_cell(group), DASH]
    metrics = [mean_sd(group, name) for name in ("valid_ppl", "valid_ppl_authors", "test_ppl")] + [mc_cell(group)]
    return [label, rates_cell(group), grid, *metrics, str(group.epochs), seeds_cell(group), hardware([group])]


def table(records: Records) -> Table:
    rows = [
        row_cells(
            VARIANTS[model].label,
            best_on_validation(records, language_model("small", model)),
            grid_cell(records, model),
        )
        for model in TABLE1_MODELS
    ]
    for run in LONG:
        rows.append(row_cells(f"{VARIANTS[run[1].split('=')[1]].label}, long", best_on_validation(records, run)))
    for one in PUBLISHED_SMALL:
        rows.append([one.label, one.note, DASH, f"{one.valid:g}", DASH, f"{one.test:g}", *[DASH] * 4])
    return Table("small", "Small model, 200 units (not in the paper)", COLUMNS, rows, NOTE)


LONG: tuple[Run, ...] = tuple(language_model("small_long", model) for model in ("naive", "variational_untied"))
ARTEFACT = table_artefact(
    __file__,
    "Small model: the variants of Table 1 with 200 units",
    lambda records: [table(records)],
    runs=(*(language_model("small", model) for model in (*TABLE1_MODELS, "naive_recurrent")), *LONG),
)

if __name__ == "__main__":
    main(ARTEFACT)
