"""`python run.py --help`: the groups with what is in them, and the keys that people change, each with its sentence."""

import re
import sys
from pathlib import Path

from varrnn.cli.errors import option_docs
from varrnn.config.compose import CONFIGS, compose, compose_raw, flatten, tied_rates
from varrnn.config.overrides import format_override
from varrnn.config.schema import DROP_RATES

GROUPS = {
    "model": "the dropout variant, a row of Table 1",
    "experiment": "task and size in one word",
    "task": "what is learnt, and from which data",
    "size": "how large the network is, with its schedule",
    "optim": "how the parameters are moved",
    "protocol": "what the paper says, or what the authors' code did",
    "sweep": "many runs at once",
    "launcher": "where the runs of a sweep are carried out",
}
KEYS = (
    *("seed", "cell", "device", "threads", *(f"model.{name}" for name in DROP_RATES)),
    *("optim.epochs", "optim.lr", "optim.decay", "optim.max_epoch", "optim.weight_decay", "optim.clip"),
    *("task.path", "task.steps", "train.early_stopping", "train.patience", "mc.samples", "mc.word_dropout"),
    *("runs_root", "run_dir"),
)
EXAMPLES = """\
  python run.py                                                   a few minutes on a laptop, no download
  python run.py experiment=ptb_medium model=variational_tied seed=2
  python run.py experiment=cornell model=naive cell=gru
  python run.py -m sweep=dropout_grid experiment=ptb_medium       a grid, one run after the other
The same command resumes after an interruption, and does nothing when the run is finished."""


def help_requested(words: list[str]) -> bool:
    """Did the user ask for help? (`--hydra-help` still shows Hydra's own.)"""
    return bool({"-h", "--help"} & set(words))


def text(all_keys: bool = False) -> str:
    """The whole page; `--help all` also lists the rarer keys."""
    lines = ["usage: python run.py [-m] [GROUP=CHOICE ...] [KEY=VALUE ...]", "", EXAMPLES, "", "Groups"]
    for group, description in GROUPS.items():
        files = sorted((CONFIGS / group).glob("*.yaml"))
        if files:
            lines += ["", f"  {group}=   {description}"]
            lines += [f"    {file.stem:26}{first_comment(file)}" for file in files]
    lines += [
        "",
        "Keys, with what they are in `python run.py`; groups change them"
        + ("" if all_keys else "; `--help all` lists all"),
        "",
    ]
    docs, defaults = option_docs(), flatten(compose([]))
    for key, source in tied_rates(compose_raw([])).items():
        docs[source] += f"; variants tie {key} to it: it moves too unless it is given"
    for key in docs if all_keys else KEYS:
        default = f"={format_override(defaults[key])}" if key in defaults else ""
        lines.append(f"  {key + default:32} {docs[key]}")
    return "\n".join(lines)


def first_comment(file: Path) -> str:
    """The first sentence of what a config file says of itself."""
    lines = file.read_text(encoding="utf-8").splitlines()
    comments = [line[1:].strip() for line in lines if line.startswith("#") and "@package" not in line]
    words = " ".join(comments)
    return re.split(r"(?<=[a-z)\]0-9\"])\. (?=[A-Z])", words)[0].rstrip(".") + "." if words else ""


def maybe_print_help() -> None:
    """Print the page and leave, if the command line asks for it."""
    if help_requested(sys.argv[1:]):
        print(text(all_keys="all" in sys.argv[1:]))
        sys.exit(0)
