"""What the page shows, as one tree of plain values; every number comes from results/records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from varrnn.records.store import Records
from varrnn.reporting.style import REFERENCE, VARIANTS
from varrnn.reporting.table import Table
from varrnn.reproduction.artefact import experiment, names
from varrnn.reproduction.claims import judge_all
from varrnn.reproduction.claims.report import Verdicts, count_label, summary
from varrnn.reproduction.claims.special import latest_benchmark
from varrnn.reproduction.claims.verdict import (
    BY_TEST,
    FEW_EPOCHS,
    INDICATIVE,
    NOT_REPRODUCED,
    REPRODUCED,
    VERDICTS,
    Claim,
    Verdict,
)
from varrnn.reproduction.figures import collect_figures
from varrnn.reproduction.machines import describe_machine
from varrnn.reproduction.quotations import QUOTATIONS
from varrnn.reproduction.report import charts
from varrnn.reproduction.runs import commands

FIGURES = tuple(f"figure{number}" for number in range(2, 16))
SPEED_SIZES = ("small", "medium", "large", "sentiment")
# the four groups of verdicts, by which the page filters the claims
AGREES, DISAGREES, INDICATION, OPEN = "agrees", "disagrees", "indicative", "not run"
GROUPS = {
    REPRODUCED: AGREES,
    BY_TEST: AGREES,
    NOT_REPRODUCED: DISAGREES,
    INDICATIVE: INDICATION,
    FEW_EPOCHS: INDICATION,
}


def collect_content(records: Records, words: Mapping[str, Any] | None) -> dict[str, Any]:
    """The content of the page; `words` comes from analysis.word_samples, if a trained model is available."""
    verdicts = judge_all(records)
    modules = {name: experiment(name) for name in names()}
    return {
        "summary": summary(verdicts),
        "tables": [_table(table) for table in _perplexity_tables(modules, records)],
        "curves": charts.learning_curves(records),
        "figures": [_figure(modules[name], records) for name in FIGURES],
        "claims": [_claim(claim, verdict, modules) for claim, verdict in verdicts],
        "groups": _groups(verdicts),
        "speed": _speed(modules["speed"], records),
        "words": dict(words) if words else None,
    }


def _perplexity_tables(modules: Mapping[str, Any], records: Records) -> list[Table]:
    """Table 1 at both sizes, and the small model, which is not in the paper."""
    return [*modules["table1"].tables(records), modules["small"].table(records)]


def _table(table: Table) -> dict[str, Any]:
    return {"title": table.title, "columns": list(table.columns), "rows": [list(row) for row in table.rows],
            "note": table.note}  # fmt: skip


def _figure(module: Any, records: Records) -> dict[str, Any]:
    """The panels of a figure that have data, and the commands of its missing runs."""
    artefact = module.ARTEFACT
    with collect_figures() as figures:
        artefact.render(records, Path())
    panels = [chart for figure in figures for chart in charts.from_figure(figure)]
    return {
        "name": artefact.name,
        "title": artefact.title,
        "claims": list(artefact.claims),
        "panels": [panel for panel in panels if any(trace["x"] for trace in panel["traces"])],
        "empty": [p["title"] for p in panels if not any(trace["x"] for trace in p["traces"])],
        "missing": commands(artefact.missing(records)),
    }


def _claim(claim: Claim, verdict: Verdict, modules: Mapping[str, Any]) -> dict[str, Any]:
    """One tile of the board, and its details."""
    small = re.match(r"small model (\w+)", verdict.small_size)
    agreed = {True: AGREES, False: DISAGREES, None: ""}[verdict.agrees]
    return {
        "id": claim.id,
        "statement": claim.statement,
        "quotation": QUOTATIONS.get(claim.id, ""),
        "paper": claim.paper,
        "rule": claim.rule_text,
        "group": GROUPS.get(verdict.status, OPEN),
        "verdict": verdict.label(),
        "agrees": AGREES if verdict.status == BY_TEST else agreed,
        "numbers": verdict.numbers + (f"; {verdict.unstable} unstable runs discarded" if verdict.unstable else ""),
        "n": verdict.n,
        "small": small.group(1) if small else "",
        "small_model": verdict.small_size,
        "commands": list(verdict.commands) or [f"python scripts/claims.py {claim.id}"],
        "ours": claim.is_extra,
        "shown_in": [name for name, module in modules.items() if claim.id in module.ARTEFACT.claims],
    }


def _groups(verdicts: Verdicts) -> list[dict[str, Any]]:
    """Each group with its verdicts and its numbers of claims: those of the paper, which `summary` counts, and ours."""
    found = []
    for name in (AGREES, DISAGREES, INDICATION, OPEN):
        members = [claim for claim, verdict in verdicts if GROUPS.get(verdict.status, OPEN) == name]
        extra = sum(claim.is_extra for claim in members)
        words = [count_label(word) for word in VERDICTS if GROUPS.get(word, OPEN) == name]
        found.append({"name": name, "verdicts": words, "paper": len(members) - extra, "ours": extra})
    return found


def _speed(module: Any, records: Records) -> dict[str, Any]:
    """Words per second on the machine of the last record, one group of bars per size; the table has all machines."""
    benchmark, table = latest_benchmark(records), _table(module.table(records))
    sizes = [size for size in SPEED_SIZES if isinstance(benchmark.get(size), Mapping)]
    bars = [
        {
            "size": size,
            "bars": [
                {"label": label, "value": benchmark[size][key],
                 "colour": VARIANTS[key].colour if key in VARIANTS else REFERENCE}
                for key, label in module.LABELS.items() if benchmark[size].get(key)
            ],
        }
        for size in sizes
    ]  # fmt: skip
    return {"table": table, "bars": bars, "machine": describe_machine(benchmark), "command": module.COMMAND}
