"""The grid of dropout rates of the small model, chosen by validation perplexity after the full schedule."""

from varrnn.config.schema import DROP_RATES
from varrnn.records.store import Records
from varrnn.reporting.style import VARIANTS
from varrnn.reporting.table import DASH, Table
from varrnn.reproduction.artefact import main
from varrnn.reproduction.grids import at_corner, best_on_validation
from varrnn.reproduction.runs import language_model, small_grid
from varrnn.reproduction.tables import mean_sd, seeds_cell, table_artefact

COLUMNS = ("Model", *DROP_RATES, "valid", "best epoch", "n")
NOTE = """\
Validation perplexity of every grid point that has a record. Bold: the lowest of its model, on the seeds that all its \
points share. "corner": one of its dropout rates is at the edge of the planned grid, so a better one may exist \
outside it. As in the paper, p_E equals p_U and p_y equals p_W (Moon et al.: p_W and p_y equal p_c)."""


def table(records: Records) -> Table:
    rows = []
    for model in small_grid():
        run = language_model("small", model)
        chosen = best_on_validation(records, run)
        for point, group in records.grid(run).items():
            mark = "**" if group == chosen else ""
            cells = [f"{dict(point)[name]:g}" if name in dict(point) else DASH for name in DROP_RATES]
            corner = " (corner)" if mark and at_corner(model, group) else ""
            valid = f"{mark}{mean_sd(group, 'valid_ppl', 2)}{mark}{corner}"
            rows.append([VARIANTS[model].label, *cells, valid, mean_sd(group, "best_epoch", 0), seeds_cell(group)])
    return Table("small_grid", "Small model: the grid of dropout rates", COLUMNS, rows, NOTE)


RUNS = tuple(run for points in small_grid().values() for run in points)
ARTEFACT = table_artefact(
    __file__, "Small model: the grid of dropout rates", lambda records: [table(records)], runs=RUNS, seeds=(1,)
)

if __name__ == "__main__":
    main(ARTEFACT)
