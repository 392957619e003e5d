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
TABLE1_NOTE = """\
Validation perplexities are computed as in the authors' code (about 1.5 % too low), so that they can be compared; n \
is the number of seeds. Tied: one mask for all gates; untied: a mask per gate. MC: predictions averaged over samples \
of the masks, 1000 unless a number is given; the other rows use the dropout approximation, one pass without dropout."""
TABLE1_LINKS = """\
## Table 1

[README.md](../README.md#results) shows the medium model. All columns, exact validation perplexities and words per \
second among them: [medium](tables/table1_medium.md), [large](tables/table1_large.md). [Learning curves of the medium \
model](figures/learning_curves_medium.png)."""
MEDIUM_CAPTION = """\
Medium models that have a record: validation perplexity, computed as in the table, the last epochs enlarged; thin \
lines: the paper's values."""
MEDIUM_MC_CAPTION = """ \
Right: test perplexity against the number of samples of MC dropout; dashed: the dropout approximation; dotted: the \
paper's value with MC dropout."""
SMALL_CAPTION = """\
A model of 200 units, which a laptop can train; the paper has no such model. Left: validation perplexity, the last \
epochs enlarged; n is the number of seeds. Right: test perplexity of the variational models against the number of \
samples of MC dropout; dashed: their dropout approximation."""
SENTIMENT_CAPTION = """\
Figure 3 of the paper, on the Cornell film reviews, with the models that have a record: root mean square error (RMSE) \
of the predicted rating; n is the number of seeds. "Mean rating" always predicts the mean training rating; "ridge \
regression" uses a bag of words. A triangle marks an epoch at which a curve leaves the range shown again; first epochs \
above the range are not marked. The standard models need no MC dropout."""
SPEED_CAPTION = """\
Speed of full training steps relative to nn.LSTM (vertical line); a point to the right of it is faster. Letters: the \
processors of the table below. Grey: for comparison; an "autograd loop" over time steps is the usual implementation of \
recurrent dropout."""
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
    """The results section of README.md: Table 1 of the medium model, figures, the count of verdicts, and links."""
    parts = [GENERATED.format(records="results/records"), *table1_part(artefacts["table1"], records)]
    parts += medium_part(artefacts["learning_curves_medium"], records)
    if is_complete(artefacts["figure3"], records):
        parts.append(f"![Sentiment analysis, figure 3](results/figures/figure3.png)\n\n*{SENTIMENT_CAPTION}*")
    else:
        parts.append(f"![Learning curves, 200 units](results/figures/learning_curves.png)\n\n*{SMALL_CAPTION}*")
    parts.append(
        f"**Claims.** We list {summary(verdicts)}. *Indicative* means that the rule was applied to fewer seeds than it "
        "requires, mostly one: that is a hint, not a reproduction. *Not run* means that a run it needs has no record. "
        "[Every claim with its rule, our numbers and the command that decides it](results/claims.md). [Results in "
        "detail](results/README.md): the 200-unit model, [sentiment analysis](results/SENTIMENT.md), words per second, "
        "and the missing runs."
    )
    return "\n\n".join(parts)


def is_complete(module: ModuleType, records: Records) -> bool:
    """Whether all runs of a figure have a record with all epochs, for seed 1."""
    return not any(records.missing(run, (1,)) for run in module.ARTEFACT.runs)


def results_section(artefacts: Mapping[str, ModuleType], records: Records, verdicts: Verdicts) -> str:
    """The results section of results/README.md: every table and figure with records, and the missing runs."""
    parts = [GENERATED.format(records="records"), *claims_part(verdicts), TABLE1_LINKS]
    parts += small_part(artefacts["small"], records)
    parts += sentiment_part(artefacts["sentiment"], records)
    parts += speed_part(artefacts["speed"], records)
    parts += [figures_part(artefacts, records), missing_runs_part(artefacts, records)]
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
                few = " (indicative: few seeds or few dropout rates)" if INDICATIVE in verdict.small_size else ""
                small_verdicts.setdefault(f"{word} with{few}", []).append(claim.id)
    if small_verdicts:
        listed = "; it ".join(f"{word}: {', '.join(ids)}" for word, ids in sorted(small_verdicts.items()))
        parts.append(
            "The 200-unit model is not in the paper and decides no claim. Compared in the same way, with dropout rates "
            f"chosen on validation data, it {listed}."
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
            cost = "a run takes 5 to 9 hours at the speed of the paper's Titan X"
            parts.append(f"The large model (1500 units) has no record yet: `make ptb-large` needs a GPU; {cost}.")
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
        title = f"**{table.title}**, perplexity on the Penn Treebank. {TABLE1_NOTE}"
        parts += [title, select_columns(table, wanted, table.rows)]
    return parts


def medium_part(module: ModuleType, records: Records) -> list[str]:
    """The learning curves of the medium model, once two variants can be compared."""
    groups = [records.group(run) for run in module.ARTEFACT.runs]
    if sum(bool(group.records) for group in groups) < 2:
        return []
    caption = MEDIUM_CAPTION + (MEDIUM_MC_CAPTION if any(group.with_mc().records for group in groups) else "")
    return [f"![Learning curves, medium](results/figures/learning_curves_medium.png)\n\n*{caption}*"]


def small_part(module: ModuleType, records: Records) -> list[str]:
    table = module.table(records)
    if not any(record.choices["size"] == "small" for record in records.runs):
        return []
    rows = [row for row in table.rows if tables.NOT_RUN not in row]
    shown = select_columns(table, ("Model", "grid", "valid", "test", "test, MC", "epochs", "n"), rows)
    link = (
        'Perplexities; n is the number of seeds. "valid" is exact; Table 1 and the claims use the normaliser of the '
        "authors' code, with which it is about 1.5 % lower. Grid: how many settings of the dropout rates have a "
        "record; *corner* means that a chosen rate is at the edge of the grid. The standard model follows Zaremba et "
        "al.'s small recipe and is reported at its best validation epoch. [All columns](tables/small.md), "
        "[grid](tables/small_grid.md)."
    )
    title = (
        "## Penn Treebank, 200 units\n\nA model that a laptop can train; the paper has none of this size. The last "
        "rows are published results."
    )
    return [title, shown, link, f"![Learning curves, 200 units](figures/learning_curves.png)\n\n*{SMALL_CAPTION}*"]


def sentiment_part(module: ModuleType, records: Records) -> list[str]:
    """The six runs of figure 3."""
    table = module.table(records, module.FIGURE3)
    if not table.rows:
        return []
    rates = ("p_E", "p_W", "p_U", "p_y", "λ")
    errors = ("test RMSE, MC", "approximation", "lowest (epoch)", "train RMSE, MC")
    wanted = ("Model", "cell", *rates, *errors, "epochs", "n")
    pages = "Discussion: [SENTIMENT.md](SENTIMENT.md); all runs: [tables/sentiment.md](tables/sentiment.md)"
    title = f"## Sentiment analysis\n\nThe runs of figure 3 that have a record. {pages}."
    picture = f"![Sentiment analysis, figure 3](figures/figure3.png)\n\n*{SENTIMENT_CAPTION}*"
    return [title, select_columns(table, wanted, table.rows), table.note, picture]


def speed_part(module: ModuleType, records: Records) -> list[str]:
    if not records.benchmarks:
        return []
    table = module.table(records)
    title = "## Words per second"
    launches = (
        "Our layers alone, compared with torch's at many shapes: [tables/library.md](tables/library.md). How many "
        "kernels a GPU launches for these steps: [tables/launches.md](tables/launches.md)."
    )
    picture = f"![Words per second](figures/speed.png)\n\n*{SPEED_CAPTION}*"
    return [title, picture, table.markdown(), table.note, launches]


def figures_part(artefacts: Mapping[str, ModuleType], records: Records) -> str:
    """Links to every figure that is drawn; a panel without data says so."""
    figures = [module.ARTEFACT for name, module in artefacts.items() if name.startswith(("figure", "learning_curves"))]
    links = [f"- [{one.title}](figures/{one.name}.png)" for one in figures if one.has_data(records)]
    note = "Every figure that has data; curves and panels without a record are missing in it."
    return "\n".join(["## Figures", "", note, "", *links])


def missing_runs_part(artefacts: Mapping[str, ModuleType], records: Records) -> str:
    """The number of missing runs of each artefact, and the command that lists them."""
    rows = []
    for name, module in artefacts.items():
        needed, missing = len(module.ARTEFACT.commands()), len(module.ARTEFACT.commands(records))
        if missing and module.ARTEFACT.runs:
            rows.append((module.ARTEFACT.title, f"{missing} of {needed}", f"`python experiments/{name}.py --missing`"))
    if not rows:
        return "Every run has a record."
    header = ("table, figure or page", "missing runs", "command that lists them")
    note = (
        "A run counts once per seed, and is missing if it has no record, a record with too few epochs, or, where Table "
        "1 shows MC dropout, a record without it."
    )
    parts = ["## Missing runs", note, Table("", "", header, rows, numbers=False).markdown()]
    figures = [name for name in artefacts if name.startswith("figure")]
    empty = [name for name in figures if not artefacts[name].ARTEFACT.has_data(records)]
    if empty:
        parts.append(f"Figures that are not drawn, because none of their runs has a record: {', '.join(empty)}.")
    return "\n\n".join(parts)
