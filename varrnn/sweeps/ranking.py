"""Rank the grid points of a sweep by their validation value."""

import json
import math
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from omegaconf import OmegaConf

from varrnn.config import compose
from varrnn.config.identity import config_identity
from varrnn.config.overrides import format_override
from varrnn.config.schema import DROP_RATES
from varrnn.errors import UserError
from varrnn.records import schema as record_schema
from varrnn.records.selection import shared_seeds
from varrnn.records.store import json_files
from varrnn.reporting.table import Table

GRID = (*(f"model.{name}" for name in DROP_RATES), "optim.weight_decay")
SCORES = ("valid_ppl", "valid_rmse_mc", "valid_rmse")  # lower is better; the first that every run has
TEST_METRICS = ("test_rmse_mc", "test_rmse")  # the authors' choice; only under protocol=authors_code
MAX_NAME = 60  # characters of a file's name
PROBE = 0.123  # a value that no config file uses
Values = tuple[Any, ...]


@dataclass
class Point:
    """One setting of the grid, over its seeds."""

    values: Values  # in the order of Grid.keys
    scores: dict[int, float] = field(default_factory=dict)  # seed -> validation value; infinite for an unstable run

    @property
    def mean(self) -> float:
        return fmean(self.scores.values())

    def __str__(self) -> str:
        if not math.isfinite(self.mean):
            return record_schema.UNSTABLE
        spread = f" ± {stdev(self.scores.values()):.3g}" if len(self.scores) > 1 else ""
        return f"{self.mean:.5g}{spread}"


@dataclass
class Grid:
    """Runs that differ only in seeds and swept options."""

    choices: dict[str, str]
    fixed: dict[str, Any]  # options that differ from the choices and are the same for all points
    keys: tuple[str, ...]  # the swept options
    score: str
    points: list[Point]  # best first

    @property
    def name_parts(self) -> list[str]:
        """Task, size and model, and every choice that is not the default."""
        chosen = self.choices
        parts = [chosen["task"], chosen["size"], chosen["model"]]
        parts += [chosen[key] for key, default in (("cell", "lstm"), ("protocol", "paper")) if chosen[key] != default]
        return parts + [f"{key}={value}" for key, value in self.fixed.items()]

    @property
    def name(self) -> str:
        """A file name such as `ptb_small_naive`; a long one is cut to its choices and a hash (`title` is complete)."""
        whole = "_".join(self.name_parts)
        chosen = "_".join(self.name_parts[: len(self.name_parts) - len(self.fixed)])
        short = whole if len(whole) <= MAX_NAME else f"{chosen}~{compose.short_hash(whole)}"
        return compose.safe_file_name(short)

    @property
    def title(self) -> str:
        """Every choice, and every option that differs from the choices."""
        return " ".join(self.name_parts)

    @property
    def leakage_note(self) -> str:
        if self.score in TEST_METRICS:
            return "LEAKAGE: chosen on the test set, as in the authors' code; report no test error of the chosen run."
        return "The test set was not used for the choice."

    def axes(self) -> list[tuple[str, ...]]:
        """The swept options that vary; options that always have equal values (p_E and p_U) form one axis."""
        columns: dict[Values, tuple[str, ...]] = {}
        for index, key in enumerate(self.keys):
            column = tuple(point.values[index] for point in self.points)
            if len(set(column)) > 1:
                columns[column] = (*columns.get(column, ()), key)
        return list(columns.values())

    def value(self, point: Point, axis: tuple[str, ...]) -> Any:
        """The point's value on an axis."""
        return point.values[self.keys.index(axis[0])]


def load_summaries(folder: Path) -> Iterator[dict[str, Any]]:
    """The summaries of all runs below a folder (or published records)."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder of runs; the runs of a sweep are below its runs_root")
    for file in json_files(folder):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            print(f"left out: {file}: not readable ({error})", file=sys.stderr)
            continue
        known = isinstance(content, dict) and {"choices", "status", "config"} <= content.keys()
        problem = record_schema.validation_error(content, record_schema.SUMMARY) if known else ""
        if problem:
            print(f"left out: {file}: {problem}", file=sys.stderr)
        elif known and content["status"] != record_schema.EXTENDED:
            yield content


def find_grids(summaries: Sequence[dict[str, Any]], sweep_keys: Sequence[str] = ()) -> list[Grid]:
    """Every group of runs that differ only in seeds and swept options (GRID and `sweep_keys`)."""
    keys = (*GRID, *sweep_keys)
    groups: dict[str, list[dict[str, Any]]] = {}
    for summary in summaries:
        rest = {
            key: value for key, value in config_identity(summary["config"]).items() if key not in keys and key != "seed"
        }
        groups.setdefault(json.dumps([summary["choices"], rest]), []).append(summary)
    return [_grid(group, keys) for group in groups.values()]


def _grid(group: list[dict[str, Any]], keys: tuple[str, ...]) -> Grid:
    score = _score(group)
    points: dict[Values, Point] = {}
    for summary in group:
        options = config_identity(summary["config"])
        values = tuple(options.get(key) for key in keys)
        value = summary["metrics"].get(score)
        point = points.setdefault(values, Point(values))
        point.scores[summary["seed"]] = math.inf if value is None else value
    varying = {key for index, key in enumerate(keys) if len({values[index] for values in points}) > 1}
    fixed = {key: value for key, value in group[0]["diff"].items() if key not in varying}
    return Grid(dict(group[0]["choices"]), fixed, keys, score, rank(points.values()))


def rank(points: Iterable[Point]) -> list[Point]:
    """Best first, all by the same seeds, as for published records; points without these seeds come last."""
    points = list(points)
    seeds = shared_seeds(point.scores for point in points)

    def by_seeds(point: Point) -> tuple[bool, float]:
        has_seeds = seeds <= point.scores.keys()
        return not has_seeds, fmean(point.scores[seed] for seed in seeds) if has_seeds else point.mean

    return sorted(points, key=by_seeds)


def _score(group: list[dict[str, Any]]) -> str:
    """The metric that ranks the group; "" without validation values."""
    finished = [summary["metrics"] for summary in group if summary["status"] == record_schema.FINISHED]
    names = (*SCORES, *TEST_METRICS) if group[0]["choices"]["protocol"] == "authors_code" else SCORES
    return next((name for name in names if finished and all(name in metrics for metrics in finished)), "")


def ranking_table(grid: Grid) -> Table:
    """The grid points in order of their rank, with their values and numbers of seeds."""
    axes = grid.axes()
    columns = ("rank", *(axis_label(axis) for axis in axes), grid.score, "seeds")
    rows = [
        [str(rank), *(f"{grid.value(point, axis)}" for axis in axes), str(point), str(len(point.scores))]
        for rank, point in enumerate(grid.points, 1)
    ]
    note = f"Ranked by {grid.score}, {seeds_note(grid)}. {grid.leakage_note}"
    return Table(grid.name, grid.title, columns, rows, note)


def seeds_note(grid: Grid) -> str:
    """Which seeds were used for ranking; the shown values are means over all seeds of a point."""
    seeds = shared_seeds(point.scores for point in grid.points)
    note = f"mean over seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, sorted(seeds)))}"
    if all(point.scores.keys() == seeds for point in grid.points):
        return note
    complete = all(seeds <= point.scores.keys() for point in grid.points)
    last = "" if complete else "; points without these seeds come last"
    return f"{note}{last}; shown is the mean over all seeds of a point"


def axis_label(axis: tuple[str, ...]) -> str:
    """`p_E = p_U`"""
    return " = ".join(key.removeprefix("model.").removeprefix("optim.") for key in axis)


def best_options(grid: Grid) -> dict[str, Any]:
    """The swept options of the best point, without those that are tied to another one (p_E: ${.p_U})."""
    best = grid.points[0]
    return {key: grid.value(best, (key,)) for axis in grid.axes() for key in axis if key not in tied_keys(grid, axis)}


def tied_keys(grid: Grid, axis: tuple[str, ...]) -> set[str]:
    """The options of an axis that the model's YAML ties to another option."""
    found: set[str] = set()
    for key in axis if len(axis) > 1 else ():
        try:
            composed = compose.flatten(compose.compose([*_choices(grid), f"{key}={PROBE}"]))
        except compose.COMPOSE_ERRORS:  # then list every option
            return set()
        found |= {other for other in axis if other != key and composed.get(other) == PROBE}
    return found


def _choices(grid: Grid) -> list[str]:
    return [f"{group}={name}" for group, name in grid.choices.items()]


def best_yaml(grid: Grid) -> str:
    """The best point as the content of a file in configs/tuned."""
    best, tree = grid.points[0], OmegaConf.create()
    rates = {key: value for key, value in grid.fixed.items() if key in GRID}
    for key, value in (rates | best_options(grid)).items():
        OmegaConf.update(tree, key, value)
    seeds = f"{len(best.scores)} seed{'s' if len(best.scores) > 1 else ''}"
    lines = [
        "# @package _global_",
        f"# {grid.title}",
        f"# The best of {len(grid.points)} by {grid.score}: {best} ({seeds}). {grid.leakage_note}",
    ]
    return "\n".join(lines) + "\n" + OmegaConf.to_yaml(tree)


def next_command(grid: Grid, runs_root: str = "runs") -> str:
    """The command that runs three seeds of the best point on all of the training data."""
    options = best_options(grid) | {key: value for key, value in grid.fixed.items() if key != "task.hold_out"}
    options |= {"runs_root": runs_root} if runs_root != "runs" else {}
    words = [*_choices(grid), *(f"{key}={format_override(value)}" for key, value in options.items())]
    line = " ".join(["python run.py sweep=seeds", *map(shlex.quote, words)])
    return line if in_project_configs(grid) else f"{line} (with the same --config-dir as before)"


def in_project_configs(grid: Grid) -> bool:
    """Whether the grid's choices are in configs/."""
    try:
        compose.compose(_choices(grid))
    except compose.COMPOSE_ERRORS:
        return False
    return True
