"""A text for language modelling: three streams of word ids, and their arrangement into the columns of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

EOS = "<eos>"
UNK = "<unk>"


@dataclass
class Corpus:
    """Three 1-D int64 arrays of word ids; ids follow the order of first appearance in train, then valid, then test."""

    name: str
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    words: list[str]
    sha256: str

    @property
    def num_words(self) -> int:
        """The size V of the vocabulary."""
        return len(self.words)


def encode(name: str, splits: Sequence[Iterable[str]], sha256: str) -> Corpus:
    """Number the words of (train, valid, test) in order of first appearance, from 0."""
    ids: dict[str, int] = {}
    train, valid, test = (np.array([ids.setdefault(word, len(ids)) for word in split], np.int64) for split in splits)
    return Corpus(name, train, valid, test, list(ids), sha256)


def split_lines(text: str) -> list[str]:
    """Words between white space; every newline becomes `<eos>`."""
    return text.replace("\n", f" {EOS} ").split()


def replace_rare(splits: Sequence[list[str]], min_count: int) -> list[list[str]]:
    """Words seen fewer than `min_count` times in train become `<unk>`, in all three splits."""
    counts = Counter(splits[0])
    kept = {word for word, count in counts.items() if count >= min_count} | {EOS}
    return [[word if word in kept else UNK for word in split] for split in splits]


def batchify(tokens: np.ndarray, batch_size: int) -> np.ndarray:
    """Cut the stream into `batch_size` parallel columns, as the authors' code does: an array (row_length, batch_size).

    Column i starts at i * N / B with halves rounded UP, so that columns may skip a token; the usual trim-and-view
    would shift them. Python's round() rounds halves to even, hence the integer arithmetic.
    """
    n = len(tokens)
    if not 1 <= batch_size <= n:
        raise ValueError(f"batch_size={batch_size}: must lie between 1 and the number of tokens, {n}")
    starts = (2 * np.arange(batch_size, dtype=np.int64) * n + batch_size) // (2 * batch_size)
    return tokens[starts + np.arange(n // batch_size)[:, None]]


def count_windows(row_length: int, steps: int) -> int:
    """The number of full windows of `steps` predictions in a column; a column's last token is a target only."""
    return (row_length - 1) // steps
