"""Check and reorder the arguments of `python run.py ...` for Hydra, and print the help page."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from varrnn.cli.errors import option_docs
from varrnn.config.compose import CONFIGS, compose, compose_raw, flatten, tied_rates
from varrnn.config.overrides import format_override
from varrnn.config.schema import DROP_RATES
from varrnn.errors import UserError
from varrnn.version import __version__

HYDRA_LONG = (
    *("--help", "--hydra-help", "--version", "--cfg", "--resolve", "--package", "--run", "--multirun"),
    *("--shell-completion", "--config-path", "--config-name", "--config-dir", "--experimental-rerun", "--info"),
)
HYDRA_SHORT = ("-h", "-c", "-p", "-r", "-m", "-sc", "-cp", "-cn", "-cd", "-i")
PATHS = ("run_dir", "runs_root", *(f"task.{name}" for name in ("path", "train", "valid", "test", "csv")))
HYDRA_WITH_VALUE = (
    *("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn"),
    *("--cfg", "-c", "--package", "-p"),
)


def options_first(words: Sequence[str]) -> list[str]:
    """Put Hydra's options first, `-m seed=1,2`: Hydra rejects overrides on both sides of an option."""
    options, overrides, waiting = [], [], iter(words)
    for word in waiting:
        if not word.startswith("-"):
            overrides.append(word)
            continue
        options.append(word)
        if word in HYDRA_WITH_VALUE:
            options += [value for value in (next(waiting, None),) if value is not None]
    return [*options, *overrides]


def reject_flag(word: str, value: str | None) -> None:
    """Reject `--epochs 3` and `--resume`, and say what to write instead."""
    name, _, given = word.lstrip("-").partition("=")
    value = given or value or "VALUE"
    if name in ("resume", "continue"):
        raise UserError(f"{word}: not needed, the same command resumes a run that was stopped; leave it out")
    leaf = name.replace("-", "_")
    keys = [key for key in option_docs() if key.split(".")[-1] == leaf]
    if keys:
        raise UserError(f"{word}: write {' or '.join(f'{key}={value}' for key in keys)}; see python run.py --help")
    raise UserError(f"{word}: there is no such option; write KEY=VALUE, as in optim.epochs=3; see python run.py --help")


def is_known_flag(word: str) -> bool:
    """Whether Hydra has this option; unambiguous prefixes of long options count."""
    name = word.split("=")[0]
    return name in HYDRA_SHORT or (name.startswith("--") and any(flag.startswith(name) for flag in HYDRA_LONG))


def quote_path(word: str, sweep: bool = False) -> str:
    """Quote a path that Hydra's grammar cannot read otherwise (`ü`, `=`); the shell has removed the user's quotes.

    In a sweep commas separate several paths.
    """
    key, equals, value = word.partition("=")
    if not equals or key not in PATHS or value[:1] in ("'", '"'):
        return word
    try:
        OverridesParser.create().parse_override(word)
    except HydraException:
        return f"{key}={','.join(map(format_override, value.split(',') if sweep else [value]))}"
    return word


def normalize_argv() -> None:
    """Rewrite sys.argv for Hydra; `--version` prints varrnn's version, not Hydra's."""
    words = sys.argv[1:]
    if "--version" in words:
        print(f"varrnn {__version__}")
        sys.exit(0)
    for word in words:
        if word.startswith("="):
            raise UserError(f"{word}: a value without its key; give KEY=VALUE, see python run.py --help")
    for word, after in zip(words, [*words[1:], None]):
        if word.startswith("-") and not is_known_flag(word):
            reject_flag(word, None if after is None or after.startswith("-") or "=" in after else after)
    sweep = bool({"-m", "--multirun"} & {*words})
    sys.argv[1:] = options_first([quote_path(word, sweep) for word in words])


GROUPS = {
    "model": "the dropout variant, a row of Table 1",
    "experiment": "a task and a size, under one name",
    "task": "the data and the prediction target",
    "size": "the size of the network, with its learning-rate schedule",
    "optim": "the optimizer",
    "protocol": "as the paper says, or as the authors' code does",
    "sweep": "many runs in one command",
    "launcher": "where the runs of a sweep are executed",
    "logger": "where live curves are logged",
}
HELP_KEYS = (  # shown without `--help all`
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
    """Whether the user asked for help (`--hydra-help` still shows Hydra's)."""
    return bool({"-h", "--help"} & set(words))


def format_help(all_keys: bool = False) -> str:
    """The help page; `--help all` also lists the rarely used keys."""
    lines = ["usage: python run.py [-m] [GROUP=CHOICE ...] [KEY=VALUE ...]", "", EXAMPLES, "", "Groups"]
    for group, description in GROUPS.items():
        files = sorted((CONFIGS / group).glob("*.yaml"))
        if files:
            lines += ["", f"  {group}=   {description}"]
            lines += [f"    {file.stem:26}{first_comment(file)}" for file in files]
    lines += [
        "",
        "Keys, with their values in a plain `python run.py`; other groups set other values"
        + ("" if all_keys else ". `--help all` lists every key"),
        "",
    ]
    docs, defaults = option_docs(), flatten(compose([]))
    for key, source in tied_rates(compose_raw([])).items():
        docs[source] += f"; variants set {key} to the same value unless it is given"
    for key in docs if all_keys else HELP_KEYS:
        default = f"={format_override(defaults[key])}" if key in defaults else ""
        lines.append(f"  {key + default:32} {docs[key]}")
    return "\n".join(lines)


def first_comment(file: Path) -> str:
    """The first sentence of a config file's leading comment."""
    lines = file.read_text(encoding="utf-8").splitlines()
    comments = [line[1:].strip() for line in lines if line.startswith("#") and "@package" not in line]
    words = " ".join(comments)
    return re.split(r"(?<=[a-z)\]0-9\"])\. (?=[A-Z])", words)[0].rstrip(".") + "." if words else ""


def maybe_print_help() -> None:
    """Print the help page and exit, if the arguments ask for it."""
    if help_requested(sys.argv[1:]):
        print(format_help(all_keys="all" in sys.argv[1:]))
        sys.exit(0)
