"""Export a finished run to results/weights: `python scripts/export_weights.py RUN_DIR [--name NAME]`.

It writes weights in half precision (safetensors, at most 10 MB), config, vocabulary, metrics and a model card. If the
corpus is available, the exported model must have the run's test perplexity within 0.2 %.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from varrnn import fileio
from varrnn.cli.errors import user_errors
from varrnn.data.registry import TEXTS
from varrnn.errors import UserError
from varrnn.training import open_run
from varrnn.training.export import export_run
from varrnn.training.trained import TrainedRun
from varrnn.training.weights import FOLDER

TOLERANCE = 0.002


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="folder of a finished run")
    parser.add_argument("--name", help="name of the folder (task_size_model)")
    parser.add_argument("--out", type=Path, default=FOLDER, help="parent folder (results/weights)")
    options = parser.parse_args()
    config = open_run(options.run).config
    name = options.name or f"{config.task.name}_{config.size.name}_{config.model.name}"
    if Path(name).name != name:
        raise UserError(f"--name {name}: must be the name of one folder, without slashes")
    out = fileio.make_folder(options.out) / name
    with tempfile.TemporaryDirectory(dir=options.out, prefix=f".{name}-") as scratch:
        size = export_run(options.run, Path(scratch) / name)
        exported = open_run(Path(scratch) / name)
        if exported.is_language_model:
            compare(exported, open_run(options.run))
        with fileio.writing(out):
            shutil.rmtree(out, ignore_errors=True)
            (Path(scratch) / name).replace(out)
    print(f"wrote {out} ({size / 1e6:.1f} MB)")


def compare(exported: TrainedRun, run: TrainedRun) -> None:
    """Evaluate the exported model on the test text of its run."""
    try:
        corpus = TEXTS[run.config.task.corpus].load(run.config.task)  # type: ignore[attr-defined]
    except UserError as error:
        print(f"not evaluated: {error}")
        return
    text = " ".join(corpus.words[number] for number in corpus.test)
    found, wanted = exported.perplexity(text), run.metrics["test_ppl"]
    print(f"test perplexity {found:.3f}, that of the run {wanted:.3f} ({found / wanted - 1:+.3%})")
    if abs(found / wanted - 1) > TOLERANCE:
        raise UserError(f"the exported model's perplexity differs by more than {TOLERANCE:.1%}; do not publish it")


if __name__ == "__main__":
    with user_errors():
        main()
