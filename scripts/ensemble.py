"""Average the predictions of several runs: python scripts/ensemble.py RUN_DIR... [--mc [RUN_DIR...]] [mc.samples=1000]

Probabilities are averaged over the models, and before that over mask samples for models with MC dropout: `--mc` at the
end means all models, `a b --mc c d` uses the dropout approximation for a and b and MC dropout for c and d. The paper
averages ten large models. mc.*= and device= apply to every run; samples that a run has already drawn are used again.
"""

import argparse
import json
from pathlib import Path

from varrnn import fileio
from varrnn.cli.errors import user_errors
from varrnn.errors import UserError
from varrnn.training import allocator, checkpoint, ensemble
from varrnn.training import summary as run_summary


def main() -> None:
    """Average, print, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="RUN_DIR", help="folders of finished runs")
    parser.add_argument(
        "--mc", nargs="*", metavar="RUN_DIR", help="MC dropout for these runs; without folders: for all"
    )
    parser.add_argument("--out", type=Path, help="output file (RUNS_ROOT/ensembles/NAME.json)")
    options = parser.parse_intermixed_args()
    allocator.retain_heap()
    words = [*options.runs, *(options.mc or [])]
    overrides = [word for word in words if "=" in word and not Path(word).is_dir()]
    for word in overrides:
        if "/" in word:
            raise UserError(f"{word}: no such run folder; give the folders of finished runs, and mc.*= or device=")
    plain, sampled = ([word for word in some if word not in overrides] for some in (options.runs, options.mc or []))
    if options.mc is not None and not sampled:
        plain, sampled = [], plain
    members = [ensemble.load_member(Path(run), False, overrides) for run in plain]
    members += [ensemble.load_member(Path(run), True, overrides) for run in sampled]
    ensemble.check(members)
    folder = Path(members[0].config.runs_root).expanduser() / "ensembles"
    if options.out:
        fileio.prepare_file(options.out)
    else:
        fileio.make_folder(folder)
    made = ensemble.average(members)
    out = options.out or folder / f"{ensemble.file_name(made)}.json"
    checkpoint.write_text(out, json.dumps(run_summary.nan_to_null(made), indent=1) + "\n")
    print(f"{made['members']} models: test perplexity {made['metrics']['test_ppl']:.3f}\nwrote {out}")


if __name__ == "__main__":
    with user_errors():
        main()
