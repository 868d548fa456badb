"""Norms, gates and shuffles of tuples: their definitions, running statistics, lazy versions, dtypes and errors."""

import re
from functools import partial

import pytest
import torch
from torch import nn

import algebranets as an
from algebranets import CROSS, M2C, M2R, C, H, R
from laws import assert_exact, over_algebras, set_affine

# Definitions ----------------------------------------------------------------------------------------------------------


@over_algebras
def test_a_group_has_a_tuple_as_its_mean_and_a_number_as_its_variance(algebra):
    norm = an.nn.GroupNorm(2, 6 * algebra.dim, eps=1e-3, algebra=algebra).double()
    weight, bias = torch.randn(6).double(), torch.randn(6 * algebra.dim).double()
    set_affine(norm, weight, bias)
    x = torch.randn(3, 6 * algebra.dim, 4, 5, dtype=torch.float64)
    t = x.unflatten(1, (algebra.dim, 6))
    y = torch.empty_like(t)
    for b in range(3):
        for group in (slice(0, 3), slice(3, 6)):
            means = torch.stack([t[b, a, group].mean() for a in range(algebra.dim)])
            deviations = t[b, :, group] - means[:, None, None, None]
            y[b, :, group] = deviations / (deviations.square().mean() + 1e-3).sqrt()
    expected = y * weight[:, None, None] + bias.view(algebra.dim, 6, 1, 1)
    assert_exact(norm(x), expected.flatten(1, 2))


@over_algebras
def test_a_norm_without_offsets_keeps_the_direction_of_each_deviation(algebra):
    norm = an.nn.InstanceNorm1d(2 * algebra.dim, affine=True, algebra=algebra).double()
    set_affine(norm, torch.tensor([2.0, 0.5]), torch.zeros(2 * algebra.dim))
    x = torch.randn(3, 2 * algebra.dim, 7, dtype=torch.float64)
    deviations, y = (v.unflatten(1, (algebra.dim, 2)) for v in (x - x.mean(2, keepdim=True), norm(x)))
    assert_exact(nn.functional.cosine_similarity(deviations, y, 1), torch.ones(3, 2, 7, dtype=torch.float64))


@over_algebras
def test_local_response_norm_divides_a_tuple_by_one_number(algebra):
    x = torch.randn(2, 5 * algebra.dim, 3, 4, dtype=torch.float64)
    t = x.unflatten(1, (algebra.dim, 5))
    square = t.square().mean(1)
    y = an.nn.LocalResponseNorm(3, 0.5, 0.6, 2.0, algebra=algebra)(x).unflatten(1, (algebra.dim, 5))
    for n in range(5):
        total = sum(square[:, m] for m in (n - 1, n, n + 1) if 0 <= m < 5)
        assert_exact(y[:, :, n], t[:, :, n] / (2 + 0.5 * total / 3)[:, None] ** 0.6)


@over_algebras
def test_instance_norm_is_group_norm_with_a_group_for_each_tuple(algebra):
    x = torch.randn(2, 3 * algebra.dim, 4, 5, dtype=torch.float64)
    group = an.nn.GroupNorm(3, 3 * algebra.dim, affine=False, algebra=algebra)
    assert_exact(an.nn.InstanceNorm2d(3 * algebra.dim, algebra=algebra)(x), group(x))


# Running statistics ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algebra", [R, C, M2R, CROSS], ids=str)
@pytest.mark.parametrize("momentum", [0.1, 1.0, None])
def test_running_statistics_are_torchs_and_variances_are_means_over_components(algebra, momentum):
    options = {"momentum": momentum, "affine": True, "track_running_stats": True}
    ours = an.nn.InstanceNorm2d(3 * algebra.dim, **options, algebra=algebra).double()
    theirs = nn.InstanceNorm2d(3 * algebra.dim, **options).double()
    for _ in range(3):
        x = 2 + torch.randn(2, 3 * algebra.dim, 4, 5, dtype=torch.float64)
        ours(x), theirs(x)
    assert_exact(ours.running_mean, theirs.running_mean)
    assert_exact(ours.running_var, theirs.running_var.view(algebra.dim, 3).mean(0))
    assert torch.equal(ours.num_batches_tracked, theirs.num_batches_tracked)
    scale = (ours.running_var + ours.eps).rsqrt().repeat(algebra.dim)[:, None, None]
    assert_exact(ours.eval()(x), (x - ours.running_mean[:, None, None]) * scale)


def test_over_r_running_statistics_make_the_same_outputs_and_gradients():
    options = {"affine": True, "track_running_stats": True}
    ours, theirs = an.nn.InstanceNorm1d(3, **options, algebra=R).double(), nn.InstanceNorm1d(3, **options).double()
    set_affine(theirs, torch.randn(3), torch.randn(3))
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for training in (True, True, False):
        x = torch.randn(2, 3, 7, dtype=torch.float64, requires_grad=True)
        direction = torch.randn_like(x)
        ours.train(training), theirs.train(training)
        results = [layer(x) for layer in (ours, theirs)]
        assert_exact(*results)
        for a, b in zip(
            *(
                torch.autograd.grad((y * direction).sum(), [x, m.weight, m.bias])
                for y, m in zip(results, (ours, theirs), strict=True)
            ),
            strict=True,
        ):
            assert_exact(a, b)
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        assert_exact(a, b)


def test_an_empty_batch_leaves_running_statistics_as_they_are():
    norm = an.nn.InstanceNorm1d(8, track_running_stats=True, algebra=H)
    norm(torch.randn(3, 8, 5))
    before = [buffer.clone() for buffer in norm.buffers()]
    assert norm(torch.randn(0, 8, 5)).shape == (0, 8, 5)
    assert all(torch.equal(a, b) for a, b in zip(norm.buffers(), before, strict=True))


@pytest.mark.parametrize("algebra", [R, H], ids=str)
def test_without_running_statistics_evaluation_uses_those_of_the_input(algebra):
    norm, x = an.nn.InstanceNorm1d(2 * algebra.dim, algebra=algebra), torch.randn(3, 2 * algebra.dim, 5)
    trained = norm(x)
    assert torch.equal(norm.eval()(x), trained)


@pytest.mark.parametrize("shape", [(0, 12, 5), (2, 12, 0), (2, 12, 3, 0)], ids=str)
def test_local_response_norm_takes_an_empty_input_as_torchs_does(shape):
    x = torch.randn(shape)
    assert an.nn.LocalResponseNorm(3, algebra=H)(x).shape == nn.LocalResponseNorm(3)(x).shape == shape


# Lazy norms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_axes", [1, 2, 3])
@pytest.mark.parametrize("batch", [(2,), ()], ids=["batched", "unbatched"])
def test_a_lazy_instance_norm_reads_its_size_from_the_first_input(num_axes, batch):
    lazy = getattr(an.nn, f"LazyInstanceNorm{num_axes}d")(1e-3, algebra=H)
    x = torch.randn(*batch, 12, *(4, 5, 3)[:num_axes])
    y = lazy(x)
    kind = getattr(an.nn, f"InstanceNorm{num_axes}d")
    assert type(lazy) is kind
    assert {name: tuple(value.shape) for name, value in lazy.state_dict().items()} == {
        "weight": (3,), "bias": (12,), "running_mean": (12,), "running_var": (3,), "num_batches_tracked": (),
        "algebra_id": (64,),
    }  # fmt: skip
    sized = kind(12, 1e-3, affine=True, track_running_stats=True, algebra=H)
    torch.testing.assert_close(y, sized(x))
    for a, b in zip(lazy.buffers(), sized.buffers(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_lazy_instance_norm_loads_the_state_of_another():
    sized = an.nn.InstanceNorm1d(12, affine=True, track_running_stats=True, algebra=H)
    set_affine(sized, torch.randn(3), torch.randn(12))
    x = torch.randn(2, 12, 5)
    sized(x)
    lazy = an.nn.LazyInstanceNorm1d(algebra=H)
    lazy.load_state_dict(sized.state_dict())
    assert torch.equal(lazy.eval()(x), sized.eval()(x))
    other = an.nn.LazyInstanceNorm1d(algebra=M2R)
    with pytest.raises(RuntimeError, match="is over M2R, but the state dict holds weights over H"):
        other.load_state_dict(sized.state_dict())


def test_a_lazy_instance_norm_without_a_size_saves_and_loads_its_algebra():
    state = an.nn.LazyInstanceNorm1d(algebra=H).state_dict()
    assert {*state} == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked", "algebra_id"}
    lazy = an.nn.LazyInstanceNorm1d(algebra=H)
    lazy.load_state_dict(state)
    lazy.reset_parameters()  # which has nothing to do yet
    assert lazy.has_uninitialized_params()
    assert lazy(torch.randn(2, 12, 5)).shape == (2, 12, 5)
    with pytest.raises(RuntimeError, match="is over C, but the state dict holds weights over H"):
        an.nn.LazyInstanceNorm1d(algebra=C).load_state_dict(state)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"affine": False, "track_running_stats": False}], ids=str)
def test_over_r_a_lazy_instance_norm_is_torchs(options):
    ours = an.nn.LazyInstanceNorm2d(**options, algebra=R)
    x = torch.randn(2, 3, 4, 5)
    y = ours(x)
    theirs = nn.InstanceNorm2d(3, affine=ours.affine, track_running_stats=ours.track_running_stats)
    torch.testing.assert_close(y, theirs(x))
    assert ours.num_features == 3
    assert (ours.bias is not None) == (options == {})


# Options --------------------------------------------------------------------------------------------------------------


@over_algebras
def test_norms_can_be_without_scales_or_offsets(algebra):
    x = torch.randn(2, 4 * algebra.dim, 3)
    for name, args in (("GroupNorm", (2,)), ("InstanceNorm1d", ())):
        make = partial(getattr(an.nn, name), *args, 4 * algebra.dim, algebra=algebra)
        assert list(make(affine=True, bias=False).state_dict()) == ["weight", "algebra_id"]
        assert not make(affine=False).state_dict()
        for options in ({"affine": True, "bias": False}, {"affine": False}):
            layer = make(**options)
            layer.reset_parameters()
            torch.testing.assert_close(layer(x), make(affine=True)(x))
    assert not an.nn.RMSNorm(4 * algebra.dim, elementwise_affine=False, algebra=algebra).state_dict()


@over_algebras
def test_without_scales_rms_norm_takes_several_axes(algebra):
    x = torch.randn(2, 3, 4, 5 * algebra.dim, dtype=torch.float64)
    norm = an.nn.RMSNorm((3, 4, 5 * algebra.dim), elementwise_affine=False, algebra=algebra)
    assert torch.equal(norm(x), nn.RMSNorm((3, 4, 5 * algebra.dim), elementwise_affine=False)(x))
    with pytest.raises(ValueError, match="normalized_shape must be the size of the last axis, which holds"):
        an.nn.RMSNorm((3, 4, 5 * algebra.dim), algebra=algebra)


def test_over_r_rms_norm_has_scales_for_several_axes():
    theirs, ours = nn.RMSNorm((3, 4)), an.nn.RMSNorm((3, 4), algebra=R)
    nn.init.normal_(theirs.weight)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = torch.randn(2, 3, 4)
    assert torch.equal(ours(x), theirs(x))


@pytest.mark.parametrize("algebra", [C, H, M2R, M2C], ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda a: an.nn.GLU(1, algebra=a),
        lambda a: an.nn.GroupNorm(2, 16 * a.dim, algebra=a),
        lambda a: an.nn.InstanceNorm2d(16 * a.dim, affine=True, track_running_stats=True, algebra=a),
        lambda a: an.nn.InstanceNorm2d(16 * a.dim, track_running_stats=True, algebra=a).eval(),
        lambda a: an.nn.LocalResponseNorm(3, algebra=a),
        lambda a: an.nn.PixelShuffle(2, algebra=a),
        lambda a: an.nn.PixelUnshuffle(2, algebra=a),
        lambda a: an.nn.ChannelShuffle(2, algebra=a),
    ],
    ids=["GLU", "GroupNorm", "InstanceNorm2d", "running", "LocalResponseNorm", "Pixel", "Unshuffle", "ChannelShuffle"],
)
def test_channels_last_passes_through(make, algebra):
    layer, x = make(algebra), torch.randn(2, 16 * algebra.dim, 6, 4)
    y = layer(x.to(memory_format=torch.channels_last))
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, make(algebra)(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("algebra", [R, C, H], ids=str)
@pytest.mark.parametrize("name", ["GroupNorm", "InstanceNorm1d", "RMSNorm"])
def test_statistics_of_half_precision_are_taken_in_float32(name, algebra, dtype):
    """The squares of these numbers overflow float16, and bfloat16 cannot represent their sum."""
    args = (2, 4 * algebra.dim) if name == "GroupNorm" else (4 * algebra.dim,)
    x = (torch.randn(2, 4 * algebra.dim, 300) * 1000 + 2000).to(dtype)
    x = x.mT if name == "RMSNorm" else x
    layer = getattr(an.nn, name)(*args, algebra=algebra).to(dtype)
    exact = getattr(an.nn, name)(*args, algebra=algebra)(x.float())
    y = layer(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y, exact.to(dtype), atol=4 * torch.finfo(dtype).eps, rtol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("algebra", [R, C, H], ids=str)
def test_deviations_from_a_running_mean_in_half_precision_are_taken_in_float32(algebra):
    """The difference of these numbers is more than float16 can hold, and the result is not."""
    norm = an.nn.InstanceNorm1d(2 * algebra.dim, track_running_stats=True, algebra=algebra).half().eval()
    norm.running_mean.fill_(-60000)
    norm.running_var.fill_(40000)
    x = torch.full((1, 2 * algebra.dim, 3), 60000, dtype=torch.float16)
    assert torch.equal(norm(x), torch.full_like(x, 600))


@pytest.mark.parametrize(
    ("name", "args", "shape", "message"),
    [
        ("GroupNorm", (3, 16), (2, 16, 3), "num_groups=3 must divide the number of tuples: 16 channels are 4 H tuples"),
        ("GroupNorm", (8, 16), (2, 16, 3), "num_groups=8 must divide the number of tuples"),
        ("GroupNorm", (2, 16), (2, 8, 3), "axis 1 must have 16 channels; got shape (2, 8, 3)"),
        ("GroupNorm", (2, 16), (16,), "the input must have at least 2 axes"),
        ("GroupNorm", (4, 16), (1, 16), "each group must hold more than one H tuple"),
        ("GroupNorm", (4, 16), (2, 16, 0), "each group must hold more than one H tuple"),
        ("InstanceNorm2d", (8,), (2, 8, 1, 1), "the input must have more than one position"),
        ("InstanceNorm1d", (8, 1e-5, 0.1, True), (2, 4, 5), "match num_features (8), but got: 4"),
        ("LazyInstanceNorm1d", (), (2, 6, 5), "the number of channels is 6, which does not hold whole H tuples"),
        ("RMSNorm", ((2, 8),), (2, 8), "must be the size of the last axis, which holds H tuples; got (2, 8). To "
         "normalize over several axes, leave out the scales (elementwise_affine=False or weight=None)."),
        ("LocalResponseNorm", (3,), (2, 8), "the input must have at least 3 axes"),
        ("GLU", (), (2, 12), "an even number of H tuples, values and then gates; got 3: make its size a multiple of 8"),
        ("ChannelShuffle", (3,), (2, 16, 3), "groups=3 must divide the number of tuples"),
        ("PixelShuffle", (2,), (8, 3), "the input must be (..., channels, height, width)"),
        ("PixelUnshuffle", (2,), (8, 3, 4), "height and width must be multiples of downscale_factor=2; got 3 x 4"),
    ],
)  # fmt: skip
def test_errors_say_what_must_hold(name, args, shape, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        getattr(an.nn, name)(*args, algebra=H)(torch.randn(shape))


def test_running_statistics_of_another_size_are_an_error():
    norm = an.nn.InstanceNorm1d(8, track_running_stats=True, algebra=H)
    with pytest.warns(UserWarning, match="does not match num_features"), pytest.raises(ValueError) as error:  # noqa: PT011
        norm(torch.randn(2, 4, 5))
    assert str(error.value) == "running_mean must hold one number for each of 4 channels; got shape (8,)."


NAMES = [
    "GLU", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d", "RMSNorm",
    "LocalResponseNorm", "PixelShuffle", "PixelUnshuffle", "ChannelShuffle",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_without_an_algebra_a_layer_says_why_torchs_does_not_work(name):
    layer = getattr(an.nn, name)
    args = {"GroupNorm": (2, 8), "GLU": (), "LazyInstanceNorm1d": ()}.get(name, (8,))
    with pytest.raises(ValueError, match=f"{name} needs an algebra: .* bind the algebra once") as error:
        layer(*args)
    assert layer.reason
    assert str(error.value).endswith(layer.reason)
