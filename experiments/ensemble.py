"""Model averaging: ten large Variational LSTMs with MC dropout against ten naive ones."""

from varrnn.records.store import Records
from varrnn.reporting.table import DASH, NOT_RUN, Table
from varrnn.reproduction.artefact import main
from varrnn.reproduction.claims.special import ENSEMBLE_SIZE, ensembles
from varrnn.reproduction.published import ENSEMBLES
from varrnn.reproduction.runs import language_model
from varrnn.reproduction.tables import table_artefact

COLUMNS = ("Size", "members", "variational, MC: paper", "ours", "naive: Zaremba et al.", "ours")
NOTE = """\
Test perplexity when the predicted probabilities of several models are averaged. "members": the number of models. The \
paper averages large models; other sizes are ours."""


def table(records: Records) -> Table:
    paper_variational, paper_naive = ENSEMBLES.values()
    rows = []
    for size in ("large", "medium", "small"):
        ours = [ensembles(records, size, variational) for variational in (True, False)]
        members = sorted({*ours[0], *ours[1], *({ENSEMBLE_SIZE, 38} if size == "large" else ())})
        published = (paper_variational, paper_naive) if size == "large" else ({}, {})
        for n in members:
            cells = [_cell(values, n, DASH) for values in published]
            found = [_cell(values, n, NOT_RUN if n == ENSEMBLE_SIZE else DASH) for values in ours]
            rows.append([size, str(n), cells[0], found[0], cells[1], found[1]])
    return Table("ensemble", "Model averaging", COLUMNS, rows, NOTE)


def _cell(values: dict[int, float], n: int, otherwise: str) -> str:
    return f"{values[n]:.1f}" if n in values else otherwise


ARTEFACT = table_artefact(
    __file__,
    "Model averaging: ten large models",
    lambda records: [table(records)],
    runs=tuple(language_model("large", model) for model in ("variational_untied", "naive")),
    claims=("C20",),
    seeds=tuple(range(1, ENSEMBLE_SIZE + 1)),
)

if __name__ == "__main__":
    main(ARTEFACT)
