"""A small English corpus that comes with CPython: the help texts in `pydoc_data.topics`, without a download."""

from __future__ import annotations

import re
from functools import cache

from varrnn.data.corpus import EOS, Corpus, encode, replace_rare
from varrnn.data.files import sha256_of
from varrnn.errors import UserError

MIN_COUNT = 3
SHARES = (0.8, 0.1, 0.1)
# Rules under headings and in tables end a paragraph; as words they would be a fifth of the text.
PARAGRAPH = re.compile(r"\n\s*\n|[-=+*~^_|]{3,}")
SENTENCE = re.compile(r"(?<=[.:?!])\s+")
GRAMMAR = "::="  # paragraphs of formal grammar are left out
WORD = re.compile(r"(?P<number>\d[\w.]*\b)|[^\W\d]\w*(?:['-][^\W\d]\w*)*|[^\w\s*`|+]")


@cache
def load() -> Corpus:
    """Tokenised like Mikolov's PTB: lower case, numbers to N, rare words to `<unk>`, a sentence per line.

    The text differs between Python versions, so the hash of the tokens goes into the record of a run.
    """
    splits = split_topics(read_topics())
    sha256 = sha256_of("\n".join(" ".join(split) for split in splits).encode())
    return encode("pydoc", replace_rare(splits, MIN_COUNT), sha256)


def read_topics() -> dict[str, list[str]]:
    """The tokens of each topic. Many topics repeat parts of others: only the first copy of a paragraph is kept."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise UserError("task=pydoc: this Python comes without pydoc_data.topics; use task=ptb or task=text") from error
    seen: set[str] = set()
    tokens = {}
    for name in sorted(topics):
        whole = [" ".join(part.split()) for part in PARAGRAPH.split(topics[name]) if GRAMMAR not in part]
        fresh = [paragraph for paragraph in whole if paragraph not in seen]
        seen.update(whole)
        tokens[name] = [word for paragraph in fresh for word in tokenise(paragraph)]
    return tokens


def tokenise(paragraph: str) -> list[str]:
    """Words, numbers as N, runs of punctuation; `<eos>` after every sentence."""
    tokens: list[str] = []
    for sentence in SENTENCE.split(paragraph.strip()):
        words = ["N" if match["number"] else match[0].lower() for match in WORD.finditer(sentence)]
        tokens += [*words, EOS] if words else []
    return tokens


def split_topics(topics: dict[str, list[str]]) -> list[list[str]]:
    """Assign whole topics to train, valid and test, 80 / 10 / 10 of the tokens.

    From the longest topic to the shortest, each goes to the split that is furthest below its share: all three get long
    and short topics from the whole alphabet, so that their word frequencies are similar.
    """
    total = sum(map(len, topics.values()))
    splits: list[list[str]] = [[], [], []]
    for name in sorted(topics, key=lambda name: (-len(topics[name]), name)):
        lack = [share * total - len(split) for share, split in zip(SHARES, splits)]
        splits[lack.index(max(lack))] += topics[name]
    return splits
