"""hold_masks: the calls inside a block use the same masks; SequenceDropout; also=."""

import copy
import threading
import warnings

import pytest
import torch
from helpers.variants import VARIANTS
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

from varrnn import (
    DropoutRates,
    SequenceDropout,
    VariationalGRU,
    VariationalLSTM,
    VariationalRNN,
    WordEmbedding,
    dropout,
    hold_masks,
    mc_dropout,
    mc_predict,
)
from varrnn.embedding import hashed_mask, sample_keys
from varrnn.tasks.model import SequenceModel

T, B, V, H = 6, 3, 9, 5
RATES = DropoutRates.variational(p_W=0.4, p_U=0.4, tied=False)


class Decoder(nn.Module):
    """Embedding, layers and output dropout, over the whole sequence or one step at a time."""

    def __init__(self, layer=VariationalLSTM, rates=RATES, batch_first: bool = False) -> None:
        super().__init__()
        self.words = WordEmbedding(V, H, p_E=0.4, batch_first=batch_first, dtype=torch.float64)
        self.rnn = layer(H, H, 2, dropout=rates, batch_first=batch_first, dtype=torch.float64)
        self.drop = SequenceDropout(0.4, batch_first=batch_first)
        self.stepwise = False

    def forward(self, words: Tensor) -> Tensor:
        time = 1 if self.words.batch_first else 0
        state, outputs = None, []
        for part in words.split(1 if self.stepwise else words.shape[time], time):
            out, state = self.rnn(self.words(part), state)
            outputs.append(self.drop(out))
        return torch.cat(outputs, time)


@pytest.fixture
def words() -> Tensor:
    return torch.randint(V, (T, B))


def both(model: Decoder, words: Tensor) -> tuple[Tensor, Tensor]:
    model.stepwise = False
    whole = model(words)
    model.stepwise = True
    return whole, model(words)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("variant", ["tied", "untied", "moon"])
@pytest.mark.parametrize("layer", [VariationalLSTM, VariationalGRU, VariationalRNN])
def test_steps_and_the_whole_sequence_are_equal_under_one_draw(words, layer, variant, batch_first):
    rates = VARIANTS[variant]
    if rates.p_c and layer is not VariationalLSTM:
        pytest.skip("memory dropout is for LSTMs")
    model = Decoder(layer, rates, batch_first)
    words = words.t() if batch_first else words
    with hold_masks(model):
        whole, steps = both(model, words)
        torch.testing.assert_close(steps, whole)
        torch.testing.assert_close(model(words), steps)
    with hold_masks(model):
        assert not torch.allclose(model(words), steps)  # another block, another function
    whole, steps = both(model, words)
    assert not torch.allclose(whole, steps)  # outside a block each call draws masks


@pytest.mark.parametrize("chunk", [None, 1, 4])
def test_a_sample_of_mc_predict_is_one_function(words, chunk):
    """The same seed gives the same samples, however often a model calls its layers."""
    model = Decoder()
    whole = mc_predict(model, words, samples=7, chunk=chunk).stack()
    model.stepwise = True
    torch.testing.assert_close(mc_predict(model, words, samples=7, chunk=chunk).stack(), whole)
    assert len(whole.unique(dim=0)) == 7


def test_word_types_stay_dropped_over_calls(words):
    embedding = WordEmbedding(V, H, p_E=0.5)
    gone: dict[tuple[int, int], set[bool]] = {}
    with hold_masks(embedding):
        for _ in range(20):
            drawn = torch.randint(V, (2, B))
            for t, row in ((t, row) for t in range(2) for row in range(B)):
                zero = bool((embedding(drawn)[t, row] == 0).all())
                gone.setdefault((row, int(drawn[t, row])), set()).add(zero)
    assert all(len(found) == 1 for found in gone.values())
    assert {True, False} == set.union(*gone.values())
    per_token = WordEmbedding(V, H, p_E=0.5, per_token=True)
    with hold_masks(per_token):
        assert not torch.equal(per_token(words), per_token(words))


def test_the_masks_of_words_from_keys_are_like_drawn_ones():
    """Rate, mean, and independence of rows and of words, each within five standard errors."""
    p, rows, types = 0.3, 400, 500
    keys = sample_keys(rows, torch.device("cpu")).unsqueeze(1)
    mask = hashed_mask(keys, torch.arange(types), p, torch.float64)
    error = 5 * (p * (1 - p) / mask.numel()) ** 0.5
    assert abs((mask == 0).double().mean().item() - p) < error
    torch.testing.assert_close(mask.unique(), torch.tensor([0.0, 1 / (1 - p)], dtype=torch.float64))
    gone = (mask == 0).double() - p
    for other in (gone.roll(1, 0), gone.roll(1, 1), gone.roll(7, 0), gone.roll(64, 1)):
        assert abs((gone * other).mean().item()) < 5 * p * (1 - p) / mask.numel() ** 0.5
    for axis in (0, 1):  # rows and words are dropped equally often, up to chance
        worst = gone.mean(axis).abs().max().item()
        assert worst < 5.5 * (p * (1 - p) / mask.shape[axis]) ** 0.5


def test_a_draw_for_each_batch_size():
    layer = VariationalLSTM(H, H, dropout=RATES)
    x = torch.randn(T, B, H)
    with hold_masks(layer):
        first, other = layer(x)[0], layer(x[:, :2])[0]
        assert not torch.allclose(other, first[:, :2])  # separate masks
        assert torch.equal(layer(x)[0], first) and torch.equal(layer(x[:, :2])[0], other)
        masks = layer.sample_masks(B)
        assert torch.equal(layer(x, masks=masks)[0], layer(x, masks=masks)[0])
        assert not torch.equal(layer(x, masks=masks)[0], first)  # given masks are used
        layer.dropout = DropoutRates.variational(p_W=0.9)
        assert not torch.equal(layer(x)[0], first)


def test_rates_per_step_draw_at_every_call():
    layer = VariationalLSTM(H, H, dropout=DropoutRates.naive(0.5))
    x = torch.randn(T, B, H)
    with hold_masks(layer):
        assert not torch.equal(layer(x)[0], layer(x)[0])


def test_blocks_nest_and_keep_nothing_on_the_modules():
    inner, outer = VariationalLSTM(H, H, dropout=RATES), SequenceDropout(0.5)
    model, x = nn.ModuleList([inner, outer]), torch.randn(T, B, H)
    before = copy.deepcopy(vars(inner))
    with hold_masks(model):
        first, dropped = inner(x)[0], outer(x)
        with hold_masks(inner):
            assert not torch.equal(inner(x)[0], first) and torch.equal(outer(x), dropped)
        assert torch.equal(inner(x)[0], first)
        assert not torch.equal(copy.deepcopy(inner)(x)[0], first)  # a copy is not in the block
        with pytest.raises(ZeroDivisionError), hold_masks(inner):
            raise ZeroDivisionError
        assert torch.equal(inner(x)[0], first)
    assert vars(inner).keys() == before.keys() and not dropout._blocks
    with (
        pytest.raises(ValueError, match=r"hold_masks: Linear .*varrnn"),
        hold_masks(nn.Linear(1, 1)),
    ):
        pass


def test_modes_decide_whether_masks_are_on():
    layer, x = VariationalLSTM(H, H, dropout=RATES).eval(), torch.randn(T, B, H)
    plain = layer(x)[0]
    with hold_masks(layer):
        assert torch.equal(layer(x)[0], plain)
        with mc_dropout(layer):
            assert torch.equal(layer(x)[0], layer(x)[0]) and not torch.equal(layer(x)[0], plain)


def test_other_threads_have_separate_masks():
    layer, x, found = VariationalLSTM(H, H, dropout=RATES), torch.randn(T, B, H), []
    with hold_masks(layer):
        first = layer(x)[0]
        thread = threading.Thread(target=lambda: found.extend((layer(x)[0], layer(x)[0])))
        thread.start()
        thread.join()
        assert torch.equal(layer(x)[0], first)
    assert not torch.equal(found[0], found[1]) and not torch.equal(found[0], first)


def test_training_step_by_step_and_in_inference_mode_before():
    layer, x = VariationalLSTM(H, H, dropout=RATES), torch.randn(T, B, H)
    with hold_masks(layer):
        with torch.inference_mode():
            first = layer(x)[0]
        out = layer(x)[0]
        out.sum().backward()
        torch.testing.assert_close(out, first)
    assert layer.weight_hh_l0.grad is not None


def test_checkpointing_inside_the_block():
    layer, x = VariationalLSTM(H, H, dropout=RATES, dtype=torch.float64), torch.randn(T, B, H, dtype=torch.float64)
    gradients = []
    torch.manual_seed(1)
    with hold_masks(layer):
        layer(x[:1])  # the masks are drawn before the part that is computed twice
        for run in (lambda x: layer(x)[0], lambda x: checkpoint(lambda x: layer(x)[0], x, use_reentrant=False)):
            layer.zero_grad()
            run(x).sum().backward()
            gradients.append(layer.weight_hh_l0.grad.clone())
    torch.testing.assert_close(*gradients)


def test_masks_drawn_inside_a_transform_are_not_held():
    layer, x = VariationalLSTM(H, H, dropout=RATES), torch.randn(T, B, H)
    mapped = torch.func.vmap(lambda x: layer(x)[0], randomness="different")
    with hold_masks(layer):
        with pytest.raises(RuntimeError, match=r"VariationalLSTM: masks drawn inside torch\.func"):
            mapped(x.unsqueeze(0))
        first = layer(x)[0]
        torch.testing.assert_close(mapped(x.unsqueeze(0))[0], first)


@pytest.mark.slow
def test_compiled_models():
    model = Decoder()
    compiled, words = torch.compile(model, backend="eager"), torch.randint(V, (T, B))
    with hold_masks(compiled):
        torch.testing.assert_close(compiled(words), model(words))
    assert not torch.equal(compiled(words), compiled(words))


def test_the_sequence_model_of_the_paper(words):
    rates = DropoutRates(p_E=0.3, p_W=0.3, p_U=0.3, p_y=0.3)
    model = SequenceModel(V, H, 1, V, rates)
    with hold_masks(model):
        whole, _ = model(words)
        state, steps = None, []
        for t in range(T):
            out, state = model(words[t : t + 1], state)
            steps.append(out)
        torch.testing.assert_close(torch.cat(steps), whole)
    assert not torch.equal(model(words)[0], model(words)[0])


class TestSequenceDropout:
    @pytest.mark.parametrize("batch_first", [False, True])
    def test_one_mask_per_sequence(self, batch_first):
        drop = SequenceDropout(0.5, batch_first=batch_first)
        out = drop(torch.ones(20, 20, 30))
        out = out.transpose(0, 1) if batch_first else out  # (T, B, H)
        assert (out == out[0]).all() and len(out[0].unique(dim=0)) == 20
        torch.testing.assert_close(out.unique(), torch.tensor([0.0, 2.0]))
        assert 0.4 < (out == 0).float().mean() < 0.6
        x = torch.randn(20, 20, 30)
        assert torch.equal(drop.eval()(x), x)
        with mc_dropout(drop):
            assert not torch.equal(drop(x), drop(x))

    def test_packed_sequences_get_the_masks_of_their_rows(self):
        drop, x, lengths = SequenceDropout(0.5), torch.randn(T, B, H), torch.tensor([2, 6, 4])
        with hold_masks(drop):
            whole = drop(x)
            packed = drop(pack_padded_sequence(x, lengths, enforce_sorted=False))
        padded, found = pad_packed_sequence(packed)
        assert torch.equal(found, lengths)
        for row, length in enumerate(lengths):
            assert torch.equal(padded[:length, row], whole[:length, row])
        three = drop(pack_padded_sequence(x, lengths, enforce_sorted=False), torch.full((1, H), 3.0))
        torch.testing.assert_close(three.data, 3 * pack_padded_sequence(x, lengths, enforce_sorted=False).data)

    def test_given_masks(self):
        drop, x = SequenceDropout(0.5).eval(), torch.randn(T, B, H)
        mask = drop.sample_mask((B, H), x, torch.Generator().manual_seed(1))
        torch.testing.assert_close(drop(x, mask), x * mask)
        with pytest.raises(ValueError, match=r"a mask of shape \(4, 5\); expected \(3, 5\)"):
            drop(x, torch.ones(4, H))

    def test_mistakes(self):
        with pytest.raises(ValueError, match=r"input has 2 axes; give \(T, B, H\)"):
            SequenceDropout(0.5)(torch.ones(3, 4))
        with pytest.raises(TypeError, match="input is a list"):
            SequenceDropout(0.5)([1.0])
        with pytest.raises(ValueError, match=r"p=1\.0"):
            SequenceDropout(1.0)
        with pytest.raises(TypeError, match="batch_first='no'"):
            SequenceDropout(0.5, batch_first="no")
        assert repr(SequenceDropout(0.5, batch_first=True)) == "SequenceDropout(p=0.5, batch_first=True)"

    def test_a_mask_of_one_row_for_all_samples_is_rejected(self):
        class Given(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.drop = SequenceDropout(0.5)

            def forward(self, x: Tensor) -> Tensor:
                return self.drop(x, self.drop.sample_mask((1, H)) if self.drop.dropout_active else None)

        with pytest.raises(ValueError, match="SequenceDropout was given a mask of one row"):
            list(mc_predict(Given(), torch.randn(T, B, H), samples=5, chunk=2))
        prediction = mc_predict(Given(), torch.randn(T, B, H), samples=5)
        assert len(list(prediction)) == 5 and prediction.chunk == 1


class Mixed(nn.Module):
    """Our layer with a low dropout rate, and torch's modules with a high one."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.rnn = VariationalLSTM(H, H, dropout=DropoutRates.variational(p_W=1e-9))
        self.out = nn.Sequential(nn.Dropout(p), nn.Linear(H, H))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(x)[0])


class TestAlso:
    def test_the_users_dropout_modules_are_switched_on_and_restored(self):
        model, x = Mixed().eval(), torch.randn(T, B, H)
        with mc_dropout(model, also=nn.Dropout), mc_dropout(model, also=(nn.Dropout,)):
            assert not torch.equal(model(x), model(x)) and not model.out.training
        assert not model.out[0].training and torch.equal(model(x), model(x)) and not dropout._switched_on
        spread = mc_predict(model, x, samples=20, also=nn.Dropout).std
        assert (spread > 0).all() and not model.out[0].training
        assert (mc_predict(model, x, samples=20, also=()).std < 1e-6).all()

    def test_torchs_modules_alone(self):
        model, x = nn.Sequential(nn.Linear(H, H), nn.Dropout(0.5)), torch.randn(B, H)
        assert mc_predict(model, x, samples=4, chunk=1, also=nn.Dropout).std.max() > 0
        with pytest.raises(ValueError, match="no layer of varrnn"):
            mc_predict(nn.Sequential(nn.Linear(H, H), nn.Dropout(0.0)), x, also=nn.Dropout)

    def test_blocks_that_overlap_leave_the_mode_as_it_was(self):
        model = Mixed().train()
        model.out[0].eval()
        first, second = mc_dropout(model, nn.Dropout), mc_dropout(model, nn.Dropout)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert model.out[0].training
        second.__exit__(None, None, None)
        assert not model.out[0].training

    def test_one_warning_where_it_stays_off(self):
        model, x = Mixed().eval(), torch.randn(T, B, H)
        with pytest.warns(UserWarning, match=r"Mixed: nn\.Dropout \(out\.0\) is off.*also=\(nn\.Dropout,\)") as warned:
            list(mc_predict(model, x, samples=5))
        assert len(warned) == 1 and warned[0].filename == __file__
        with pytest.warns(UserWarning, match="is off") as warned, mc_dropout(model):
            pass
        assert len(warned) == 1 and warned[0].filename == __file__
        lstm = nn.Sequential(VariationalLSTM(H, H, dropout=RATES), nn.LSTM(H, H, 2, dropout=0.5)).eval()
        with pytest.warns(UserWarning, match=r"nn\.LSTM \(1\) is off"), mc_dropout(lstm):
            pass
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            list(mc_predict(model, x, samples=2, also=()))
            list(mc_predict(Mixed(p=0.0), x, samples=2))
            with mc_dropout(Mixed().train()):
                pass

    def test_mistakes(self):
        for wrong in ("nn.Dropout", (nn.Dropout(0.5),)):
            with pytest.raises(TypeError, match="give classes of modules"):
                mc_predict(Mixed(), torch.randn(T, B, H), also=wrong)
