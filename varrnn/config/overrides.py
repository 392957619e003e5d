"""Write overrides in Hydra's grammar, and the command that starts a given run."""

import re
import shlex
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from varrnn.config import compose
from varrnn.config.schema import RunConfig

BEFORE_A_QUOTE = r"(\\*)('|$)"
NOT_REPEATED = ("seed", "runs_root", "run_dir", "progress")  # added separately, or without effect on the run


def run_command(config: RunConfig) -> str:
    """The command that starts this run again, or resumes it."""
    chosen = [f"{group}={name}" for group, name in compose.choices(config).items()]
    try:
        base, options = compose.flatten(compose.compose(chosen)), compose.flatten(config)
    except compose.COMPOSE_ERRORS:  # choices from a --config-dir, which config.yaml does not store
        return f"the same command as before, with its --config-dir ({' '.join(chosen)} seed={config.seed})"
    differs = [
        f"{key}={format_override(value)}"
        for key, value in options.items()
        if key not in NOT_REPEATED and base.get(key) != value
    ]
    words = [*chosen, *differs, f"seed={config.seed}"]
    if config.runs_root != RunConfig().runs_root:
        words.append(f"runs_root={format_override(config.runs_root)}")
    if config.run_dir is not None:
        words.append(f"run_dir={format_override(config.run_dir)}")
    return " ".join(["python run.py", *map(shlex.quote, words)])


def format_override(value: Any) -> str:
    """A value in Hydra's grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and not _is_literal(value):
        return f"'{re.sub(BEFORE_A_QUOTE, _escaped, value)}'"
    return str(value)


def _escaped(found: re.Match[str]) -> str:
    """Hydra reads a backslash as an escape only before a quote, including the closing one."""
    return 2 * found[1] + ("\\'" if found[2] else "")


def _is_literal(word: str) -> bool:
    """Whether Hydra reads the word as a string without quotes; not `a=b`, letters beyond a to z, `true` or `1e3`."""
    try:
        return (
            re.search(r"[\s$]", word) is None and OverridesParser.create().parse_override(f"x={word}").value() == word
        )
    except HydraException:
        return False
