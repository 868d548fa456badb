"""Layers that mix channels treat a tuple as a whole: shuffles, gates and norms.

The tests check three laws. Shuffles commute with multiplication on the right. Permuting whole tuples before a gate or a
norm is the same as permuting them after it. If all components of every tuple are equal, a layer computes what torch's
layer computes for one component. Torch's own layers break the first two laws on the same tensors.
"""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import algebranets as an
from algebranets import M2C, M2R, C, H
from algebranets.algebra import diagonal
from laws import assert_exact, over_algebras, over_associative, permuted, set_affine, times


@dataclass(frozen=True)
class Case:
    """A layer for ``tuples`` tuples on the axis ``dim`` of its input, whose other axes have the sizes ``shape``."""

    name: str
    args: tuple[Any, ...]
    shape: tuple[int, ...]
    dim: int
    tuples: int
    #: The position of the number of channels in the constructor's arguments, or None if it takes no such number.
    sized: int | None = None
    #: Whole groups of this many tuples may change places, and tuples within a group.
    group: int = 1

    def make(self, algebra):
        return getattr(an.nn, self.name)(*self.arguments(algebra.dim), algebra=algebra).double()

    def make_real(self, dim=1):
        """Torch's layer for tuples of ``dim`` components, which it takes apart."""
        return getattr(nn, self.name)(*self.arguments(dim)).double()

    def arguments(self, dim):
        if self.sized is None:
            return self.args
        return [*self.args[: self.sized], self.tuples * dim, *self.args[self.sized :]]

    def feed(self, dim=1):
        shape = list(self.shape)
        shape.insert(self.dim if self.dim >= 0 else len(shape), self.tuples * dim)
        return torch.randn(shape, dtype=torch.float64)

    @property
    def label(self):
        return f"{self.name}{self.args}"


def shuffled(name, factor, tuples, size):
    return Case(name, (factor,), (2, *size), 1, tuples)


SHUFFLES = [
    shuffled("ChannelShuffle", 3, 6, (5,)),
    shuffled("ChannelShuffle", 2, 6, (3, 5)),
    shuffled("PixelShuffle", 2, 12, (3, 5)),
    shuffled("PixelUnshuffle", 3, 3, (6, 9)),
]
GATES = [
    Case("GLU", (), (5,), -1, 6),
    Case("GLU", (1,), (2, 3, 5), 1, 6),
]
NORMS = [
    Case("GroupNorm", (3,), (2, 5), 1, 6, sized=1, group=2),
    Case("GroupNorm", (1,), (2,), 1, 6, sized=1),
    Case("GroupNorm", (2,), (3, 4, 3), 1, 6, sized=1, group=3),
    Case("InstanceNorm1d", (), (2, 5), 1, 3, sized=0),
    Case("InstanceNorm2d", (1e-3,), (2, 4, 3), 1, 3, sized=0),
    Case("InstanceNorm3d", (), (2, 4, 3, 2), 1, 3, sized=0),
    Case("RMSNorm", (), (2, 5), -1, 3, sized=0),
    Case("RMSNorm", (1e-2,), (5,), -1, 3, sized=0),
    Case("LocalResponseNorm", (6, 1.0), (2, 5), 1, 3),  # every tuple is a neighbor of every other
]
LOCAL = [
    Case("LocalResponseNorm", (3, 0.1), (2, 5), 1, 7),
    Case("LocalResponseNorm", (2, 0.5, 0.9, 2.0), (2, 4, 3), 1, 7),
    Case("LocalResponseNorm", (4, 0.5), (2, 4, 3, 2), 1, 7),
]


def over(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.label)


def copied(x, algebra, dim):
    """Tuples whose components are all equal to ``x``."""
    return torch.cat([x] * algebra.dim, dim)


def random_order(case):
    """A permutation of groups of tuples, and of the tuples within each group."""
    groups = torch.randperm(case.tuples // case.group)
    return torch.cat([group * case.group + torch.randperm(case.group) for group in groups])


# Multiplication on the right ------------------------------------------------------------------------------------------


@over_associative
@over(SHUFFLES)
def test_shuffles_commute_with_multiplication_on_the_right(case, algebra):
    layer, x, q = case.make(algebra), case.feed(algebra.dim), torch.randn(algebra.dim, dtype=torch.float64)
    assert_exact(layer(times(x, q, algebra, 1)), times(layer(x), q, algebra, 1))


@pytest.mark.parametrize("algebra", [C, H, M2R, M2C], ids=str)
def test_torchs_channel_shuffle_does_not_commute_with_multiplication(algebra):
    x, q = torch.randn(2, 6 * algebra.dim, 5), torch.randn(algebra.dim)
    theirs = nn.ChannelShuffle(3)
    difference = theirs(times(x, q, algebra, 1)) - times(theirs(x), q, algebra, 1)
    assert difference.abs().max() > 0.1


@over_associative
@over([case for case in SHUFFLES if case.name.startswith("Pixel")])
def test_pixel_shuffles_are_torchs(case, algebra):
    """Torch's own layers keep tuples whole in all cases in which ours do not raise an error."""
    x = case.feed(algebra.dim)
    assert torch.equal(case.make(algebra)(x), case.make_real()(x))


def test_torchs_pixel_shuffle_makes_pixels_of_a_tuple_where_ours_raises_an_error():
    x = torch.randn(1, 24, 2, 2)
    pixels = nn.PixelShuffle(2)(x)  # 6 channels, which do not hold whole H tuples
    assert pixels.shape[1] % 4
    with pytest.raises(ValueError, match=r"the output must hold whole H tuples: .* multiple of 2\^2 \* 4 = 16; got 24"):
        an.nn.PixelShuffle(2, algebra=H)(x)
    back = nn.PixelUnshuffle(2)(pixels)
    assert torch.equal(back, x)
    with pytest.raises(ValueError, match="axis 1 is 6, which does not hold whole H tuples"):
        an.nn.PixelUnshuffle(2, algebra=H)(pixels)


@over_algebras
def test_pixel_unshuffle_is_the_inverse_of_pixel_shuffle(algebra):
    x = torch.randn(2, 9 * algebra.dim, 3, 5)
    y = an.nn.PixelShuffle(3, algebra=algebra)(x)
    assert y.shape == (2, algebra.dim, 9, 15)
    assert torch.equal(an.nn.PixelUnshuffle(3, algebra=algebra)(y), x)
    assert torch.equal(an.nn.PixelShuffle(3, algebra=algebra)(x[0]), y[0])


UNIT = torch.tensor([0.1, -0.7, 0.5, 0.5], dtype=torch.float64)  # a quaternion of length 1


@over([*NORMS, *LOCAL])
def test_norms_commute_with_unit_quaternions_on_the_right(case):
    assert UNIT.norm() == pytest.approx(1)
    layer, x = case.make(H), case.feed(4)
    assert_exact(layer(times(x, UNIT, H, case.dim)), times(layer(x), UNIT, H, case.dim))


@over([case for case in (*NORMS, *LOCAL) if case.name != "RMSNorm"])
def test_torchs_norms_do_not_commute_with_unit_quaternions(case):
    """Torch's RMSNorm is left out, because it does commute while its scales are all one."""
    theirs, x = case.make_real(4), case.feed(4)
    difference = theirs(times(x, UNIT, H, case.dim)) - times(theirs(x), UNIT, H, case.dim)
    assert difference.abs().max() > 0.01


# Permutations of tuples -----------------------------------------------------------------------------------------------


@over_algebras
@over([*GATES, *NORMS])
def test_permuting_tuples_before_a_gate_or_a_norm_is_permuting_them_after(case, algebra):
    layer, x = case.make(algebra), case.feed(algebra.dim)
    if case.name == "GLU":  # values and gates are permuted alike
        after = torch.randperm(3)
        before = torch.cat([after, 3 + after])
    else:
        before = after = random_order(case)
    assert_exact(layer(permuted(x, before, algebra, case.dim)), permuted(layer(x), after, algebra, case.dim))


@over_algebras
@over([case for case in NORMS if case.name != "LocalResponseNorm"])
def test_scales_and_offsets_belong_to_tuples(case, algebra):
    """Permuting the tuples, their scales and their offsets permutes the result."""
    if case.name.startswith("InstanceNorm"):
        case = Case(case.name, (1e-5, 0.1, True), case.shape, case.dim, case.tuples, sized=0)
    first, second, x = case.make(algebra), case.make(algebra), case.feed(algebra.dim)
    weight, bias = torch.randn(case.tuples), torch.randn(case.tuples * algebra.dim)
    order = random_order(case)
    set_affine(first, weight, bias)
    set_affine(second, weight[order], permuted(bias, order, algebra, 0))
    assert_exact(second(permuted(x, order, algebra, case.dim)), permuted(first(x), order, algebra, case.dim))


@pytest.mark.parametrize("algebra", [C, H, M2R, M2C, diagonal(4)], ids=str)
def test_torchs_group_norm_does_not_commute_with_permutations_of_tuples(algebra):
    x, theirs = torch.randn(2, 6 * algebra.dim, 5), nn.GroupNorm(3, 6 * algebra.dim)
    order = torch.tensor([2, 3, 0, 1, 4, 5])  # two groups of two tuples change places
    assert (theirs(permuted(x, order, algebra, 1)) - permuted(theirs(x), order, algebra, 1)).abs().max() > 0.01


@over_algebras
@over(GATES)
def test_a_gate_with_equal_components_scales_its_tuple(case, algebra):
    """Multiplying the values on the right then multiplies the result. Torch's GLU takes some components as gates."""
    q = torch.randn(algebra.dim, dtype=torch.float64)
    values, gates = (case.feed(algebra.dim).chunk(2, case.dim)[0] for _ in range(2))
    gates = copied(gates.chunk(algebra.dim, case.dim)[0], algebra, case.dim)
    x = an.cat([values, gates], case.dim, algebra=algebra)
    multiplied_x = an.cat([times(values, q, algebra, case.dim), gates], case.dim, algebra=algebra)
    ours, theirs = case.make(algebra), case.make_real()
    assert_exact(ours(multiplied_x), times(ours(x), q, algebra, case.dim))
    assert (theirs(multiplied_x) - times(theirs(x), q, algebra, case.dim)).abs().max() > 0.01


# Equal components -----------------------------------------------------------------------------------------------------


@over_algebras
@over([*SHUFFLES, *GATES, *NORMS, *LOCAL])
def test_on_equal_components_a_layer_computes_torchs_result_for_one(case, algebra):
    """Compare outputs and all gradients."""
    ours, theirs = case.make(algebra), case.make_real()
    weight, bias = torch.randn(case.tuples).double(), torch.randn(case.tuples).double()
    set_affine(theirs, weight, bias)
    set_affine(ours, weight, copied(bias, algebra, 0))
    x = case.feed().requires_grad_()
    dim = case.dim if case.dim >= 0 else x.dim() - 1
    y, expected = ours(copied(x, algebra, dim)), theirs(x)
    assert_exact(y, copied(expected, algebra, dim))
    direction = torch.randn_like(expected)
    grads = torch.autograd.grad((y * copied(direction, algebra, dim)).sum(), [x, *ours.parameters()])
    their_grads = torch.autograd.grad((expected * direction).sum(), [x, *theirs.parameters()])
    names = ["x", *dict(ours.named_parameters())]
    for name, grad, their_grad in zip(names, grads, their_grads, strict=True):
        assert_exact(grad, copied(their_grad, algebra, 0) if name == "bias" else algebra.dim * their_grad)
