"""Validate a sweep before it starts."""

import math

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, IntervalSweep, Override
from omegaconf import DictConfig

from varrnn.config import compose
from varrnn.config.identity import identity_options
from varrnn.config.schema import EPOCHS_KEY

UNKNOWN_COUNT = 10**6  # for sweeps whose points only Hydra or a sweeper plugin can count


def sweep_overrides(config: DictConfig) -> list[Override]:
    """The overrides with several values, from the command line and the file in configs/sweep."""
    given = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]
    words = OverridesParser.create().parse_overrides([*given, *config.hydra.overrides.task])
    return [word for word in words if word.is_sweep_override()]


def num_points(config: DictConfig) -> int:
    """The number of runs of a sweep."""
    words = sweep_overrides(config)
    return math.prod(
        UNKNOWN_COUNT if isinstance(w.value(), Glob | IntervalSweep) else len(list(w.sweep_string_iterator()))
        for w in words
    )


def non_identity_key(config: DictConfig) -> str | None:
    """Why the points of a sweep would be the same run: they differ only in keys that are not part of its identity."""
    for key in (word.key_or_group for word in sweep_overrides(config)):
        if key in ("runs_root", "run_dir"):
            return f"{key}: a sweep over folders would repeat the same run; give one folder"
        if key == EPOCHS_KEY:
            return f"{key}: a longer run continues the shorter one in the same folder; start each with another run_dir="
        user_file = key == "task.path" and config.task.get("reviews") == "csv"  # another file is another run
        if not user_file and not identity_options({key: None}):
            return f"{key}: its values do not distinguish runs; start them one after the other, without -m"
    return None


def unsupported_rate(config: DictConfig) -> str | None:
    """Why the grid of a file in configs/sweep does not fit a model: it varies a dropout rate that the model lacks."""
    sweep = config.hydra.runtime.choices.get("sweep")
    file = compose.CONFIGS / "sweep" / f"{sweep}.yaml"
    ties = yaml.safe_load(file.read_text()).get("model", {}) if file.is_file() else {}  # p_E: ${.p_U}
    touched = [key.removeprefix("model.") for key in config.hydra.sweeper.get("params") or {} if "model.p_" in key]
    if not (touched or ties):
        return None
    for name in chosen_models(config):
        model = compose.compose([f"model={name}"]).model
        for rate in (*touched, *ties):
            if not getattr(model, rate):
                return f"sweep={sweep} varies model.{rate}, which model={name} does not have; change one of them"
    return None


def chosen_models(config: DictConfig) -> list[str]:
    """The model of a sweep, or those of `model=naive,moon`, without those of a --config-dir."""
    words = [word.removeprefix("model=") for word in config.hydra.overrides.task if word.startswith("model=")]
    names = words[-1].split(",") if words else [config.model.name]
    known = {file.stem for file in (compose.CONFIGS / "model").glob("*.yaml")}
    return [name for name in names if name in known]
