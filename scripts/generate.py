"""Generate text with a trained language model, with words shaded by the model's uncertainty.

`python scripts/generate.py RUN_DIR --prompt "the company said" --words 60 --temperature 0.8 --top-k 40 --samples 3`.
It uses the dropout approximation, or with --mc one function from q(omega) per text, with the same masks for all its
words. Without RUN_DIR the weights in results/weights are used.
"""

import argparse
import shlex
import sys
from pathlib import Path

from varrnn.analysis.shaded_text import SHADES, has_colours, legend, scale_max, shade, terminal_text, write_html
from varrnn.cli.errors import user_errors
from varrnn.data.corpus import split_lines
from varrnn.errors import UserError
from varrnn.training import open_run
from varrnn.training.weights import find_weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN_DIR", help="folder of a finished run, or of weights")
    parser.add_argument("overrides", nargs="*", help="device=cuda, threads=1, mc.word_dropout=true")
    parser.add_argument("--prompt", default="the", help='first words of the text ("the")')
    parser.add_argument("--words", type=int, default=60, help="number of words to generate (60)")
    parser.add_argument("--temperature", type=float, default=0.8, help="below 1, likely words become more likely (0.8)")
    parser.add_argument("--top-k", type=int, default=40, help="draw from the k most likely words; 0: from all (40)")
    parser.add_argument("--samples", type=int, default=1, help="number of texts (1)")
    parser.add_argument("--mc", action="store_true", help="MC dropout: one function from q(omega) per text")
    parser.add_argument("--seed", type=int, default=0, help="seed of words and masks (0)")
    parser.add_argument(
        "--shade",
        choices=(*SHADES, "none"),
        default=SHADES[0],
        help=f"the measure of uncertainty that shades words ({SHADES[0]})",
    )
    parser.add_argument("--shade-samples", type=int, default=20, help="MC samples for the shades (20)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the shaded texts as an HTML page")
    options = parser.parse_intermixed_args()
    check(options)
    run = open_run(options.run or default_weights(), options.overrides)
    texts = run.generate(
        options.prompt, options.words, options.temperature, options.top_k, options.samples, options.mc, options.seed
    )
    unknown = run.vocabulary.unknown_words(split_lines(options.prompt))
    if unknown:
        print(f"note: {', '.join(unknown)} not in the vocabulary of this run, read as <unk>", file=sys.stderr)
    colours = options.shade != "none" and has_colours()
    measured = options.shade if colours or options.html else "predictive_entropy"
    samples = options.shade_samples if colours or options.html else 0
    shaded = [shade(run, text, measured, samples) for text in texts]
    most = scale_max(shaded)
    for text in shaded:
        print(terminal_text(text, most, colours), end="\n\n")
    if colours:
        print(legend(shaded, most))
    if options.html:
        write_html(options.html, shaded, f"{run.config.model.name}, {run.config.task.name}", shlex.join(sys.argv))
        print(f"wrote {options.html}")


def check(options: argparse.Namespace) -> None:
    if options.run is not None and not options.run.exists() and "=" in str(options.run):
        options.overrides, options.run = [str(options.run), *options.overrides], None
    if options.shade_samples < 1:
        raise UserError(f"--shade-samples {options.shade_samples}: must be at least 1")
    if options.html and options.shade == "none":
        raise UserError("--html shows shaded words; leave --shade none out")


def default_weights() -> Path:
    folder = find_weights()
    if folder is None:
        raise UserError("RUN_DIR is missing, and results/weights is empty: give the folder of a finished run")
    return folder


if __name__ == "__main__":
    with user_errors():
        main()
