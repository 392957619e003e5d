"""What makes a run this run, worked out from the overrides that would start it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from varrnn.config.schema import DROP_RATES, EPOCHS_KEY, KIND_KEY, SENTIMENT, TASKS, RunConfig, flatten, task_kind

Run = tuple[str, ...]  # a run as run.py overrides, without the seed
SEED_KEYS = ("seed",)  # what may differ between equal runs, besides what varrnn.config leaves out


class Identity(NamedTuple):
    """What makes a run this run: its group choices, and all its options by their dotted names."""

    choices: Mapping[str, str]
    options: Mapping[str, Any]

    @property
    def extendable(self) -> bool:
        """Whether a shorter run is evidence for a longer one: of sentiment, where the learning rate is constant."""
        return task_kind(self.options, "task.") == SENTIMENT

    @property
    def rates(self) -> tuple[tuple[str, float], ...]:
        """The drop probabilities that are not zero."""
        found = {name: self.options.get(f"model.{name}") for name in DROP_RATES}
        return tuple((name, float(value)) for name, value in found.items() if value)


@functools.cache
def identity_of(run: Run) -> Identity:
    """What these overrides mean, composed as run.py does; group choices are composed once, values set on top."""
    from omegaconf import OmegaConf

    from varrnn.config import compose  # here, not above: Hydra is needed only when a run has to be recognised

    values = [override for override in run if "." in override.split("=")[0]]
    groups = tuple(override for override in run if override not in values)
    made = compose.to_config(OmegaConf.merge(_compose_raw(groups), OmegaConf.from_dotlist(values)))  # type: ignore[arg-type]
    return Identity(compose.choices(made), compose.identity(made))


@functools.cache
def _compose_raw(groups: Run) -> Any:
    """Hydra's part, which takes a tenth of a second: figures 4 to 12 differ in values only."""
    from varrnn.config import compose

    return compose.compose_raw(groups)


def matches(found: Identity, wanted: Identity, ignore_prefixes: tuple[str, ...] = ()) -> bool:
    """Whether a record is the wanted run, whatever its seed.

    Compared are the group choices and every option. An option that the record does not have is newer than the record,
    or a path that publishing left out: it counts with its default in varrnn/config/schema.py, which stands for what
    runs did before the option existed. A tuned default that changed since then distinguishes the two. The horizon of a
    sentiment run is left out: a shorter run is evidence too, and its verdict says "short horizon".
    """
    if any(found.choices.get(group) != choice for group, choice in wanted.choices.items()):
        return False
    if wanted.extendable:
        ignore_prefixes = (*ignore_prefixes, EPOCHS_KEY)
    ignore_prefixes = (*SEED_KEYS, KIND_KEY, *ignore_prefixes)  # the kind follows from the task's name
    compared = (key for key in wanted.options if not key.startswith(ignore_prefixes))
    usual = schema_defaults()
    return all(found.options.get(key, usual.get(key)) == wanted.options[key] for key in compared)


@functools.cache
def schema_defaults() -> dict[str, Any]:
    """The default of every option, by its dotted name."""
    of_tasks = {f"task.{name}": value for task in TASKS.values() for name, value in asdict(task()).items()}
    return flatten(RunConfig()) | of_tasks
