"""Table 1: single model perplexity on the Penn Treebank, medium and large, ours and the paper's."""

from varrnn.records.store import Records
from varrnn.reporting.table import DASH, Table
from varrnn.reproduction.artefact import main
from varrnn.reproduction.claims import ids
from varrnn.reproduction.published import TABLE1, Row
from varrnn.reproduction.runs import TABLE1_MODELS, language_model
from varrnn.reproduction.tables import (
    changed_machine,
    difference,
    format_published,
    hardware,
    mc_cell,
    mean_sd,
    seeds_cell,
    table_artefact,
    thousands,
)

COLUMNS = (
    "Model",
    "valid, paper",
    "valid, ours",
    "difference, valid",
    "valid, ours (exact)",
    "test, paper",
    "valid / test, corrected",
    "test, ours",
    "difference, test",
    "n",
    "words/s, paper",
    "words/s, ours",
    "hardware",
)
NOTE = """\
Perplexity, mean ± standard deviation over n seeds. "valid, ours" is computed as in the authors' code, so that it can \
be compared with the paper's: that code divides by a count that is too large, which lowers every validation \
perplexity by about 1.5 % (Zaremba et al.'s may be exact). "valid, ours (exact)" is the correct value. "corrected": \
from the authors' later readme, after they had fixed a bug in the dropout of word types. MC: 1000 samples. Words per \
second include validation, as in the authors' log; they are left out for a run that was resumed on another processor. \
The paper copied its row "Zaremba et al." from their article. "unstable" after n: that many runs diverged and are \
left out."""


def row_cells(records: Records, size: str, row: Row) -> list[str]:
    """One row: paper, ours, difference."""
    group = records.group(language_model(size, row.model))
    group = group.with_mc() if row.mc else group
    test = "test_ppl_mc" if row.mc else "test_ppl"
    valid = [DASH] * 4 if row.mc else _valid_cells(group, row)
    corrected = [value for value in (row.corrected_valid, row.corrected_test) if value is not None]
    return [
        row.label,
        *valid,
        format_published(row.test, row.test_sd),
        " / ".join(f"{value:.1f}" for value in corrected) or DASH,
        mc_cell(group) if row.mc else mean_sd(group, test),
        difference(group, test, row.test),
        seeds_cell(group),
        DASH if row.mc else thousands(row.wps),
        DASH if row.mc or changed_machine(group) else thousands(group.mean("wps_authors")),
        hardware([group]),
    ]


def _valid_cells(group, row: Row) -> list[str]:
    ours = "valid_ppl_authors"
    cells = [format_published(row.valid, row.valid_sd), mean_sd(group, ours), difference(group, ours, row.valid)]
    return [*cells, mean_sd(group, "valid_ppl")]


def tables(records: Records) -> list[Table]:
    return [
        Table(f"table1_{size}", f"Table 1, {size} LSTM", COLUMNS, [row_cells(records, size, row) for row in rows], NOTE)
        for size, rows in TABLE1.items()
    ]


ARTEFACT = table_artefact(
    __file__,
    "Table 1: single model perplexity on the Penn Treebank",
    tables,
    runs=tuple(language_model(size, model) for size in TABLE1 for model in TABLE1_MODELS),
    sampled=tuple(language_model(size, row.model) for size, rows in TABLE1.items() for row in rows if row.mc),
    claims=(*ids(*range(1, 20), 21, 46, 47, 48), "C50"),
)

if __name__ == "__main__":
    main(ARTEFACT)
