"""Columns, vocabulary order, the built-in corpus, the user's text."""

import numpy as np
import pytest

from varrnn.data import pydoc, text
from varrnn.data.corpus import EOS, UNK, batchify, count_windows, encode, replace_rare, split_lines
from varrnn.errors import UserError


def test_ids_follow_first_appearance_in_train_then_valid_then_test():
    corpus = encode("x", [["b", "a", "b"], ["c", "a"], ["d", "c"]], "0")
    assert corpus.words == ["b", "a", "c", "d"]
    assert corpus.train.tolist() == [0, 1, 0] and corpus.valid.tolist() == [2, 1] and corpus.test.tolist() == [3, 2]
    assert corpus.train.dtype == np.int64


def test_every_newline_is_an_end_of_sentence():
    assert split_lines(" a b \n\n c\n") == ["a", "b", EOS, EOS, "c", EOS]


@pytest.mark.parametrize(("n", "batch"), [(10, 4), (929_589, 20), (73_760, 20), (7, 7), (9, 2), (1, 1), (999, 13)])
def test_columns_start_at_i_n_over_b_halves_up(n, batch):
    result = batchify(np.arange(n), batch)
    assert result.shape == (n // batch, batch)
    starts = [int(np.floor(i * n / batch + 0.5)) for i in range(batch)]
    assert result[0].tolist() == starts
    assert (np.diff(result, axis=0) == 1).all()
    assert result.max() < n


def test_a_half_is_rounded_up_where_python_would_round_to_even():
    # 10 * 929589 / 20 = 464794.5, and Python's round() gives 464794
    assert batchify(np.arange(929_589), 20)[0, 10] == 464_795


@pytest.mark.parametrize("batch", [0, -1, 11])
def test_an_impossible_batch_size_is_rejected(batch):
    with pytest.raises(ValueError, match=f"batch_size={batch}.*10"):
        batchify(np.arange(10), batch)


def test_windows_need_a_target_for_their_last_step():
    assert [count_windows(n, 5) for n in (5, 6, 10, 11)] == [0, 1, 1, 2]


def test_pydoc_splits_are_alike():
    corpus = pydoc.load()
    total = len(corpus.train) + len(corpus.valid) + len(corpus.test)
    assert 60_000 < total < 200_000
    assert 0.75 < len(corpus.train) / total < 0.85
    assert np.array_equal(np.unique(corpus.train), np.arange(corpus.num_words)), "every word is seen in training"
    share = np.bincount(corpus.train) / len(corpus.train)
    unigram = [np.exp(-np.log(share[split]).mean()) for split in (corpus.train, corpus.valid, corpus.test)]
    assert max(unigram) < 1.3 * min(unigram)
    for split in (corpus.train, corpus.valid, corpus.test):
        assert (split == corpus.words.index(UNK)).mean() < 0.12
        assert 0.02 < (split == corpus.words.index(EOS)).mean() < 0.1


def test_pydoc_repeats_no_long_sentence_across_splits():
    # Topics quote each other: without the removal of repeated paragraphs a third of valid would be in train.
    splits = pydoc.split_topics(pydoc.read_topics())
    sentences = [set(s for s in " ".join(split).split(f" {EOS} ") if s.count(" ") > 8) for split in splits]
    for held_out in sentences[1:]:
        assert len(held_out & sentences[0]) < 0.03 * len(held_out)


def test_pydoc_is_the_same_every_time():
    first = pydoc.load()
    pydoc.load.cache_clear()
    second = pydoc.load()
    assert first is not second and first.sha256 == second.sha256
    assert np.array_equal(first.train, second.train) and first.words == second.words


def test_pydoc_tokens():
    tokens = pydoc.tokenise('The "if" statement, since 3.10, isn\'t\n   user-defined. A second: x2')
    assert tokens[:12] == ["the", '"', "if", '"', "statement", ",", "since", "N", ",", "isn't", "user-defined", "."]
    assert tokens[12:] == [EOS, "a", "second", ":", EOS, "x2", EOS]


def test_rare_words_are_counted_in_train_only():
    splits = [["a", "a", "b"], ["b", "b", "a"], ["c"]]
    assert replace_rare(splits, 2) == [["a", "a", UNK], [UNK, UNK, "a"], [UNK]]


@pytest.fixture
def write(tmp_path):
    def write(*contents):
        paths = [tmp_path / f"{i}.txt" for i in range(3)]
        for path, content in zip(paths, contents):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return [str(path) for path in paths]

    return write


def test_a_user_text_that_contains_unk(write):
    paths = write("a b <unk>\nc\n", "a c", "b <unk>\n")
    corpus = text.load(*paths)
    assert corpus.words == ["a", "b", UNK, EOS, "c"]
    assert corpus.valid.tolist() == [0, 4, 3], "a missing last newline makes no difference"
    assert corpus.sha256 != text.load(*write("a b <unk>\nc\n", "a c", "c <unk>\n")).sha256


def test_words_that_occur_once_in_a_user_text_become_unk(write):
    with pytest.warns(UserWarning, match=r"16\.7% of the words.*zebra.*<unk>"):
        corpus = text.load(*write("a a b b c\n", "a zebra\n", "b b\n"))
    assert corpus.words == ["a", "b", UNK, EOS], "the end of a line is never rare"
    assert corpus.words[corpus.valid[1]] == UNK


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("a a b b b\n", r"its rarest words occur 2 times: set task\.min_count=3 so that they become <unk>, or put"),
        ("a a b b\n", r"train has no <unk>; put <unk> into the files"),  # no value of min_count helps
    ],
)
def test_unseen_words_where_no_word_is_rare(write, train, message):
    with pytest.raises(UserError, match=message):
        text.load(*write(train, "a zebra\n", "b b\n"))
    if "min_count" in message:  # the advice helps
        with pytest.warns(UserWarning, match="zebra"):
            assert text.load(*write(train, "a zebra\n", "b b\n"), min_count=3).num_words == 3


def test_unseen_words_without_unk_are_an_error_that_says_what_to_do(write):
    with pytest.raises(UserError, match=r"1 words.*zebra.*task\.min_count=2"):
        text.load(*write("a a b b c\n", "a zebra\n", "b b\n"), min_count=1)


@pytest.mark.parametrize(
    ("train", "message"),
    [(b"", "0.txt: the file is empty"), (b" \n\n", "empty"), (b"ok\ncaf\xe9 x\n", "line 2: byte 0xe9 at offset 6")],
)
def test_a_bad_file_is_named(write, train, message):
    with pytest.raises(UserError, match=message):
        text.load(*write(train, "a\n", "a\n"))


def test_a_missing_file_and_a_missing_key_are_named(write):
    with pytest.raises(UserError, match=r"nowhere\.txt: cannot be read"):
        text.load("nowhere.txt", *write("a", "a", "a")[1:])
    with pytest.raises(UserError, match=r"task\.valid is not set"):
        text.load("x", "", "y")
