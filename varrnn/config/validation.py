"""Reject invalid values, naming the key and what is allowed."""

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from varrnn.config.schema import CELLS, CELLS_WITH_MEMORY, DROP_RATES, RunConfig, flatten
from varrnn.errors import UserError

CELL_SCALINGS = ("read", "step", "inverted")  # those of varrnn.dropout, which needs torch; a test compares them
ALLOWED = {
    "cell": CELLS,
    "model.cell_scaling": CELL_SCALINGS,
    "optim.method": ("sgd", "adam"),
    "optim.schedule": ("decay", "constant"),
    "optim.decay_rule": ("all", "one_gate"),
    "logger.mode": ("online", "offline", "disabled"),
}
AT_MOST = {"seed": 2**63 - 1, "threads": 1024}
AT_LEAST = {
    "size.init": 0,
    "size.units": 1,
    "size.layers": 1,
    "optim.epochs": 1,
    "optim.max_epoch": 0,
    "optim.clip": 0,
    "optim.weight_decay": 0,
    "task.steps": 1,
    "task.batch_size": 1,
    "task.min_count": 1,
    "train.checkpoint_minutes": 0,
    "train.log_every": 1,
    "train.patience": 0,
    "mc.samples": 0,
    "mc.rows": 0,
    "mc.memory_mb": 0,
    "threads": 0,
    "seed": 0,
}


def check(config: RunConfig) -> None:
    """Reject invalid values, naming the key and what is allowed."""
    values = flatten(config)
    for group in ("model", "size", "task"):
        if not values[f"{group}.name"]:
            raise UserError(f"{group}.name is not set: add `name:` with the file's name to the chosen file of {group}/")
    if config.task.kind != type(config.task)().kind:
        raise UserError(
            f"task.kind={config.task.kind}: task={config.task.name} is of kind {type(config.task)().kind}; leave "
            "task.kind= out, or choose another task="
        )
    for key, allowed in ALLOWED.items():
        if values[key] not in allowed:
            raise UserError(
                f"{key}={values[key]}: allowed are {', '.join(allowed)}{suggest(str(values[key]), allowed)}"
            )
    for key in ("run_dir", "runs_root"):
        if values[key] is not None and not values[key].strip():
            raise UserError(f"{key}={values[key]}: empty; give a folder, or leave {key}= out")
    check_numbers(values)
    for name in sorted(DROP_RATES, key=("p_E", "p_y").__contains__):  # p_E and p_y last: they may be tied to the others
        if not 0 <= values[f"model.{name}"] < 1:
            raise UserError(
                f"model.{name}={values[f'model.{name}']}: a probability of dropping, at least 0 and below 1"
            )
    if config.optim.method == "sgd" and config.optim.weight_decay >= 1:
        raise UserError(
            f"optim.weight_decay={config.optim.weight_decay}: must be below 1; after each step of SGD the parameters "
            "are multiplied by 1 - weight_decay"
        )
    if config.optim.decay_rule != "all" and config.optim.method != "adam":
        raise UserError(
            f"optim.decay_rule={config.optim.decay_rule}: only with optim.method=adam; SGD decays all layers"
        )
    if config.model.p_c > 0 and config.cell not in CELLS_WITH_MEMORY:
        raise UserError(
            f"cell={config.cell}: dropout on the memory (model.p_c={config.model.p_c}) needs an LSTM; "
            "set cell=lstm or model.p_c=0"
        )


def check_numbers(values: Mapping[str, Any]) -> None:
    """Check that numbers are finite and within their bounds."""
    for key, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{key}={value}: must be a finite number")
    for key, least in AT_LEAST.items():
        if values.get(key) is not None and values[key] < least:
            raise UserError(f"{key}={values[key]}: must be at least {least}")
    for key, most in AT_MOST.items():
        if values[key] > most:
            raise UserError(f"{key}={values[key]}: must be at most {most}")
    for key in ("optim.lr", "optim.decay"):
        if not values[key] > 0:
            raise UserError(f"{key}={values[key]}: must be above 0")


def check_names(named: Mapping[str, str], chosen: Mapping[str, str]) -> None:
    """Check that `name:` in a group's file equals the file's name; otherwise runs would get another choice's folder."""
    for group, name in named.items():
        if group in chosen and chosen[group] != name:
            raise UserError(
                f"{group}={chosen[group]}: its file says `name: {name}`, but the name must be that of the file; write "
                f"`name: {chosen[group]}`"
            )


def suggest(word: str, allowed: Sequence[str]) -> str:
    """`; did you mean ...?`, if a known name is similar."""
    same = [known for known in allowed if known.lower() == word.lower()]
    close = same or difflib.get_close_matches(word, list(allowed), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""
