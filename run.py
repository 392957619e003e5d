"""Train and evaluate: `python run.py model=variational_untied experiment=ptb_medium`; `--help` lists all keys."""

import signal
import sys

if __name__ == "__main__":  # exit on Ctrl-C during the imports without a traceback
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))

import hydra
from omegaconf import DictConfig

from varrnn.cli import argv
from varrnn.cli.errors import USER_ERRORS, user_errors
from varrnn.config import compose
from varrnn.sweeps import launch
from varrnn.training import allocator

compose.register_schema()
failed: list[Exception] = []


@hydra.main(version_base="1.3", config_path="configs", config_name="config")
def main(composed: DictConfig) -> None:
    """Compose the config, convert it to dataclasses, run it."""
    allocator.retain_heap()  # also in the processes of a launcher
    try:
        launch.run(composed)
    except USER_ERRORS as error:  # raised again outside of Hydra, which would print another line
        failed.append(error)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with user_errors(), launch.report_failures():
        argv.normalize_argv()
        argv.maybe_print_help()
        main()
        for error in failed:
            raise error
