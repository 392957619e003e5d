"""Which units are dropped, over which axes a mask is shared, and which mean is kept."""

import copy
import io

import numpy as np
import pytest
import torch
from helpers import processes

import varrnn
from varrnn import (
    DropoutRates,
    Masks,
    SequenceDropout,
    VariationalGRU,
    VariationalLSTM,
    VariationalRNN,
    WordEmbedding,
)
from varrnn.dropout import cast_mask, identity_mask, is_identity, sample_mask

T, B, I, H = 6, 40, 30, 50


def masks_of(dropout: DropoutRates, **options) -> Masks:
    return VariationalLSTM(I, H, dropout=dropout, **options).sample_masks(B, T)[0]


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, float("nan")])
@pytest.mark.parametrize("name", ["p_E", "p_W", "p_U", "p_c", "p_y"])
def test_impossible_probabilities_raise(name, p):
    with pytest.raises(ValueError, match=rf"{name}=.*\[0, 1\).*DROPPING"):
        DropoutRates(**{name: p})


def test_wrong_types_raise():
    with pytest.raises(TypeError, match=r"p_W='0\.5'"):
        DropoutRates(p_W="0.5")
    with pytest.raises(TypeError, match="per_gate=1"):
        DropoutRates(per_gate=1)
    with pytest.raises(ValueError, match=r"dropout=1\.0"):
        VariationalLSTM(I, H, dropout=1.0)


def test_numbers_of_numpy_are_numbers():
    for p in (np.float32(0.5), np.float64(0.5)):
        assert VariationalLSTM(I, H, dropout=p).dropout == DropoutRates.variational(p_W=0.5, p_U=0.5)
        assert WordEmbedding(5, 3, p_E=p).p_E == 0.5
        assert {type(value) for value in vars(DropoutRates(p_W=p, p_c=0)).values()} == {float, bool}
    with pytest.raises(TypeError, match="dropout=True"):
        VariationalLSTM(I, H, dropout=True)


def test_presets_are_the_rows_of_the_paper():
    assert DropoutRates.none() == DropoutRates()
    assert DropoutRates.naive(0.5) == DropoutRates(p_W=0.5, p_y=0.5, per_step=True)
    assert DropoutRates.moon(0.3, p_E=0.2) == DropoutRates(p_E=0.2, p_W=0.3, p_c=0.3, p_y=0.3)
    rates = {"p_W": 0.5, "p_U": 0.3, "p_E": 0.3, "p_y": 0.5}
    assert DropoutRates.variational(**rates, tied=True) == DropoutRates(**rates)
    assert DropoutRates.variational(**rates, tied=False) == DropoutRates(**rates, per_gate=True)


def test_tied_mask_is_shared_over_steps_and_gates():
    z = masks_of(DropoutRates.variational(p_W=0.5, p_U=0.25))
    assert z.z_x.shape == (1, 1, B, I)
    assert z.z_h.shape == (1, 1, B, H)
    assert is_identity(z.z_c)


def test_untied_masks_differ_between_gates():
    z = masks_of(DropoutRates.variational(p_W=0.5, p_U=0.5, tied=False))
    assert z.z_x.shape == (1, 4, B, I)
    assert z.z_h.shape == (1, 4, B, H)
    for mask in (z.z_x[0], z.z_h[0]):
        for gate in range(3):
            assert 0.4 < (mask[gate] == mask[gate + 1]).float().mean() < 0.6


def test_naive_masks_are_fresh_at_every_step_and_leave_h_alone():
    z = masks_of(DropoutRates.naive(0.5).for_layers())
    assert z.z_x.shape == (T, 1, B, I)
    assert is_identity(z.z_h)
    assert 0.4 < (z.z_x[0] == z.z_x[1]).float().mean() < 0.6
    with pytest.raises(ValueError, match="steps="):
        VariationalLSTM(I, H, dropout=DropoutRates(p_W=0.5, per_step=True)).sample_masks(B)


def test_masks_differ_between_sequences_and_between_layers():
    first, second = VariationalLSTM(H, H, 2, dropout=0.5).sample_masks(B)
    assert 0.4 < (first.z_h[0, 0, 0] == first.z_h[0, 0, 1]).float().mean() < 0.6
    assert 0.4 < (first.z_h == second.z_h).float().mean() < 0.6
    assert 0.4 < (first.z_h == first.z_x).float().mean() < 0.6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.8])
def test_mean_is_one_and_p_is_the_rate_of_dropping(p, dtype):
    """p=0.001 is finer than a number in [0, 1) of half precision."""
    z = sample_mask((400, 400), p, None, dtype=dtype)
    kept = torch.full_like(z, 1 / (1 - p))
    assert abs((z == 0).double().mean().item() - p) < 5 * (p * (1 - p)) ** 0.5 / 400
    torch.testing.assert_close(z, torch.where(z == 0, z, kept))


def test_presets_do_not_warn_and_a_warning_names_what_was_set(recwarn):
    for preset in (DropoutRates.none(), DropoutRates.naive(0.5), DropoutRates.moon(0.5)):
        VariationalLSTM(I, H, dropout=preset)
    VariationalLSTM(I, H, dropout=DropoutRates.variational(p_W=0.5, p_U=0.5))
    assert not recwarn
    with pytest.warns(UserWarning, match="p_E=0.2 belongs to WordEmbedding") as warned:
        VariationalLSTM(I, H, dropout=DropoutRates.moon(0.5, p_E=0.2))
    assert "p_y" not in str(warned[0].message)


def test_rates_are_keyword_only_and_may_be_a_mapping():
    with pytest.raises(TypeError, match="positional argument"):
        DropoutRates(0.5)
    assert VariationalLSTM(I, H, dropout={"p_W": 0.5, "per_gate": True}).dropout == DropoutRates(p_W=0.5, per_gate=True)
    assert VariationalLSTM(I, H, dropout={}).dropout == DropoutRates.none()
    with pytest.raises(ValueError, match="unknown dropout rate p_w, tied: choose from p_E, p_W"):
        VariationalLSTM(I, H, dropout={"p_w": 0.5, "tied": True})


@pytest.mark.parametrize("rates", [DropoutRates(p_W=0.25, p_U=0.5, per_gate=True), DropoutRates.naive(0.5)])
def test_rates_survive_a_checkpoint_that_loads_weights_only(rates):
    """Rates can be hyper-parameters, which Lightning saves with the weights."""
    file = io.BytesIO()
    torch.save({"hyper_parameters": {"dropout": rates}}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)["hyper_parameters"]["dropout"]
    assert loaded == rates and type(loaded) is DropoutRates and loaded._implied == rates._implied


@pytest.mark.slow
def test_a_bare_float_is_explained_once_per_process():
    code = """
import warnings
from varrnn import VariationalGRU, VariationalLSTM
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    VariationalLSTM(3, 4, dropout=0.0)
    assert not warned
    VariationalLSTM(3, 4, dropout=0.25)
    VariationalGRU(3, 4, dropout=0.5)
print(len(warned), warned[0].filename, warned[0].message)
"""
    done = processes.run("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 <string> VariationalLSTM: dropout=0.25 drops the input of every layer")
    assert "DropoutRates.variational(p_W=0.25, p_U=0.25)" in done.stdout


def test_a_mask_of_ones_edited_through_numpy_is_applied():
    """``.numpy()`` and ``.data`` do not advance the version counter by which ones are recognised."""
    layer, x = VariationalLSTM(I, H).eval(), torch.randn(T, 2, I)
    for edit in (lambda z: z.numpy().fill(0.0), lambda z: z.data.zero_()):
        masks = layer.mean_masks()
        edit(masks[0].z_x)
        torch.testing.assert_close(layer(x, masks=masks)[0], layer(torch.zeros_like(x))[0])


def test_generator_makes_draws_reproducible():
    layer = VariationalGRU(I, H, 2, dropout=DropoutRates(p_W=0.5, p_U=0.5, per_gate=True))
    one = layer.sample_masks(B, generator=torch.Generator().manual_seed(3))
    torch.rand(10)
    two = layer.sample_masks(B, generator=torch.Generator().manual_seed(3))
    three = layer.sample_masks(B, generator=torch.Generator().manual_seed(4))
    assert all(torch.equal(a, b) for left, right in zip(one, two) for a, b in zip(left, right))
    assert not torch.equal(one[0].z_h, three[0].z_h)


def test_masks_have_the_dtype_and_device_of_the_parameters():
    for dtype in (torch.float64, torch.bfloat16):
        layer = VariationalLSTM(I, H, dropout=DropoutRates.moon(0.5).for_layers()).to(dtype)
        assert all(z.dtype == dtype for z in layer.sample_masks(B)[0])
        assert all(z.dtype == dtype for z in layer.mean_masks()[0])
    layer = VariationalLSTM(I, H, dropout=0.5, device="meta")
    assert all(z.device.type == "meta" for z in layer.sample_masks(B)[0])


def test_a_mask_of_ones_that_was_written_to_is_applied():
    one = identity_mask()
    assert is_identity(one)
    one.mul_(2)
    assert not is_identity(one)
    assert not is_identity(torch.ones(1, 1, 1, 1))
    layer = VariationalLSTM(I, H).eval()
    x = torch.randn(T, 2, I)
    plain = layer(x)[0]
    masks = layer.mean_masks()
    masks[0].z_x.mul_(3.0)
    expected = layer(x, masks=masks[0]._replace(z_x=torch.full((1, 1, 1, 1), 3.0)))[0]
    changed = layer(x, masks=masks)[0]
    assert not torch.allclose(changed, plain)
    torch.testing.assert_close(changed, expected)


@pytest.mark.parametrize("layer", [VariationalLSTM, VariationalGRU])
def test_masks_of_ones_are_separate_tensors(layer):
    """Writing into one mask does not change the others."""
    layer = layer(I, H, 2, bidirectional=True)
    for masks in (layer.mean_masks(), layer.sample_masks(B)):
        masks[1].z_h.mul_(3.0)
        changed = [
            (index, name) for index, m in enumerate(masks) for name, z in m._asdict().items() if not is_identity(z)
        ]
        assert changed == [(1, "z_h")]
    with torch.inference_mode():
        assert is_identity(identity_mask())


@pytest.mark.parametrize("layer", [VariationalLSTM, VariationalGRU, VariationalRNN])
def test_rates_may_be_set_and_are_checked_as_in_the_constructor(layer):
    made = layer(I, H)
    made.dropout = 0.3
    assert made.dropout == DropoutRates.variational(p_W=0.3, p_U=0.3)
    assert not is_identity(made.sample_masks(B)[0].z_h)
    with pytest.raises(ValueError, match=r"dropout=1\.5"):
        made.dropout = 1.5
    with pytest.raises(TypeError, match="dropout='no'"):
        made.dropout = "no"
    with pytest.warns(UserWarning, match=r"p_y=0\.4") as warned:
        made.dropout = DropoutRates(p_y=0.4)
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match=r"p_y=0\.4") as warned:
        layer(I, H, dropout=DropoutRates(p_y=0.4))
    assert warned[0].filename == __file__


@pytest.mark.parametrize(("module", "name"), [(SequenceDropout(0.5), "p"), (WordEmbedding(10, 3, p_E=0.5), "p_E")])
def test_the_probability_of_a_module_is_checked_when_it_is_set(module, name):
    for value, error in ((2, ValueError), (1.0, ValueError), (float("nan"), ValueError), ("no", TypeError)):
        with pytest.raises(error, match=f"{name}={value!r}"):
            setattr(module, name, value)
        with pytest.raises(error, match=f"{name}={value!r}"):
            type(module)(**({"p": value} if name == "p" else {"num_embeddings": 10, "embedding_dim": 3, "p_E": value}))
    assert getattr(module, name) == 0.5
    setattr(module, name, np.float32(0.25))
    copied = copy.deepcopy(module)
    assert type(getattr(copied, name)) is float and getattr(copied, name) == 0.25 and f"{name}=0.25" in repr(copied)


@pytest.mark.parametrize("layer", [VariationalGRU, VariationalRNN])
def test_memory_dropout_needs_an_lstm(layer):
    with pytest.raises(ValueError, match=rf"{layer.__name__}.*p_c=0.5.*LSTM"):
        layer(I, H, dropout=DropoutRates(p_c=0.5))
    made, x = layer(I, H), torch.randn(T, B, I)
    with pytest.raises(ValueError, match=rf"{layer.__name__}.*p_c=0.5.*LSTM"):
        made.dropout = DropoutRates(p_c=0.5)
    mean_masks = made.mean_masks()[0]
    for z_c in (torch.zeros(1, 1, 1, 1), torch.full((1, 2, B, H), 2.0)):
        with pytest.raises(ValueError, match="z_c must be ones"):
            made(x, masks=mean_masks._replace(z_c=z_c))
    made(x, masks=mean_masks._replace(z_c=torch.ones(1, 1, B, 1)))


def test_the_layer_warns_about_rates_that_it_does_not_apply():
    with pytest.warns(UserWarning, match="p_E=0.2 belongs to WordEmbedding; p_y=0.3 belongs to SequenceDropout"):
        VariationalLSTM(I, H, dropout=DropoutRates(p_E=0.2, p_y=0.3))


def test_a_float_means_tied():
    assert VariationalLSTM(I, H, dropout=0.3).dropout == DropoutRates.variational(p_W=0.3, p_U=0.3)


def test_mc_dropout_restores_modules_and_changes_only_ours():
    other = torch.nn.Dropout(0.5)
    model = torch.nn.ModuleList([VariationalLSTM(I, H, dropout=0.5), WordEmbedding(5, I, p_E=0.5), other]).eval()
    with pytest.raises(RuntimeError, match="inside"), varrnn.mc_dropout(model):
        assert model[0].dropout_active and model[1].dropout_active
        assert not model.training and not model[0].training and not other.training
        with varrnn.mc_dropout(model[0]):
            pass
        assert model[0].dropout_active
        raise RuntimeError("inside")
    assert not model[0].dropout_active and not model[1].dropout_active
    with pytest.raises(ValueError, match=r"mc_dropout: Dropout .*varrnn"), varrnn.mc_dropout(other):
        pass


def test_mc_dropout_ends_in_any_order():
    layer, x = VariationalLSTM(I, H, dropout=0.5).eval(), torch.randn(T, B, I)

    def samples():
        with varrnn.mc_dropout(layer):
            while True:
                yield layer(x)[0]

    first, second = samples(), samples()
    assert not torch.equal(next(first), next(second))
    first.close()
    assert not torch.equal(next(second), next(second)) and layer.dropout_active
    second.close()
    assert not layer.dropout_active and torch.equal(layer(x)[0], layer(x)[0])


class TestMoon:
    """With a 0/1 mask on the memory cell, the scaling of h keeps the mean."""

    def test_read_masks_the_memory_with_zero_and_one_and_scales_the_reading(self):
        z_c = masks_of(DropoutRates(p_c=0.4)).z_c
        assert z_c.shape == (1, 2, B, H)
        torch.testing.assert_close(z_c[:, 0].unique(), torch.tensor([0.0, 1.0]))
        torch.testing.assert_close(z_c[:, 1], z_c[:, 0] / 0.6)

    def test_a_mask_of_every_step_is_fresh_on_the_memory_too(self):
        z_c = masks_of(DropoutRates(p_c=0.5, per_step=True, per_gate=True)).z_c
        assert z_c.shape == (T, 2, B, H)
        assert 0.4 < (z_c[0, 0] == z_c[1, 0]).float().mean() < 0.6

    def test_other_scalings(self):
        step, inverted = (masks_of(DropoutRates(p_c=0.4), cell_scaling=scaling).z_c for scaling in ("step", "inverted"))
        torch.testing.assert_close(step[:, 0].unique(), torch.tensor([0.0, 1.0]))
        torch.testing.assert_close(inverted[:, 0].unique(), torch.tensor([0.0, 1 / 0.6]))
        assert (step[:, 1] == 1).all() and (inverted[:, 1] == 1).all()
        with pytest.raises(ValueError, match="cell_scaling='no': choose one of read, step, inverted"):
            VariationalLSTM(I, H, cell_scaling="no")

    @pytest.mark.parametrize("backend", ["auto", "reference"])
    def test_only_read_neither_grows_nor_decays_over_400_steps(self, backend):
        """Units with a forget gate of .95 and a constant input: c converges to about i g / (1 - f)."""
        sizes = {}
        for scaling in ("read", "step", "inverted"):
            layer = VariationalLSTM(1, 64, dropout=DropoutRates(p_c=0.5), cell_scaling=scaling, backend=backend)
            with torch.no_grad():
                for parameter in layer.parameters():
                    parameter.zero_()
                layer.bias_ih_l0[64:128] = 2.944  # sigm^-1(.95)
                layer.bias_ih_l0[128:192] = 0.1
                x, hx = torch.zeros(400, 3, 1), (torch.zeros(1, 3, 64), torch.ones(1, 3, 64))
                on = layer.train()(x, hx)[1]
                off = layer.eval()(x, hx)[1]
            sizes[scaling] = (on[1].max().item(), off[1].max().item(), on[0].mean() / off[0].mean())
        expected = 0.5 * torch.tanh(torch.tensor(0.1)).item() / 0.05
        assert sizes["read"][0] == pytest.approx(expected, rel=1e-2)
        assert sizes["read"][1] == pytest.approx(expected, rel=1e-2)
        assert sizes["read"][2] == pytest.approx(1.0, abs=0.25)
        assert not sizes["inverted"][0] < 1e30
        assert sizes["step"][1] < 0.15 * expected

    @pytest.mark.parametrize("backend", ["auto", "reference"])
    def test_a_dropped_unit_has_no_memory_and_no_output(self, backend):
        layer = VariationalLSTM(I, H, dropout=DropoutRates(p_c=0.5), backend=backend)
        masks = layer.sample_masks(B)
        out, (_, c) = layer(torch.randn(T, B, I), masks=masks)
        dropped = masks[0].z_c[0, 0] == 0
        assert dropped.any() and not dropped.all()
        assert (c[0][dropped] == 0).all() and (c[0][~dropped] != 0).all()
        assert (out[:, dropped] == 0).all()


def test_no_dropout_stays_no_multiplication_under_autocast():
    z = cast_mask(identity_mask(), torch.bfloat16)
    assert z.dtype == torch.bfloat16 and is_identity(z)
    assert not is_identity(cast_mask(torch.ones(1, 1, 1, 1), torch.bfloat16))
    mask = identity_mask().requires_grad_()
    cast_mask(mask, torch.bfloat16).sum().backward()
    assert mask.grad is not None
