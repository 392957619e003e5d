"""The one entry: `python run.py model=variational_untied experiment=ptb_medium`; `--help` lists groups and keys."""

import signal
import sys

if __name__ == "__main__":  # Ctrl-C while everything is loaded: nothing to save, and no traceback
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))

import hydra
from omegaconf import DictConfig

from varrnn import allocator, command_line, config, help, multirun
from varrnn.explain import USERS_MISTAKES, one_line_errors

config.register()
failed: list[Exception] = []


@hydra.main(version_base="1.3", config_path="configs", config_name="config")
def main(composed: DictConfig) -> None:
    """Compose -> dataclasses -> run."""
    allocator.keep_buffers()  # here, since a launcher's processes come this way too
    try:
        multirun.run(composed)
    except USERS_MISTAKES as error:  # raised again outside: Hydra would print a line of its own about it
        failed.append(error)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with one_line_errors(), multirun.reported():
        command_line.prepare()
        help.show_if_asked()
        main()
        for error in failed:
            raise error
