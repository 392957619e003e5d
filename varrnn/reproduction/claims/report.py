"""The verdicts as tables in Markdown and CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from varrnn import fileio
from varrnn.reporting.table import Table
from varrnn.reproduction.claims.verdict import BY_TEST, VERDICTS, Claim, Verdict

Verdicts = Sequence[tuple[Claim, Verdict]]

HEAD = """# The paper's claims, and what our records say

Generated from results/records by `make paper`; do not edit. The rules were written before the runs that they judge, \
except for the changes listed below. *indicative*: fewer seeds than the rule requires (one; C13 and sentiment: fewer \
than three), agreement of models that learnt nothing or, for the small model, an incomplete grid of dropout rates. \
*few epochs*: fewer than 100 epochs of the sentiment task. *not run*: a record is missing; the commands are below. \
The small model (200 units, not in the paper) does not decide a claim: whether it agrees or disagrees is shown after \
the verdict (only the sign counts if one model must win; the tolerance is the same if two must be equal). Claims \
marked "ours" are not the paper's and are not counted.

Changed since the first records, after the named claims had been judged: the masks of the sentiment runs. C26 to \
C30 had been judged (one seed each, all disagreed) with masks scaled by 1 / (1 - p). The paper's text has masks of 0 \
and 1 (a kept row of q(w) is m_k, the listing does not divide, the approximation scales the weights at test time), so \
the protocol now uses these masks; the reason is the text, not a result. The older records are kept as the ablation \
task.scaling=inverted. C27 uses the train error by MC (train_rmse_mc) for a model with dropout, since the dropout \
approximation overstates it. The last 10 % of epochs are measured with 50 MC samples instead of ten. C40 also \
requires the optimal model. C42, judged at 8 epochs before, stays open until both of its runs have 100. The weight \
decay of the Variational GRU went from 1e-3 to 1e-6 (on held-out reviews) after its test curve with 1e-3 had been \
published. C28b, C50 and C50b are new, and were written before their runs.

Also changed: C22b (ours) was about a batched product in torch, which missed its limit on a CPU \
(benchmark record of commit 52ed47a; the first one of our C kernels, 064650f, missed it narrowly for the large \
model). After it had been judged, it was changed to those kernels at the sizes of Table 1. C32 requires a first fall \
as high as the rise, measured on the unfiltered curve; C40 and C41 count a Kendall of two thirds as .67.
"""


def table(verdicts: Verdicts) -> Table:
    """One row per claim."""
    columns = ("Claim", "Statement", "Paper", "Rule", "Verdict", "Ours", "n", "Small model")
    rows = [
        (
            f"{claim.id} (ours)" if claim.is_extra else claim.id,
            claim.statement,
            claim.paper,
            claim.rule_text,
            verdict.label(),
            _numbers(verdict),
            str(verdict.n) if verdict.n else "",
            verdict.small_size,
        )
        for claim, verdict in verdicts
    ]
    return Table("claims", "Claims", columns, rows, numbers=False)


def _numbers(verdict: Verdict) -> str:
    """Our numbers, and discarded runs."""
    parts = [verdict.numbers]
    if verdict.unstable:
        parts.append(f"{verdict.unstable} unstable runs discarded")
    return "; ".join(filter(None, parts))


def summary(verdicts: Verdicts) -> str:
    """ "47 claims: 3 reproduced, 1 not reproduced, ..."; additional claims are not counted."""
    counted = [verdict.status for claim, verdict in verdicts if not claim.is_extra]
    found = Counter(counted)
    return f"{len(counted)} claims: " + ", ".join(f"{found[word]} {word}" for word in VERDICTS if found[word])


def open_commands(verdicts: Verdicts) -> str:
    """The commands that would decide the open claims, without repetition."""
    claims: dict[tuple[str, ...], list[str]] = {}
    for claim, verdict in verdicts:
        if verdict.commands and verdict.status != BY_TEST:
            claims.setdefault(verdict.commands, []).append(claim.id)
    blocks = [f"{', '.join(ids)}:\n```\n" + "\n".join(lines) + "\n```" for lines, ids in claims.items()]
    return "\n".join(["## Commands that would decide the open claims", *blocks]) if blocks else ""


def document(verdicts: Verdicts) -> str:
    return (
        "\n\n".join([HEAD.strip(), f"**{summary(verdicts)}.**", table(verdicts).markdown(), open_commands(verdicts)])
        + "\n"
    )


def csv(verdicts: Verdicts) -> str:
    """The same as the table, with the commands in a separate column."""
    plain = table(verdicts)
    rows = [(*row, " && ".join(verdict.commands)) for row, (_, verdict) in zip(plain.rows, verdicts)]
    return Table("claims", "Claims", (*plain.columns, "Commands"), rows).csv()


def write(verdicts: Verdicts, folder: Path) -> list[Path]:
    """claims.md and claims.csv below results/."""
    files = {folder / "claims.md": document(verdicts), folder / "claims.csv": csv(verdicts)}
    for path, text in files.items():
        fileio.write_text(path, text)
    return list(files)


def lines(verdicts: Verdicts) -> str:
    """Text for the terminal: one line per claim, and the commands of missing runs."""
    out = []
    for claim, verdict in verdicts:
        out.append(f"{claim.id:5} {verdict.label():24} {claim.statement}  [paper: {claim.paper}]")
        details = [_numbers(verdict), verdict.small_size]
        if verdict.status != BY_TEST and verdict.commands:
            details.append("decide with: " + verdict.commands[0] + (" ..." if len(verdict.commands) > 1 else ""))
        out += [f"{'':30} {detail}" for detail in details if detail]
    return "\n".join([*out, "", summary(verdicts)])
