"""What a sweep is going to do, looked at before it begins."""

import math

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, IntervalSweep, Override
from omegaconf import DictConfig

from varrnn.config import compose
from varrnn.config.schema import EPOCHS_KEY

UNKNOWN_COUNT = 10**6  # points that only Hydra, or a sweeper of its plugins, can count


def sweep_overrides(config: DictConfig) -> list[Override]:
    """The words of the command line and of a file in configs/sweep that have several values."""
    given = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]
    words = OverridesParser.create().parse_overrides([*given, *config.hydra.overrides.task])
    return [word for word in words if word.is_sweep_override()]


def num_points(config: DictConfig) -> int:
    """How many runs a sweep has."""
    words = sweep_overrides(config)
    return math.prod(
        UNKNOWN_COUNT if isinstance(w.value(), Glob | IntervalSweep) else len(list(w.sweep_string_iterator()))
        for w in words
    )


def non_identity_key(config: DictConfig) -> str | None:
    """Why the points of a sweep would be one run: what they differ in does not tell runs apart."""
    for key in (word.key_or_group for word in sweep_overrides(config)):
        if key in ("runs_root", "run_dir"):
            return f"{key}: one run in several places is no sweep; give one folder"
        if key == EPOCHS_KEY:
            return f"{key}: a longer run is a shorter one that was continued; start each with a run_dir= of its own"
        own_file = key == "task.path" and config.task.get("reviews") == "csv"  # other reviews are another run
        if not own_file and not compose.compared({key: None}):
            return f"{key}: its values belong to one and the same run; start them one after the other, without -m"
    return None


def unsupported_rate(config: DictConfig) -> str | None:
    """Why the grid of a file in configs/sweep does not fit a model: it would add dropout that the model lacks."""
    sweep = config.hydra.runtime.choices.get("sweep")
    file = compose.CONFIGS / "sweep" / f"{sweep}.yaml"
    ties = yaml.safe_load(file.read_text()).get("model", {}) if file.is_file() else {}  # p_E: ${.p_U}
    touched = [key.removeprefix("model.") for key in config.hydra.sweeper.get("params") or {} if "model.p_" in key]
    if not (touched or ties):
        return None
    for name in chosen_models(config):
        own = compose.compose([f"model={name}"]).model
        for rate in (*touched, *ties):
            if not getattr(own, rate):
                return f"sweep={sweep} varies model.{rate}, which model={name} does not have; change one of them"
    return None


def chosen_models(config: DictConfig) -> list[str]:
    """The model of a sweep, or those of `model=naive,moon`; not those of someone's own --config-dir."""
    words = [word.removeprefix("model=") for word in config.hydra.overrides.task if word.startswith("model=")]
    names = words[-1].split(",") if words else [config.model.name]
    known = {file.stem for file in (compose.CONFIGS / "model").glob("*.yaml")}
    return [name for name in names if name in known]
