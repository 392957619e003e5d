"""Write results/report.html: tables, curves, figures, claims and shaded words on one page that opens offline.

`python scripts/report.py [--run RUN_DIR] [--text FILE]`. The words come from a finished run of a language model, or
from the weights in results/weights where there are some; without either the page says how to get them.
"""

import argparse
from pathlib import Path
from typing import Any

from varrnn import fileio
from varrnn.analysis.word_samples import report_words
from varrnn.cli.errors import user_errors
from varrnn.data import files
from varrnn.errors import UserError
from varrnn.records.store import RECORDS, load
from varrnn.reproduction.artefact import RESULTS
from varrnn.reproduction.report.content import collect_content
from varrnn.reproduction.report.page import render
from varrnn.tasks.language_model import CORPORA
from varrnn.training import open_run
from varrnn.training.trained import TrainedRun
from varrnn.training.weights import find_weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, metavar="RUN_DIR", help="finished run of a language model with dropout")
    parser.add_argument("--text", type=Path, help="text file to shade instead of the beginning of the test text")
    parser.add_argument("--words", type=int, default=120, help="words of the shaded text (120)")
    parser.add_argument("--samples", type=int, default=100, help="MC samples of the shaded text (100)")
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of records (results/records)")
    parser.add_argument("--out", type=Path, default=RESULTS / "report.html", help="the page (results/report.html)")
    options = parser.parse_args()
    for name, least in (("words", 2), ("samples", 1)):
        if getattr(options, name) < least:
            raise UserError(f"--{name} {getattr(options, name)}: must be at least {least}")
    fileio.file(options.out)
    page = render(collect_content(load(options.records), words(options)))
    fileio.write_text(options.out, page)
    print(f"wrote {options.out} ({len(page.encode()) / 1e6:.1f} MB)")


def words(options: argparse.Namespace) -> dict[str, Any] | None:
    """The section on words, from a run or from packaged weights."""
    folder = options.run or find_weights()
    if folder is None:
        if options.text:
            raise UserError("--text needs a trained model: give --run RUN_DIR")
        return None
    run = open_run(folder)
    name, data = run.config.model.name, run.config.task.name
    text, source = own_text(options.text) if options.text else test_text(run)
    found = report_words(run, text, options.words, options.samples)
    caption = (
        f"{source}, read by {name} ({run.config.size.name} model, trained on {data}). Each word is shaded by what the "
        "model did not know before it came. Hover over a word, or tap it, for its numbers and the five likeliest words."
    )
    where = f" --run {options.run}" if options.run else ""
    return {**found, "caption": caption, "command": f"python scripts/report.py{where}"}


def own_text(file: Path) -> tuple[str, str]:
    try:
        return files.decode(file, files.read(file)), f"The text of {file.name}"
    except UserError as error:
        raise UserError(f"--text {error}") from error


def test_text(run: TrainedRun) -> tuple[str | None, str]:
    """The beginning of the run's test text, where its corpus is at hand."""
    try:
        corpus = CORPORA[run.config.task.corpus](run.config.task)  # type: ignore[attr-defined]
    except UserError:
        return None, "A text that the model wrote itself, since its corpus is not at hand"
    test = " ".join(corpus.words[number] for number in corpus.test[:1000])
    return test, "The beginning of the test text"


if __name__ == "__main__":
    with user_errors():
        main()
