"""Plot the uncertainty of a finished run: `python scripts/plot_uncertainty.py RUN_DIR [--samples 30] [--text FILE]`.

Language models: a text as coloured words (HTML, PNG, PDF), uncertainty against the words read so far, the test text
against the same words in random order and against words drawn uniformly, and calibration. Sentiment: predictive
standard deviation against error, and coverage of the predictive intervals. The numbers are written to numbers.json.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from varrnn import calibration, fileio, uncertainty
from varrnn.analysis import uncertainty_plots as plots
from varrnn.analysis import word_uncertainty as texts
from varrnn.cli.errors import user_errors
from varrnn.config import compose, schema
from varrnn.data import files
from varrnn.data.corpus import UNK, split_lines
from varrnn.errors import UserError
from varrnn.tasks import base
from varrnn.tasks.language_model import LanguageModelTask
from varrnn.tasks.sentiment import SentimentTask, mc_predictions
from varrnn.training import open_run
from varrnn.training import summary as run_summary
from varrnn.training.weights import WEIGHTS

LEVELS = np.linspace(0.05, 0.95, 19)
LM_DEFAULTS = {
    "words": 2000,
    "length": 100,
    "show_words": 220,
    "text": None,
}  # options of language models only


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="folder of a finished run")
    parser.add_argument("overrides", nargs="*", help="mc.word_dropout=true or false, device=cuda, threads=1")
    parser.add_argument("--samples", type=int, default=30, help="MC samples (30)")
    parser.add_argument("--words", type=int, help="number of words of the test text (2000)")
    parser.add_argument(
        "--length", type=int, help="words per sequence in the figure of uncertainty against position (100)"
    )
    parser.add_argument("--show-words", type=int, help="number of words shown in colour (220)")
    parser.add_argument("--text", type=Path, help="a text file to colour instead of the beginning of the test text")
    parser.add_argument("--out", type=Path, help="folder of the figures (RUN_DIR/uncertainty)")
    options = parser.parse_intermixed_args()
    check(options)
    config = compose.load_config(options.run, options.overrides)
    check_task(options, config)
    task, model = load(options.run, options.overrides)
    options.out = fileio.make_folder(options.out or default_out(options.run))
    before = {file: file.stat().st_mtime_ns for file in options.out.iterdir()}
    measure = language_model if config.task.kind == schema.LANGUAGE_MODEL else regression
    with Stages() as stages:
        found = measure(task, model, config, options, stages)
    numbers = json.dumps(run_summary.nan_to_null(found), indent=1)
    fileio.write_text(options.out / "numbers.json", f"{numbers}\n")
    print(numbers)
    written = (file for file in sorted(options.out.iterdir()) if file.stat().st_mtime_ns != before.get(file))
    print("\n".join(f"wrote {file}" for file in written))


def check(options: Any) -> None:
    """Check the options before anything is loaded."""
    for name, least in (("samples", 1), ("words", 2), ("length", 2), ("show_words", 2)):
        if getattr(options, name) is not None and getattr(options, name) < least:
            raise UserError(f"{flag(name)} {getattr(options, name)}: must be at least {least}")
    if any(override.startswith("mc.samples") for override in options.overrides):
        raise UserError("mc.samples=: set the number of samples with --samples instead")
    if options.text:
        read_user_text(options.text)


def flag(name: str) -> str:
    """`--show-words` for the attribute `show_words`."""
    return f"--{name.replace('_', '-')}"


def check_task(options: Any, config: schema.RunConfig) -> None:
    """Reject options that the task does not have, and set the defaults of language models."""
    if config.task.kind == schema.LANGUAGE_MODEL:
        for name, default in LM_DEFAULTS.items():
            setattr(options, name, default if getattr(options, name) is None else getattr(options, name))
        return
    given = [flag(name) for name in LM_DEFAULTS if getattr(options, name) is not None]
    if given:
        raise UserError(f"{', '.join(given)}: only for language models; leave out for task={config.task.name}")
    if options.samples < 2:
        raise UserError(
            f"--samples {options.samples}: must be at least 2 for task={config.task.name}, for a standard deviation"
        )


def read_user_text(file: Path) -> str:
    try:
        return files.decode(file, files.read(file))
    except UserError as error:
        raise UserError(f"--text {error}") from error


class Stages:
    """The progress of the stages: a bar on a terminal, a line per stage elsewhere."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()
        self.bar = tqdm(unit="word", unit_scale=True, dynamic_ncols=True, disable=not self.shown, leave=False)

    def __enter__(self) -> "Stages":
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def start(self, name: str, total: int) -> None:
        """Start the next stage, which reads `total` words."""
        if self.shown:
            self.bar.reset(total)
            self.bar.set_description(name)
        else:
            print(f"{name} ({total:,} words)", flush=True)

    def advance(self, words: int) -> None:
        self.bar.update(words)


def default_out(folder: Path) -> Path:
    """The default folder: in the run's folder, but not among exported weights, which are committed files."""
    if (folder / WEIGHTS).is_file():
        return Path("runs") / "uncertainty" / folder.resolve().name
    return folder / "uncertainty"


def load(folder: Path, overrides: list[str]) -> tuple[Any, Any]:
    """Task and model of a finished run, or of exported weights."""
    run = open_run(folder, overrides)
    if not run.config.model.has_dropout:
        name = run.config.model.name
        raise UserError(f"{folder}: model={name} has no dropout, so there is nothing to sample; choose another run")
    task = base.build(run.config, run.device)
    if task.sha256 != run.data["sha256"]:
        raise UserError(f"{folder}: was trained on another version of {task.name}; train it again")
    return task, run.model


def language_model(
    task: LanguageModelTask, model: Any, config: schema.RunConfig, options: Any, stages: Stages
) -> dict[str, Any]:
    """The four figures of a language model."""

    def read(text: torch.Tensor, samples: int = options.samples) -> texts.WordUncertainty:
        seed, dropped = config.seed, config.mc.word_dropout
        return texts.read_text(model, text, samples, seed, dropped, tick=stages.advance)

    words = task.all_words
    shown = read_user_words(options.text, words) if options.text else task.test[: options.show_words].cpu()
    stages.start("1/4 coloured words", len(shown) - 1)
    known, spelled = read(shown.to(task.test.device)), [words[i] for i in shown.tolist()]
    title = f"{config.task.name}, {config.model.name}: {options.samples} samples"
    plots.write_words_html(spelled, known, options.out / "words.html", title)
    plots.plot_words(spelled, known, options.out / "words.png")

    text = task.test[: options.words]
    inputs = {
        "test text": text,
        "shuffled": texts.shuffled(text),
        "uniform words": texts.random_words(text, len(words)),
    }
    stages.start("2/4 test text, shuffled and random words", 3 * (len(text) - 1))
    measured = {name: read(one) for name, one in inputs.items()}
    in_domain = measured["test text"]
    scores = {name: auroc_by_measure(measured[name], in_domain) for name in ("shuffled", "uniform words")}
    plots.plot_domains(measured, scores, options.out / "domains.png")
    stages.start("3/4 uncertainty by position", len(text))
    plots.plot_positions(by_position(task, read, options), options.out / "position.png")
    stages.start("4/4 calibration", len(text) - 1)
    diagrams = {"approximation": reliability(read(text, 0)), "MC dropout": reliability(in_domain)}
    plots.plot_reliability(diagrams, options.out / "calibration.png")
    means = {name: {m: float(getattr(one, m).mean()) for m in texts.MEASURES} for name, one in measured.items()}
    return {"means": means, "auroc": scores, "ece": {name: d.ece for name, d in diagrams.items()}}


def read_user_words(file: Path, words: list[str]) -> torch.Tensor:
    """The user's text as word ids; words that are not in the vocabulary become `<unk>`."""
    ids = {word: i for i, word in enumerate(words)}
    found = split_lines(read_user_text(file))
    unknown = [word for word in found if word not in ids]
    if unknown and UNK not in ids:
        raise UserError(
            f"{file}: the vocabulary has no {unknown[0]!r} (and {len(unknown) - 1} more) and no {UNK}; use other words"
        )
    if len(found) < 2:
        raise UserError(f"{file}: the text has {len(found)} words; give at least 2")
    return torch.tensor([ids.get(word, ids.get(UNK, 0)) for word in found])


def auroc_by_measure(out_of_domain: texts.WordUncertainty, in_domain: texts.WordUncertainty) -> dict[str, float]:
    return {name: texts.auroc(getattr(out_of_domain, name), getattr(in_domain, name)) for name in texts.MEASURES}


def by_position(task: LanguageModelTask, read: Any, options: Any) -> dict[str, np.ndarray]:
    """Sequences of the test text, each read from a zero state: measure -> (sequences, positions)."""
    text = task.test[: options.words]
    length = max(2, min(options.length, len(text) // 4))
    parts = [read(text[start : start + length]) for start in range(0, len(text) - length + 1, length)]
    return {name: np.stack([getattr(part, name).cpu().numpy() for part in parts]) for name in texts.MEASURES}


def reliability(known: texts.WordUncertainty) -> calibration.Reliability:
    return calibration.Reliability(10).add_answers(known.confidence, known.correct)


def regression(
    task: SentimentTask, model: Any, config: schema.RunConfig, options: Any, stages: Stages
) -> dict[str, Any]:
    """Standard deviation against error, and the coverage of the predictive intervals."""
    stream = (config.seed, 0, task.test.number)
    stages.start("predictions", options.samples * task.test.x.numel())
    passes = mc_predictions(model, task.test.x, options.samples, stream, config.mc.word_dropout, stages.advance)
    drawn = passes * task.data.std + task.data.mean
    half = len(task.test.y) // 2  # the noise is fitted on the first half, the second is shown
    precision = uncertainty.fit_precision(drawn[:, :half], task.test.y[:half])
    y = task.test.y[half:]
    known = uncertainty.regression(drawn[:, half:], precision, y)
    error = (y.double() - known.mean).cpu().numpy()
    spread = {"spread of the samples alone": known.epistemic, "with the noise of the data": known.variance}
    held = {k: calibration.coverage(known.mean, v, y.double(), list(LEVELS)).cpu().numpy() for k, v in spread.items()}
    sd = known.variance.sqrt().cpu().numpy()
    plots.plot_regression(sd, error, LEVELS, held, options.out / "regression.png")
    off = {name: float(np.abs(share - LEVELS).mean()) for name, share in held.items()}
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "log_likelihood": float(known.log_likelihood.mean()),
        "noise_sd": precision**-0.5,
        "correlation_of_sd_and_absolute_error": float(np.corrcoef(sd, np.abs(error))[0, 1]),
        "mean_miscoverage": off,
    }


if __name__ == "__main__":
    with user_errors():
        main()
