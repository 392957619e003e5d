"""The user's text for language modelling: three files with words separated by white space, one sentence per line."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

from varrnn.data import files
from varrnn.data.corpus import EOS, UNK, Corpus, encode, replace_rare, split_lines
from varrnn.errors import UserError


def load(train: str, valid: str, test: str, min_count: int | None = None) -> Corpus:
    """Read the three splits; words seen fewer than `min_count` times in train become `<unk>` everywhere.

    The default is 1 for a training text that contains `<unk>`, else 2: words that occur once then become `<unk>`, since
    otherwise the model would learn nothing about unseen words.
    """
    paths = [_path(split, path) for split, path in (("train", train), ("valid", valid), ("test", test))]
    contents = [files.read(path) for path in paths]
    splits = [_tokens(path, content) for path, content in zip(paths, contents)]
    if min_count is None:
        min_count = 1 if UNK in splits[0] else 2
    _check_unseen(splits, min_count)
    replaced = replace_rare(splits, min_count)
    if set(replaced[0]) <= {UNK, EOS}:
        raise UserError(f"task.min_count={min_count}: no word of {paths[0]} occurs that often; choose a lower value")
    sums = {split: files.sha256_of(content) for split, content in zip(("train", "valid", "test"), contents)}
    sums["min_count"] = str(min_count)
    return encode("text", replaced, files.sha256_of_files(sums))


def _path(split: str, path: str) -> Path:
    if not path:
        raise UserError(f"task.{split} is not set; task=text needs task.train=FILE task.valid=FILE task.test=FILE")
    return Path(path).expanduser()


def _tokens(path: Path, content: bytes) -> list[str]:
    text = files.decode(path, content)
    tokens = split_lines(text if text.endswith("\n") else text + "\n")
    if len(tokens) < 2 or set(tokens) == {EOS}:
        raise UserError(f"{path}: the file has no words; give a text")
    return tokens


def _advice(train: list[str]) -> str:
    """Advice on the smallest min_count that creates `<unk>` but keeps other words; "" if no value does."""
    counts = Counter(word for word in train if word != EOS)
    rarest = min(counts.values())
    if rarest == max(counts.values()):
        return ""
    times = "once" if rarest == 1 else f"{rarest} times"
    return f"its rarest words occur {times}: set task.min_count={rarest + 1} so that they become {UNK}, or "


def _check_unseen(splits: list[list[str]], min_count: int) -> None:
    """Raise if valid or test have unseen words and train has no `<unk>`: their probability would be arbitrary."""
    known = set(splits[0])
    unseen = [word for split in splits[1:] for word in split if word not in known]
    if not unseen:
        return
    some = ", ".join(sorted(set(unseen))[:5])
    if UNK not in replace_rare(splits[:1], min_count)[0]:
        raise UserError(
            f"{len(set(unseen))} words of valid and test do not occur in train ({some}, ...), and train has no {UNK}; "
            f"{_advice(splits[0])}put {UNK} into the files"
        )
    share = len(unseen) / (len(splits[1]) + len(splits[2]))
    warnings.warn(
        f"{share:.1%} of the words of valid and test do not occur in train ({some}, ...) and count as {UNK}",
        stacklevel=3,
    )
