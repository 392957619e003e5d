"""Evaluate a finished run again, with other MC samples: python scripts/evaluate.py RUN_DIR mc.samples=1000

Only mc.*, device, threads and progress can be given; the results are added to the run's summary.json. The same command
resumes an interrupted evaluation.
"""

import argparse
from pathlib import Path

from varrnn.cli.errors import user_errors
from varrnn.config import compose
from varrnn.training import allocator
from varrnn.training import run as training_run
from varrnn.training import summary as run_summary


def main() -> None:
    """Start the finished run with other mc.* options, which only evaluates it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path, help="the folder of a finished run")
    parser.add_argument("overrides", nargs="*", help="mc.samples=1000 mc.word_dropout=true device=cuda ...")
    options = parser.parse_args()
    allocator.retain_heap()
    config = compose.load_config(options.run_dir, options.overrides)
    summary = run_summary.load_finished(options.run_dir)
    config.optim.epochs = summary["config"]["optim"]["epochs"]  # the options of training, without later requests
    if not config.model.has_dropout and config.mc.samples:
        print("this model has no dropout: every MC sample is the same, so there is nothing to average")
    training_run.run(config, options.run_dir)


if __name__ == "__main__":
    with user_errors():
        main()
