"""Table cells from records: our numbers and the paper's, "not run" without a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from varrnn.records.store import Group, Records
from varrnn.reporting.table import DASH, NOT_RUN, Table
from varrnn.reproduction.artefact import Artefact


def table_artefact(file: str, title: str, tables: Callable[[Records], list[Table]], **rest: Any) -> Artefact:
    """An artefact of tables. `file` is the experiment's __file__; the artefact has its name."""

    def render(records: Records, folder: Path) -> list[Path]:
        return [path for table in tables(records) for path in table.write(folder)]

    return Artefact(Path(file).stem, title, render, **rest)


def mean_sd(group: Group, metric: str, digits: int = 1) -> str:
    """ "81.8 ± 0.2"; no deviation for one seed; "not run" without a record, a dash if it was not measured."""
    if not group.records:
        return NOT_RUN
    mean, sd = group.mean(metric), group.std(metric)
    if mean is None:
        return DASH
    return f"{mean:.{digits}f}" + (f" ± {sd:.{digits}f}" if sd is not None else "")


def mc_cell(group: Group) -> str:
    """Test perplexity by MC dropout, with the number of samples if not 1000 and of seeds if not all have it."""
    sampled = group.with_mc()
    if not sampled.records:
        return DASH if group.records else NOT_RUN
    samples = sampled.mean("mc_samples")
    unusual = [f"{samples:.0f} samples"] if samples is not None and samples != 1000 else []
    unusual += [f"n={len(sampled)}"] if len(sampled) < len(group) else []
    return mean_sd(sampled, "test_ppl_mc") + (f" ({', '.join(unusual)})" if unusual else "")


def difference(group: Group, metric: str, published: float | None, digits: int = 1) -> str:
    """Ours minus the paper's."""
    mean = group.mean(metric)
    return DASH if mean is None or published is None else f"{mean - published:+.{digits}f}"


def format_published(value: float | None, sd: float | None = None, digits: int = 1) -> str:
    if value is None:
        return DASH
    return f"{value:.{digits}f}" + (f" ± {sd:.{digits}f}" if sd is not None else "")


def thousands(value: float | None) -> str:
    """Words per second as in Table 1: 4.7K."""
    return DASH if value is None else f"{value / 1000:.1f}K"


def changed_machine(group: Group) -> bool:
    """Whether a run was resumed on other hardware: its words per second then mix both."""
    return any((record.content.get("hardware") or {}).get("earlier") for record in group.records)


def hardware(groups: Iterable[Group]) -> str:
    """The hardware of the runs: the GPU, or the CPU with its threads, and the precision of products if it is lower.

    For resumed runs also the earlier hardware."""
    found = []
    for record in (record for group in groups for record in group.records):
        info = record.content.get("hardware") or {}
        threads = info.get("threads", "?")
        cpu = f"{info.get('cpu', 'unknown CPU')}, {threads} thread{'' if threads == 1 else 's'}"
        precision = f", precision {info['precision']}" if info.get("precision", "highest") != "highest" else ""
        found += [
            (info.get("gpu") or cpu) + precision,
            *(f"started on {earlier}" for earlier in info.get("earlier", [])),
        ]
    return "; ".join(dict.fromkeys(found)) or DASH


def seeds_cell(group: Group) -> str:
    """The number of seeds, and of unstable runs: "3", "2 (1 unstable)"."""
    return f"{len(group)}" + (f" ({group.unstable} unstable)" if group.unstable else "")
