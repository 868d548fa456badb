"""Initializers keep the variance of activations over any algebra, and are the published ones over C and H."""

import math
import warnings
from inspect import Parameter, signature

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import algebranets as an
import zoo
from algebranets import CROSS, C, H, product
from algebranets.algebra import CATALOGUE
from algebranets.nn import init
from algebranets.pruning import Pruner, weights
from conftest import ALGEBRAS, CONSTRUCTED

NAMES = ["xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_"]
UNITAL = [a for a in [*CATALOGUE.values(), *CONSTRUCTED] if a.unit]
over_catalogue = pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)


def wide(algebra):
    return torch.empty(product.weight_shape(algebra, 300 // algebra.dim, 400 // algebra.dim))


#: Positional arguments after the tensor, as torch takes them, and keyword arguments.
CALLS = [
    *[(name, arguments, {}) for name in NAMES[:2] for arguments in [(), (2.5,)]],
    *[(name, (), {"gain": 0.5}) for name in NAMES[:2]],
    *[(name, arguments, {}) for name in NAMES[2:] for arguments in [(), (0.3,), (0, "fan_out", "relu")]],
    *[(name, (), {"mode": "fan_out", "nonlinearity": "tanh"}) for name in NAMES[2:]],
]


@pytest.mark.parametrize("seeded", [False, True], ids=["torch's generator", "own generator"])
@pytest.mark.parametrize(("name", "arguments", "options"), CALLS)
def test_over_r_initializers_are_torchs(name, arguments, options, seeded):
    """The same numbers from the same seed, with torch's arguments in torch's order."""
    drawn = []
    for function, more in ((getattr(init, name), {"algebra": "R"}), (getattr(nn.init, name), {})):
        torch.manual_seed(0)
        generator = {"generator": torch.Generator().manual_seed(7)} if seeded else {}
        drawn.append(function(torch.empty(5, 7, 3, 3), *arguments, **options, **generator, **more))
    assert torch.equal(*drawn)


@pytest.mark.parametrize("name", NAMES)
def test_initializers_take_torchs_arguments_and_then_the_algebra(name):
    ours, theirs = (list(signature(getattr(module, name)).parameters.values()) for module in (init, nn.init))
    assert [(p.name, p.default) for p in ours[: len(theirs)]] == [(p.name, p.default) for p in theirs]
    assert [(p.name, p.kind) for p in ours[len(theirs) :]] == [
        (n, Parameter.KEYWORD_ONLY) for n in ("algebra", "stacks")
    ]


def test_bound_initializers_are_called_as_torchs():
    bound = an.over("H")
    conv = bound.Conv2d(40, 120, 3)
    bound.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    assert conv.weight.std().item() == pytest.approx(math.sqrt(2 / (120 * 9)), rel=0.05)
    assert bound.init.zeros_ is nn.init.zeros_


@pytest.mark.parametrize("name", [*NAMES, "polar_"])
def test_an_initializer_needs_an_algebra_and_a_weight_over_it(name):
    function = getattr(init, name)
    with pytest.raises(ValueError, match=rf"{name} needs an algebra: write init.{name}\(..., algebra='H'\)"):
        function(torch.empty(8, 8))
    with pytest.raises(ValueError, match=r"a weight over H must have at least 2 axes for its fans; got shape \(8,\)"):
        function(torch.empty(8), algebra="H")
    with pytest.raises(ValueError, match=r"its first axis a multiple of 4 and its second of 1; got shape \(6, 8\)"):
        function(torch.empty(6, 8), algebra="H")


def test_an_unknown_mode_is_explained():
    with pytest.raises(ValueError, match="mode must be one of fan_in, fan_out; got 'fan_avg'"):
        init.kaiming_normal_(torch.empty(8, 8), mode="fan_avg", algebra=H)


def test_every_name_of_torchs_init_is_here_or_refused_with_a_reason():
    componentwise = {"calculate_gain", "constant_", "normal_", "ones_", "trunc_normal_", "uniform_", "zeros_"}
    refused = {"eye": "unit on its diagonal", "dirac": "unit at the kernel's center", "orthogonal": "not an orthogonal",
               "sparse": "not whole tuples"}  # fmt: skip
    for name in (key for key in dir(nn.init) if callable(getattr(nn.init, key)) and key[0].islower()):
        if name in componentwise:
            assert getattr(init, name) is getattr(nn.init, name)
        elif name in NAMES:
            assert getattr(init, name) is not getattr(nn.init, name)
        elif (reason := refused.get(name.removesuffix("_"))) is not None:
            with pytest.raises(AttributeError, match=f"does not pass on torch's {name}: .*{reason}"):
                getattr(init, name)
        else:
            with pytest.raises(AttributeError, match=f"has no attribute '{name}'. Did you mean '{name}_'"):
                getattr(init, name)
    with pytest.raises(AttributeError, match="has no attribute 'lecun_'"):
        init.lecun_  # noqa: B018


@over_catalogue
@pytest.mark.parametrize("name", [*NAMES, "polar_"])
def test_activations_keep_their_variance(algebra, name):
    if name == "polar_" and algebra.unit is None:
        pytest.skip("no unit")
    w = getattr(init, name)(wide(algebra), algebra=algebra)
    _, num_in = product.num_tuples(w, algebra)
    y = product.linear(torch.randn(200, num_in * algebra.dim), w, algebra=algebra)
    fan_in, fan_out = init.fans(w, algebra)
    expected = 2.0 if name.startswith("kaiming") else 2 * fan_in / (fan_in + fan_out)
    assert y.var().item() == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_layers_start_with_glorot_weights_and_zero_biases(algebra):
    linear = an.nn.Linear(300 // algebra.dim * algebra.dim, 60 // algebra.dim * algebra.dim, algebra=algebra)
    conv = an.nn.Conv2d(60 // algebra.dim * algebra.dim, 32 * algebra.dim, 3, algebra=algebra)
    for layer in (linear, conv):
        bound = math.sqrt(6 / sum(init.fans(layer.weight, algebra)))
        assert layer.weight_tuples.abs().max().item() <= bound * (1 + 1e-6)
        assert layer.weight_tuples.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
        assert (layer.bias == 0).all()


def test_gates_and_projections_are_initialized_each_on_its_own():
    gru = an.nn.GRU(400, 400, algebra=H)
    assert gru.weight_ih_l0.std().item() == pytest.approx(math.sqrt(2 / 800), rel=0.05)
    assert (gru.bias_ih_l0 == 0).all()
    attention = an.nn.MultiheadAttention(400, 4, algebra=H)
    assert attention.in_proj_weight.std().item() == pytest.approx(math.sqrt(2 / 800), rel=0.05)


@pytest.mark.parametrize("algebra", UNITAL, ids=str)
@pytest.mark.parametrize("criterion", ["xavier", "kaiming"])
def test_polar_gives_chi_sizes_and_uniform_angles_to_the_unit(algebra, criterion):
    w = init.polar_(torch.empty(product.weight_shape(algebra, 100, 150)), criterion, algebra=algebra)
    fan_in, fan_out = init.fans(w, algebra)
    variance = 2 / fan_in if criterion == "kaiming" else 2 / (fan_in + fan_out)
    t = product.weight_tuples(w, algebra).flatten(1)
    size = t.norm(dim=0)
    assert size.square().mean().item() == pytest.approx(algebra.dim * variance, rel=0.05)
    assert size.square().var().item() == pytest.approx(2 * algebra.dim * variance**2, rel=0.1)  # chi squared
    unit = torch.tensor([float(u) for u in algebra.unit])
    cosine = (t * (unit / unit.norm())[:, None]).sum(0) / size
    if algebra.dim > 1:
        assert cosine.mean().item() == pytest.approx(0, abs=0.03)
        assert cosine.square().mean().item() == pytest.approx(0.5, abs=0.03)  # uniform angles
        assert (cosine.abs() < 0.5).float().mean().item() == pytest.approx(1 / 3, abs=0.03)


def test_polar_over_c_is_trabelsis_and_over_h_gaudet_and_maidas():
    c = product.weight_tuples(init.polar_(torch.empty(product.weight_shape(C, 200, 300)), algebra=C), C)
    sigma = 1 / math.sqrt(200 + 300)  # Rayleigh's parameter there
    assert torch.complex(*c).abs().mean().item() == pytest.approx(sigma * math.sqrt(math.pi / 2), rel=0.02)
    h = product.weight_tuples(init.polar_(torch.empty(product.weight_shape(H, 100, 150)), "kaiming", algebra=H), H)
    assert h.square().sum(0).mean().item() == pytest.approx(4 / (2 * 150), rel=0.02)  # 4 sigma^2, sigma = 1/sqrt(2 n)
    imaginary = h[1:].square().mean((1, 2))
    assert torch.allclose(imaginary, imaginary.mean(), rtol=0.05)
    assert h[0].square().mean().item() == pytest.approx(3 * imaginary.mean().item(), rel=0.05)


def test_polar_needs_a_unit_and_a_known_criterion():
    with pytest.raises(ValueError, match="polar_ needs an algebra with a unit, which CROSS does not have"):
        init.polar_(torch.empty(product.weight_shape(CROSS, 2, 2)), algebra=CROSS)
    with pytest.raises(ValueError, match="criterion must be one of xavier, kaiming; got 'lecun'"):
        init.polar_(torch.empty(product.weight_shape(H, 2, 2)), "lecun", algebra=H)


# Weights that are computed from other parameters ----------------------------------------------------------------------


def masked(layer, name="weight"):
    """Mask half of the tuples of a weight."""
    Pruner(layer, 0.5, layers=[weight for weight in weights(layer) if weight.name == name])
    return layer


WAYS = [an.nn.utils.weight_norm, an.nn.utils.spectral_norm, parametrizations.orthogonal, masked]
LAYERS = [example for example in zoo.LAYERS if weights(example.make(H))]


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_tuples_assigned_to_a_normalized_weight_are_read_back(algebra):
    for layer in (
        an.nn.Linear(3 * algebra.dim, 2 * algebra.dim, algebra=algebra),
        an.nn.Conv2d(3 * algebra.dim, 2 * algebra.dim, 3, algebra=algebra),
        an.nn.ConvTranspose1d(3 * algebra.dim, 2 * algebra.dim, 3, algebra=algebra),
    ):
        parametrizations.weight_norm(layer)
        wanted = torch.randn(layer.weight_tuples.shape)
        layer.weight_tuples = wanted
        torch.testing.assert_close(layer.weight_tuples, wanted)
        wanted.zero_()
        assert (layer.weight_tuples != 0).any()  # the layer has its own copy


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_tuples_assigned_under_a_mask_reach_the_parameter_and_the_mask_stays(algebra):
    layer = masked(an.nn.Linear(4 * algebra.dim, 4 * algebra.dim, algebra=algebra))
    gone = (layer.weight_tuples == 0).all(0)
    assert gone.sum() == 8
    parameter, wanted = layer.parametrizations.weight.original, torch.randn(algebra.dim, 4, 4)
    layer.weight_tuples = wanted
    assert layer.parametrizations.weight.original is parameter  # the parameter that an optimizer has
    torch.testing.assert_close(product.weight_tuples(parameter, algebra), wanted)
    torch.testing.assert_close(layer.weight_tuples, wanted * ~gone)


def test_tuples_assigned_under_a_spectral_norm_are_normalized():
    layer = parametrizations.spectral_norm(an.nn.Linear(16, 16, algebra=H), n_power_iterations=50).double()
    wanted = torch.randn(4, 4, 4, dtype=torch.float64)
    layer.weight_tuples = wanted
    stored = product.weight_from_tuples(wanted, H)
    torch.testing.assert_close(layer.weight, stored / torch.linalg.matrix_norm(stored, 2))


def test_assigning_where_it_cannot_be_done_is_explained_and_changes_nothing():
    class Squared(nn.Module):
        def forward(self, weight):
            return weight.square()

    square, hooked, exponential = (an.nn.Linear(8, 8, algebra=H) for _ in range(3))
    parametrize.register_parametrization(square, "weight", Squared())
    parametrizations.orthogonal(exponential, orthogonal_map="matrix_exp", use_trivialization=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(hooked)
    messages = {
        square: "weight is parametrized by Squared, which does not take this value: each parametrization must have a",
        exponential: "weight is parametrized by _Orthogonal, which does not take this value",
        hooked: "weight must be a parameter to be assigned to, but a hook computes it in each forward",
    }
    for layer, message in messages.items():
        before = layer.weight.detach().clone()
        for change in (
            lambda one: setattr(one, "weight_tuples", torch.ones(4, 2, 2)),
            lambda one: one.reset_parameters(),
        ):
            with pytest.raises(ValueError, match=message):
                change(layer)
        assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("example", LAYERS, ids=lambda example: example.label)
def test_parameters_are_reset_whatever_parametrizes_them(example, way):
    """Each weight is drawn anew. A weight would stay the same if only a copy of it were written."""
    layer = example.make(H)
    for weight in weights(layer):
        if way is not parametrizations.orthogonal or weight.stored.dim() == 2:
            way(weight.layer, weight.name)
    before = [weight.stored.detach().clone() for weight in weights(layer)]
    for weight in weights(layer):
        weight.layer.reset_parameters()
    for weight, old in zip(weights(layer), before, strict=True):
        same = weight.stored == old
        assert same.float().mean() < 0.6, weight.path  # under a mask, half of them are zero before and after


@pytest.mark.parametrize("name", [*NAMES, "polar_"])
def test_initializing_a_computed_weight_is_refused(name):
    """The weight is computed at each access, so numbers written to it would be lost."""
    layer = parametrizations.weight_norm(an.nn.Linear(8, 8, algebra=H))
    with pytest.raises(ValueError, match="weight must be a parameter or a plain tensor to be initialized"):
        getattr(init, name)(layer.weight, algebra=H)
    with init.new_value(layer, "weight") as weight:
        getattr(init, name)(weight, algebra=H)
    torch.testing.assert_close(layer.weight, weight)
    part = nn.Parameter(torch.zeros(2, 8, 2))
    getattr(init, name)(part[0], algebra=H)  # a slice of a parameter shares its memory
    assert (part[0] != 0).all()
    assert (part[1] == 0).all()
