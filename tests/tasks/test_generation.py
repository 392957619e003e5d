"""Drawing words: the chosen distribution, one function per text, texts that do not depend on their neighbours."""

import pytest
import torch

from varrnn.dropout import DropoutRates
from varrnn.errors import UserError
from varrnn.rng import GENERATION, make_generator
from varrnn.tasks.generation import Options, _draw, generate
from varrnn.tasks.model import SequenceModel, initialise
from varrnn.tasks.perplexity import sample_mask_batch

UNTIED = DropoutRates.variational(p_W=0.4, p_U=0.3, p_y=0.4, tied=False)


def network(dropout: DropoutRates = UNTIED) -> SequenceModel:
    model = SequenceModel(20, 8, 2, 20, dropout)
    initialise(model, 1.0, 1)
    return model.eval()


@torch.no_grad()
def by_hand(model, prompt, options, before, masks, number):
    """The reference: for every word, the whole text is read again."""
    draws = make_generator("cpu", GENERATION, options.seed, number)
    text = list(prompt)
    for _ in range(options.words):
        logits, _ = model(torch.tensor([before, *text]).unsqueeze(1), None, masks)
        p = (logits[-1, 0].double() / options.temperature).softmax(-1)
        uniform = torch.rand(1, generator=draws, dtype=torch.float64)
        text.append(int(torch.searchsorted(p.cumsum(0), uniform, right=True)))
    return text


@pytest.mark.parametrize("mc", (False, True))
def test_masks_and_state_are_held_from_the_first_word_to_the_last(mc):
    model = network()
    options = Options(words=25, temperature=0.7, top_k=0, samples=3, seed=5, mc=mc)
    found = generate(model, [3, 4], options, before=0)
    for number, text in enumerate(found):
        masks = sample_mask_batch(model, range(number, number + 1), 5, False, 0, 1) if mc else model.mean_masks()
        assert text.ids == by_hand(model, [3, 4], options, 0, masks, number)
        assert text.prompt == 2 and len(text.ids) == 27
    assert len({tuple(text.ids) for text in found}) == 3


def test_a_text_does_not_depend_on_the_other_texts():
    model = network()
    one = generate(model, [1], Options(words=12, seed=2, mc=True))
    four = generate(model, [1], Options(words=12, seed=2, mc=True, samples=4))
    assert one[0] == four[0]


def test_words_are_drawn_with_their_probabilities():
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0, 5.0]]).expand(20_000, -1)
    draws = [torch.Generator().manual_seed(0)] * 20_000
    words = _draw(logits.clone(), Options(temperature=2.0, top_k=3, never=4), draws)
    wanted = (logits[0, :3] / 2).softmax(-1)
    counts = words.bincount(minlength=5) / 20_000
    torch.testing.assert_close(counts[:3], wanted, atol=0.015, rtol=0)
    assert counts[3] == counts[4] == 0


def test_mistakes():
    with pytest.raises(UserError, match="temperature=0: must be above 0"):
        Options(temperature=0)
    with pytest.raises(UserError, match="words=0: must be at least 1"):
        Options(words=0)
    with pytest.raises(UserError, match="prompt is empty"):
        generate(network(), [], Options())
    with pytest.raises(UserError, match="new masks at every step"):
        generate(network(DropoutRates.naive(0.4)), [1], Options(mc=True))
