"""The small grid: dropout probabilities of size small, chosen by validation perplexity at the full schedule."""

from pathlib import Path

from varrnn.artefact import Artefact, main
from varrnn.paper_runs import Run, language_model
from varrnn.records import Records
from varrnn.style import VARIANTS
from varrnn.tables import DASH, Table, mean_sd, seeds_cell

NAMES = ("p_E", "p_W", "p_U", "p_c", "p_y")
NOTE = """\
All grid points that have a record; bold: the lowest validation perplexity of its model, on the \
seeds that all its points share. As in the paper p_E is \
tied to p_U and p_y to p_W (Moon: p_W and p_y to p_c)."""


def grid() -> tuple[Run, ...]:
    """The points that were planned: coarse, around a half of the medium model's rates."""
    variational = [
        language_model("small", model, f"model.p_U={p_U}", f"model.p_W={p_W}")
        for model in ("variational_tied", "variational_untied")
        for p_U in (0.05, 0.1)
        for p_W in (0.15, 0.25)
    ]
    naive = [language_model("small", "naive", f"model.p_W={p}") for p in (0.15, 0.25, 0.35)]
    moon = [language_model("small", "moon", f"model.p_c={p}") for p in (0.1, 0.2)]
    moon_emb = [language_model("small", "moon_emb", f"model.p_c={p}", "model.p_E=0.1") for p in (0.1, 0.2)]
    return (*variational, *naive, *moon, *moon_emb)


def table(records: Records) -> Table:
    rows = []
    for model in ("variational_tied", "variational_untied", "naive", "moon", "moon_emb"):
        run = language_model("small", model)
        chosen = records.chosen(run)
        for point, group in records.grid(run).items():
            mark = "**" if group == chosen else ""
            cells = [f"{dict(point)[name]:g}" if name in dict(point) else DASH for name in NAMES]
            valid = f"{mark}{mean_sd(group, 'valid_ppl', 2)}{mark}"
            rows.append([VARIANTS[model].label, *cells, valid, mean_sd(group, "best_epoch", 0), seeds_cell(group)])
    return Table("small_grid", "Size small: the grid of dropout probabilities", COLUMNS, rows, NOTE)


COLUMNS = ("Model", *NAMES, "valid", "best epoch", "n")


def draw(records: Records, folder: Path) -> list[Path]:
    return table(records).write(folder)


ARTEFACT = Artefact("table_grid", "Size small: the grid of dropout probabilities", draw, runs=grid(), seeds=(1,))

if __name__ == "__main__":
    main(ARTEFACT)
