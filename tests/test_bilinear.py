"""`Bilinear` and `product.dot`: their definitions, their laws, and how other tools see them."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck
from torch.utils.flop_counter import FlopCounterMode

import algebranets as an
from algebranets import CROSS, M2R, C, H, R, product
from algebranets.algebra import CATALOGUE, cayley_dickson
from algebranets.pruning import Pruner, prunable
from conftest import ALGEBRAS, over_kinds
from laws import multiplied, times

F64 = torch.float64
over_catalogue = pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)


def tuples_last(x, algebra):
    return an.tuples(x, algebra).movedim(-2, -1)


def from_tuples_last(t, algebra):
    return an.from_tuples(t.movedim(-1, -2), algebra)


def activations(algebra, *shape):
    return torch.randn(*shape[:-1], shape[-1] * algebra.dim, dtype=F64)


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_dot_sums_products_of_tuples(algebra):
    x, y = activations(algebra, 2, 7, 3 * 5), activations(algebra, 2, 7, 5)
    left, right = tuples_last(x, algebra).unflatten(-2, (3, 5)), tuples_last(y, algebra)
    expected = multiplied(left, right[..., None, :, :], algebra).sum(-2)
    for lowering in ("auto", "reference"):
        z = product.dot(x, y, algebra=algebra, lowering=lowering)
        torch.testing.assert_close(z, from_tuples_last(expected, algebra))


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
@pytest.mark.parametrize("lowering", ["auto", "blocks", "bilinear", "reference"])
def test_bilinear_is_the_sum_over_pairs_of_weight_times_first_times_second(algebra, lowering):
    layer = an.nn.Bilinear(*(n * algebra.dim for n in (3, 5, 2)), dtype=F64, algebra=algebra, lowering=lowering)
    with torch.no_grad():
        layer.bias.normal_()
    x, z = activations(algebra, 2, 7, 3), activations(algebra, 2, 7, 5)
    w = layer.weight_tuples.movedim(0, -1)  # (out, in1, in2, component)
    first = multiplied(w, tuples_last(x, algebra)[..., None, :, None, :], algebra)
    both = multiplied(first, tuples_last(z, algebra)[..., None, None, :, :], algebra)
    expected = from_tuples_last(both.sum((-3, -2)), algebra) + layer.bias
    torch.testing.assert_close(layer(x, z), expected)


@pytest.mark.parametrize("algebra", [a for a in ALGEBRAS if a.associative], ids=str)
def test_over_an_associative_algebra_the_second_input_may_be_multiplied_before_or_after(algebra):
    layer = an.nn.Bilinear(*(n * algebra.dim for n in (3, 5, 2)), bias=False, dtype=F64, algebra=algebra)
    x, z, q = activations(algebra, 7, 3), activations(algebra, 7, 5), torch.randn(algebra.dim, dtype=F64)
    torch.testing.assert_close(layer(x, times(z, q, algebra, -1)), times(layer(x, z), q, algebra, -1))


def test_over_the_octonions_it_matters_where_the_brackets_are():
    octonions = cayley_dickson(3)
    layer = an.nn.Bilinear(8, 8, 8, bias=False, dtype=F64, algebra=octonions)
    x, z, q = torch.randn(1, 8, dtype=F64), torch.randn(1, 8, dtype=F64), torch.randn(8, dtype=F64)
    outside = times(layer(x, z), q, octonions, -1)
    assert not torch.allclose(layer(x, times(z, q, octonions, -1)), outside)


@over_kinds
def test_gradients_are_those_of_differences(algebra):
    layer = an.nn.Bilinear(*(n * algebra.dim for n in (2, 1, 1)), dtype=F64, algebra=algebra)
    x, z = (activations(algebra, 2, n).requires_grad_() for n in (2, 1))

    def call(x, z, weight, bias):
        return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, (x, z))

    assert gradcheck(call, (x, z, layer.weight, layer.bias))


@over_catalogue
def test_the_weight_shrinks_by_the_square_of_the_dim(algebra):
    sizes = [n * algebra.dim for n in (3, 5, 2)]
    layer = an.nn.Bilinear(*sizes, algebra=algebra)
    assert layer.weight.numel() * algebra.dim**2 == sizes[0] * sizes[1] * sizes[2]
    assert layer.weight_tuples.shape == (algebra.dim, 2, 3, 5)


@over_catalogue
def test_the_output_starts_with_the_variance_of_the_inputs_product(algebra):
    layer = an.nn.Bilinear(32 * algebra.dim, 24 * algebra.dim, 32 * algebra.dim, dtype=F64, algebra=algebra)
    y = layer(activations(algebra, 100, 32), activations(algebra, 100, 24))
    # Outputs of one row share its inputs, so the estimate is rough. Some components have more terms than others.
    assert 0.8 < y.var() < 1.2
    weight = layer.weight.detach().clone()
    layer.reset_parameters()
    assert not torch.equal(layer.weight, weight)
    assert layer.weight.abs().max() < 1.01 * weight.abs().max()
    assert not layer.bias.any()


@pytest.mark.parametrize("algebra", [R, C, H, M2R, CROSS], ids=str)
def test_the_account_counts_both_products(algebra):
    layer = an.nn.Bilinear(*(n * algebra.dim for n in (3, 5, 2)), algebra=algebra)
    inputs = (torch.randn(7, 3 * algebra.dim), torch.randn(7, 5 * algebra.dim))
    cost = an.account(layer, *inputs)
    assert cost.multiplies == 7 * (2 * 3 * 5 + 2 * 5) * algebra.multiplies
    assert not cost.unknown
    if algebra in (R, C, H):  # whose tables have no zeros
        with FlopCounterMode(display=False) as counter:
            layer(*inputs)
        assert counter.get_total_flops() == 2 * cost.multiplies


def test_torchs_counter_knows_torchs_bilinear_layer():
    layer, inputs = nn.Bilinear(3, 5, 2), (torch.randn(7, 3), torch.randn(7, 5))
    with FlopCounterMode(display=False) as counter:
        layer(*inputs)
    ours = an.nn.Bilinear(3, 5, 2, algebra=R)
    assert counter.get_total_flops() == 2 * an.account(layer, *inputs).multiplies
    assert an.account(layer, *inputs).multiplies == an.account(ours, *inputs).multiplies
    with FlopCounterMode(display=False) as counter:  # the gradient of the weight: g_o x_i, then times z_j
        torch.ops.aten._trilinear(inputs[0], torch.randn(7, 2), inputs[1], [1, 3], [2, 3], [1, 2], [0])
    assert counter.get_total_flops() == 2 * (7 * 2 * 3 + 7 * 2 * 3 * 5)


def test_a_pruner_prunes_whole_tuples_of_bilinear_layers():
    """A weight with three axes is kept dense as the first convolution, unless its third axis counts a second input."""
    bilinear = an.nn.Bilinear(16, 24, 32, algebra=H)
    model = nn.ModuleList([bilinear, an.nn.Conv1d(32, 32, 3, algebra=H), an.nn.Linear(32, 32, algebra=H)])
    assert [weight.path for weight in prunable(model)] == ["0.weight"]
    Pruner(model, target=0.5).finish()
    kept = (bilinear.weight_tuples != 0).sum(0)
    assert set(kept.flatten().tolist()) == {0, 4}
    assert (kept == 0).sum() == kept.numel() / 2
    cost = an.account(bilinear, torch.randn(1, 16), torch.randn(1, 24))
    assert cost.multiplies - cost.multiplies_left == (kept == 0).sum() * 16


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_under_autocast_the_output_has_the_dtype_of_the_weight_as_in_torch(dtype, bias):
    layer = an.nn.Bilinear(8, 12, 4, bias, algebra=H)
    x, z = torch.randn(7, 8), torch.randn(7, 12)
    with torch.autocast("cpu", dtype=dtype):
        y = layer(x, z)
        assert y.dtype == nn.Bilinear(8, 12, 4, bias)(x, z).dtype == torch.float32
        torch.testing.assert_close(layer(x.to(dtype), z.to(dtype)), y, atol=0.1, rtol=0.1)
    torch.testing.assert_close(y, layer(x, z), atol=0.1, rtol=0.1)


LAYER = an.nn.Bilinear(8, 12, 8, algebra=H)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: an.nn.Bilinear(8, 8, 8), "Bilinear needs an algebra"),
        (lambda: an.nn.Bilinear(10, 8, 8, algebra=H), "in1_features is 10, which does not hold whole H tuples"),
        (lambda: an.nn.Bilinear(8, 10, 8, algebra=H), "in2_features is 10"),
        (lambda: an.nn.Bilinear(8, 8, 10, algebra=H), "out_features is 10"),
        (lambda: an.nn.Bilinear(8, 8, 8, lowering="fast", algebra=H), "lowering must be one of"),
        (lambda: LAYER(torch.randn(2, 8), torch.randn(2, 8)), "input1 must have shape (..., 8), and input2 (..., 12)"),
        (lambda: LAYER(torch.randn(2, 8), torch.randn(1, 12)), "the same first axes; got (2, 8) and (1, 12)"),
        (lambda: LAYER(torch.randn(2, 12), torch.randn(2, 12)), "got shape (2, 12)"),
    ],
)
def test_what_does_not_fit_is_explained(make, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        make()
    assert message in str(error.value)
