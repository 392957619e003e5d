"""The Cornell film reviews ("scale data" v1.0 of Pang and Lee, 2005) of the paper's section 5.2."""

from __future__ import annotations

import io

import numpy as np

from varrnn.data import files
from varrnn.data.reviews import Reviews

AUTHORS = ("Dennis+Schwartz", "James+Berardinelli", "Scott+Renshaw", "Steve+Rhodes")
SUBJ = (
    "cb26f952c091c510c786627a45a5af3fb5c87a986f9aa3eb7eef6e4ed1797a02",
    "1b612ca24494cc675f5e58c1fc320501446da2ed2520a00edb3522b565640658",
    "c1b0b7b80fa4161053fee1125e7fb7bfba987fcfa08a8ab525504eff4c988cec",
    "33ef24625d183f6f9ecf03f356e055e9ff998ac7773f48939a364e9900bbf10a",
)
RATING = (
    "b9057227d5b1324f49d5f402f1cad0ae472f3d130f35a24a5334ab7db6726be7",
    "91abefa233432a2b92a82e0cb40706bd38e48e1ce4165e7a16584a6ec1dd8ed0",
    "cbe4f07da184e0c68a1051503c91c2474bb23c8d6b433e57d99dc2a8ae43760c",
    "bbbe28efbe998827cfe2737a25d19977091a2deea141461eb8e241ce6f5bc03d",
)


def names(kind: str) -> list[str]:
    """The files `subj.*` or `rating.*` of the archive, one per author."""
    return [f"scaledata/{author}/{kind}.{author}" for author in AUTHORS]


SHA256 = dict(zip(names("subj") + names("rating"), SUBJ + RATING))
HINT = "fetch it again with `python scripts/download_data.py cornell`, or use task=reviews for your reviews"


def load(path: str | None = None) -> Reviews:
    """The 5,006 reviews, verified; from `path`, $VARRNN_DATA/cornell or data/cornell, in this order.

    Differs: the paper speaks of 5,000 raw reviews; the authors' code and ours read 5,006 extracts of subjective
    sentences.
    """
    folder = files.locate("cornell", SHA256, path)
    contents = files.read_checked(folder, SHA256, HINT)
    texts = [tokenise(line) for name in names("subj") for line in lines(contents[name])]
    ratings = np.array([float(line) for name in names("rating") for line in lines(contents[name])])
    return Reviews("cornell", texts, ratings, files.sha256_of_files(SHA256))


def lines(content: bytes) -> list[str]:
    """Lines with their newlines; Latin-1 maps every byte to one character, as Python 2 did for the authors."""
    return list(io.StringIO(content.decode("latin-1"), newline="\n"))


def tokenise(line: str) -> list[str]:
    """Split on single spaces, as the authors' tokeniser does: the newline that ends a review is a separate word.

    The files contain no capitals, so lower-casing is not needed.
    """
    return [word for word in line.split(" ") if word]
