"""Lazy layers become the same layers as those with a given number of input features."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn.parameter import is_lazy

import algebranets as an
from algebranets import M2R, C, H, R
from algebranets.algebra import CATALOGUE
from conftest import over_kinds

#: The name of each lazy layer, its arguments after the number of outputs, and an input for one tuple in all its axes.
LAYERS = [
    ("Linear", {}, (7,)),
    ("Linear", {"bias": False}, (2, 3)),
    ("Conv1d", {"kernel_size": 3, "stride": 2, "padding": 1}, (2, 9)),
    ("Conv2d", {"kernel_size": (2, 3), "padding": "same", "padding_mode": "circular"}, (2, 5, 6)),
    ("Conv2d", {"kernel_size": 3, "groups": 2, "bias": False}, (2, 5, 6)),
    ("Conv3d", {"kernel_size": 2, "dilation": 2}, (2, 4, 5, 3)),
    ("ConvTranspose1d", {"kernel_size": 3, "stride": 2, "output_padding": 1}, (2, 5)),
    ("ConvTranspose2d", {"kernel_size": 3, "groups": 2, "dilation": 2}, (2, 5, 4)),
    ("ConvTranspose3d", {"kernel_size": 2, "stride": (2, 1, 1)}, (2, 3, 2, 3)),
]
over_layers = pytest.mark.parametrize(
    ("name", "options", "shape"), LAYERS, ids=["-".join([n, *o]) for n, o, _ in LAYERS]
)
ONE_EACH = [("Linear", {}, (7,)), ("ConvTranspose2d", {"kernel_size": 3}, (2, 5, 4))]
over_two = pytest.mark.parametrize(("name", "options", "shape"), ONE_EACH, ids=["Linear", "ConvTranspose2d"])


def feed(name, shape, algebra, num_tuples=4):
    channels = num_tuples * algebra.dim
    return torch.randn(*shape, channels) if name == "Linear" else torch.randn(shape[0], channels, *shape[1:])


def make(name, options, algebra, **factory):
    return getattr(an.nn, f"Lazy{name}")(6 * algebra.dim, **options, algebra=algebra, **factory)


def eager(name, options, algebra, **factory):
    return getattr(an.nn, name)(4 * algebra.dim, 6 * algebra.dim, **options, algebra=algebra, **factory)


@over_layers
@over_kinds
def test_the_first_input_turns_it_into_the_layer_with_as_many_features(name, options, shape, algebra):
    x = feed(name, shape, algebra).requires_grad_()
    torch.manual_seed(1)
    layer = make(name, options, algebra)
    assert all(is_lazy(p) for p in layer.parameters())
    y = layer(x)
    torch.manual_seed(1)
    expected = eager(name, options, algebra)
    assert type(layer) is type(expected)
    assert repr(layer) == repr(expected)
    assert vars(layer).keys() == vars(expected).keys()
    state = layer.state_dict()
    assert state.keys() == expected.state_dict().keys()
    assert all(torch.equal(value, state[key]) for key, value in expected.state_dict().items())
    assert torch.equal(y, expected(x))
    y.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


@over_layers
def test_over_r_it_is_torchs_before_and_after_the_first_input(name, options, shape):
    theirs, ours = getattr(nn, f"Lazy{name}")(6, **options), make(name, options, R)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    assert ours.has_uninitialized_params()
    x = feed(name, shape, R)
    expected = theirs(x)
    ours.load_state_dict(theirs.state_dict())  # into parameters without shapes
    assert not ours.has_uninitialized_params()
    torch.testing.assert_close(ours(x), expected)
    assert type(ours) is getattr(an.nn, name)
    other = getattr(nn, f"Lazy{name}")(6, **options)
    other.load_state_dict(ours.state_dict())
    torch.testing.assert_close(other(x), expected)


@over_two
@pytest.mark.parametrize("algebra", [C, H, M2R], ids=str)
def test_weights_can_be_loaded_before_the_first_input(name, options, shape, algebra):
    x, saved = feed(name, shape, algebra), eager(name, options, algebra)
    layer = make(name, options, algebra)
    keys = layer.load_state_dict(saved.state_dict())
    assert not keys.missing_keys
    assert not keys.unexpected_keys
    assert torch.equal(layer(x), saved(x))
    assert repr(layer) == repr(saved)
    bias = {"bias": torch.randn(6 * algebra.dim)}
    half = make(name, options, algebra)
    with pytest.warns(UserWarning, match="does not record the algebra"):
        half.load_state_dict(bias, strict=False)
    half(x)
    assert torch.equal(half.bias, bias["bias"])
    assert half.weight.any()
    other = make(name, options, algebra)
    with pytest.warns(UserWarning, match="does not record the algebra"):
        other.load_state_dict({"weight": saved.weight.detach()}, strict=False)
    other(x)
    assert torch.equal(other.weight, saved.weight)
    assert not other.bias.any()


@over_two
@pytest.mark.parametrize("algebra", [C, H, M2R], ids=str)
def test_a_layer_without_shapes_can_be_saved_copied_and_moved(name, options, shape, algebra):
    x = feed(name, shape, algebra)
    layer = make(name, options, algebra)
    assert [*layer.state_dict()] == ["weight", "bias", "algebra_id"]
    assert is_lazy(layer.state_dict()["weight"])
    assert all(layer.state_dict(keep_vars=True)[name] is p for name, p in layer.named_parameters())
    make(name, options, algebra).load_state_dict(layer.state_dict())
    layer.reset_parameters()
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(layer), torch.load(buffer, weights_only=False)):
        assert other.has_uninitialized_params()
        assert other(x).shape == eager(name, options, algebra)(x).shape
        assert type(other) is getattr(an.nn, name)
    assert layer.has_uninitialized_params()
    assert copy.deepcopy(layer).double()(x.double()).dtype == torch.float64
    assert make(name, options, algebra, dtype=torch.float64)(x.double()).dtype == torch.float64
    on_meta = make(name, options, algebra, device="meta")
    assert on_meta(x.to("meta")).device.type == "meta"


def test_saving_saves_the_algebra_and_loading_checks_it():
    made = make("Linear", {}, H)
    made(torch.randn(2, 16))
    for saved in (made.state_dict(), make("Linear", {}, H).state_dict()):
        other = an.nn.LazyLinear(24, algebra="diagonal(4)")
        with pytest.raises(RuntimeError, match=r"LazyLinear is over diagonal\(4\), but .* weights over H"):
            other.load_state_dict(saved)
        assert other.has_uninitialized_params()


@pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)
def test_an_input_must_hold_whole_tuples(algebra):
    layer = an.nn.LazyLinear(algebra.dim, algebra=algebra)
    if algebra.dim > 1:
        with pytest.raises(ValueError, match="in_features is 1, which does not hold whole"):
            layer(torch.randn(2, 1))
        assert type(layer) is an.nn.LazyLinear
    assert layer(torch.randn(2, algebra.dim)).shape == (2, algebra.dim)  # the layer still takes an input that fits


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: an.nn.LazyLinear(8), "LazyLinear needs an algebra: write LazyLinear(..., algebra='H')"),
        (lambda: an.nn.LazyLinear(10, algebra=H), "out_features is 10"),
        (lambda: an.nn.LazyConv2d(10, 3, algebra=H), "out_channels is 10"),
        (lambda: an.nn.LazyConv2d(8, 3, groups=0, algebra=H), "groups must be at least 1; got 0"),
        (lambda: an.nn.LazyConv2d(8, 3, groups=3, algebra=H), "groups=3 must divide the number of output tuples"),
        (lambda: an.nn.LazyConv2d(8, 3, algebra=H)(torch.randn(2, 6, 5, 5)), "in_channels is 6"),
        (
            lambda: an.nn.LazyConv2d(8, 3, algebra=H)(torch.randn(2, 8)),
            "the input must be (batch, channels, 2 spatial axes)",
        ),
        (
            lambda: an.nn.LazyConv2d(16, 3, groups=2, algebra=H)(torch.randn(2, 12, 5, 5)),
            "groups=2 must divide the tuples on both sides: 12 channels in are 3 H tuples",
        ),
    ],
)
def test_what_does_not_fit_is_explained(make, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        make()
    assert message in str(error.value)


def test_loaded_weights_must_fit_the_first_input():
    for saved in (an.nn.Linear(16, 24, algebra=H), an.nn.Linear(8, 12, algebra=H)):
        layer = an.nn.LazyLinear(12, algebra=H)
        layer.load_state_dict(saved.state_dict())
        with pytest.raises(ValueError, match=r"the loaded weight has shape .* but an input of shape \(2, 16\) needs"):
            layer(torch.randn(2, 16))


@pytest.mark.parametrize("name", ["LazyConv2d", "LazyConvTranspose2d"])
def test_as_many_groups_as_input_channels_make_it_depthwise(name):
    """Torch's way to write a depthwise convolution. Other numbers of groups count tuples."""
    layer = getattr(an.nn, name)(16, 3, groups=16, algebra=H)
    layer(torch.randn(2, 16, 5, 5))
    assert layer.groups == 4
    layer = getattr(an.nn, name)(16, 3, groups=4, algebra=H)
    layer(torch.randn(2, 16, 5, 5))
    assert layer.groups == 4


def test_a_convolution_takes_an_image_without_a_batch():
    layer = an.nn.LazyConv2d(8, 3, algebra=H)
    assert layer(torch.randn(12, 5, 5)).shape == (8, 3, 3)
    assert layer.in_channels == 12


def test_bound_layers_are_lazy_too():
    bound = an.over("H")
    model = bound.Sequential(bound.LazyConv2d(8, 3), bound.Flatten(), bound.LazyLinear(4))
    model(torch.randn(2, 12, 5, 5))
    assert [type(layer) for layer in model] == [an.nn.Conv2d, nn.Flatten, an.nn.Linear]


def test_an_account_and_the_compiler_initialize_a_lazy_model():
    model = an.nn.Sequential(an.nn.LazyLinear(8, algebra=H), an.nn.ReLU(), an.nn.LazyLinear(4, algebra=H))
    assert an.account(model, torch.randn(5, 16)).multiplies == 5 * (4 * 2 + 2 * 1) * 16
    torch._dynamo.reset()
    layer, x = an.nn.LazyLinear(8, algebra=H), torch.randn(5, 16)
    y = torch.compile(layer, backend="aot_eager")(x)
    torch.testing.assert_close(layer(x), y)
