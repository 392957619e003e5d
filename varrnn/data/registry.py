"""The corpora of the tasks. A new corpus is a reader in this package, an entry here, and a YAML in configs/task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from varrnn.data import cornell, csv_reviews, ptb, pydoc, synthetic, text
from varrnn.data.corpus import Corpus
from varrnn.data.reviews import Reviews
from varrnn.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Source(Generic[T]):
    """How a corpus is read.

    Args:
        task: its file in configs/task.
        load: reads the corpus; takes the options of the task (the fields of `task` in the config).
        options: the options that only some corpora read; setting one of the others is an error.
        description: what it is, for the card of a published model.
    """

    task: str
    load: Callable[[Any], T]
    options: tuple[str, ...] = ()
    description: str = ""


def load_csv(task: Any) -> Reviews:
    """The reviews of the file that `task.path` names; `task.csv` is an older name of the option."""
    if task.csv is None:
        raise UserError("task=reviews: no file; set task.path=file.csv, a CSV file with the columns text and rating")
    if task.path not in (None, task.csv):
        raise UserError(f"task.path={task.path} and task.csv={task.csv}: two names of the same option; give one")
    return csv_reviews.load(task.csv)


# by the value of task.corpus
TEXTS: dict[str, Source[Corpus]] = {
    "ptb": Source(
        "ptb",
        lambda task: ptb.load(task.path),
        ("path",),
        "the Penn Treebank as prepared by Mikolov (929,589 training words of the Wall Street Journal, 10,000 types)",
    ),
    "pydoc": Source(
        "pydoc",
        lambda task: pydoc.load(),
        description="the help texts of Python's language reference, which come with CPython",
    ),
    "text": Source(
        "text",
        lambda task: text.load(task.train, task.valid, task.test, task.min_count),
        ("train", "valid", "test", "min_count"),
    ),
}
# by the value of task.reviews
REVIEWS: dict[str, Source[Reviews]] = {
    "cornell": Source(
        "cornell",
        lambda task: cornell.load(task.path),
        ("path",),
        'the Cornell film reviews ("scale data" v1.0)',
    ),
    "synthetic": Source("synthetic_reviews", lambda task: synthetic.load()),
    "csv": Source("reviews", load_csv, ("path", "csv")),
}


def describe(name: str) -> str:
    """The description of the corpus of a task, or its name."""
    sources: tuple[Source[Any], ...] = (*TEXTS.values(), *REVIEWS.values())
    found = [source.description for source in sources if source.task == name]
    return next(filter(None, found), name)
