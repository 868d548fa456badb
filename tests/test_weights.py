"""`algebra_weights`: the list of a layer's weights, from which they are counted and pruned."""

import pytest
import torch
from torch import nn

import algebranets as an
import zoo
from algebranets import M2R, C, H, product
from algebranets.accounting import account, work
from algebranets.nn.weights import algebra_weights, reset_weights
from algebranets.pruning import Pruner, prunable, weights


class GatedLinear(nn.Module):
    """A user's own layer with two weights in one parameter. The library only knows what `algebra_weights` returns."""

    def __init__(self, num_in, num_out, algebra):
        super().__init__()
        self.algebra = algebra
        self.both = nn.Parameter(torch.empty(product.weight_shape(algebra, num_out, num_in, stacks=2)))
        reset_weights(self)

    def algebra_weights(self):
        return [an.nn.AlgebraWeight("both", self.algebra, stacks=2)]

    def forward(self, x):
        value, gate = product.linear(x, self.both, algebra=self.algebra, stacks=2).chunk(2, -1)
        return value * torch.sigmoid(gate)


@pytest.mark.parametrize("algebra", [M2R, H], ids=str)
@pytest.mark.parametrize("example", zoo.LAYERS, ids=lambda e: e.label)
def test_every_layer_names_its_weights_and_how_they_are_stored(example, algebra):
    for _, layer in example.make(algebra).named_modules():
        for weight in algebra_weights(layer):
            stored = getattr(layer, weight.name)
            tuples = weight.tuples(stored)
            first, second = product.num_tuples(stored, algebra, weight.stacks)
            assert weight.algebra == algebra
            assert tuples.shape == (algebra.dim, weight.stacks * first, second, *stored.shape[2:])
            assert torch.equal(weight.from_tuples(tuples), stored)


def test_only_these_layers_have_no_weights_over_the_algebra():
    """Norms, gates, shuffles, dropout, and the real layers that lift real numbers to tuples."""
    layers = {example.name: example.make(M2R) for example in zoo.ONE_EACH}
    without = {name for name, layer in layers.items() if not any(algebra_weights(m) for m in layer.modules())}
    names = "Lift Lift1d Lift2d Lift3d TupleLayerNorm GroupNorm RMSNorm LocalResponseNorm TupleDropout TupleGate "
    names += "TupleNorm GLU ChannelShuffle PixelShuffle PixelUnshuffle "
    names += " ".join(f"{kind}{axes}d" for kind in ("Whitening", "InstanceNorm") for axes in (1, 2, 3))
    assert without == set(names.split())


def test_a_weight_may_be_declared_with_the_name_of_its_algebra():
    assert an.nn.AlgebraWeight("matrix", "quaternions") == an.nn.AlgebraWeight("matrix", H)


def test_stacks_are_gates_and_projections_and_transposed_is_in_before_out():
    lstm = an.nn.LSTM(8, 8, proj_size=4, algebra=C)
    assert {w.name: w.stacks for w in lstm.algebra_weights()} == {
        "weight_ih_l0": 4, "weight_hh_l0": 4, "weight_hr_l0": 1,
    }  # fmt: skip
    assert {w.name: w.stacks for w in algebra_weights(an.nn.GRUCell(8, 8, algebra=C))} == {
        "weight_ih": 3, "weight_hh": 3,
    }  # fmt: skip
    attention = algebra_weights(an.nn.MultiheadAttention(8, 2, algebra=C))
    assert [(w.name, w.stacks) for w in attention] == [("in_proj_weight", 3)]
    apart = algebra_weights(an.nn.MultiheadAttention(8, 2, kdim=4, algebra=C))
    assert [(w.name, w.stacks) for w in apart] == [("q_proj_weight", 1), ("k_proj_weight", 1), ("v_proj_weight", 1)]
    (transposed,) = algebra_weights(an.nn.ConvTranspose2d(8, 4, 3, algebra=M2R))
    assert transposed.transposed


def test_a_layer_of_ones_own_starts_like_the_librarys():
    torch.manual_seed(0)
    layer, twin = GatedLinear(50, 40, H), an.nn.Linear(200, 160, algebra=H)
    torch.testing.assert_close(layer.both.std(), twin.weight.std(), rtol=0.05, atol=0)


@pytest.mark.parametrize("algebra", [M2R, H], ids=str)
def test_a_layer_of_ones_own_is_counted(algebra):
    layer, x = GatedLinear(3, 5, algebra), torch.randn(2, 7, 3 * algebra.dim)
    cost = account(layer, x)
    assert cost.multiplies == 2 * 7 * (2 * 5 * 3) * algebra.multiplies
    assert cost.values_loaded == 2 * 7 * (2 * 5 * 3) * algebra.values_loaded
    assert not cost.unknown
    assert account(layer, torch.empty(0, 3 * algebra.dim)).multiplies == 0


def test_a_layer_of_ones_own_is_pruned_and_what_is_gone_is_not_counted():
    torch.manual_seed(0)
    model = nn.Sequential(GatedLinear(4, 4, M2R), an.nn.Linear(16, 8, algebra=M2R))
    assert [weight.path for weight in prunable(model)] == ["0.both"]
    before = weights(model)[0].tuples(model[0].both).detach().clone()
    pruner = Pruner(model, target=0.5)
    gone = (pruner.weights[0].tuples(model[0].both) == 0).all(0)
    assert gone.sum() == 16
    assert before.norm(dim=0)[gone].max() <= before.norm(dim=0)[~gone].min()
    row = account(model, torch.randn(1, 16)).rows[0]
    assert row.multiplies_left == row.multiplies / 2


def test_the_last_linear_layer_is_spared_whoever_wrote_it():
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = nn.Parameter(torch.randn(product.weight_shape(H, 3, 4)))

        def algebra_weights(self):
            return [an.nn.AlgebraWeight("matrix", H)]

    model = nn.Sequential(an.nn.Linear(16, 16, algebra=H), Head())
    assert [weight.path for weight in prunable(model)] == ["0.weight"]
    assert [weight.path for weight in prunable(model, "*")] == ["0.weight", "1.matrix"]


def test_weights_that_do_not_make_the_output_are_named_as_not_counted():
    class Squeezed(GatedLinear):
        def forward(self, x):
            return super().forward(x)[..., :1]

    layer, x = Squeezed(3, 5, H), torch.randn(2, 12)
    assert work(layer, (x,), layer(x)) is None
    assert account(layer, x).unknown == ("Squeezed",)


def test_a_compiled_model_has_its_weights_once():
    model = torch.compile(nn.Sequential(an.nn.Linear(8, 8, algebra=H)))
    assert [weight.path for weight in weights(model)] == ["_orig_mod.0.weight"]
    layer = torch.compile(an.nn.Linear(8, 8, algebra=H))
    assert [weight.path for weight in weights(layer)] == ["_orig_mod.weight"]
