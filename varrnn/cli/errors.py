"""Show a user's mistake as one clear message without a traceback: what, where, what is allowed, what to do."""

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from varrnn.config.compose import COMPOSE_ERRORS, CONFIGS, compose
from varrnn.config.schema import TASKS, RunConfig
from varrnn.config.validation import suggest
from varrnn.training.signals import RunStopped

USER_ERRORS = (*COMPOSE_ERRORS, YAMLError, OSError)


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors that a user can fix into one message and exit status 1; bugs keep their traceback."""
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"  # without the source line
    os.environ["HYDRA_FULL_ERROR"] = "1"  # otherwise Hydra prints a shortened traceback and exits
    try:
        yield
    except RunStopped as stopped:
        with suppress(OSError):  # of a terminal that was closed
            print(f"\n{stopped}", file=sys.stderr)
        sys.exit(128 + stopped.signum)
    except KeyboardInterrupt:
        sys.exit(130)
    except USER_ERRORS as error:
        print(f"error: {format_error(error)}", file=sys.stderr)
        sys.exit(1)
    except RuntimeError as error:
        from varrnn.training.device import out_of_memory  # imported here: most errors occur without torch

        if not out_of_memory(error):
            raise
        message = next(iter(str(error).splitlines()), "")
        print(f"error: not enough memory ({message}); free some, or use another device", file=sys.stderr)
        sys.exit(1)


def format_error(error: Exception) -> str:
    """The message for an error of Hydra, OmegaConf or this package."""
    if isinstance(error, MissingConfigException) and error.options is not None and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        allowed = [option for option in error.options if option != "null"]
        return f"{group}={name}: allowed are {', '.join(allowed)}{suggest(name, allowed)}"
    if isinstance(error, OverrideParseException):
        return (
            f"{error.override}: not a KEY=VALUE or GROUP=CHOICE; a value with = , ~ brackets, quotes or letters beyond "
            "a to z needs quotes inside the shell's quotes, 'KEY=\"VALUE\"'; see python run.py --help"
        )
    if isinstance(error, YAMLError):
        return f"a config file is not valid YAML: {' '.join(str(error).split())}"
    several = re.search(r"Ambiguous value for argument '([^']+)'", str(error))
    if several:
        other = _other_mistake(sys.argv[1:])
        if other:
            return other
        return f"{several.group(1)}: several values make a sweep; add -m (python run.py -m ...)"
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    return _format_key_error(error, cause)


def _other_mistake(words: list[str]) -> str:
    """The error in the overrides without a sweep; Hydra first reports the overrides with several values."""
    if any(word.startswith(("--config", "-c")) for word in words):  # groups from there are unknown here
        return ""
    values = [word.split(",")[0] for word in words if "=" in word and not word.startswith(("-", "hydra"))]
    try:
        compose([word for word in values if not re.search(r"""[\[{('"]""", word)])
    except COMPOSE_ERRORS as error:
        return format_error(error)
    return ""


def _format_key_error(error: Exception, cause: BaseException) -> str:
    """The message for an unknown key or a value of the wrong type."""
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return str(error)
    missing = re.search(r"Could not override '([^']+)'", str(error))
    inside = re.search(r"full_key: (\S+)", str(cause))
    key = str(getattr(cause, "full_key", None) or (inside and inside.group(1)) or (missing and missing.group(1)) or "")
    first = next((line for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
    if not key:
        return first
    if missing or re.search(r"Key '[^']+' (is )?not in", str(cause)):
        owners = [name for name, task in TASKS.items() if key in {f"task.{field.name}" for field in fields(task)}]
        if owners:
            return f"{key}: an option of {' and '.join(owners)} tasks, not of the chosen one; see python run.py --help"
        alike = [known for known in known_keys() if ("." in known) == ("." in key)]
        return f"{key}: there is no such group or option{suggest(key, alike)}; see python run.py --help"
    return f"{key}: {first}"


def known_keys() -> list[str]:
    """Every key of the command line: options by their dotted names, and the groups."""
    return [*option_docs(), *(entry.name for entry in sorted(CONFIGS.iterdir()) if entry.is_dir())]


def option_docs() -> dict[str, str]:
    """The help string of every option, by dotted name."""

    def collect(kind: type, prefix: str) -> dict[str, str]:
        found = {}
        for field in fields(kind):
            inner = field.default_factory if is_dataclass(field.default_factory) else None
            if inner is not None:
                found |= collect(inner, f"{prefix}{field.name}.")
            else:
                found[prefix + field.name] = field.metadata.get("help", "")
        return found

    found = collect(RunConfig, "")
    for task in TASKS.values():
        found |= collect(task, "task.")
    return found
