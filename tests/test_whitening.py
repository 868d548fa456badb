"""Whitening: white outputs, torch's conventions, and finite results for any input."""

import copy
from math import prod

import pytest
import torch
from torch import nn

import algebranets as an
from algebranets import CROSS, M2R, M4R, C, H, R
from algebranets.algebra import CATALOGUE
from algebranets.nn.cholesky import cholesky, divide
from algebranets.ops.whitening_sums import whitening_sums
from conftest import ALGEBRAS, needs_triton, thinned

over_all = pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
over_catalogue = pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)


def covariance(y, algebra):
    """Return the covariance (tuples, components, components) of an output (batch, channels, ...), in stored order."""
    t = y.unflatten(1, (algebra.dim, -1)).movedim(2, 0).movedim(2, 1).flatten(2)
    t = t - t.mean(2, keepdim=True)
    return t @ t.mT / t.shape[2]


def correlated(*shape, dtype=torch.float64):
    x = torch.randn(*shape, dtype=dtype)
    mixed = x.movedim(1, -1) @ torch.randn(shape[1], shape[1], dtype=dtype)
    return mixed.movedim(-1, 1) + torch.randn(shape[1], *[1] * (len(shape) - 2), dtype=dtype)


@over_all
def test_outputs_have_mean_zero_and_the_identity_as_covariance(algebra):
    layer = an.nn.Whitening2d(2 * algebra.dim, eps=1e-12, algebra=algebra, dtype=torch.float64)
    y = layer(correlated(50, 2 * algebra.dim, 4, 5))
    assert y.mean((0, 2, 3)).abs().max() < 1e-6
    torch.testing.assert_close(
        covariance(y, algebra), torch.eye(algebra.dim).double().expand(2, -1, -1), atol=1e-5, rtol=0
    )


def test_over_r_it_is_torchs_batch_norm():
    for ours, theirs, shape in (
        (an.nn.Whitening1d(3, algebra=R), nn.BatchNorm1d(3), (8, 3)),
        (an.nn.Whitening1d(3, momentum=None, algebra=R), nn.BatchNorm1d(3, momentum=None), (8, 3, 4)),
        (an.nn.Whitening2d(3, algebra=R), nn.BatchNorm2d(3), (8, 3, 4, 5)),
        (an.nn.Whitening3d(3, algebra=R), nn.BatchNorm3d(3), (8, 3, 2, 4, 5)),
    ):
        for _ in range(3):
            x = 3 * torch.randn(shape) + 1
            torch.testing.assert_close(ours(x), theirs(x), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(ours.running_mean, theirs.running_mean)
        torch.testing.assert_close(ours.running_covariance.flatten(), theirs.running_var)
        assert ours.num_batches_tracked == theirs.num_batches_tracked == 3
        torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), atol=1e-5, rtol=1e-5)


def test_running_statistics_serve_in_eval_mode():
    layer = an.nn.Whitening1d(8, momentum=None, algebra=H, dtype=torch.float64)
    x = correlated(4000, 8)
    y = layer(x)
    torch.testing.assert_close(layer.eval()(x), y, atol=1e-2, rtol=1e-2)  # the running covariance is unbiased
    torch.testing.assert_close(layer(x[:5]), layer(x)[:5])
    layer.train()
    layer.reset_running_stats()
    assert layer.num_batches_tracked == 0
    assert torch.equal(layer.running_covariance, torch.eye(4).double().expand(2, -1, -1))


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("shape", [(0, 12, 3, 2), (2, 12, 0, 2)], ids=str)
def test_an_empty_batch_leaves_the_running_statistics_as_torchs_batch_norm_does(momentum, shape):
    theirs = nn.BatchNorm2d(12, momentum=momentum)
    for layer in (an.nn.Whitening2d(12, momentum=momentum, algebra=a) for a in (R, H)):
        for x in (1 + 3 * torch.randn(8, 12, 3, 2), torch.randn(shape)):
            before = [buffer.clone() for buffer in layer.buffers()]
            assert layer(x).shape == theirs(x).shape
        for buffer, value in zip(list(layer.buffers())[:2], before[:2], strict=True):
            assert torch.equal(buffer, value)
        assert layer.num_batches_tracked == theirs.num_batches_tracked
        theirs.reset_running_stats()


def test_a_batch_of_one_tuple_moves_the_running_mean_alone():
    """One tuple has no unbiased covariance. torch's batch norm refuses such a batch."""
    layer = an.nn.Whitening1d(8, momentum=0.5, algebra=H)
    layer(torch.ones(1, 8))
    assert torch.equal(layer.running_mean, torch.full((8,), 0.5))
    assert torch.equal(layer.running_covariance, torch.eye(4).expand(2, -1, -1))


def test_affine_maps_each_tuple_by_its_matrix():
    layer = an.nn.Whitening1d(4, eps=1e-12, algebra=C, dtype=torch.float64)
    matrix = torch.randn_like(layer.weight)
    layer.weight.data, layer.bias.data = matrix, torch.randn_like(layer.bias)
    y = layer(correlated(500, 4))
    torch.testing.assert_close(y.mean(0), layer.bias.detach())
    torch.testing.assert_close(covariance(y, C), matrix @ matrix.mT, atol=1e-6, rtol=1e-6)
    assert not list(an.nn.Whitening1d(4, affine=False, algebra=C).parameters())


def test_without_running_statistics_the_batch_serves_in_eval_mode():
    layer = an.nn.Whitening1d(4, track_running_stats=False, algebra=C)
    x = torch.randn(9, 4)
    assert layer.running_mean is None
    assert torch.equal(layer.train()(x), layer.eval()(x))


def test_gradients_are_those_of_differences():
    for training in (True, False):
        layer = an.nn.Whitening1d(4, algebra=C, dtype=torch.float64).train(training)
        layer.weight.data = torch.randn_like(layer.weight)
        x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)

        def run(x, weight, bias, layer=layer):
            return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, (x,))

        assert torch.autograd.gradcheck(run, (x, layer.weight, layer.bias))
        assert torch.autograd.gradgradcheck(run, (x, layer.weight, layer.bias))


def test_cholesky_is_torchs_where_that_exists():
    half = torch.randn(3, 5, 7, dtype=torch.float64)
    matrix, eps = half @ half.mT, torch.full((3,), 1e-3, dtype=torch.float64)
    lower = torch.linalg.cholesky(matrix + 1e-3 * torch.eye(5).double())
    columns = cholesky(matrix.permute(1, 2, 0), eps)
    for j, column in enumerate(columns):
        torch.testing.assert_close(column, lower[:, j:, j].mT)
    back = divide(matrix.permute(1, 2, 0), columns).permute(2, 0, 1) @ lower
    torch.testing.assert_close(back, matrix)


def assert_compiled_alike(algebra, training=True, backend="aot_eager", device="cpu"):
    torch._dynamo.reset()
    factory = {"dtype": torch.float64, "device": device}
    layer = an.nn.Whitening2d(3 * algebra.dim, algebra=algebra, **factory)
    layer(torch.randn(8, 3 * algebra.dim, 5, 5, **factory))
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    layer.train(training)
    twin = copy.deepcopy(layer)
    x = (3 + torch.randn(8, 3 * algebra.dim, 5, 5, **factory)).requires_grad_()
    weights = torch.randn(x.shape, **factory)
    found = []
    for run, module in ((torch.compile(layer, fullgraph=True, backend=backend), layer), (twin, twin)):
        y = run(x)
        found.append([y, *torch.autograd.grad((y * weights).sum(), [x, *module.parameters()]), *module.buffers()])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize(
    ("algebra", "training"),
    [(R, True), (CROSS, True), (CROSS, False), *thinned([(C, False), (H, True), (M2R, False)], lambda *_: False)],
    ids=str,
)
def test_a_compiler_is_given_the_same_function(algebra, training):
    """The compiled layer has other code with its own gradients: see `nn.centered`."""
    assert_compiled_alike(algebra, training)


def test_compiled_gradients_have_the_memory_format_of_the_image():
    """Otherwise the convolution before the layer would copy them."""
    torch._dynamo.reset()
    layer = an.nn.Whitening2d(8, algebra=H)
    x = torch.randn(3, 8, 5, 4).contiguous(memory_format=torch.channels_last)
    grads = []
    before = x.requires_grad_() * 1  # not a leaf: autograd would give a leaf its own format
    before.register_hook(grads.append)
    torch.compile(layer, backend="aot_eager")(before).square().sum().backward()
    assert grads[0].is_contiguous(memory_format=torch.channels_last)


def test_torch_func_sees_through_whitening():
    layer = an.nn.Whitening2d(2 * H.dim, algebra=H, track_running_stats=False, dtype=torch.float64)
    x = torch.randn(5, 2 * H.dim, 3, 3, dtype=torch.float64)
    whole = torch.func.grad(lambda x: layer(x).square().sum())(x)
    torch.testing.assert_close(whole, *torch.autograd.grad(layer(x.requires_grad_()).square().sum(), [x]))


# The kernel for GPUs, in Triton's interpreter ------------------------------------------------------------------------


#: batch, components, tuples, height, width.
SHAPES = [(3, 4, 8, 5, 5), (70, 2, 4, 9, 8), (2, 3, 40, 3, 1), (300, 4, 1, 1, 1), (1, 1, 5, 2, 2), (0, 4, 8, 5, 5)]
#: By default: more channels than a tile has and 3 components, one component, and an empty batch. Others are slow.
over_sums = pytest.mark.parametrize("shape", thinned(((s,) for s in SHAPES), (SHAPES[2], *SHAPES[4:]).__contains__))


def assert_whitening_sums(shape, device="cpu"):
    batch, dim, channels, *size = shape
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        exact = torch.promote_types(dtype, torch.float32)
        scale = 1 + torch.rand(channels, dtype=exact, device=device)
        center = torch.randn(dim, channels, dtype=exact, device=device)
        for memory_format in (torch.contiguous_format, torch.channels_last):
            left, x = (
                torch.randn(batch, dim * channels, *size, device=device)
                .to(dtype)
                .contiguous(memory_format=memory_format)
                for _ in range(2)
            )
            planes = (batch, dim, channels, prod(size))
            t = x.to(exact).reshape(planes) * scale[:, None] - center[:, :, None]
            for one, given in ((left.to(exact).reshape(planes), left), (t, None)):
                expected = torch.einsum("nicp,njcp->ijc", one, t)
                close = {} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-3}
                torch.testing.assert_close(whitening_sums(given, x, scale, center), expected, **close)


@needs_triton
@over_sums
def test_the_kernel_sums_products_of_components(shape):
    assert_whitening_sums(shape)


@needs_triton
@pytest.mark.parametrize("algebra", thinned([(C,), (H,)], lambda algebra: algebra == C), ids=str)
def test_a_compiled_layer_with_the_kernel_is_the_same_function(algebra, monkeypatch):
    monkeypatch.setattr("algebranets.ops.device.is_usable", lambda _: True)
    assert_compiled_alike(algebra)


@needs_triton
def test_nothing_in_float32_is_kept_for_the_backward_of_a_compiled_layer(monkeypatch):
    """The compiler would otherwise keep the centered input rather than compute it again."""
    torch._dynamo.reset()
    monkeypatch.setattr("algebranets.ops.device.is_usable", lambda _: True)
    block = nn.Sequential(an.nn.Whitening2d(8, algebra=H), nn.ReLU(), nn.Conv2d(8, 8, 1)).bfloat16()
    x = torch.randn(20, 8, 4, 4, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last).requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        torch.compile(block, backend="inductor")(x)
    assert {tensor.dtype for tensor in kept if tensor.numel() >= x.numel()} == {torch.bfloat16}


# Extreme inputs ------------------------------------------------------------------------------------------------------


def base(algebra, batch=8):
    return torch.randn(batch, 2 * algebra.dim, 3, 3)


NASTY = {
    "constant zero": lambda a: torch.zeros_like(base(a)),
    "constant one": lambda a: torch.ones_like(base(a)),
    "constant 1e9": lambda a: torch.full_like(base(a), 1e9),
    "constant 1e30": lambda a: torch.full_like(base(a), 1e30),
    "constant -1e36": lambda a: torch.full_like(base(a), -1e36),
    "a batch of one": lambda a: base(a, 1)[:, :, :1, :1],
    "a batch of two": lambda a: base(a, 2)[:, :, :1, :1],
    "an empty batch": lambda a: base(a, 0),
    "perfectly correlated": lambda a: base(a)[:, :1].expand(-1, 2 * a.dim, -1, -1),
    "correlated and scaled": lambda a: base(a)[:, :1] * torch.logspace(-6, 6, 2 * a.dim)[:, None, None],
    "correlated beyond rounding": lambda a: 1e4 + 1e-4 * base(a)[:, :1].expand(-1, 2 * a.dim, -1, -1),
    "one component is zero": lambda a: base(a) * (torch.arange(2 * a.dim) >= 2)[:, None, None],
    "1e-30": lambda a: 1e-30 * base(a),
    "1e-42, denormal": lambda a: 1e-42 * base(a),
    "1e+30": lambda a: 1e30 * base(a),
    "1e+37": lambda a: 1e37 * base(a),
    "up to the largest number": lambda a: torch.finfo().max * nn.functional.normalize(base(a), torch.inf, 0),
    "1e-30 beside 1e+30": lambda a: base(a) * torch.tensor([1e-30, 1e30]).repeat(a.dim)[:, None, None],
    "one outlier": lambda a: base(a).index_fill(0, torch.tensor([0]), 1e30),
}


over_nasty = pytest.mark.parametrize("feed", NASTY.values(), ids=NASTY)


@over_catalogue
@over_nasty
def test_no_input_breaks_it(algebra, feed):
    layer = an.nn.Whitening2d(2 * algebra.dim, algebra=algebra)
    assert_unbroken(layer, layer, feed(algebra))


@pytest.mark.slow
@pytest.mark.parametrize("of_usual_size", [True, False])
def test_no_input_breaks_it_compiled(of_usual_size):
    """One test runs many inputs, because the graph for one serves all others of its shape."""
    torch._dynamo.reset()
    layer = an.nn.Whitening2d(2 * H.dim, algebra=H)
    compiled, fresh = torch.compile(layer, fullgraph=True, backend="aot_eager"), copy.deepcopy(layer.state_dict())
    inputs = [feed(H) for feed in NASTY.values()]
    for x in inputs:
        if (x.shape == base(H).shape) == of_usual_size:
            layer.train().load_state_dict(fresh)
            assert_unbroken(layer, compiled, x)


def assert_unbroken(layer, run, x):
    x = x.clone().requires_grad_()
    for _ in range(2):
        y = run(x)
        assert torch.isfinite(y).all()
        assert y.abs().max().item() < 1e4 if y.numel() else True
        weights = torch.randn(y.shape)
        grads = torch.autograd.grad((y * weights).sum(), [x, *layer.parameters()])
        assert all(torch.isfinite(g).all() for g in grads)
    assert torch.isfinite(layer.running_mean).all()
    assert torch.isfinite(layer.running_covariance).all()
    layer.eval()
    y = run(x)
    assert torch.isfinite(y).all()
    grads = torch.autograd.grad((y * weights).sum(), [x, *layer.parameters()])
    assert all(torch.isfinite(g).all() for g in grads)


@pytest.mark.parametrize("algebra", [H, M4R], ids=str)
@pytest.mark.parametrize("seed", range(20))
def test_heavy_tails_and_components_of_all_sizes_do_not_break_it(algebra, seed):
    """float32 covariances lose the perfect correlation of these inputs. A plain Cholesky decomposition overflows."""
    torch.manual_seed(seed)
    sizes = torch.rand(algebra.dim) * 10 ** torch.empty(algebra.dim).uniform_(-3, 3)
    x = (torch.exp(5 * torch.randn(1000, 1)) * sizes + 1e-6 * torch.randn(1000, algebra.dim)).requires_grad_()
    layer = an.nn.Whitening1d(algebra.dim, algebra=algebra)
    for y in (layer(x), layer.eval()(x)):
        (grad,) = torch.autograd.grad((y * torch.randn(y.shape)).sum(), x)
        assert torch.isfinite(y).all()
        assert torch.isfinite(grad).all()


@pytest.mark.parametrize("algebra", [C, H, M4R], ids=str)
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e10, 1e30])
def test_it_still_whitens_numbers_of_any_size(algebra, scale):
    mix = 2 * torch.eye(algebra.dim) + torch.ones(algebra.dim, algebra.dim).tril()
    x = scale * (mix @ torch.randn(4000, algebra.dim, 2)).flatten(1)
    y = an.nn.Whitening1d(2 * algebra.dim, algebra=algebra)(x)
    torch.testing.assert_close(covariance(y, algebra), torch.eye(algebra.dim).expand(2, -1, -1), atol=0.11, rtol=0)


@over_catalogue
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("feed", ["constant one", "a batch of one", "perfectly correlated", "one component is zero"])
def test_half_precision_keeps_float32_statistics_and_makes_no_nan(algebra, dtype, feed):
    layer = an.nn.Whitening2d(2 * algebra.dim, algebra=algebra)
    x = NASTY[feed](algebra).clone().requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        y = layer(x.to(dtype))
    assert y.dtype == dtype
    grads = torch.autograd.grad((y.float() * torch.randn(y.shape)).sum(), [x, *layer.parameters()])
    assert all(torch.isfinite(g).all() for g in [y, *grads])
    layer.to(dtype)
    assert layer.weight.dtype == dtype
    assert layer.running_mean.dtype == layer.running_covariance.dtype == torch.float32
    assert torch.isfinite(layer(x.to(dtype))).all()
    assert torch.isfinite(layer.eval()(x.to(dtype))).all()
    born_half = an.nn.Whitening2d(2 * algebra.dim, algebra=algebra, dtype=dtype)
    assert born_half.running_covariance.dtype == torch.float32
    assert an.nn.Whitening2d(4 * algebra.dim, algebra=algebra, dtype=torch.float64).running_mean.dtype == torch.float64


def test_statistics_recover_after_a_broken_batch():
    layer = an.nn.Whitening1d(8, algebra=M2R)
    layer(1e30 * torch.randn(16, 8))
    for _ in range(2000):
        layer(torch.randn(64, 8))
    y = layer.eval()(torch.randn(4000, 8))
    torch.testing.assert_close(covariance(y, M2R), torch.eye(4).expand(2, -1, -1), atol=0.2, rtol=0)
