"""The generated sections of README.md, results/README.md and results/DIFFERENCES.md, between pairs of markers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType

from varrnn.errors import UserError
from varrnn.records.store import Records
from varrnn.reporting.table import Table
from varrnn.reproduction import tables
from varrnn.reproduction.claims.report import Verdicts, summary
from varrnn.reproduction.claims.verdict import BY_TEST, INDICATIVE, NOT_RUN

SECTION = "results"  # the name of the section in README.md and in results/README.md
GENERATED = "*Generated from [the records]({records}) by `make paper`; do not edit between the markers.*"


def begin_marker(name: str) -> str:
    return f"<!-- {name}:begin -->"


def end_marker(name: str) -> str:
    return f"<!-- {name}:end -->"


def replace_section(document: str, name: str, text: str, file: str = "README.md") -> str:
    """The document with the section of that name replaced by a new text."""
    first, last = begin_marker(name), end_marker(name)
    if document.count(first) != 1 or document.count(last) != 1 or document.index(first) > document.index(last):
        raise UserError(f"{file}: must contain the lines {first} and {last} once each, in this order")
    before, rest = document.split(first)
    return f"{before}{first}\n{text}\n{last}{rest.split(last)[1]}"


def readme_section(artefacts: Mapping[str, ModuleType], records: Records, verdicts: Verdicts) -> str:
    """The results section of README.md: Table 1 of the medium model, one figure, the count of verdicts, and links."""
    parts = [GENERATED.format(records="results/records"), *table1_part(artefacts["table1"], records)]
    parts.append("![Learning curves on the Penn Treebank](results/figures/learning_curves.png)")
    parts.append(
        f"**Claims.** {summary(verdicts)}. *Indicative* means that fewer seeds were run than the rule requires, "
        "mostly one: it is a hint, not a reproduction. [Every claim with its rule, our numbers and the command that "
        "decides it](results/claims.md)."
    )
    parts.append(
        "[Results in detail](results/README.md): the 200-unit model, sentiment analysis, words per second, and the "
        "missing runs."
    )
    return "\n\n".join(parts)


def results_section(artefacts: Mapping[str, ModuleType], records: Records, verdicts: Verdicts) -> str:
    """The results section of results/README.md: every table and figure with records, and the missing runs."""
    parts = [GENERATED.format(records="records"), *claims_part(verdicts)]
    parts += small_part(artefacts["small"], records)
    parts += sentiment_part(artefacts["sentiment"], records)
    parts += speed_part(artefacts["speed"], records)
    parts.append(missing_runs_part(artefacts, records))
    return "\n\n".join(parts)


def claims_part(verdicts: Verdicts) -> list[str]:
    """The count of verdicts, and the verdicts on claims that were run."""
    parts = [f"## Claims\n\n{summary(verdicts)}. All claims with rules and numbers: [claims.md](claims.md)."]
    decided = [(c, v) for c, v in verdicts if v.status not in (NOT_RUN, BY_TEST)]
    if decided:
        rows = [
            (c.id + (" (ours)" if c.is_extra else ""), c.statement, c.paper, v.label(), str(v.n or ""))
            for c, v in decided
        ]
        parts.append(Table("", "", ("", "claim", "paper", "verdict", "n"), rows, numbers=False).markdown())
    small_verdicts: dict[str, list[str]] = {}
    for claim, verdict in verdicts:
        for word in ("agrees", "disagrees"):
            if f"small model {word}" in verdict.small_size:
                few = " on few seeds or rates (indicative)" if INDICATIVE in verdict.small_size else ""
                small_verdicts.setdefault(word + few, []).append(claim.id)
    if small_verdicts:
        listed = "; ".join(f"{word}: {', '.join(ids)}" for word, ids in sorted(small_verdicts.items()))
        parts.append(
            f"The same comparison with the 200-unit model, which does not decide a claim and whose dropout rates are "
            f"chosen on validation data, {listed}."
        )
    return parts


def select_columns(table: Table, wanted: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Some columns of a table, by name."""
    indices = [list(table.columns).index(name) for name in wanted]
    return Table("", "", wanted, [[row[index] for index in indices] for row in rows]).markdown()


def table1_part(module: ModuleType, records: Records) -> list[str]:
    """Table 1 of the medium model with every row; the large model once a row of it has a record."""
    parts = []
    for table in module.tables(records):
        rows = [row for row in table.rows if tables.NOT_RUN not in row]
        if not rows and "large" in table.title:
            cost = "5 to 9 hours a row at the paper's speed"
            parts.append(f"The large model (1500 units) has no record yet: `make ptb-large` needs a GPU ({cost}).")
            continue
        wanted = (
            "Model",
            "valid, paper",
            "valid, ours",
            "test, paper",
            "test, ours",
            "difference, test",
            "n",
            "hardware",
        )
        parts += [f"**{table.title}**, perplexity on the Penn Treebank:", select_columns(table, wanted, table.rows)]
    return parts


def small_part(module: ModuleType, records: Records) -> list[str]:
    table = module.table(records)
    if not any(record.choices["size"] == "small" for record in records.runs):
        return []
    rows = [row for row in table.rows if tables.NOT_RUN not in row]
    shown = select_columns(table, ("Model", "grid", "valid", "test", "test, MC", "epochs", "n"), rows)
    link = (
        "The standard model follows Zaremba et al.'s recipe and is reported at its best validation epoch. All columns: "
        "[tables/small.md](tables/small.md), the grid: [tables/small_grid.md](tables/small_grid.md)."
    )
    title = (
        "## Penn Treebank, 200 units\n\nA model size that a laptop can train, not in the paper; the last rows are "
        "published results."
    )
    return [title, shown, link, "![Learning curves](figures/learning_curves.png)"]


def sentiment_part(module: ModuleType, records: Records) -> list[str]:
    """The six runs of figure 3."""
    table = module.table(records, module.FIGURE3)
    if not table.rows:
        return []
    rates = ("p_E", "p_W", "p_U", "p_y", "λ")
    errors = ("test RMSE, MC", "approximation", "lowest (epoch)", "train RMSE, MC")
    wanted = ("Model", "cell", *rates, *errors, "epochs", "n")
    pages = "discussion: [SENTIMENT.md](SENTIMENT.md), all runs: [tables/sentiment.md](tables/sentiment.md)"
    title = f"## Sentiment analysis\n\nFigure 3; {pages}."
    picture = "![Sentiment analysis, figure 3](figures/figure3.png)"
    return [title, select_columns(table, wanted, table.rows), table.note, picture]


def speed_part(module: ModuleType, records: Records) -> list[str]:
    if not records.benchmarks:
        return []
    table = module.table(records)
    title = "## Words per second\n\nFull training steps (in brackets: share of the speed limit)."
    launches = "Kernel launches of these steps on a GPU, counted: [tables/launches.md](tables/launches.md)."
    return [title, table.markdown(), table.note, launches, "![Words per second](figures/speed.png)"]


def missing_runs_part(artefacts: Mapping[str, ModuleType], records: Records) -> str:
    """The number of missing runs of each artefact, and the command that lists them."""
    rows = []
    for name, module in artefacts.items():
        needed, missing = len(module.ARTEFACT.commands()), len(module.ARTEFACT.commands(records))
        if missing and module.ARTEFACT.runs:
            rows.append((name, f"{missing} of {needed}", f"`python experiments/{name}.py --missing`"))
    if not rows:
        return "Every run has a record."
    header = ("artefact", "runs without a record, or with fewer epochs", "command that lists them")
    parts = ["## Missing runs", Table("", "", header, rows, numbers=False).markdown()]
    figures = [name for name in artefacts if name.startswith("figure")]
    empty = [name for name in figures if not artefacts[name].ARTEFACT.has_data(records)]
    if empty:
        parts.append(f"Figures without any record, and therefore not drawn: {', '.join(empty)}.")
    return "\n\n".join(parts)
