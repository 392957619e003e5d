"""The results section of the README, written between two markers from the same records as everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType

from varrnn import tables
from varrnn.claims.report import Verdicts, summary
from varrnn.claims.verdict import BY_TEST, INDICATIVE, NOT_RUN
from varrnn.records import Records
from varrnn.tables import Table

PART = "results"  # its name in the README's markers
HEAD = "*Generated from [results/records](results/records) by `make paper`; do not edit between the markers.*"


def block(artefacts: Mapping[str, ModuleType], records: Records, verdicts: Verdicts) -> str:
    """Claims, tables and pictures that have records, and what is still to be run."""
    parts = [HEAD, *claims_part(verdicts)]
    parts += small_part(artefacts["table_small"], records)
    parts += table1_part(artefacts["table1"], records)
    parts += sentiment_part(artefacts["sentiment"], records)
    parts += speed_part(artefacts["speed"], records)
    parts.append(open_part(artefacts, records))
    return "\n\n".join(parts)


def claims_part(verdicts: Verdicts) -> list[str]:
    """The count, and the verdicts that say something."""
    parts = [
        f"**Claims.** {summary(verdicts)}. All of them with rules and numbers: [results/claims.md](results/claims.md)."
    ]
    decided = [(c, v) for c, v in verdicts if v.status not in (NOT_RUN, BY_TEST)]
    if decided:
        rows = [
            (c.id + (" (ours)" if c.ours else ""), c.statement, c.paper, v.words(), str(v.n or "")) for c, v in decided
        ]
        parts.append(Table("", "", ("", "claim", "paper", "verdict", "n"), rows, numbers=False).markdown())
    analogues: dict[str, list[str]] = {}
    for claim, verdict in verdicts:
        for word in ("agrees", "disagrees"):
            if f"analogue {word}" in verdict.analogue:
                few = " on few seeds or rates (indicative)" if INDICATIVE in verdict.analogue else ""
                analogues.setdefault(word + few, []).append(claim.id)
    if analogues:
        told = "; ".join(f"{word}: {', '.join(ids)}" for word, ids in sorted(analogues.items()))
        parts.append(f"At size small, which decides no claim of the paper, the analogue {told}.")
    return parts


def columns(table: Table, wanted: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Some columns of a table, by name."""
    places = [list(table.columns).index(name) for name in wanted]
    return Table("", "", wanted, [[row[place] for place in places] for row in rows]).markdown()


def small_part(module: ModuleType, records: Records) -> list[str]:
    table = module.table(records)
    if not any(record.choices["size"] == "small" for record in records.runs):
        return []
    rows = [row for row in table.rows if tables.NOT_RUN not in row]
    shown = columns(table, ("Model", "grid", "valid", "test", "test, MC", "epochs", "n"), rows)
    link = (
        "The standard model follows Zaremba et al.'s recipe and is reported at its best validation epoch. All columns: "
        "[results/tables/small.md](results/tables/small.md), the grid: [small_grid.md](results/tables/small_grid.md)."
    )
    picture = "![Learning curves at size small](results/figures/learning_curves.png)"
    return [
        "**Penn Treebank, size small** (200 units, ours; published results of that size below):",
        shown,
        link,
        picture,
    ]


def table1_part(module: ModuleType, records: Records) -> list[str]:
    parts = []
    for table in module.tables(records):
        rows = [row for row in table.rows if tables.NOT_RUN not in row]
        if rows:
            wanted = ("Model", "valid, paper", "valid, ours", "test, paper", "test, ours", "n")
            parts += [
                f"**{table.title}**, rows with records (all: [tables](results/tables)):",
                columns(table, wanted, rows),
            ]
    return parts


def sentiment_part(module: ModuleType, records: Records) -> list[str]:
    """The six runs of figure 3."""
    table = module.table(records, module.FIGURE3)
    if not table.rows:
        return []
    rates = ("p_E", "p_W", "p_U", "p_y", "λ")
    wanted = (
        "Model",
        "cell",
        *rates,
        "test RMSE, MC",
        "approximation",
        "lowest (epoch)",
        "train RMSE, MC",
        "epochs",
        "n",
    )
    title = "**Sentiment analysis**, figure 3 (others: [results/tables/sentiment.md](results/tables/sentiment.md)):"
    picture = "![Sentiment analysis, figure 3](results/figures/figure3.png)"
    return [title, columns(table, wanted, table.rows), table.note, picture]


def speed_part(module: ModuleType, records: Records) -> list[str]:
    if not records.benchmarks:
        return []
    table = module.table(records)
    picture = "![Words per second](results/figures/speed.png)"
    return [
        "**Words per second**, full training steps (in brackets: share of the limit):",
        table.markdown(),
        table.note,
        picture,
    ]


def open_part(artefacts: Mapping[str, ModuleType], records: Records) -> str:
    """How many runs each artefact still needs, and the command that lists them."""
    rows = []
    for name, module in artefacts.items():
        needed, missing = len(module.ARTEFACT.commands()), len(module.ARTEFACT.commands(records))
        if missing and module.ARTEFACT.runs:
            rows.append((name, f"{missing} of {needed}", f"`python experiments/{name}.py --missing`"))
    if not rows:
        return "Every run has a record."
    table = Table(
        "", "", ("artefact", "runs without a record, or with fewer epochs", "which"), rows, numbers=False
    ).markdown()
    return f"<details><summary>Still to be run</summary>\n\n{table}\n\n</details>"
