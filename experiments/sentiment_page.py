"""results/SENTIMENT.md: which sentiment results reproduce, under the paper's text and under the authors' code.

Every number and verdict comes from records; the fixed paragraphs say what was done and why, without results.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from varrnn import fileio
from varrnn.config.identity import identity_of
from varrnn.records.store import Group, Record, Records, group_by_seed
from varrnn.reporting.style import VARIANTS
from varrnn.reporting.table import Table
from varrnn.reproduction.artefact import Artefact, experiment, main, unique
from varrnn.reproduction.claims import CLAIMS, judge
from varrnn.reproduction.readme import SENTIMENT_CAPTION
from varrnn.reproduction.runs import FIGURE4A, FIGURE11, Run, figure3, figure3_authors, sentiment, stated_optimum
from varrnn.reproduction.statistics import final_mean, mc_epochs, overfitting_gap, seed_mean

PICTURE = r"!\[(?P<title>[^\]]*)\]\(figures/(?P<name>\w+)\.png\)"
INTRODUCTION = """\
# Sentiment analysis: what reproduces, and what does not

Generated from results/records by `make paper`; do not edit. The paper's second task is to predict the rating of a \
film review (section 5.2 and appendix). It has two protocols here, the paper's text and the authors' code, because \
these differ ([DIFFERENCES.md](DIFFERENCES.md)). Errors are root mean square errors (RMSE) on the test set in units \
of the ratings, by MC dropout for models with dropout. A final value is the mean over those of the last 10 % of \
epochs at which MC dropout is measured, with 50 samples (epochs 95 and 100 of 100; the same for models without \
dropout). In the tables, "approximation" is the error of the dropout approximation, "lowest (epoch)" the \
lowest point of the curve, "gap" the final value minus that, λ the weight decay, n the number of seeds. "Not run" \
means that there is no record. Rules and terms of the claims: [claims.md](claims.md)."""
IN_SHORT = """\
## In short

Final test errors of figure 3, the lowest first, and what the rules of the claims say about our runs. A verdict from \
one seed is a hint, not a reproduction."""
TEXT = """\
## As the paper's text says

`protocol=paper`: masks of 0 and 1 in training and in MC dropout, a factor 1 - p in the dropout approximation only, \
one mask of word types per sequence, weight decay on all layers, sigmoid gates. Dropout rates and weight decay are \
chosen on held-out training reviews ([tables/selection.md](tables/selection.md)). If these choose other values for \
the LSTM than the optimum that the paper states (p = .25, λ = 1e-3), the figure shows both.

![Figure 3](figures/figure3.png)"""
CODE = """\
## As the authors' code does

`protocol=authors_code`: hard sigmoids as gates, initial recurrent weights 1.1 times as large, a sigmoid instead of a \
tanh for the candidate of the GRU, one word mask per minibatch, a separate mask for each gate in naive dropout, \
weight decay on one gate only. The variational models use the defaults of the authors' scripts, p = .5 and λ = 1e-6; \
the LSTM also has a row with the optimum that the paper states.

![Figure 3, authors' code](figures/figure3_authors.png)"""
RECURRENT = """\
## What the recurrent mask does at T = 200

T is the number of words of a training segment; a recurrent mask is the same at all 200 steps. Figure 4 switches the \
word mask (p_E) and the recurrent mask (p_U) on and off, with p_W = p_y = .5 and λ = 1e-6, the defaults of the \
authors' scripts. Models without a recurrent mask are also trained without the held-out reviews and measured on them \
(rows with p_U = 0 in [tables/selection.md](tables/selection.md)); the choice of dropout rates does not use them.

![Figure 4](figures/figure4.png)

![Figure 5](figures/figure5.png)"""
TRIED = """\
## What was tried

At first our protocol scaled kept units by 1 / (1 - p), as the language models do. A mask that is the same at every \
step then multiplies the same recurrent connections by the same factor above one at every step. The paper's text has \
no such factor, so we changed the protocol after those runs had been judged ([claims.md](claims.md)). They are kept \
as an ablation, `task.scaling=inverted` (second table). The first table has two further models: the variational LSTM \
without word and recurrent masks (figure 11), and naive dropout that also draws new masks for the recurrent \
connections at every step (`model=naive_recurrent`), which according to the paper deteriorates performance."""
JUMP = 0.02  # a rise of the test error from one epoch to the next that is reported
LEARNING = 5  # first epochs, in which every curve changes much
COLUMNS = ("Model", "cell", "p_E", "p_W", "p_U", "p_y", "λ", "test RMSE, MC", "approximation", "lowest (epoch)", "gap",
           "train RMSE, MC", "epochs", "n")  # fmt: skip
CLAIMED = {
    "text": ("C26", "C27", "C28", "C28b", "C29", "C30", "C40", "C41", "C42", "C43", "C50b"),
    "masks": ("C31", "C32", "C33", "C34", "C35", "C38", "C39", "C49"),
}
COMPARED = {
    "The paper's text, LSTM": (*figure3("lstm").values(), stated_optimum()),
    "The paper's text, GRU": tuple(figure3("gru").values()),
    "The authors' code, LSTM": tuple(figure3_authors("lstm").values()),
    "The authors' code, GRU": tuple(figure3_authors("gru").values()),
}
BASIC = (*COMPARED["The paper's text, LSTM"], *COMPARED["The paper's text, GRU"])
AUTHORS = (*COMPARED["The authors' code, LSTM"], *COMPARED["The authors' code, GRU"])
EXTRA = (FIGURE11["fixed mask"], sentiment("naive_recurrent"))


def run_table(records: Records, name: str, runs: Iterable[Run]) -> str:
    """One row per run, as in tables/sentiment.md; a run without records says so."""
    cells = experiment("sentiment").row_cells
    rows = []
    for run in unique(runs):
        group = records.group(run)
        row = cells(run, group) if group.records else not_run(run)
        rows.append([*row[:2], *row[3:]])  # T is 200 throughout
    return Table(name, name, COLUMNS, rows).markdown()


def not_run(run: Run) -> list[str]:
    options = identity_of(run).options
    rates = [f"{options[f'model.{name}']:g}" for name in ("p_E", "p_W", "p_U", "p_y")]
    decay = f"{options['optim.weight_decay']:g}"
    label = VARIANTS[str(options["model.name"])].label
    return [label, str(options["cell"]), "200", *rates, decay, "not run", *[""] * 6]


def verdicts(records: Records, ids: Iterable[str]) -> str:
    """The claims with their verdicts and numbers, word for word."""
    by_id = {claim.id: claim for claim in CLAIMS}
    rows = []
    for name in ids:
        verdict = judge(by_id[name], records)
        rows.append([name, by_id[name].statement, verdict.label(), verdict.numbers])
    columns = ("Claim", "Statement", "Verdict", "Ours")
    return Table("verdicts", "", columns, rows, numbers=False).markdown()


def in_short(records: Records) -> str:
    """The models of figure 3 in the order of their errors, and the claims by verdict."""
    lines = [f"- {name}: {ranking(records, runs)}." for name, runs in COMPARED.items()]
    lines += [f"- MC dropout and the dropout approximation of the same model: {approximations(records)}."]
    answers: dict[str, list[str]] = {"agrees": [], "disagrees": [], "open": []}
    by_id = {claim.id: claim for claim in CLAIMS}
    for name in (*CLAIMED["text"], *CLAIMED["masks"]):
        verdict = judge(by_id[name], records)
        answer = "open" if verdict.agrees is None else "agrees" if verdict.agrees else "disagrees"
        answers[answer].append(f"{by_id[name].statement} ({name}: {verdict.status})" if answer != "open" else name)
    heads = {"agrees": "Claims that our runs agree with", "disagrees": "Claims that they disagree with", "open": "Open"}
    lines += [f"- {heads[answer]}: {'; '.join(found) or 'none'}." for answer, found in answers.items()]
    return "\n".join([IN_SHORT, "", *lines])


def ranking(records: Records, runs: Iterable[Run]) -> str:
    """The models with a record and their final errors, the lowest first."""
    groups = {run: records.group(run) for run in unique(runs)}
    missing = [run for run, group in groups.items() if not group.records]
    errors = {run: final_error(group) for run, group in groups.items() if run not in missing}
    shown = ", ".join(f"{describe(run)} {errors[run]:.4f}" for run in sorted(errors, key=errors.__getitem__))
    return "; ".join(filter(None, [shown, "not run: " + ", ".join(map(describe, missing)) if missing else ""]))


def approximations(records: Records) -> str:
    """The final errors of the variational models of figure 3, by MC dropout and by the dropout approximation."""
    found = []
    for name, runs in COMPARED.items():
        for run in unique(runs):
            group, options = records.group(run), identity_of(run).options
            if group.records and options["model.name"] == "variational_untied":
                mc, plain = (seed_mean(group, final_mean, column, mc_epochs(group)) for column in (None, "test_rmse"))
                found.append(f"{name}, λ = {options['optim.weight_decay']:g}: {mc:.4f} and {plain:.4f}")
    return "; ".join(found) or "not run"


def describe(run: Run) -> str:
    """The model, with rates and weight decay where it has them."""
    options = identity_of(run).options
    decay = float(options["optim.weight_decay"])
    rates = f" (p_E = {options['model.p_E']:g}, p_U = {options['model.p_U']:g}, λ = {decay:g})" if decay else ""
    return VARIANTS[str(options["model.name"])].label + rates


def mask_table(records: Records) -> str:
    """Figure 4a as a table: the final test error by p_E and p_U."""
    groups: Mapping[str, Group] = {role: records.group(run) for role, run in FIGURE4A.items()}

    def cell(role: str) -> str:
        group = groups[role]
        if not group.records:
            return "not run"
        return f"{final_error(group):.4f} ({group.epochs} epochs, n={len(group)})"

    rows = [[f"p_E={e}", *(cell(f"p_E={e} p_U={u}") for u in ("0", "0.5"))] for e in ("0", "0.5")]
    return Table("masks", "", ("test RMSE, MC", "p_U=0", "p_U=0.5"), rows).markdown()


def mask_effects(records: Records) -> str:
    """How much each mask of figure 4a changes the final error and the gap, without and with the other mask."""
    groups = {role: records.group(run) for role, run in FIGURE4A.items()}
    if not all(group.records for group in groups.values()):
        return "How much each mask changes the error is shown once all four settings have a record."

    def changes(statistic: Callable[[Group], float], off: str, on: str) -> str:
        without, with_other = (
            statistic(groups[on.format(other)]) - statistic(groups[off.format(other)]) for other in ("0", "0.5")
        )
        return f"{without:+.4f} and {with_other:+.4f}"

    lines = ["What each mask changes, first without and then with the other mask:", ""]
    masks = {"recurrent": ("p_E={} p_U=0", "p_E={} p_U=0.5"), "word": ("p_E=0 p_U={}", "p_E=0.5 p_U={}")}
    for name, roles in masks.items():
        lines.append(
            f"- The {name} mask changes the final error by {changes(final_error, *roles)}, and the gap by "
            f"{changes(final_gap, *roles)}."
        )
    return "\n".join(lines)


def final_error(group: Group) -> float:
    return seed_mean(group, final_mean, at=mc_epochs(group))


def final_gap(group: Group) -> float:
    return seed_mean(group, overfitting_gap, at=mc_epochs(group))


def jumps(records: Records) -> str:
    """The runs whose test error rises sharply from one epoch to the next, after the first epochs."""
    found = []
    for run in unique((*BASIC, *AUTHORS, *FIGURE4A.values())):
        for record in records.group(run).records:
            epochs, values = record.column("test_rmse")
            rises = np.diff(values) * ((np.diff(epochs) == 1) & (epochs[1:] > LEARNING))
            if len(rises) and rises.max() > JUMP:
                at = int(rises.argmax())
                label = VARIANTS[record.choices["model"]].label
                found.append(f"{label}, {record.choices['cell']}, protocol={record.choices['protocol']}, "
                             f"seed {record.seed}: "
                             f"from {values[at]:.4f} to {values[at + 1]:.4f} at epoch {epochs[at + 1]}")  # fmt: skip
    return (
        f"Runs whose test error rises by more than {JUMP:g} from one epoch to the next: {'; '.join(found) or 'none'}."
    )


def ablations(records: Records) -> str:
    """The runs with inverted masks on all training reviews, from their records."""
    groups: dict[str, list[Record]] = {}
    for record in records.runs:
        options = record.identity.options
        trial = record.choices["task"] == "cornell" and options.get("task.scaling") == "inverted"
        if trial and not options.get("task.hold_out") and record.choices["protocol"] == "paper":
            groups.setdefault(str(record.path.parent), []).append(record)
    rows = []
    for made in map(group_by_seed, groups.values()):
        if made.records:
            first, at = made.records[0], mc_epochs(made)
            rates = [f"{first.options[key]:g}" for key in experiment("selection").RATES]
            ends = [f"{seed_mean(made, final_mean, column, at):.4f}" for column in (None, "test_rmse")]
            label = VARIANTS[first.choices["model"]].label
            rows.append([label, first.choices["cell"], *rates, *ends, str(made.epochs), str(len(made))])
    if not rows:
        return "No record."
    columns = ("Model, inverted masks", *COLUMNS[1:9], "epochs", "n")
    return Table("inverted", "", columns, rows).markdown()


def open_runs(records: Records) -> str:
    """How many runs of each figure have a record."""
    lines = []
    for name in ("selection", "figure3", "figure3_authors", *(f"figure{n}" for n in range(4, 13))):
        artefact = experiment(name).ARTEFACT
        runs = unique(artefact.runs)
        done = sum(not records.missing(run, (1,)) for run in runs)
        lines.append(f"- {artefact.title}: {done} of {len(runs)}.")
    note = "How many runs with seed 1 have a record with all epochs:"
    return "\n".join(["## Runs with a record", "", note, "", *lines, "", precisions(records)])


def precisions(records: Records) -> str:
    """How many of this task's records of a CPU were computed with products of lower precision."""
    machines = [record.content.get("hardware") or {} for record in records.runs if record.choices["task"] == "cornell"]
    of_cpu = [machine for machine in machines if not machine.get("gpu")]
    high = sum(machine.get("precision") == "high" for machine in of_cpu)
    return (
        f"{high} of the {len(of_cpu)} records of this task that were made on a CPU were made with `precision=high` "
        "([what that is](../varrnn/kernels/README.md#precisionhigh)), the others in float32."
    )


def page(records: Records) -> str:
    parts = [
        *(INTRODUCTION, in_short(records)),
        *(TEXT, run_table(records, "text", BASIC), jumps(records), verdicts(records, CLAIMED["text"])),
        *(CODE, run_table(records, "code", AUTHORS)),
        *(RECURRENT, mask_table(records), mask_effects(records), verdicts(records, CLAIMED["masks"])),
        *(TRIED, run_table(records, "extra", EXTRA), ablations(records), open_runs(records)),
    ]
    return re.sub(PICTURE, lambda found: shown_picture(found, records), "\n\n".join(parts)) + "\n"


def shown_picture(found: re.Match[str], records: Records) -> str:
    """A figure that has data with its caption, or a line that says that it was not run."""
    artefact = experiment(found["name"]).ARTEFACT
    if not artefact.has_data(records):
        return f"*{found['title']}: not run.*"
    return f"{found[0]}\n\n*{SENTIMENT_CAPTION if artefact.name == 'figure3' else f'{artefact.title}.'}*"


def render(records: Records, folder: Path) -> list[Path]:
    file = folder / "SENTIMENT.md"
    fileio.write_text(file, page(records))
    return [file]


ARTEFACT = Artefact(
    "sentiment_page",
    "Which sentiment results reproduce",
    render,
    runs=(*BASIC, *AUTHORS, *FIGURE4A.values(), *EXTRA),
    claims=("C50b",),
)

if __name__ == "__main__":
    main(ARTEFACT)
