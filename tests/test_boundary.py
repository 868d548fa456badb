"""Lift, TupleNorm, gates and dropout: where tuples begin, end, and are treated as one thing."""

import pytest
import torch
from torch import nn

import algebranets as an
from algebranets import CROSS, DUAL, M2C, M2R, M3R, M4R, C, H, R
from algebranets.algebra import CATALOGUE, cayley_dickson
from algebranets.nn.activation import determinant
from conftest import ALGEBRAS

over_all = pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
over_catalogue = pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)


@over_all
@pytest.mark.parametrize("mode", ["learned", "zeros", "copy"])
def test_lift_keeps_the_input_as_first_component(algebra, mode):
    for lift, x, dim in (
        (an.nn.Lift(3, mode, algebra=algebra), torch.randn(5, 3), 1),
        (an.nn.Lift1d(3, mode, algebra=algebra), torch.randn(2, 3, 6), 1),
        (an.nn.Lift2d(3, mode, 2, algebra=algebra), torch.randn(2, 3, 4, 5), 1),
        (an.nn.Lift3d(3, mode, kernel_size=1, algebra=algebra), torch.randn(3, 2, 4, 5), 0),
    ):
        t = an.tuples(lift(x), algebra, dim)
        first, others = t.select(dim, 0), t.narrow(dim, 1, algebra.dim - 1)
        assert torch.equal(first, x)
        if algebra.dim > 1:
            if mode == "zeros":
                assert (others == 0).all()
            elif mode == "copy":
                assert torch.equal(others, x.unsqueeze(dim).expand_as(others))
            else:
                expected = lift.mlp(x).unflatten(dim, (algebra.dim - 1, 3))
                torch.testing.assert_close(others, expected)


def test_lift_learns_one_or_two_layers_and_over_r_nothing():
    assert not list(an.nn.Lift2d(3, algebra=R).parameters())
    one, two = an.nn.Lift2d(3, algebra=H), an.nn.Lift2d(3, num_layers=2, hidden_channels=5, algebra=H)
    assert sum(p.numel() for p in one.parameters()) == 9 * 3 * 9 + 9
    assert sum(p.numel() for p in two.parameters()) == 5 * 3 * 9 + 5 + 9 * 5 * 9 + 9


@over_all
def test_tuple_norm_is_the_l2_norm_and_its_gradient_is_zero_at_zero(algebra):
    x = torch.randn(2, 3 * algebra.dim, 2, dtype=torch.float64)
    norm = an.nn.TupleNorm(dim=1, algebra=algebra)
    if algebra.dim == 1:
        assert norm(x) is x
        return
    torch.testing.assert_close(norm(x), an.tuples(x, algebra, 1).norm(dim=1))
    x[0, :, 0] = 0
    x.requires_grad_()
    (grad,) = torch.autograd.grad(norm(x).sum(), x, create_graph=True)
    assert (grad[0, :, 0] == 0).all()
    (second,) = torch.autograd.grad(grad.sum(), x)
    assert torch.isfinite(second).all()


def test_tuple_norm_does_not_overflow_in_half_precision():
    x = torch.full((4,), 3e4, dtype=torch.float16)
    assert an.nn.TupleNorm(algebra=H)(x).item() == 6e4
    assert an.nn.TupleNorm(algebra=H)(x.bfloat16()).dtype == torch.bfloat16


@over_catalogue
def test_a_heaviside_gate_passes_or_drops_whole_tuples(algebra):
    x = torch.randn(2, 5 * algebra.dim, 3, requires_grad=True)
    y = an.nn.TupleGate(dim=1, algebra=algebra)(x)
    t, u = an.tuples(x, algebra, 1), an.tuples(y, algebra, 1)
    passed = (t.mean(1, keepdim=True) > 0).expand_as(t)
    assert torch.equal(u, torch.where(passed, t, 0))
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(an.tuples(grad, algebra, 1), passed.float())


def test_a_gate_takes_any_g_and_f():
    x = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    gate = an.nn.TupleGate(lambda t: t.norm(dim=0), torch.sigmoid, algebra=C)
    size = an.tuples(x, C).norm(dim=1)
    torch.testing.assert_close(an.tuples(gate(x), C), an.tuples(x, C) * torch.sigmoid(size)[:, None])
    assert torch.autograd.gradcheck(gate, x)
    determined = an.nn.TupleGate("determinant", torch.tanh, algebra=C)
    assert torch.autograd.gradcheck(determined, x)


def test_the_determinant_is_the_matrix_determinant_and_the_norm_form():
    for algebra, n in ((M2R, 2), (M3R, 3), (M4R, 4)):
        t = torch.randn(algebra.dim, 7, dtype=torch.float64)
        torch.testing.assert_close(determinant(t, algebra), torch.linalg.det(t.unflatten(0, (n, n)).movedim(2, 0)))
    for algebra, power in ((C, 1), (H, 2), (cayley_dickson(3), 4)):
        t = torch.randn(algebra.dim, 7, dtype=torch.float64)
        torch.testing.assert_close(determinant(t, algebra), t.square().sum(0) ** power)
    t = torch.randn(8, 7, dtype=torch.float64)
    real, imaginary = t.unflatten(0, (2, 2, 2)).movedim(3, 0).unbind(3)
    torch.testing.assert_close(determinant(t, M2C), torch.linalg.det(torch.complex(real, imaginary)).abs().square())
    assert (determinant(torch.randn(3, 7), CROSS).abs() < 1e-6).all()  # x . w = 0 for the parallel x
    torch.testing.assert_close(determinant(torch.tensor([[3.0], [5.0]]), DUAL), torch.tensor([9.0]))
    assert determinant(torch.randn(8, 7).half(), cayley_dickson(3)).dtype == torch.float16


@over_catalogue
def test_tuple_dropout_drops_whole_tuples_and_keeps_the_mean(algebra):
    drop = an.nn.TupleDropout(0.25, algebra=algebra)
    x = torch.ones(200, 50 * algebra.dim)
    t = an.tuples(drop(x), algebra)
    assert torch.equal(t.min(1).values, t.max(1).values)
    assert torch.isclose(t, torch.tensor(0.0)).logical_or(torch.isclose(t, torch.tensor(4 / 3))).all()
    assert t.mean().item() == pytest.approx(1, abs=0.05)
    assert torch.equal(drop.eval()(x), x)
    assert (an.nn.TupleDropout(1.0, algebra=algebra)(x) == 0).all()


def test_a_small_network_trains_and_mixes_with_torchs_own_layers():
    """The README's claim: torch.nn's activations, norms and pooling work untouched between our layers."""
    torch.use_deterministic_algorithms(False)
    model = nn.Sequential(
        an.nn.Lift2d(1, algebra=M2R),
        an.nn.Conv2d(4, 32, 3, padding=1, bias=False, algebra=M2R),
        nn.BatchNorm2d(32),
        nn.SiLU(),
        an.nn.Conv2d(32, 32, 3, padding=1, groups=8, algebra=M2R),
        an.nn.Whitening2d(32, algebra=M2R),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        an.nn.Linear(32, 8, algebra=M2R),
        an.nn.TupleNorm(algebra=M2R),
    )
    torch.manual_seed(1)
    x = torch.randn(64, 1, 8, 8)
    label = (x[:, 0, :, :4].var((1, 2)) > x[:, 0, :, 4:].var((1, 2))).long()
    x[:, 0, :, :4] *= (1 + label.float())[:, None, None]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        loss = nn.functional.cross_entropy(model(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
@pytest.mark.parametrize("mode", ["learned", "zeros", "copy"])
def test_a_lift_merged_into_a_convolution_is_both_of_them(algebra, mode):
    """As a GPU does it: one convolution of the image, its borders and every gradient the same."""
    lift = an.nn.Lift2d(3, mode, kernel_size=1, algebra=algebra, dtype=torch.float64)
    conv = an.nn.Conv2d(3 * algebra.dim, 2 * algebra.dim, 3, 2, 1, algebra=algebra, dtype=torch.float64)
    for parameter in (*lift.parameters(), *conv.parameters()):
        nn.init.normal_(parameter)
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    assert lift._merges_with(conv) == (algebra.dim > 1)
    results = [lift._merged(conv, x), conv(lift(x))]
    inputs = [x, *lift.parameters(), *conv.parameters()]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(torch.autograd.grad((y**2).sum(), inputs) for y in results))
    torch.testing.assert_close(lift.into(conv, x), results[1])


def test_a_lift_of_several_layers_or_pixels_is_not_merged():
    conv = an.nn.Conv2d(12, 8, 3, algebra=an.M2R)
    assert not an.nn.Lift2d(3, num_layers=2, kernel_size=1, algebra=an.M2R)._merges_with(conv)
    assert not an.nn.Lift2d(3, kernel_size=3, algebra=an.M2R)._merges_with(conv)
    grouped = an.nn.Conv2d(12, 12, 3, groups=3, algebra=an.M2R)
    assert not an.nn.Lift2d(3, kernel_size=1, algebra=an.M2R)._merges_with(grouped)
