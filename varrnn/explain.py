"""A user's mistake gets one clear message: what, where, what is allowed, what to do. Never a traceback."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass

from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException

from varrnn.config import CONFIGS, leaves, nearest
from varrnn.errors import UserError
from varrnn.interrupt import Stopped
from varrnn.schema import TASKS, Config


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn what a user can mend into one message and exit status 1; what only we can mend keeps its traceback."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra would print its own half of a traceback and exit
    try:
        yield
    except Stopped as stopped:
        print(f"\n{stopped}", file=sys.stderr)
        sys.exit(128 + stopped.signum)
    except KeyboardInterrupt:
        sys.exit(130)
    except (UserError, HydraException, OmegaConfBaseException, OSError) as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        sys.exit(1)


def explain(error: Exception) -> str:
    """The message that helps."""
    if isinstance(error, MissingConfigException) and error.options is not None and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        allowed = [option for option in error.options if option != "null"]
        return f"{group}={name}: allowed are {', '.join(allowed)}{nearest(name, allowed)}"
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    key = getattr(cause, "full_key", None)
    first = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
    if key and "not in" in first:
        return f"{key}: there is no such option{nearest(str(key), known_keys())}; see python run.py --help"
    if key:
        return f"{key}: {first}"
    if isinstance(error, HydraException):
        missing = re.search(r"Could not override '([^']+)'", str(error))
        if missing:
            name = missing.group(1)
            return f"{name}: there is no such group or option{nearest(name, known_keys())}; see python run.py --help"
    return str(error)


def known_keys() -> list[str]:
    """Every key of the command line: options by their dotted names, and the groups."""
    groups = [entry.name for entry in sorted(CONFIGS.iterdir()) if entry.is_dir()]
    tasks = [f"task.{field.name}" for task in TASKS.values() for field in fields(task)]
    return [*leaves(Config()), *tasks, *groups]


def sentences() -> dict[str, str]:
    """Every option with its sentence, by dotted name."""

    def collect(kind: type, prefix: str) -> dict[str, str]:
        found = {}
        for field in fields(kind):
            inner = field.default_factory if is_dataclass(field.default_factory) else None
            if inner is not None:
                found |= collect(inner, f"{prefix}{field.name}.")
            else:
                found[prefix + field.name] = field.metadata.get("help", "")
        return found

    found = collect(Config, "")
    for task in TASKS.values():
        found |= collect(task, "task.")
    return found
