"""Triton's combinations of components, interpreted if there is no GPU, and the lowerings that use them."""

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from algebranets import CROSS, M2R, C, H, product
from algebranets.algebra import direct_sum
from algebranets.ops import combine as combine_module
from algebranets.ops.combine import add_bias, combine
from conftest import needs_triton, over_kinds, thinned

pytestmark = needs_triton
F64 = torch.float64
MATRIX = ((1.0, 0.0, -2.0, 0.5, 0.0, 1.0), (0.0, 0.0, 0.0, 0.0, 0.0, 0.0), (0.0, 3.0, 0.0, 0.0, 1.0, 0.0)) * 2


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """Let kernels run on any device."""
    monkeypatch.setattr("algebranets.ops.device._has_device", lambda _: True)


def plain(x, bias=None):
    return combine_module._combine_in_torch(x, MATRIX, 2, bias)


@pytest.mark.parametrize("shape", [(2, 3, 5, 2, 7), (1, 1, 33, 6, 40), (1, 6, 1, 1, 1500), (1, 2, 0, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_combinations_are_those_of_the_matrix(shape, dtype):
    x = torch.randn(shape, dtype=dtype)
    y = combine(x, MATRIX, across=2)
    assert y.dtype == dtype
    torch.testing.assert_close(y, plain(x.double()).to(dtype), check_stride=True)
    half = combine(x, MATRIX, across=2, dtype=torch.float16)
    torch.testing.assert_close(half, plain(x.double()).half(), atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=str)
@pytest.mark.parametrize("records", [False, True])
def test_the_meta_device_gives_the_same_shape_and_records_gradients(dtype, records, monkeypatch):
    monkeypatch.setattr("algebranets.ops.device._has_device", lambda _: False)
    x = torch.randn(2, 3, 5, 2, 7, requires_grad=records)
    y, expected = combine(x.to("meta"), MATRIX, across=2, dtype=dtype), combine(x, MATRIX, across=2, dtype=dtype)
    facts = [(t.shape, t.stride(), t.dtype, t.requires_grad) for t in (y, expected)]
    assert y.is_meta
    assert facts[0] == facts[1]


def test_the_meta_device_has_forward_derivatives(monkeypatch):
    monkeypatch.setattr("algebranets.ops.device._has_device", lambda _: False)
    x = torch.empty(2, 3, 5, 2, 7, device="meta")
    with forward_ad.dual_level():
        _, tangent = forward_ad.unpack_dual(combine(forward_ad.make_dual(x, x), MATRIX, across=2))
    assert tangent.shape == (2, 3, 5, 2, 7)


def test_a_bias_is_added_to_each_row():
    x, bias = torch.randn(1, 2, 5, 3, 7, dtype=F64), torch.randn(42, dtype=F64)
    y = combine(x, MATRIX, across=6, bias=bias)
    torch.testing.assert_close(y, combine_module._combine_in_torch(x, MATRIX, 6, bias))
    y, bias = torch.randn(3, 5, 7, dtype=F64), torch.randn(7, dtype=F64)
    torch.testing.assert_close(add_bias(y, bias), y + bias)


def test_first_and_second_derivatives_are_those_of_differences():
    x = torch.randn(1, 2, 2, 3, 1, dtype=F64, requires_grad=True)
    assert gradcheck(lambda x: combine(x, MATRIX, across=2), x)
    y, bias = torch.randn(2, 3, dtype=F64, requires_grad=True), torch.randn(3, dtype=F64, requires_grad=True)
    assert gradcheck(add_bias, (y, bias))
    # The interpreter is slow, so one random direction is checked for each tensor.
    assert gradgradcheck(lambda x: combine(x, MATRIX, across=2) ** 2, x, fast_mode=True)
    assert gradgradcheck(lambda y, bias: add_bias(y, bias) ** 2, (y, bias), fast_mode=True)


@pytest.mark.parametrize(("rows", "columns"), [(0, 7), (1, 300), (50, 1), (50, 128), (5000, 7), (100, 130)])
def test_rows_are_summed_in_float32(rows, columns):
    x = torch.randn(rows, columns).bfloat16()
    y = combine_module._sum_rows(x)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, x.float().sum(0), rtol=1e-4, atol=1e-4)


def test_a_program_may_sum_several_tiles_of_rows(monkeypatch):
    from algebranets.ops.combine import launch

    monkeypatch.setattr(launch, "PROGRAMS", 1)
    x = torch.randn(1500, 7, dtype=F64)
    torch.testing.assert_close(combine_module._sum_rows(x), x.sum(0))


@pytest.mark.parametrize("lowering", ["blocks", "bilinear"])
@over_kinds
def test_the_lowerings_made_of_it_compute_the_reference_linear(algebra, lowering):
    x = torch.randn(3, 5 * algebra.dim, dtype=F64, requires_grad=True)
    w = torch.randn(product.weight_shape(algebra, 2, 5, stacks=2), dtype=F64, requires_grad=True)
    b = torch.randn(4 * algebra.dim, dtype=F64, requires_grad=True)
    results = []
    for which in (lowering, "reference"):
        y = product.linear(x, w, b, algebra=algebra, lowering=which, stacks=2)
        results.append([y, *torch.autograd.grad((y**2).sum(), [x, w, b])])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("lowering", ["blocks", "bilinear"])
@pytest.mark.parametrize("algebra", [C, M2R, H, CROSS, direct_sum(C, M2R)], ids=str)
def test_the_lowerings_made_of_it_compute_the_reference_conv(algebra, lowering):
    image = torch.randn(2, 2 * algebra.dim, 4, 3, dtype=F64)
    kernel = torch.randn(product.weight_shape(algebra, 3, 2, (3, 2)), dtype=F64, requires_grad=True)
    geometry = product.Geometry((1, 2), (1, 1), (1, 1))
    for memory_format in (torch.contiguous_format, torch.channels_last):
        x = image.contiguous(memory_format=memory_format).requires_grad_()
        results = []
        for which in (lowering, "reference"):
            y = product.conv(x, kernel, geometry=geometry, algebra=algebra, lowering=which)
            results.append([y, *torch.autograd.grad((y**2).sum(), [x, kernel])])
        torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    ("algebra", "lowering"),
    thinned(
        ((algebra, lowering) for algebra in (C, H, M2R) for lowering in ("blocks", "bilinear")),
        lambda *case: case in ((C, "blocks"), (H, "bilinear"), (M2R, "blocks")),
    ),
    ids=str,
)
def test_a_compiler_takes_it_whole(algebra, lowering):
    torch._dynamo.reset()

    def run(x, w, b):
        return product.linear(x, w, b, algebra=algebra, lowering=lowering)

    shapes = (3, 20), product.weight_shape(algebra, 4, 20 // algebra.dim), (4 * algebra.dim,)
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    results = []
    for function in (torch.compile(run, fullgraph=True, backend="aot_eager"), run):
        y = function(*inputs)
        results.append([y, *torch.autograd.grad(y.square().sum(), inputs)])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("lowering", ["auto", "blocks", "bilinear"])
def test_torch_func_and_forward_mode_go_around_kernels(lowering):
    x, w, b = torch.randn(4, 3, 8, dtype=F64), torch.randn(4, 8, 2, dtype=F64), torch.randn(4, 8, dtype=F64)
    image, taps = torch.randn(2, 8, 3, 3, dtype=F64), torch.randn(8, 1, 3, 3, dtype=F64)

    def linear(x, w, b):
        return product.linear(x, w, b, algebra=H, lowering=lowering)

    def depthwise(x, w):
        return product.conv(x, w, geometry=product.Geometry((1, 1), (1, 1), (1, 1), 2), algebra=H, lowering=lowering)

    expected = torch.stack([linear(*each) for each in zip(x, w, b, strict=True)])
    torch.testing.assert_close(torch.vmap(linear)(x, w, b), expected)
    torch.testing.assert_close(torch.vmap(linear, (0, None, None))(x, w[0], b[0])[0], expected[0])
    grads = torch.vmap(torch.func.grad(lambda w, x: linear(x, w, b[0]).square().sum()), (None, 0))(w[0], x)
    assert grads.shape == (4, 8, 2)
    assert torch.func.grad(lambda w: depthwise(image, w).square().sum())(taps).shape == taps.shape
    for function, inputs in ((linear, (x[0], w[0], b[0])), (depthwise, (image, taps))):
        value, change = torch.func.jvp(function, inputs, inputs)
        torch.testing.assert_close(value, function(*inputs))
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(t, t) for t in inputs]
            torch.testing.assert_close(forward_ad.unpack_dual(function(*duals)).tangent, change)


def test_autocast_lays_weights_out_in_its_precision():
    layer_weight, x = nn.Parameter(torch.randn(8, 2)), torch.randn(3, 8)
    for lowering in ("blocks", "bilinear"):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = product.linear(x, layer_weight, algebra=H, lowering=lowering)
        assert y.dtype == torch.bfloat16
        (grad,) = torch.autograd.grad(y.float().square().sum(), layer_weight)
        assert grad.dtype == torch.float32
        torch.testing.assert_close(y.float(), product.linear(x, layer_weight, algebra=H), atol=0.1, rtol=0.1)
