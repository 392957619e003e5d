"""The identity of a run, every option that affects its numbers: of a config, of a folder, of overrides, of a record."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from varrnn.config.schema import (
    DROP_RATES,
    EPOCHS_KEY,
    KIND_KEY,
    NON_IDENTITY_KEYS,
    SENTIMENT,
    TASKS,
    RunConfig,
    effective,
    flatten,
    task_kind,
)

Run = tuple[str, ...]  # a run as overrides of run.py, without the seed
SEED_KEYS = ("seed",)  # may differ between equal runs, like schema.NON_IDENTITY_KEYS


def identity_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those that do not affect a run's numbers, such as device, paths and logging."""
    return {
        key: value
        for key, value in options.items()
        if not any(key == skip or key.startswith(skip + ".") for skip in NON_IDENTITY_KEYS)
    }


def config_identity(config: RunConfig | dict[str, Any]) -> dict[str, Any]:
    """The identity of a config: its options by dotted name that affect the run's numbers."""
    return effective(identity_options(flatten(config)))


def folder_identity(config: RunConfig) -> dict[str, Any]:
    """The identity of a config without its number of epochs: runs of different lengths share a folder."""
    return {key: value for key, value in config_identity(config).items() if key != EPOCHS_KEY}


class Identity(NamedTuple):
    """A run's identity: its group choices, and all its options by their dotted names."""

    choices: Mapping[str, str]
    options: Mapping[str, Any]

    @property
    def extendable(self) -> bool:
        """Whether a shorter run is evidence for a longer one: for sentiment, where the learning rate is constant."""
        return task_kind(self.options, "task.") == SENTIMENT

    @property
    def rates(self) -> tuple[tuple[str, float], ...]:
        """The dropout rates that are not zero."""
        found = {name: self.options.get(f"model.{name}") for name in DROP_RATES}
        return tuple((name, float(value)) for name, value in found.items() if value)


@functools.cache
def identity_of(run: Run) -> Identity:
    """The identity of the run that these overrides start; group choices are composed once, values set on top."""
    from omegaconf import OmegaConf

    from varrnn.config import compose  # imported here, since it loads Hydra

    values = [override for override in run if "." in override.split("=")[0]]
    groups = tuple(override for override in run if override not in values)
    merged = OmegaConf.merge(_compose_raw(groups), OmegaConf.from_dotlist(values))
    made = compose.to_config(merged)  # type: ignore[arg-type]
    return Identity(compose.choices(made), config_identity(made))


@functools.cache
def _compose_raw(groups: Run) -> Any:
    """Composing takes a tenth of a second; it is cached, since figures 4 to 12 differ in values only."""
    from varrnn.config import compose

    return compose.compose_raw(groups)


def matches(found: Identity, wanted: Identity, ignore_prefixes: tuple[str, ...] = ()) -> bool:
    """Whether a record belongs to the wanted run, for any seed.

    The group choices and every option are compared. An option that the record lacks is newer than the record, or a path
    that publishing removed: it counts as its default in varrnn/config/schema.py, which is the behaviour before the
    option existed. A record made with another tuned default does not match. The number of epochs of a sentiment run is
    not compared: a shorter run is evidence too, and its verdict says "few epochs".
    """
    if any(found.choices.get(group) != choice for group, choice in wanted.choices.items()):
        return False
    if wanted.extendable:
        ignore_prefixes = (*ignore_prefixes, EPOCHS_KEY)
    ignore_prefixes = (*SEED_KEYS, KIND_KEY, *ignore_prefixes)  # the kind follows from the task's name
    compared = (key for key in wanted.options if not key.startswith(ignore_prefixes))
    defaults = schema_defaults()
    return all(found.options.get(key, defaults.get(key)) == wanted.options[key] for key in compared)


@functools.cache
def schema_defaults() -> dict[str, Any]:
    """The default of every option, by its dotted name."""
    of_tasks = {f"task.{name}": value for task in TASKS.values() for name, value in asdict(task()).items()}
    return flatten(RunConfig()) | of_tasks
