"""The words of `python run.py ...`, put into the order and checked for what Hydra would only misunderstand."""

import sys
from collections.abc import Sequence

from varrnn.errors import UserError
from varrnn.version import __version__

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


def normalize_argv() -> None:
    """Bring sys.argv into order; `--version` is ours, not Hydra's."""
    words = sys.argv[1:]
    if "--version" in words:
        print(f"varrnn {__version__}")
        sys.exit(0)
    for word in words:
        if word.startswith("="):
            raise UserError(f"{word}: a value without its key; give KEY=VALUE, see python run.py --help")
    sys.argv[1:] = options_first(words)
