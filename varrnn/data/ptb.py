"""The Penn Treebank as Mikolov prepared it: 10,000 words, one sentence per line (the paper's section 5.1)."""

from __future__ import annotations

import numpy as np

from varrnn.data import cache, files
from varrnn.data.corpus import Corpus, encode, split_lines

SHA256 = {
    "ptb.train.txt": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "ptb.valid.txt": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "ptb.test.txt": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
}
# Differs: the paper counts 887,521 tokens "in total"; that is the number of training words without the
# ends of lines.
TOKENS = {"ptb.train.txt": 929_589, "ptb.valid.txt": 73_760, "ptb.test.txt": 82_430}
HINT = "fetch it again with `python scripts/download_data.py ptb`, or use task=text for your text"


def load(path: str | None = None) -> Corpus:
    """The three splits, verified; from `path`, $VARRNN_DATA/ptb or data/ptb, in this order."""
    folder = files.locate("ptb", SHA256, path)
    contents = files.read_checked(folder, SHA256, HINT)
    sha256 = files.sha256_of_files(SHA256)
    kept = cache.load_or_build(f"ptb-{sha256}", lambda: _build(contents, sha256), data_dir=folder)
    train, valid, test = (kept[split].astype(np.int64) for split in ("train", "valid", "test"))
    return Corpus("ptb", train, valid, test, cache.unpack(kept["words"]), sha256)


def _build(contents: dict[str, bytes], sha256: str) -> cache.Arrays:
    corpus = encode("ptb", [split_lines(contents[name].decode()) for name in SHA256], sha256)
    for name, split in zip(SHA256, (corpus.train, corpus.valid, corpus.test)):
        assert len(split) == TOKENS[name], f"{name}: {len(split)} tokens, expected {TOKENS[name]}"
    splits = {"train": corpus.train, "valid": corpus.valid, "test": corpus.test}
    return {"words": cache.pack(corpus.words)} | {name: ids.astype(np.int32) for name, ids in splits.items()}
