"""Lift, TupleNorm, TupleGate and TupleDropout: layers that make, reduce or gate whole tuples."""

import math
import re

import pytest
import torch
from torch import nn

import algebranets as an
from algebranets import CROSS, DUAL, M2C, M2R, M3R, M4R, C, H, R
from algebranets.algebra import CATALOGUE, cayley_dickson, diagonal
from algebranets.nn.activation import determinant
from conftest import ALGEBRAS

over_all = pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
over_catalogue = pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)


LIFTS = {"Linear": "Lift", **{f"Conv{t}{n}d": f"Lift{n}d" for t in ("", "Transpose") for n in (1, 2, 3)}}


@pytest.mark.parametrize("algebra", [C, H, M2R, diagonal(3)], ids=str)
@pytest.mark.parametrize("name", LIFTS)
def test_the_error_for_real_inputs_names_the_lift_to_put_before_the_layer(name, algebra):
    make, lift, size = getattr(an.nn, name), LIFTS[name], algebra.dim + 1
    what, kernel = ("features", ()) if name == "Linear" else ("channels", (3,))
    expected = (
        f"in_{what} is {size}, which does not hold whole {algebra.name} tuples: it must be a multiple of {algebra.dim},"
        f" such as {algebra.dim} or {2 * algebra.dim}. For a real input, put {lift}({size}, algebra={algebra.name!r}) "
        f"before this layer and set in_{what}={size * algebra.dim}."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        make(size, 2 * algebra.dim, *kernel, algebra=algebra)
    x = torch.randn(2, size, *[5] * getattr(an.nn, lift).num_axes)
    lifted = getattr(an.nn, lift)(size, algebra=algebra)(x)  # what the error says
    assert make(size * algebra.dim, 2 * algebra.dim, *kernel, algebra=algebra)(lifted).shape[1] == 2 * algebra.dim
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        getattr(an.nn, f"Lazy{name}")(2 * algebra.dim, *kernel, algebra=algebra)(x)


@pytest.mark.parametrize("name", LIFTS)
def test_the_error_for_a_wrong_hidden_size_suggests_no_lift(name):
    kernel = () if name == "Linear" else (3,)
    for sizes in ((8, 6), (0, 8), (-3, 8)):
        with pytest.raises(ValueError, match="does not hold whole H tuples: it must be a multiple of 4") as error:
            getattr(an.nn, name)(*sizes, *kernel, algebra=H)
        assert "Lift" not in str(error.value)


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
    assert an.nn.TupleNorm(dim=-1, algebra=H)(x).item() == 6e4
    assert an.nn.TupleNorm(dim=-1, algebra=H)(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_tuple_norm_is_right_for_numbers_of_every_size(dtype):
    """Each tuple is (3, 4) times a power of two, from the smallest to the largest, beside a zero tuple."""
    norm = an.nn.TupleNorm(dim=-1, algebra=C)
    sizes = 2.0 ** torch.arange(-1074, 1020, dtype=torch.float64)
    x = torch.stack([3 * sizes, 0 * sizes, 4 * sizes, 0 * sizes], 1).to(dtype)
    expected = torch.tensor([math.hypot(row[0], row[2]) for row in x.tolist()], dtype=torch.float64).to(dtype)
    x.requires_grad_()
    y = norm(x)
    assert torch.equal(y[:, 1], torch.zeros_like(expected))
    torch.testing.assert_close(y[:, 0], expected, rtol=2 * torch.finfo(dtype).eps, atol=0)
    (grad,) = torch.autograd.grad(y.sum(), x)
    precise = (x[:, 0] > 100 * torch.finfo(dtype).tiny) & torch.isfinite(expected)
    assert precise.sum() > 20
    torch.testing.assert_close(grad[precise], grad.new_tensor([0.6, 0, 0.8, 0]).expand(int(precise.sum()), -1))
    assert (grad[:, 1::2] == 0).all()


def test_tuple_norm_of_ordinary_numbers_is_the_root_of_their_squares_to_the_last_bit():
    x = torch.randn(1000, 8) * 10.0 ** torch.randint(-10, 10, (1000, 1))
    assert torch.equal(an.nn.TupleNorm(dim=-1, algebra=H)(x), an.tuples(x, H).square().sum(1).sqrt())


def test_tuple_norm_passes_infinity_and_nan_on():
    y = an.nn.TupleNorm(dim=-1, algebra=C)(torch.tensor([math.inf, math.nan, 1.0, -math.inf, 2.0, 1.0]))
    torch.testing.assert_close(y, torch.tensor([math.inf, math.nan, math.sqrt(2)]), equal_nan=True)


@pytest.mark.parametrize("size", [1.0, 1e-200, 1e200])
def test_tuple_norm_has_second_derivatives_at_every_size(size):
    """Second derivatives have degree -1: at a tuple that is larger by a factor, they are smaller by the same factor."""

    def second(x):
        x.requires_grad_()
        (grad,) = torch.autograd.grad(an.nn.TupleNorm(dim=-1, algebra=H)(x)[:, 0].sum(), x, create_graph=True)
        return torch.autograd.grad((grad * weights).sum(), x)[0]

    x, weights = torch.randn(3, 8, dtype=torch.float64), torch.randn(3, 8, dtype=torch.float64)
    assert torch.autograd.gradgradcheck(an.nn.TupleNorm(dim=-1, algebra=H), x.clone().requires_grad_())
    torch.testing.assert_close(second(size * x) * size, second(x.clone()))


def test_tuple_norm_is_the_same_compiled_exported_and_under_torch_func():
    torch._dynamo.reset()
    norm = an.nn.TupleNorm(dim=-1, algebra=C)
    x = torch.tensor([[3e-23, 0, 4e-23, 0], [3e19, 0, 4e19, 1.0], [3, 0, 4, 1e-42]])
    expected = torch.tensor([[5e-23, 0], [5e19, 1], [5, 1e-42]])
    compiled = torch.compile(norm, fullgraph=True, backend="aot_eager")
    exported = torch.export.export(norm, (x,)).module()
    for run in (norm, compiled, exported, torch.func.vmap(norm)):
        torch.testing.assert_close(run(x), expected, rtol=1e-6, atol=0)
    x.requires_grad_()
    torch.testing.assert_close(*(torch.autograd.grad(run(x).sum(), x) for run in (norm, compiled)))
    tangent = torch.tensor([[1.0, 0, 2, 0]]).expand(3, -1)
    torch.testing.assert_close(
        torch.func.jvp(norm, (x.detach(),), (tangent,))[1][:, 0],
        torch.full((3,), (3 * 1 + 4 * 2) / 5),
        rtol=1e-6,
        atol=0,
    )


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
    gate = an.nn.TupleGate(lambda t: t.norm(dim=0), torch.sigmoid, dim=-1, algebra=C)
    size = an.tuples(x, C).norm(dim=1)
    torch.testing.assert_close(an.tuples(gate(x), C), an.tuples(x, C) * torch.sigmoid(size)[:, None])
    assert torch.autograd.gradcheck(gate, x)
    determined = an.nn.TupleGate("determinant", torch.tanh, dim=-1, algebra=C)
    assert torch.autograd.gradcheck(determined, x)


@pytest.mark.parametrize("algebra", [C, H, M2R, M4R, M2C, cayley_dickson(4), diagonal(3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_determinant_gate_passes_the_same_tuples_at_every_scale(algebra, dtype):
    """Powers of large or small components overflow or underflow, and differences of infinities are NaN."""
    gate = an.nn.TupleGate("determinant", dim=-1, algebra=algebra)
    x = (torch.randn(20, 5 * algebra.dim) * 16).ceil().add(0.5).to(dtype) / 16  # no zeros; exact at every scale below
    passed = gate(x) != 0
    assert passed.any()
    exact = determinant(an.tuples(x.double(), algebra).movedim(1, 0), algebra) > 0
    assert torch.equal(an.tuples(passed, algebra), exact.unsqueeze(1).expand(-1, algebra.dim, -1))
    for power in (-10, 10) if dtype == torch.float16 else (-110, -60, 60, 110):
        assert torch.equal(gate(x * 2.0**power).ne(0), passed)


def test_determinants_in_half_precision_do_not_overflow_on_the_way():
    t = torch.full((4, 1), 300.0, dtype=torch.float16)
    t[0] = 301  # 301 * 300 - 300 * 300: both products exceed the largest float16
    assert determinant(t, M2R).item() == 300


AXES = {
    "tuples": lambda a, dim: lambda x: an.tuples(x, a, dim),
    "from_tuples": lambda a, dim: lambda x: an.from_tuples(x, a, dim),
    "TupleNorm": lambda a, dim: an.nn.TupleNorm(dim=dim, algebra=a),
    "TupleGate": lambda a, dim: an.nn.TupleGate(dim=dim, algebra=a),
    "TupleDropout": lambda a, dim: an.nn.TupleDropout(dim=dim, algebra=a),
}


@pytest.mark.parametrize("algebra", [R, H], ids=str)
@pytest.mark.parametrize("make", AXES.values(), ids=AXES)
def test_an_axis_that_is_not_there_is_torchs_index_error(make, algebra):
    for shape, dim in (((4, 4), 2), ((4, 4), -3), ((4, 4), 100), ((4,), 1), ((4,), -2), ((), 1)):
        x = torch.randn(shape)
        with pytest.raises(IndexError) as theirs:
            x.softmax(dim)
        with pytest.raises(IndexError) as ours:
            make(algebra, dim)(x)
        if shape:
            assert str(ours.value) == str(theirs.value)
    for dim in (0, -1):
        with pytest.raises(IndexError, match="tensor has no dimensions"):
            make(algebra, dim)(torch.randn(()))


@pytest.mark.parametrize("layer", ["TupleNorm", "TupleGate", "TupleDropout"])
def test_layers_on_any_axis_ask_which_one_holds_the_channels(layer):
    """On an image, the last axis is its width: a default would compute norms of pixels without an error."""
    make = getattr(an.nn, layer)
    expected = (
        f"{layer} needs dim, the channel axis: write dim=1 for images (batch, channels, height, width), or dim=-1 "
        "for features."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        make(algebra=H)
    with pytest.raises(TypeError, match="positional"):
        make(*{"TupleNorm": (), "TupleGate": ("mean", "heaviside"), "TupleDropout": (0.5,)}[layer], 1, algebra=H)
    assert make(dim=1, algebra=H).dim == 1


def test_a_layer_norm_refuses_an_image_whose_channels_are_not_on_the_last_axis():
    with pytest.raises(RuntimeError, match="normalized_shape"):
        an.nn.TupleLayerNorm(8, algebra=H)(torch.randn(2, 8, 4, 4))


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
    assert (determinant(torch.randn(3, 7), CROSS).abs() < 1e-6).all()  # w . x = 0 if x is parallel to w
    torch.testing.assert_close(determinant(torch.tensor([[3.0], [5.0]]), DUAL), torch.tensor([9.0]))
    assert determinant(torch.randn(8, 7).half(), cayley_dickson(3)).dtype == torch.float16


@over_catalogue
def test_tuple_dropout_drops_whole_tuples_and_keeps_the_mean(algebra):
    drop = an.nn.TupleDropout(0.25, dim=-1, algebra=algebra)
    x = torch.ones(200, 50 * algebra.dim)
    t = an.tuples(drop(x), algebra)
    assert torch.equal(t.min(1).values, t.max(1).values)
    assert torch.isclose(t, torch.tensor(0.0)).logical_or(torch.isclose(t, torch.tensor(4 / 3))).all()
    assert t.mean().item() == pytest.approx(1, abs=0.05)
    assert torch.equal(drop.eval()(x), x)
    assert (an.nn.TupleDropout(1.0, dim=-1, algebra=algebra)(x) == 0).all()


def test_a_small_network_trains_and_mixes_with_torchs_own_layers():
    """As the README says, torch.nn's activations, norms and pooling work unchanged between our layers."""
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
        an.nn.TupleNorm(dim=-1, algebra=M2R),
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
    """A GPU computes both as one convolution of the image. Outputs, also at borders, and gradients are the same."""
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
