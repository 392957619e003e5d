"""The one entry: `python run.py model=variational_untied experiment=ptb_medium`; `--help` lists groups and keys."""

import hydra
from omegaconf import DictConfig

from varrnn import allocator, config, help, multirun
from varrnn.errors import UserError
from varrnn.explain import one_line_errors

config.register()
failed: list[UserError] = []


@hydra.main(version_base="1.3", config_path="configs", config_name="config")
def main(composed: DictConfig) -> None:
    """Compose -> dataclasses -> run."""
    allocator.keep_buffers()  # here, since a launcher's processes come this way too
    try:
        multirun.run(composed)
    except UserError as error:  # raised again outside: Hydra would print a line of its own about it
        failed.append(error)


if __name__ == "__main__":
    help.show_if_asked()
    with one_line_errors(), multirun.reported():
        main()
        for error in failed:
            raise error
