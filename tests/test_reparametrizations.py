"""Reparametrizations over an algebra: spectral norms are those of the map, and tuples have one magnitude."""

import copy
import re
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations as torchs
from torch.nn.utils import parametrize

import algebranets as an
from algebranets import M2R, C, H, R, product
from algebranets.algebra import CATALOGUE, DUAL, diagonal, direct_sum, opposite
from algebranets.nn.utils import parametrizations as ours
from algebranets.nn.utils import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm
from algebranets.pruning import Pruner
from conftest import KINDS, over_kinds

over_catalogue = pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)
over_few = pytest.mark.parametrize("algebra", KINDS, ids=str)
#: For gradient checks: folded, one block, zeros in a block, two blocks.
SAMPLE = [R, M2R, H, DUAL, direct_sum(C, M2R)]
NORMS = [spectral_norm, weight_norm]
both_norms = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
#: Layers of each layout of weights, with sizes in tuples: plain, with a kernel, transposed, in stacks.
LAYOUTS = {
    "Linear": lambda a: an.nn.Linear(5 * a.dim, 3 * a.dim, algebra=a),
    "Conv2d": lambda a: an.nn.Conv2d(2 * a.dim, 3 * a.dim, (3, 2), algebra=a),
    "ConvTranspose1d": lambda a: an.nn.ConvTranspose1d(3 * a.dim, 2 * a.dim, 3, algebra=a),
    "GRUCell": lambda a: an.nn.GRUCell(2 * a.dim, 3 * a.dim, algebra=a),
}
over_layouts = pytest.mark.parametrize("kind", LAYOUTS)


def make(kind, algebra):
    """A layer in float64, its first weight, and that weight's name."""
    layer = LAYOUTS[kind](algebra).double()
    weight = layer.algebra_weights()[0]
    return layer, weight, weight.name


def real_matrix(stored, weight):
    """The real matrix (out, in * kernel) that a stored weight represents."""
    tuples = weight.tuples(stored.detach())
    tuples = tuples.transpose(1, 2) if weight.transposed else tuples
    return product.real_weight(product.weight_from_tuples(tuples, weight.algebra), weight.algebra).flatten(1)


def operator_norm(stored, weight):
    return torch.linalg.matrix_norm(real_matrix(stored, weight), 2).item()


# Spectral norm --------------------------------------------------------------------------------------------------------


@over_kinds
@over_layouts
def test_the_map_has_norm_1(algebra, kind):
    layer, weight, name = make(kind, algebra)
    spectral_norm(layer, name)
    for _ in range(100):  # one power iteration each
        getattr(layer, name)
    assert operator_norm(getattr(layer, name), weight) == pytest.approx(1, abs=1e-3)
    layer, weight, name = make(kind, algebra)
    spectral_norm(layer, name, n_power_iterations=400)
    assert operator_norm(getattr(layer, name), weight) == pytest.approx(1, abs=1e-6)


def test_torchs_spectral_norm_leaves_a_larger_norm_over_h():
    layer, weight, _ = make("Linear", H)
    torchs.spectral_norm(layer, n_power_iterations=1000)
    assert operator_norm(layer.weight, weight) > 1.1


@pytest.mark.parametrize("algebra", [R, M2R], ids=str)
@over_layouts
def test_where_the_stored_weight_is_the_matrix_spectral_norm_is_torchs(algebra, kind):
    """Both have the same singular vectors, weights, gradients and state dicts."""
    layer, weight, name = make(kind, algebra)
    twin = copy.deepcopy(layer)
    torch.manual_seed(1)
    spectral_norm(layer, name, n_power_iterations=2)
    torch.manual_seed(1)
    torchs.spectral_norm(twin, name, n_power_iterations=2, dim=int(weight.transposed))
    for mode in (True, True, False):
        layer.train(mode), twin.train(mode)
        mine, theirs = getattr(layer, name), getattr(twin, name)
        torch.testing.assert_close(mine, theirs)
        cotangent = torch.randn_like(mine)
        grads = [torch.autograd.grad(one, owner.parametrizations[name].original, cotangent)
                 for one, owner in ((mine, layer), (theirs, twin))]  # fmt: skip
        torch.testing.assert_close(*grads)
    torch.testing.assert_close(dict(layer.state_dict()), dict(twin.state_dict()))
    layer.load_state_dict(twin.state_dict())
    twin.load_state_dict(layer.state_dict())


@pytest.mark.parametrize("algebra", SAMPLE, ids=str)
@over_layouts
def test_gradients_of_the_spectral_norm_are_exact(algebra, kind):
    layer, _, name = make(kind, algebra)
    norm = spectral_norm(layer, name, n_power_iterations=50).eval().parametrizations[name][0]
    stored = torch.randn_like(layer.parametrizations[name].original, requires_grad=True)
    assert torch.autograd.gradcheck(norm, (stored,))
    if kind == "Linear":
        assert torch.autograd.gradgradcheck(norm, (stored,))  # for gradient penalties


@over_few
def test_power_iterations_run_in_training_only(algebra):
    layer = spectral_norm(an.nn.Linear(5 * algebra.dim, 3 * algebra.dim, algebra=algebra))
    norm = layer.parametrizations.weight[0]
    with torch.no_grad():
        layer.parametrizations.weight.original.normal_()
    before = norm._u.clone(), norm._v.clone()
    layer.eval()(torch.randn(2, 5 * algebra.dim))
    assert torch.equal(norm._u, before[0])
    assert torch.equal(norm._v, before[1])
    layer.train()(torch.randn(2, 5 * algebra.dim))
    assert not torch.equal(norm._v, before[1])


def test_two_forwards_may_precede_one_backward():
    """The loss of a discriminator, D(real) - D(fake), calls the layer twice."""
    layer = spectral_norm(an.nn.Linear(12, 8, algebra=H))
    (layer(torch.randn(3, 12)).sum() - layer(torch.randn(3, 12)).sum()).backward()
    assert layer.parametrizations.weight.original.grad.abs().sum() > 0


def test_bad_arguments_of_norms_are_explained():
    with pytest.raises(ValueError, match="n_power_iterations must be at least 1; got 0"):
        spectral_norm(an.nn.Linear(8, 8, algebra=H), n_power_iterations=0)
    for norm in NORMS:
        layer = an.nn.Linear(8, 8, algebra=H)
        with pytest.raises(IndexError, match=r"expected to be in range of \[-2, 1\], but got 2"):
            norm(layer, dim=2)
        assert not parametrize.is_parametrized(layer)
        with pytest.raises((ValueError, AttributeError), match="wait"):
            norm(layer, "wait")
        with pytest.raises(ValueError, match="weight has no shape yet: call the lazy layer once"):
            norm(an.nn.LazyLinear(8, algebra=H))


# Weight norm ----------------------------------------------------------------------------------------------------------


@over_layouts
@pytest.mark.parametrize("dim", [0, 1, None, -1])
def test_over_r_weight_norm_is_torchs(kind, dim):
    layer, _, name = make(kind, R)
    twin = copy.deepcopy(layer)
    weight_norm(layer, name, dim), torchs.weight_norm(twin, name, dim)
    layer.load_state_dict(twin.state_dict())
    twin.load_state_dict(layer.state_dict())
    with torch.no_grad():
        for one in (layer, twin):
            one.parametrizations[name].original0.mul_(3)
    mine, theirs = getattr(layer, name), getattr(twin, name)
    torch.testing.assert_close(mine, theirs)
    cotangent = torch.randn_like(mine)
    for which in ("original0", "original1"):
        grads = [torch.autograd.grad(one, getattr(owner.parametrizations[name], which), cotangent, retain_graph=True)
                 for one, owner in ((mine, layer), (theirs, twin))]  # fmt: skip
        torch.testing.assert_close(*grads)


@over_kinds
@over_layouts
@pytest.mark.parametrize("dim", [0, 1])
def test_each_row_of_tuples_has_one_magnitude(algebra, kind, dim):
    layer, weight, name = make(kind, algebra)
    before = getattr(layer, name).detach().clone()
    weight_norm(layer, name, dim)
    torch.testing.assert_close(getattr(layer, name), before)
    magnitude = layer.parametrizations[name].original0
    rows = weight.tuples(before).movedim(dim + 1, 0).flatten(1)
    assert magnitude.shape == tuple(len(rows) if axis == dim else 1 for axis in range(before.dim()))
    torch.testing.assert_close(magnitude.flatten(), rows.norm(dim=1))
    factors = torch.rand_like(magnitude) + 0.5
    with torch.no_grad():
        magnitude.mul_(factors)
        layer.parametrizations[name].original1.mul_(7)  # only its direction counts
    torch.testing.assert_close(weight.tuples(getattr(layer, name)), weight.tuples(before) * factors)


@over_few
def test_the_whole_weight_may_have_one_magnitude(algebra):
    layer, _, _ = make("Conv2d", algebra)
    before, tuples = layer.weight.detach().clone(), layer.weight_tuples.detach()
    weight_norm(layer, dim=None)
    torch.testing.assert_close(layer.parametrizations.weight.original0, tuples.norm())
    with torch.no_grad():
        layer.parametrizations.weight.original0.mul_(2)
    torch.testing.assert_close(layer.weight, 2 * before)


@pytest.mark.parametrize("algebra", SAMPLE, ids=str)
@over_layouts
@pytest.mark.parametrize("dim", [0, None])
def test_gradients_of_the_weight_norm_are_exact(algebra, kind, dim):
    layer, _, name = make(kind, algebra)
    chain = weight_norm(layer, name, dim).parametrizations[name]
    parts = [torch.randn_like(part, requires_grad=True) for part in (chain.original0, chain.original1)]
    assert torch.autograd.gradcheck(chain[0], parts)


def test_state_dicts_of_torchs_older_weight_norm_load_over_r():
    layer, twin = weight_norm(an.nn.Linear(5, 3, algebra=R)), nn.Linear(5, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(twin)
    assert "weight_g" in twin.state_dict()
    layer.load_state_dict(twin.state_dict())
    torch.testing.assert_close(layer.weight, twin.weight)


# Both -----------------------------------------------------------------------------------------------------------------


@both_norms
@over_few
@over_layouts
def test_state_dicts_copies_and_new_values_pass_through_norms(norm, algebra, kind):
    layer, _, name = make(kind, algebra)
    norm(layer, name)
    other = norm(make(kind, algebra)[0], name)
    other.load_state_dict(layer.state_dict())
    twin = copy.deepcopy(layer)
    for one in (layer, other, twin):
        one.eval()
    torch.testing.assert_close(getattr(other, name), getattr(layer, name))
    torch.testing.assert_close(getattr(twin, name), getattr(layer, name))
    layer.reset_parameters()
    assert not torch.allclose(getattr(twin, name), getattr(layer, name))


@both_norms
@over_few
@pytest.mark.parametrize("kind", [kind for kind in LAYOUTS if kind != "GRUCell"])  # which has no weight_tuples
def test_tuples_assigned_under_a_norm_are_the_weight_up_to_the_norm(norm, algebra, kind):
    layer, weight, _ = make(kind, algebra)
    wanted = torch.randn_like(layer.weight_tuples)
    norm(layer).weight_tuples = wanted
    if norm is spectral_norm:
        wanted = wanted / operator_norm(weight.from_tuples(wanted), weight)
        for _ in range(200):
            layer.weight  # noqa: B018, one power iteration
    torch.testing.assert_close(layer.weight_tuples, wanted, rtol=1e-5, atol=1e-6)


@both_norms
def test_norms_compose_with_masks(norm):
    layer = norm(an.nn.Linear(32, 32, algebra=H))
    pruner = Pruner(layer, 0.5, layers="*")
    assert pruner.sparsity == 0.5
    assert (layer.weight_tuples == 0).all(0).sum() == 32
    assert torch.isfinite(layer(torch.randn(2, 32))).all()
    pruner.finish()
    assert not parametrize.is_parametrized(layer)
    assert (layer.weight_tuples == 0).all(0).sum() == 32


def test_a_masked_weight_has_norm_1_and_takes_no_weight_norm():
    layer = an.nn.Linear(32, 32, algebra=H).double()
    Pruner(layer, 0.5, layers="*")
    with pytest.raises(ValueError, match=r"weight_norm must be the first parametrization of weight, .* with Mask:"):
        weight_norm(layer)
    spectral_norm(layer, n_power_iterations=200)
    assert operator_norm(layer.weight, layer.algebra_weights()[0]) == pytest.approx(1, abs=1e-5)
    assert (layer.weight_tuples == 0).all(0).sum() == 32
    with pytest.raises(ValueError, match="cannot be removed alone, because weight is parametrized by Mask, _Spectral"):
        remove_spectral_norm(layer)


@pytest.mark.parametrize(
    ("norm", "remove"),
    [(spectral_norm, remove_spectral_norm), (weight_norm, remove_weight_norm)],
    ids=["spectral_norm", "weight_norm"],
)
@pytest.mark.parametrize("layer", [an.nn.Linear(8, 12, algebra=H), nn.Linear(8, 12)], ids=["ours", "torch's"])
def test_a_removed_norm_leaves_the_value_and_copies_keep_theirs(norm, remove, layer):
    layer = norm(copy.deepcopy(layer)).eval()
    twin, value = copy.deepcopy(layer), layer.weight.detach().clone()
    assert remove(twin) is twin
    assert set(dict(twin.named_parameters())) == {"weight", "bias"}
    assert torch.equal(twin.weight, value)
    assert torch.equal(layer.weight, value)  # torch's own function breaks the original of a deep copy
    with pytest.raises(ValueError, match=r"norm of 'weight' not found in"):
        remove(twin)


@both_norms
def test_a_norm_on_a_copy_leaves_the_original_as_it_was(norm):
    cell = norm(an.nn.GRUCell(8, 8, algebra=H), "weight_ih")
    norm(copy.deepcopy(cell), "weight_hh")
    assert cell(torch.randn(2, 8)).shape == (2, 8)


@both_norms
def test_torchs_layers_and_other_parameters_get_torchs_norms(norm):
    theirs = getattr(torchs, norm.__name__)(nn.Linear(5, 3)).parametrizations.weight[0]
    assert type(norm(nn.Linear(5, 3)).parametrizations.weight[0]) is type(theirs)
    conv = norm(nn.ConvTranspose1d(5, 3, 2))
    assert conv(torch.randn(2, 5, 4)).shape == (2, 3, 5)
    embedding = norm(an.nn.Embedding(5, 8, algebra=H))  # its vectors are looked up, not multiplied
    assert type(embedding.parametrizations.weight[0]) is type(theirs)


@both_norms
@over_catalogue
def test_a_network_trains_through_its_norms(norm, algebra):
    torch.manual_seed(0)
    nn_ = an.over(algebra)
    norm = getattr(nn_.utils, norm.__name__)
    model = nn_.Sequential(norm(nn_.Linear(3 * algebra.dim, 4 * algebra.dim)), nn_.Tanh(),
                           norm(nn_.Linear(4 * algebra.dim, algebra.dim)))  # fmt: skip
    x, y = torch.randn(16, 3 * algebra.dim), 0.1 * torch.randn(16, algebra.dim)
    optimizer, losses = torch.optim.Adam(model.parameters(), 1e-2), []
    for _ in range(50):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad(), loss.backward(), optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


# Orthogonal weights, batch norms, and the rest of torch.nn.utils ------------------------------------------------------


def test_orthogonal_is_torchs_over_matrices_and_refused_elsewhere():
    for algebra in (R, M2R):
        layer = ours.orthogonal(an.nn.Linear(12, 8, algebra=algebra).double())
        values = torch.linalg.svdvals(real_matrix(layer.weight, layer.algebra_weights()[0]))
        torch.testing.assert_close(values, torch.ones(8, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"orthogonal needs a layer whose stored weight is the matrix .* over H"):
        ours.orthogonal(an.nn.Linear(8, 8, algebra=H))
    assert parametrize.is_parametrized(ours.orthogonal(nn.Linear(8, 8)))


@pytest.mark.parametrize("algebra", [C, H, M2R, DUAL, opposite(M2R)], ids=str)
def test_a_batch_norm_is_not_fused_into_a_layer_over_an_algebra(algebra):
    conv, linear = an.nn.Conv2d(8, 8, 3, algebra=algebra).eval(), an.nn.Linear(8, 8, algebra=algebra).eval()
    name = re.escape(algebra.name)
    with pytest.raises(ValueError, match=f"a BatchNorm2d cannot be fused into a Conv2d over {name}: it scales"):
        an.nn.utils.fuse_conv_bn_eval(conv, nn.BatchNorm2d(8).eval())
    with pytest.raises(ValueError, match=f"a BatchNorm1d cannot be fused into a Linear over {name}: it scales"):
        an.nn.utils.fuse_linear_bn_eval(linear, nn.BatchNorm1d(8).eval())


@pytest.mark.parametrize("algebra", [None, R, diagonal(3)], ids=str)
def test_a_batch_norm_is_fused_into_a_layer_that_takes_it(algebra):
    layers = nn if algebra is None else an.over(algebra)
    x, y = torch.randn(4, 3, 6, 5), torch.randn(4, 3)
    for fuse, layer, norm, given in (
        (an.nn.utils.fuse_conv_bn_eval, layers.Conv2d(3, 6, 2), nn.BatchNorm2d(6), x),
        (an.nn.utils.fuse_linear_bn_eval, layers.Linear(3, 6), nn.BatchNorm1d(6), y),
    ):
        nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
        norm(layer(given)), layer.eval(), norm.eval()
        torch.testing.assert_close(fuse(layer, norm)(given), norm(layer(given)))


def test_memory_formats_reach_all_convolutions():
    for axes, memory_format in ((2, torch.channels_last), (3, torch.channels_last_3d)):
        convs = nn.Sequential(
            *(getattr(an.over("H"), f"{kind}{axes}d")(8, 8, 3) for kind in ("Conv", "ConvTranspose")),
            getattr(nn, f"Conv{axes}d")(8, 8, 3),
        )
        x = torch.randn(2, 8, *[5] * axes)
        before = convs(x)
        getattr(an.nn.utils, f"convert_conv{axes}d_weight_memory_format")(convs, memory_format)
        assert all(conv.weight.is_contiguous(memory_format=memory_format) for conv in convs)
        torch.testing.assert_close(convs(x), before)


def test_all_other_names_are_torchs():
    changed = {"spectral_norm", "weight_norm", "remove_spectral_norm", "remove_weight_norm", "parametrizations",
               "fuse_conv_bn_eval", "fuse_linear_bn_eval", "convert_conv2d_weight_memory_format",
               "convert_conv3d_weight_memory_format"}  # fmt: skip
    assert set(nn.utils.__all__) <= set(an.nn.utils.__all__) <= set(dir(an.nn.utils))
    for name in an.nn.utils.__all__:
        assert hasattr(nn.utils, name), name
        assert (getattr(an.nn.utils, name) is getattr(nn.utils, name)) == (name not in changed), name
    assert an.nn.utils.parametrizations.spectral_norm is an.nn.utils.spectral_norm
    assert an.nn.utils.parametrizations.weight_norm is an.nn.utils.weight_norm
    assert set(an.nn.utils.parametrizations.__all__) == set(torchs.__all__)
    with pytest.raises(AttributeError, match="spectral_nrom"):
        an.nn.utils.spectral_nrom  # noqa: B018
