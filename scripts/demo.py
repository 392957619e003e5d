"""Train a language model without dropout, with naive and with variational dropout on the built-in corpus.

Ends with a table, a figure of the learning curves, and sentences by the variational model whose words are shaded by
what it does not know. Dropout rates and the number of epochs were chosen on the validation text, for each model.
"""

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd

from varrnn import fileio
from varrnn.analysis.shaded_text import has_colours, legend, scale_max, shade, terminal_text, write_html
from varrnn.cli.errors import user_errors
from varrnn.config import compose
from varrnn.config.schema import LANGUAGE_MODEL
from varrnn.errors import UserError
from varrnn.reporting.style import VARIANTS
from varrnn.training import allocator, open_run
from varrnn.training import run as training_run

MODELS = ("none", "naive", "variational_untied")
COLUMNS = {"epochs": "epochs", "valid_ppl": "valid", "test_ppl": "test", "test_ppl_mc": "test MC"}
COLUMNS["wps_train"] = "words/s"
HEADS = {"valid": "validation", "test": "test", "test MC": "test, MC dropout"}  # what is printed of the table
PROMPTS = ("the function", "if the", "the")  # the first whose words the corpus has


def main() -> None:
    """Three runs, one table, one figure, three sentences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="further run.py overrides, e.g. optim.epochs=5")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="where table, figure and sentences go")
    arguments = parser.parse_args()
    allocator.retain_heap()
    for key in ("model", "run_dir"):
        if any(override.split("=")[0] == key for override in arguments.overrides):
            raise UserError(f"{key}=: the demo compares {', '.join(MODELS)}; for one run use python run.py {key}=...")
    if compose.compose(arguments.overrides).task.kind != LANGUAGE_MODEL:
        raise UserError("task=: the demo shows perplexities; choose a language model (task=pydoc, text or ptb)")
    fileio.folder(arguments.out)
    started = time.monotonic()
    configs = {model: compose.compose([f"model={model}", *arguments.overrides]) for model in MODELS}
    summaries = {}
    for number, (model, config) in enumerate(configs.items(), 1):
        print(f"\n=== {number} of {len(MODELS)}: {VARIANTS[model].label} ===")
        summaries[model] = training_run.run(config, describe=False)
    shown = table(summaries)
    shown.to_csv(arguments.out / "table.csv")
    print(f"\n{explained(shown, summaries['none']['data']['name'])}\n")
    figure = draw(summaries, arguments.out / "curves.png")
    page = sentences(compose.run_dir(configs["variational_untied"]), arguments.out / "sentences.html")
    print(f"table:     {arguments.out / 'table.csv'}\nfigure:    {figure}\nsentences: {page}")
    print(f"{time.monotonic() - started:.0f} seconds in all")


def table(summaries: dict) -> pd.DataFrame:
    """Valid, test, test by MC dropout (nothing to sample without dropout), words per second.

    Runs that were there already may be longer than the others, so their epochs are shown.
    """
    rows = {model: {name: s["metrics"].get(key) for key, name in COLUMNS.items()} for model, s in summaries.items()}
    return (
        pd.DataFrame(rows)
        .T.astype(float)
        .round({"valid": 1, "test": 1, "test MC": 1, "words/s": 0})
        .astype({"epochs": int})
    )


def explained(shown: pd.DataFrame, corpus: str) -> str:
    """The table for the terminal, and what its numbers mean."""
    readable = shown[list(HEADS)].rename(columns=HEADS).rename(index={name: VARIANTS[name].label for name in MODELS})
    return (
        f"Perplexity on {corpus}: between how many equally likely next words the model hesitates. Lower is better.\n\n"
        f"{readable.to_string(na_rep='-')}\n\n"
        "Validation text: chose dropout rates and lengths. Test text: chose nothing. MC dropout averages the\n"
        "predictions of many networks drawn from the one that was trained."
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


def sentences(folder: Path, file: Path) -> Path:
    """Three texts, each by one network drawn from the variational model: shaded in the terminal and on a page."""
    run = open_run(folder)
    words = run.vocabulary
    known = (prompt for prompt in PROMPTS if not words.unknown_words(prompt.split()))
    prompt = next(known, words.words[0])
    texts = [shade(run, text) for text in run.generate(prompt, words=30, samples=3, mc=True)]
    most, colours = scale_max(texts), has_colours()
    print("What the variational model writes (each text by another network drawn from it):\n")
    print("\n\n".join(terminal_text(text, most, colours) for text in texts), end="\n\n")
    if colours:
        print(legend(texts, most), end="\n\n")
    write_html(file, texts, "Sentences by the variational model", f"python scripts/generate.py {folder} --mc")
    return file


if __name__ == "__main__":
    with user_errors():
        main()
