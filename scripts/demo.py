"""Train none, naive and variational_untied on the built-in corpus; show a table and their learning curves."""

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd

from varrnn import fileio
from varrnn.cli.errors import user_errors
from varrnn.config import compose
from varrnn.config.schema import LanguageModelConfig
from varrnn.errors import UserError
from varrnn.reporting.style import VARIANTS
from varrnn.training import allocator
from varrnn.training import run as training_run

MODELS = ("none", "naive", "variational_untied")


def main() -> None:
    """Three runs, one table, one figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overrides", nargs="*", help="further run.py overrides, e.g. optim.epochs=5")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="where the table and the figure go")
    arguments = parser.parse_args()
    allocator.retain_heap()
    for key in ("model", "run_dir"):
        if any(override.split("=")[0] == key for override in arguments.overrides):
            raise UserError(f"{key}=: the demo compares {', '.join(MODELS)}; for one run use python run.py {key}=...")
    if not isinstance(compose.compose(arguments.overrides).task, LanguageModelConfig):
        raise UserError("task=: the demo shows perplexities; choose a language model (task=pydoc, text or ptb)")
    fileio.folder(arguments.out)
    started = time.monotonic()
    summaries = {}
    for model in MODELS:
        print(f"\n=== {model} ===")
        summaries[model] = training_run.run(compose.compose([f"model={model}", *arguments.overrides]))
    shown = table(summaries)
    print(f"\nPerplexity on {summaries['none']['data']['name']} (lower is better):")
    print(shown.to_string(na_rep="-"), end="\n\n")
    shown.to_csv(arguments.out / "table.csv")
    figure = draw(summaries, arguments.out / "curves.png")
    print(f"table:  {arguments.out / 'table.csv'}\nfigure: {figure}\n{time.monotonic() - started:.0f} seconds in all")


def table(summaries: dict) -> pd.DataFrame:
    """Valid, test, test by MC dropout (nothing to sample without dropout), words per second.

    Runs that were there already may be longer than the others, so their epochs are shown.
    """
    columns = {"epochs": "epochs", "valid_ppl": "valid", "test_ppl": "test", "test_ppl_mc": "test MC"}
    columns["wps_train"] = "words/s"
    rows = {model: {name: s["metrics"].get(key) for key, name in columns.items()} for model, s in summaries.items()}
    return (
        pd.DataFrame(rows)
        .T.astype(float)
        .round({"valid": 1, "test": 1, "test MC": 1, "words/s": 0})
        .astype({"epochs": int})
    )


def draw(summaries: dict, file: Path) -> Path:
    """Train (dotted) and validation perplexity against epochs."""
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for model, summary in summaries.items():
        history, style = summary["history"], VARIANTS[model]
        axis.plot(history["epoch"], history["valid_ppl"], color=style.colour, label=f"{style.label}, validation")
        axis.plot(history["epoch"], history["train_ppl"], color=style.colour, linestyle=":", label="… training")
    axis.set(xlabel="epoch", ylabel="perplexity", yscale="log", title="Learning curves on the built-in corpus")
    axis.legend(fontsize=8)
    figure.savefig(file, dpi=150)
    return file


if __name__ == "__main__":
    with user_errors():
        main()
