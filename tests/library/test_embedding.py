"""Word types are dropped, not word tokens."""

import pytest
import torch

from varrnn import WordEmbedding, dropout, mc_dropout

THE, DOG, AND, CAT = range(4)
SENTENCE = torch.tensor([THE, DOG, AND, THE, CAT])


def dropped(embedding: WordEmbedding, words: torch.Tensor) -> torch.Tensor:
    return (embedding(words) == 0).all(dim=-1)


@pytest.mark.parametrize("batch_first", [False, True])
def test_the_dog_and_the_cat(batch_first):
    """Both occurrences of "the" are dropped or neither, independently in each sequence."""
    embedding = WordEmbedding(4, 8, p_E=0.5, batch_first=batch_first)
    words = SENTENCE.expand(200, -1) if batch_first else SENTENCE.expand(200, -1).T
    gone = dropped(embedding, words)
    gone = gone if batch_first else gone.T
    assert torch.equal(gone[:, 0], gone[:, 3])
    assert 0.3 < gone[:, 0].float().mean() < 0.7
    for other in (1, 2, 4):
        assert 0.3 < (gone[:, 0] == gone[:, other]).float().mean() < 0.7


def test_per_token_drops_each_occurrence_independently():
    embedding = WordEmbedding(4, 8, p_E=0.5, per_token=True)
    gone = dropped(embedding, SENTENCE.expand(200, -1).T)
    assert 0.3 < (gone[0] == gone[3]).float().mean() < 0.7


def test_unbatched_text():
    embedding = WordEmbedding(4, 8, p_E=0.5, batch_first=True)
    for _ in range(20):
        gone = dropped(embedding, SENTENCE)
        assert gone[0] == gone[3]


def test_mask_has_mean_one_and_equals_over_equal_words():
    embedding = WordEmbedding(50, 3, p_E=0.25)
    words = torch.randint(0, 50, (60, 300))
    mask = embedding.sample_mask(words)
    assert mask.shape == (60, 300, 1)
    table = torch.full((300, 50), -1.0)
    for t in range(60):
        seen = table.gather(1, words[t].unsqueeze(1)).squeeze(1)
        assert ((seen == -1) | (seen == mask[t, :, 0])).all()
        table.scatter_(1, words[t].unsqueeze(1), mask[t])
    drawn = table[table >= 0]
    assert abs((drawn == 0).float().mean().item() - 0.25) < 0.03
    torch.testing.assert_close(drawn.max().item(), 1 / 0.75)


def test_draws_follow_the_generator_and_only_t_numbers_are_drawn():
    embedding = WordEmbedding(100_000, 2, p_E=0.5)
    words = torch.randint(0, 100_000, (7, 3))
    one = embedding.sample_mask(words, torch.Generator().manual_seed(1))
    assert torch.equal(one, embedding.sample_mask(words, torch.Generator().manual_seed(1)))
    generator, counted = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    embedding.sample_mask(words, generator)
    dropout.sample_mask((7, 3), 0.5, counted)
    assert torch.equal(generator.get_state(), counted.get_state())


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_mask_over_types_is_held_over_a_text_in_windows(batch_first):
    embedding = WordEmbedding(20, 3, p_E=0.5, batch_first=batch_first).eval()
    words = torch.randint(0, 20, (30, 4))
    mask = embedding.sample_type_mask(4)
    whole = embedding.weight[words] * mask.gather(1, words.T).T.unsqueeze(-1)
    for window in (slice(0, 13), slice(13, 30)):
        part = words[window].T if batch_first else words[window]
        out = embedding(part, mask=mask)
        torch.testing.assert_close(out.transpose(0, 1) if batch_first else out, whole[window])
    shared = embedding(words.T if batch_first else words, mask=embedding.sample_type_mask(1))
    assert shared.shape[-1] == 3
    torch.testing.assert_close(embedding(words[:, 0], mask=mask[:1]), whole[:, 0])


def test_modes():
    embedding = WordEmbedding(20, 3, p_E=0.5)
    words = torch.randint(0, 20, (30, 4))
    assert not torch.equal(embedding(words), embedding(words))
    embedding.eval()
    assert torch.equal(embedding(words), embedding.weight[words])
    with mc_dropout(embedding):
        assert not torch.equal(embedding(words), embedding(words))
    assert torch.equal(embedding(words), embedding.weight[words])


def test_padding_is_honoured():
    embedding = WordEmbedding(6, 3, p_E=0.5, padding_idx=-6)
    assert embedding.padding_idx == 0
    assert (embedding.weight[0] == 0).all()
    embedding(torch.tensor([[0, 1], [2, 0]])).sum().backward()
    assert (embedding.weight.grad[0] == 0).all()
    reference = torch.nn.Embedding(6, 3, padding_idx=0)
    reference.load_state_dict(embedding.state_dict())
    with pytest.raises(ValueError, match="padding_idx=6"):
        WordEmbedding(6, 3, padding_idx=6)


def test_dropped_words_get_no_gradient():
    embedding = WordEmbedding(50, 3, p_E=0.5)
    words = torch.arange(50).unsqueeze(1)
    mask = embedding.sample_mask(words)
    embedding(words, mask=mask).sum().backward()
    assert torch.equal(embedding.weight.grad[:, 0] == 0, mask[:, 0, 0] == 0)


def test_a_mask_of_a_wrong_shape_raises():
    embedding = WordEmbedding(50, 3, p_E=0.5)
    with pytest.raises(ValueError, match=r"word mask of shape \(4, 7\)"):
        embedding(torch.zeros(3, 4, dtype=torch.long), mask=torch.ones(4, 7))
    for batch_first in (False, True):
        embedding.batch_first = batch_first
        batch = 3 if batch_first else 4
        with pytest.raises(ValueError, match=rf"\(5, 50\) fits neither .* nor \(batch of {batch} or 1, 50 words\)"):
            embedding(torch.zeros(3, 4, dtype=torch.long), mask=torch.ones(5, 50))
    with pytest.raises(ValueError, match=r"\(4, 50\) fits neither .* nor \(batch of 1 or 1"):
        embedding(torch.zeros(3, dtype=torch.long), mask=torch.ones(4, 50))  # ambiguous: the row of no sequence
    with pytest.raises(ValueError, match=r"\(2, 4, 1\) fits neither the words \(3, 4\)"):
        embedding(torch.zeros(3, 4, dtype=torch.long), mask=torch.ones(2, 4, 1))
    with pytest.raises(ValueError, match="p_E"):
        WordEmbedding(50, 3, p_E=1.2)


@pytest.mark.parametrize("shape", [(), (3, 4, 2)])
def test_words_with_neither_one_nor_two_axes_raise(shape):
    """With three axes it is not known which one is time, over which masks are shared."""
    for embedding in (WordEmbedding(5, 3, p_E=0.5), WordEmbedding(5, 3, p_E=0.5, batch_first=True).eval()):
        with pytest.raises(ValueError, match=rf"words have {len(shape)} axes"):
            embedding(torch.zeros(shape, dtype=torch.long))
        with pytest.raises(ValueError, match=rf"words have {len(shape)} axes"):
            embedding.sample_mask(torch.zeros(shape, dtype=torch.long))


def test_meta_device():
    embedding = WordEmbedding(50, 3, p_E=0.5, device="meta")
    assert embedding(torch.zeros(5, 2, dtype=torch.long, device="meta")).shape == (5, 2, 3)


def test_the_other_options_are_those_of_torch():
    ours = WordEmbedding(6, 3, padding_idx=1, max_norm=0.5, scale_grad_by_freq=True, p_E=0.5)
    theirs = torch.nn.Embedding(6, 3, padding_idx=1, max_norm=0.5, scale_grad_by_freq=True)
    assert isinstance(ours, torch.nn.Embedding)
    theirs.load_state_dict(ours.state_dict())
    words, results = torch.tensor([[0, 1], [2, 2]]), []
    for embedding in (ours.eval(), theirs):
        out = embedding(words)
        out.square().sum().backward()
        results.append((out, embedding.weight.grad, embedding.weight))
    torch.testing.assert_close(*results)
    sparse = WordEmbedding(6, 3, sparse=True, p_E=0.5)
    sparse(words).sum().backward()
    assert sparse.weight.grad.is_sparse
    shown = repr(WordEmbedding(6, 3, padding_idx=1, p_E=0.5, per_token=True))
    assert shown == "WordEmbedding(6, 3, padding_idx=1, p_E=0.5, per_token=True)"


def test_from_pretrained():
    weight = torch.randn(6, 3)
    embedding = WordEmbedding.from_pretrained(weight, p_E=0.5, batch_first=True)
    assert not embedding.weight.requires_grad and torch.equal(embedding.weight, weight)
    assert embedding.p_E == 0.5 and embedding.batch_first
    trained = WordEmbedding.from_pretrained(weight, freeze=False, padding_idx=2, per_token=True)
    assert trained.weight.requires_grad and trained.padding_idx == 2 and trained.per_token
    with pytest.raises(ValueError, match="embeddings have 1 axes"):
        WordEmbedding.from_pretrained(weight[0])


def test_no_words():
    for shape in ((0, 3), (3, 0), (0,)):
        assert WordEmbedding(10, 4, p_E=0.5)(torch.zeros(shape, dtype=torch.long)).shape == (*shape, 4)
