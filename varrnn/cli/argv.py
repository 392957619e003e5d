"""The words of `python run.py ...`, put into the order and checked for what Hydra would only misunderstand."""

import sys
from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from varrnn.cli.errors import option_docs
from varrnn.config.overrides import format_override
from varrnn.errors import UserError
from varrnn.version import __version__

LONG = (  # Hydra's options
    *("--help", "--hydra-help", "--version", "--cfg", "--resolve", "--package", "--run", "--multirun"),
    *("--shell-completion", "--config-path", "--config-name", "--config-dir", "--experimental-rerun", "--info"),
)
SHORT = ("-h", "-c", "-p", "-r", "-m", "-sc", "-cp", "-cn", "-cd", "-i")
PATHS = ("run_dir", "runs_root", *(f"task.{name}" for name in ("path", "train", "valid", "test", "csv")))
WITH_VALUE = ("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn", "--cfg", "-c", "--package", "-p")


def options_first(words: Sequence[str]) -> list[str]:
    """`seed=1,2 -m` means `-m seed=1,2`: Hydra takes overrides after an option for unknown arguments."""
    options, overrides, waiting = [], [], iter(words)
    for word in waiting:
        if not word.startswith("-"):
            overrides.append(word)
            continue
        options.append(word)
        if word in WITH_VALUE:
            options += [value for value in (next(waiting, None),) if value is not None]
    return [*options, *overrides]


def reject_flag(word: str, value: str | None) -> None:
    """`--epochs 3` and `--resume` as other programs have them: say how it is written here."""
    name, _, given = word.lstrip("-").partition("=")
    value = given or value or "VALUE"
    if name in ("resume", "continue"):
        raise UserError(f"{word}: not needed, the same command resumes a run that was stopped; leave it out")
    leaf = name.replace("-", "_")
    keys = [key for key in option_docs() if key.split(".")[-1] == leaf]
    if keys:
        raise UserError(f"{word}: write {' or '.join(f'{key}={value}' for key in keys)}; see python run.py --help")
    raise UserError(f"{word}: there is no such option; write KEY=VALUE, as in optim.epochs=3; see python run.py --help")


def is_known_flag(word: str) -> bool:
    """Does Hydra have this option? It also takes unambiguous beginnings of long ones."""
    name = word.split("=")[0]
    return name in SHORT or (name.startswith("--") and any(flag.startswith(name) for flag in LONG))


def quote_path(word: str, sweep: bool = False) -> str:
    """Put Hydra's quotes around a path that it could not read otherwise (`ü`, `=`): the shell's are gone by now.

    In a sweep commas separate several paths.
    """
    key, equals, value = word.partition("=")
    if not equals or key not in PATHS or value[:1] in ("'", '"'):
        return word
    try:
        OverridesParser.create().parse_override(word)
    except HydraException:
        return f"{key}={','.join(map(format_override, value.split(',') if sweep else [value]))}"
    return word


def normalize_argv() -> None:
    """Bring sys.argv into order; `--version` is ours, not Hydra's."""
    words = sys.argv[1:]
    if "--version" in words:
        print(f"varrnn {__version__}")
        sys.exit(0)
    for word in words:
        if word.startswith("="):
            raise UserError(f"{word}: a value without its key; give KEY=VALUE, see python run.py --help")
    for word, after in zip(words, [*words[1:], None]):
        if word.startswith("-") and not is_known_flag(word):
            reject_flag(word, None if after is None or after.startswith("-") or "=" in after else after)
    sweep = bool({"-m", "--multirun"} & {*words})
    sys.argv[1:] = options_first([quote_path(word, sweep) for word in words])
