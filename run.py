"""The one entry: `python run.py model=variational_untied experiment=ptb_medium`; `--help` lists groups and keys."""

import signal
import sys

if __name__ == "__main__":  # Ctrl-C while everything is loaded: nothing to save, and no traceback
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))

import hydra
from omegaconf import DictConfig

from varrnn.cli import argv
from varrnn.cli.errors import USER_ERRORS, user_errors
from varrnn.config import compose
from varrnn.sweeps import launch
from varrnn.training import allocator

compose.register()
failed: list[Exception] = []


@hydra.main(version_base="1.3", config_path="configs", config_name="config")
def main(composed: DictConfig) -> None:
    """Compose -> dataclasses -> run."""
    allocator.retain_heap()  # here, since a launcher's processes come this way too
    try:
        launch.run(composed)
    except USER_ERRORS as error:  # raised again outside: Hydra would print a line of its own about it
        failed.append(error)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with user_errors(), launch.report_failures():
        argv.normalize_argv()
        argv.maybe_print_help()
        main()
        for error in failed:
            raise error
