"""The contract: every lowering computes the reference's product, for every algebra and operation."""

import importlib
from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from algebranets import CROSS, DUAL, M2C, M2R, M3R, M4R, C, H, R, diagonal, from_tuples, product, tuples
from algebranets.algebra import CATALOGUE, Algebra, clifford, direct_sum, get
from algebranets.nn.init import fans
from algebranets.ops.device import is_channels_last
from algebranets.product import Geometry, auto
from algebranets.product.cells import MODES
from algebranets.product.thresholds import Cpu
from conftest import ALGEBRAS, KINDS, SPLIT_QUATERNIONS, thinned

conv_module = importlib.import_module("algebranets.product.blocks.conv")  # because `blocks.conv` is the function

F64 = torch.float64
LOWERINGS = ["blocks", "parts", "bilinear"]
over_all = pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)


def lowerings_of(algebra):
    """The lowerings to test over an algebra. If it is stored in its own basis, `parts` calls `blocks`."""
    return LOWERINGS if algebra.change else ["blocks", "bilinear"]


def for_sequences(algebra):
    """The lowerings with functions of their own for recurrent layers over an algebra."""
    return ["blocks", "parts"] if algebra.change else ["blocks"]


def randn(*shape):
    return torch.randn(*shape, dtype=F64, requires_grad=True)


def weight(algebra, first, second, kernel=(), stacks=1):
    return randn(*product.weight_shape(algebra, first, second, kernel, stacks))


def assert_same(run, inputs, lowerings):
    """Check that ``run`` gives the outputs and gradients of all inputs of "reference" with each of the lowerings."""
    expected = results_of(run("reference"), inputs)
    for lowering in lowerings:
        results = results_of(run(lowering), inputs)
        assert results.keys() == expected.keys()
        for name, result in results.items():
            torch.testing.assert_close(
                result, expected[name], msg=lambda m, where=f"{lowering}, {name}": f"{where}: {m}"
            )


def results_of(outputs, inputs):
    """The outputs and the gradients of the inputs, by name. The gradient of an input without influence is zero."""
    outputs = outputs if isinstance(outputs, list) else [outputs]
    torch.manual_seed(7)
    loss = sum((y * torch.randn(y.shape, dtype=y.dtype)).sum() for y in outputs)
    grads = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
    return {
        **{f"output {n}": y for n, y in enumerate(outputs)},
        **{f"gradient of input {n}": grad for n, grad in enumerate(grads)},
    }


@over_all
@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("stacks", [1, 3])
def test_linear(algebra, batch, stacks):
    x, w, b = randn(*batch, 5 * algebra.dim), weight(algebra, 3, 5, stacks=stacks), randn(stacks * 3 * algebra.dim)
    for bias in (b, None):
        inputs = [x, w] if bias is None else [x, w, bias]

        def run(lowering, bias=bias):
            return product.linear(x, w, bias, algebra=algebra, lowering=lowering, stacks=stacks)

        assert_same(run, inputs, lowerings_of(algebra))


GEOMETRIES = {
    "plain": Geometry((1, 1), (0, 0), (1, 1)),
    "all": Geometry((2, 1), (1, 2), (1, 2)),
    "same": Geometry((1, 1), "same", (1, 2)),
    "groups": Geometry((1, 2), (1, 1), (1, 1), groups=2),
    "depthwise": Geometry((1, 1), (1, 1), (1, 1), groups=4),
    "transposed": Geometry((2, 1), (1, 0), (1, 2), transposed=True, output_padding=(1, 0)),
    "transposed groups": Geometry((2, 2), (0, 1), (1, 1), groups=2, transposed=True, output_padding=(0, 1)),
}


def is_convolved_often(algebra, geometry):
    """Select every geometry over M2R, H and C + M2R, and two geometries over other kinds of algebras."""
    of_all = algebra in (M2R, H, direct_sum(C, M2R))
    return of_all or (algebra in KINDS and geometry in ("all", "transposed groups"))


@pytest.mark.parametrize(
    ("algebra", "geometry"), thinned(((a, g) for a in ALGEBRAS for g in GEOMETRIES), is_convolved_often), ids=str
)
def test_conv2d(algebra, geometry):
    geometry = GEOMETRIES[geometry]
    num_in, num_out = 4, 8 // geometry.groups if geometry.groups == 2 else 4
    ends = (num_in, num_out) if geometry.transposed else (num_out, num_in)
    w = weight(algebra, ends[0], ends[1] // geometry.groups, (3, 2))
    x, b = randn(2, num_in * algebra.dim, 5, 6), randn(num_out * algebra.dim)
    channels_last = x.detach().to(memory_format=torch.channels_last).requires_grad_()
    for image, bias in ((x, b), (channels_last, None), (randn(0, *x.shape[1:]), b)):
        inputs = [image, w] if bias is None else [image, w, bias]

        def run(lowering, image=image, bias=bias):
            return product.conv(image, w, bias, geometry=geometry, algebra=algebra, lowering=lowering)

        assert_same(run, inputs, lowerings_of(algebra))


@pytest.mark.parametrize("algebra", [R, H, CROSS, direct_sum(C, M2R)], ids=str)
def test_over_an_algebra_that_is_stored_in_its_own_basis_parts_are_blocks(algebra):
    x, w = randn(3, 4 * algebra.dim), weight(algebra, 2, 4)
    image, kernel = randn(2, 4 * algebra.dim, 5, 6), weight(algebra, 2, 2, (3, 2))

    def run(lowering):
        y = product.linear(x, w, algebra=algebra, lowering=lowering)
        return y, product.conv(image, kernel, geometry=GEOMETRIES["groups"], algebra=algebra, lowering=lowering)

    assert all(map(torch.equal, run("parts"), run("blocks")))


@over_all
@pytest.mark.parametrize("kernel", [(3, 2), (1, 1)])
@pytest.mark.parametrize("geometry", [g for g in GEOMETRIES.values() if g.groups == 1], ids=str)
def test_copies_may_be_convolved_side_by_side(algebra, geometry, kernel, monkeypatch):
    """With few channels, a GPU convolves all copies at once, by a weight that has zeros between the copies."""
    folds = []
    monkeypatch.setattr(auto, "convolves_copies_at_once", lambda *_: True)
    monkeypatch.setattr(conv_module, "_fold", lambda x, num_copies: folds.append(num_copies) or x)
    x, w, b = randn(2, 3 * algebra.dim, 5, 6), weight(algebra, 3, 3, kernel), randn(3 * algebra.dim)

    def run(lowering):
        image = x.to(memory_format=torch.channels_last)
        return product.conv(image, w, b, geometry=geometry, algebra=algebra, lowering=lowering)

    assert_same(run, [x, w, b], ["blocks"])
    assert all(num_copies == 1 for num_copies in folds)


@over_all
@pytest.mark.parametrize("kernel", [(3, 2), (3, 3)])
@pytest.mark.parametrize("geometry", [g for g in GEOMETRIES.values() if g.groups == 1], ids=str)
def test_images_may_be_seen_with_other_numbers_of_channels(algebra, geometry, kernel, monkeypatch):
    """On a GPU, the copies in an image are more pixels of its rows, and zeros fill up the channels."""
    monkeypatch.setattr(auto, "_is_gpu_image", is_channels_last)
    monkeypatch.setattr(auto, "convolves_copies_at_once", lambda *_: False)
    monkeypatch.setattr(auto, "missing_channels", lambda x: -x.shape[1] % 8)
    x, w, b = randn(2, 3 * algebra.dim, 5, 6), weight(algebra, 3, 3, kernel), randn(3 * algebra.dim)

    def run(lowering):
        image = x.to(memory_format=torch.channels_last)
        return product.conv(image, w, b, geometry=geometry, algebra=algebra, lowering=lowering)

    assert_same(run, [x, w, b], ["blocks"])
    w = w.detach().to(memory_format=torch.channels_last).requires_grad_()
    assert_same(run, [x, w, b], ["blocks"])


@pytest.mark.parametrize("columns", [3, 5, 7])
def test_a_convolution_of_pairs_of_pixels_is_that_of_the_pixels(columns):
    x, w, b = randn(2, 3, 5, 6).to(memory_format=torch.channels_last), randn(4, 3, 2, columns), randn(4)
    geometry = Geometry((2, 1), (1, columns // 2), (2, 1))
    y = conv_module._conv_pairs(x, w, b, geometry)
    torch.testing.assert_close(y, geometry.convolve(x, w, b))
    grad = torch.randn_like(y)
    grads = (torch.autograd.grad(t, [w, b], grad) for t in (y, geometry.convolve(x, w, b)))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("algebra", [C, H, M2R], ids=str)
def test_compiled_narrow_convolutions_take_pairs_of_pixels(algebra, monkeypatch):
    pairs = []
    monkeypatch.setattr(auto, "_is_gpu_image", is_channels_last)
    monkeypatch.setattr(
        conv_module, "_conv_pairs", lambda *given, way=conv_module._conv_pairs: pairs.append(1) or way(*given)
    )
    x = torch.randn(2, 2 * algebra.dim, 5, 6).to(memory_format=torch.channels_last)
    w = torch.randn(product.weight_shape(algebra, 2, 2, (3, 3)), requires_grad=True)

    def run():
        with torch.autocast("cpu", torch.bfloat16):
            return product.conv(x, w, geometry=Geometry((1, 1), (1, 1), (1, 1)), algebra=algebra)

    torch._dynamo.reset()
    results = []
    for way in (run, torch.compile(run, backend="aot_eager")):
        y = way()
        results.append([y, *torch.autograd.grad(y.float().square().sum(), w)])
    assert pairs == [1]
    for ours, expected in zip(*results, strict=True):
        assert (ours - expected).norm() <= 0.02 * expected.norm()


@over_all
@pytest.mark.parametrize("num_axes", [1, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_conv_in_other_numbers_of_axes(algebra, num_axes, transposed):
    ones = (1,) * num_axes
    geometry = Geometry((2,) * num_axes, ones, ones, 1, transposed, ones if transposed else ())
    w = weight(algebra, *((2, 3) if transposed else (3, 2)), (3,) * num_axes)
    for batch in ((2,), ()):
        x, b = randn(*batch, 2 * algebra.dim, *[5, 4, 3][:num_axes]), randn(3 * algebra.dim)

        def run(lowering, x=x, b=b):
            return product.conv(x, w, b, geometry=geometry, algebra=algebra, lowering=lowering)

        assert_same(run, [x, w, b], lowerings_of(algebra))


@over_all
@pytest.mark.parametrize("transposed", [False, True])
def test_pointwise_conv_of_channels_last_images(algebra, transposed):
    geometry = Geometry((1, 1), (0, 0), (1, 1), 1, transposed, (0, 0) if transposed else ())
    w = weight(algebra, *((2, 3) if transposed else (3, 2)), (1, 1))
    x = torch.randn(2, 2 * algebra.dim, 3, 5, dtype=F64).to(memory_format=torch.channels_last).requires_grad_()
    b = randn(3 * algebra.dim)

    def run(lowering):
        return product.conv(x, w, b, geometry=geometry, algebra=algebra, lowering=lowering)

    assert_same(run, [x, w, b], lowerings_of(algebra))
    for lowering in lowerings_of(algebra):
        assert run(lowering).is_contiguous(memory_format=torch.channels_last)


def directions(algebra, mode, num, num_in, hidden, given=("b_ih", "b_hh"), projection=0):
    gates = MODES[mode].num_gates
    found = []
    for _ in range(num):
        biases = [randn(gates * hidden * algebra.dim) if name in given else None for name in ("b_ih", "b_hh")]
        w_hr = weight(algebra, projection, hidden) if projection else None
        w_ih = weight(algebra, hidden, num_in, stacks=gates)
        w_hh = weight(algebra, hidden, projection or hidden, stacks=gates)
        found.append(product.Direction(w_ih, w_hh, *biases, w_hr))
    return found


BIASES = [(1, ("b_ih", "b_hh")), (2, ("b_ih", "b_hh")), (2, ("b_ih",)), (1, ())]
#: Every kind of sequence is computed over these algebras.
OF_ALL_SEQUENCES = (M2R, H, direct_sum(C, M2R))
#: Over the other algebras, each mode meets each choice of biases once. Every other choice is that of packed sequences.
SEQUENCES = [
    (algebra, mode, packed, *bias)
    for algebra in ALGEBRAS
    for mode in MODES
    for packed in (False, True)
    for b, bias in enumerate(BIASES)
    if algebra in OF_ALL_SEQUENCES or packed == (b % 2 == 0)
]


def is_computed_often(algebra, mode, packed, num, given):
    """Select every kind of sequence over some algebras, and two kinds over other kinds of algebras."""
    return algebra in OF_ALL_SEQUENCES or (algebra in KINDS and (mode, packed, num, given) in SEQUENCE_KINDS)


SEQUENCE_KINDS = [("GRU", False, *BIASES[1]), ("LSTM", True, *BIASES[0])]


@pytest.mark.parametrize(("algebra", "mode", "packed", "num", "given"), thinned(SEQUENCES, is_computed_often), ids=str)
def test_recurrent(algebra, mode, packed, num, given):
    hidden, projection = 3, 2 if mode == "LSTM" and num == 1 else 0
    layers = directions(algebra, mode, num, 2, hidden, given, projection)
    sizes = [projection or hidden, hidden][: MODES[mode].num_states]
    state = tuple(randn(num, 3, size * algebra.dim) for size in sizes)
    batch_sizes = torch.tensor([3, 2, 2, 1]) if packed else None
    x = randn(8, 2 * algebra.dim) if packed else randn(4, 3, 2 * algebra.dim)
    parameters = [p for layer in layers for p in layer if p is not None]

    def run(lowering):
        y, final = product.recurrent(
            mode, x, state, layers, algebra=algebra, lowering=lowering, batch_sizes=batch_sizes
        )
        return [y, *final]

    assert_same(run, [x, *state, *parameters], for_sequences(algebra))


def test_steps_are_not_taken_in_graphs_or_under_autocast_and_may_have_no_rows():
    """A graph of steps would be right for one length only, and torch's kernel gives float32 under autocast."""
    algebra = clifford(2, 0)
    layers = [
        product.Direction(*(w.detach().float() for w in layer[:4])) for layer in directions(algebra, "GRU", 2, 2, 3)
    ]

    def run(x, lowering="parts"):
        zeros = x.new_zeros(2, x.shape[1], 12)
        return product.recurrent("GRU", x, (zeros,), layers, algebra=algebra, lowering=lowering)[0]

    assert run(torch.randn(4, 0, 8)).shape == (4, 0, 24)
    traced, longer = torch.jit.trace(run, torch.randn(4, 3, 8)), torch.randn(7, 2, 8)
    torch.testing.assert_close(traced(longer), run(longer, "reference"))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(run(longer), run(longer, "blocks"))


@pytest.mark.parametrize("algebra", [C, M2R, direct_sum(C, M2R), clifford(2, 0)], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_directions_may_differ_in_the_biases_they_have(algebra, mode):
    layers = [directions(algebra, mode, 1, 2, 3, given)[0] for given in (("b_hh",), ("b_ih",))]
    x, state = randn(4, 3, 2 * algebra.dim), tuple(randn(2, 3, 3 * algebra.dim) for _ in range(MODES[mode].num_states))

    def run(lowering):
        y, final = product.recurrent(mode, x, state, layers, algebra=algebra, lowering=lowering)
        return [y, *final]

    parameters = [p for layer in layers for p in layer if p is not None]
    assert_same(run, [x, *state, *parameters], for_sequences(algebra))


@pytest.mark.parametrize(
    ("algebra", "lowering"),
    thinned(
        ((a, way) for a in (C, H, M2R, M2C, DUAL, CROSS, diagonal(3), SPLIT_QUATERNIONS) for way in lowerings_of(a)),
        lambda algebra, _: algebra in (C, M2R, CROSS, SPLIT_QUATERNIONS),
    ),
    ids=str,
)
def test_first_and_second_derivatives_are_those_of_differences(algebra, lowering):
    x, w, b = randn(2, 2 * algebra.dim), weight(algebra, 1, 2), randn(algebra.dim)

    def linear(x, w, b):
        return product.linear(x, w, b, algebra=algebra, lowering=lowering)

    assert gradcheck(linear, (x, w, b))
    assert gradgradcheck(linear, (x, w, b))
    image, kernel = randn(1, 2 * algebra.dim, 3, 2), weight(algebra, 1, 2, (2, 2))

    def conv(x, w, b):
        return product.conv(x, w, b, geometry=GEOMETRIES["plain"], algebra=algebra, lowering=lowering)

    assert gradcheck(conv, (image, kernel, b))
    assert gradgradcheck(conv, (image, kernel, b))


def test_bilinear_sends_sequences_through_blocks():
    assert product.bilinear.recurrent is product.blocks.recurrent


@pytest.mark.parametrize("algebra", [C, H, M2R, M3R, M4R, M2C, DUAL, CROSS, clifford(1, 1, 1)], ids=str)
def test_a_bilinear_product_rounds_in_bfloat16_as_much_as_its_algorithm_says(algebra):
    x = torch.randn(256, 16 * algebra.dim).bfloat16()
    w = torch.randn(product.weight_shape(algebra, 16, 16)).bfloat16()
    exact = product.linear(x.double(), w.double(), algebra=algebra, lowering="reference")
    errors = {
        lowering: (product.linear(x, w, algebra=algebra, lowering=lowering).double() - exact).norm()
        for lowering in ("blocks", "bilinear")
    }
    assert float(errors["bilinear"] / errors["blocks"]) == pytest.approx(algebra.bilinear.half_growth, rel=0.15)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("algebra", [C, H, M2R], ids=str)
def test_a_bilinear_product_in_float16_does_not_overflow_where_blocks_do_not(algebra, autocast):
    dtype = torch.float32 if autocast else torch.float16
    x, unit = torch.full((3, algebra.dim, 2, 2), 4e4, dtype=dtype), torch.tensor(algebra.unit, dtype=dtype)
    w = product.weight_from_tuples(0.5 * unit.reshape(-1, 1, 1), algebra)
    with torch.autocast("cpu", torch.float16, enabled=autocast):
        y = product.linear(x.movedim(1, -1), w, algebra=algebra, lowering="bilinear")
        z = product.conv(
            x, w[..., None, None], algebra=algebra, lowering="bilinear", geometry=Geometry((1, 1), (0, 0), (1, 1))
        )
    assert y.dtype == z.dtype == torch.float16
    assert y.unique().tolist() == z.unique().tolist() == [2e4]


def test_a_recurrent_layer_passes_gradcheck():
    for mode in MODES:
        layers = directions(M2R, mode, 1, 1, 1)
        x, state = randn(2, 1, 4), tuple(randn(1, 1, 4) for _ in range(MODES[mode].num_states))

        def run(x, *rest, mode=mode):
            count = MODES[mode].num_states
            return product.recurrent(mode, x, rest[:count], [product.Direction(*rest[count:])], algebra=M2R)[0]

        assert gradcheck(run, (x, *state, *[p for p in layers[0] if p is not None]))


@pytest.mark.parametrize(
    ("algebra", "lowering"),
    [(a, lowering) for a in (*CATALOGUE.values(), SPLIT_QUATERNIONS) for lowering in lowerings_of(a)],
    ids=str,
)
@settings(max_examples=10, deadline=None)
@given(
    scale=st.floats(-3, 3),
    other=st.floats(-3, 3),
    seed=st.integers(0, 2**31),
    num_in=st.integers(1, 4),
    num_out=st.integers(1, 4),
)
def test_the_product_is_bilinear_and_distributes_over_sums(algebra, lowering, scale, other, seed, num_in, num_out):
    torch.manual_seed(seed)
    x, y = torch.randn(2, 3, num_in * algebra.dim, dtype=F64)
    v, w = torch.randn(2, *product.weight_shape(algebra, num_out, num_in), dtype=F64)

    def times(w, x):
        return product.linear(x, w, algebra=algebra, lowering=lowering)

    torch.testing.assert_close(times(w, scale * x + other * y), scale * times(w, x) + other * times(w, y))
    torch.testing.assert_close(times(scale * v + other * w, x), scale * times(v, x) + other * times(w, x))


# The product by other definitions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lowering", ["reference", *LOWERINGS])
def test_over_c_it_is_torchs_complex_product(lowering):
    x, w, b = randn(5, 6), weight(C, 4, 3), randn(8)

    def as_complex(t):
        return torch.complex(t[0], t[1])

    y = product.linear(x, w, b, algebra=C, lowering=lowering)
    weights = product.weight_tuples(w, C)
    expected = nn.functional.linear(*(as_complex(t) for t in (tuples(x, C).transpose(0, 1), weights, b.view(2, 4))))
    torch.testing.assert_close(as_complex(tuples(y, C).transpose(0, 1)), expected)
    image, kernel = randn(2, 12, 5, 6), weight(C, 4, 3, (3, 2))
    geometry = Geometry((2, 1), (1, 0), (1, 2), groups=2)
    y = product.conv(image, kernel, b, geometry=geometry, algebra=C, lowering=lowering)
    z = as_complex(tuples(image, C, dim=1).transpose(0, 1))
    kernels = as_complex(product.weight_tuples(kernel, C))
    expected = nn.functional.conv2d(z, kernels, as_complex(b.view(2, 4)), (2, 1), (1, 0), (1, 2), 2)
    torch.testing.assert_close(as_complex(tuples(y, C, dim=1).transpose(0, 1)), expected)


@pytest.mark.parametrize("lowering", ["reference", *LOWERINGS])
@pytest.mark.parametrize(("algebra", "n"), [(M2R, 2), (M3R, 3), (M4R, 4)], ids=str)
def test_over_matrices_it_is_the_matrix_product(algebra, n, lowering):
    x, w = randn(5, 3 * n * n), weight(algebra, 2, 3)
    y = tuples(product.linear(x, w, algebra=algebra, lowering=lowering), algebra)
    matrices = tuples(x, algebra).unflatten(1, (n, n))  # (batch, row, column, tuple)
    weights = product.weight_tuples(w, algebra).unflatten(0, (n, n))
    torch.testing.assert_close(y.unflatten(1, (n, n)), torch.einsum("pqoi,bqri->bpro", weights, matrices))


@pytest.mark.parametrize("lowering", ["reference", *LOWERINGS])
def test_over_h_it_is_the_hamilton_product(lowering):
    x, w = randn(4), weight(H, 1, 1)
    a1, b1, c1, d1 = w.flatten()
    a2, b2, c2, d2 = x
    expected = torch.stack([
        a1 * a2 - b1 * b2 - c1 * c2 - d1 * d2,
        a1 * b2 + b1 * a2 + c1 * d2 - d1 * c2,
        a1 * c2 - b1 * d2 + c1 * a2 + d1 * b2,
        a1 * d2 + b1 * c2 - c1 * b2 + d1 * a2,
    ])  # fmt: skip
    torch.testing.assert_close(product.linear(x, w, algebra=H, lowering=lowering), expected)


def test_over_cross_it_is_torchs_cross_product():
    x, w = randn(3), weight(CROSS, 1, 1)
    torch.testing.assert_close(product.linear(x, w, algebra=CROSS), torch.linalg.cross(w.flatten(), x))


@over_all
@pytest.mark.parametrize("groups", [2, 4])
def test_an_output_tuple_depends_on_exactly_the_inputs_of_its_group(algebra, groups):
    x, w = randn(1, 4 * algebra.dim, 1, 1), weight(algebra, 4, 4 // groups, (1, 1))
    geometry = Geometry((1, 1), (0, 0), (1, 1), groups=groups)
    jacobian = torch.autograd.functional.jacobian(
        lambda x: product.conv(x, w, geometry=geometry, algebra=algebra).flatten(), x
    ).reshape(4 * algebra.dim, 4 * algebra.dim)
    by_tuple = tuples(tuples(jacobian, algebra, dim=0), algebra, dim=2).abs().sum((0, 2))  # (out tuple, in tuple)
    same_group = torch.arange(4)[:, None] // (4 // groups) == torch.arange(4)[None, :] // (4 // groups)
    assert torch.equal(by_tuple > 0, same_group)


# How it is computed --------------------------------------------------------------------------------------------------


class Copies(TorchDispatchMode):
    """Records the operations that allocate a tensor of at least ``numel`` numbers."""

    def __init__(self, numel):
        super().__init__()
        self.numel, self.made = numel, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        inputs = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        made = isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() not in inputs
        if made and out.numel() >= self.numel:
            self.made.append(func.__name__)
        return out


@pytest.mark.parametrize("algebra", [R, M2R, M3R, M4R, M2C], ids=str)
def test_matrix_algebras_multiply_contiguous_activations_without_a_copy(algebra):
    features = 4 * algebra.dim
    x, w = torch.randn(64, 16, features), torch.randn(product.weight_shape(algebra, 4, 4))
    with Copies(x.numel()) as copies:
        product.linear(x, w, algebra=algebra)
    assert copies.made == ["mm.default"]
    image, kernel = torch.randn(16, features, 8, 8), torch.randn(product.weight_shape(algebra, 4, 4, (3, 3)))
    with Copies(image.numel()) as copies:
        product.conv(image, kernel, geometry=Geometry((1, 1), (1, 1), (1, 1)), algebra=algebra)
    assert copies.made == ["convolution.default"]
    image = image.to(memory_format=torch.channels_last)
    kernel = torch.randn(product.weight_shape(algebra, 4, 4, (1, 1)))
    with Copies(image.numel()) as copies:
        product.conv(image, kernel, geometry=GEOMETRIES["plain"], algebra=algebra)
    assert copies.made == ["mm.default"]


def test_the_profiler_sees_one_matrix_product_and_nothing_else_on_the_activations():
    x, w = torch.randn(512, 1024), torch.randn(product.weight_shape(M2R, 256, 256))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as run:
        product.linear(x, w, algebra=M2R)
    views = {"aten::reshape", "aten::view", "aten::split_with_sizes", "aten::transpose", "aten::t", "aten::as_strided",
             "aten::linear", "aten::matmul", "aten::narrow", "aten::slice", "aten::split", "aten::_unsafe_view",
             "aten::_reshape_alias", "aten::resolve_conj"}  # fmt: skip
    work = [event.key for event in run.key_averages() if event.key not in views]
    assert work == ["aten::mm"]
    (product_event,) = [event for event in run.key_averages(group_by_input_shape=True) if event.key == "aten::mm"]
    assert product_event.count == 1
    assert product_event.input_shapes[:2] == [[1024, 512], [512, 512]]  # twice the rows, half the width


def assert_does_exactly_the_tables_multiplies(algebra, lowering):
    x, w = torch.randn(7, 5 * algebra.dim), torch.randn(product.weight_shape(algebra, 3, 5))
    image, kernel = torch.randn(2, 5 * algebra.dim, 6, 6), torch.randn(product.weight_shape(algebra, 3, 5, (3, 3)))
    with FlopCounterMode(display=False) as counter:
        product.linear(x, w, algebra=algebra, lowering=lowering)
    assert counter.get_total_flops() == 2 * algebra.multiplies * 7 * 3 * 5
    with FlopCounterMode(display=False) as counter:
        product.conv(image, kernel, geometry=GEOMETRIES["plain"], algebra=algebra, lowering=lowering)
    assert counter.get_total_flops() == 2 * algebra.multiplies * 2 * 16 * 3 * 5 * 9


@over_all
def test_the_reference_does_exactly_the_tables_multiplies(algebra):
    assert_does_exactly_the_tables_multiplies(algebra, "reference")


@pytest.mark.parametrize("algebra", [R, M2R, M3R, M4R, M2C, C, H, diagonal(4)], ids=str)
def test_blocks_do_exactly_the_papers_multiplies(algebra):
    assert_does_exactly_the_tables_multiplies(algebra, "blocks")


def test_zeros_are_skipped_in_a_component_that_is_always_zero(monkeypatch):
    """No product of this algebra has a third component, so there is nothing to multiply by for it."""
    monkeypatch.setattr(auto, "CPU", Cpu(skipped_zeros=0))
    algebra = Algebra.from_products("flat", {(0, 0): {0: 1}, (0, 1): {1: 1}, (1, 1): {0: -1}}, 3)
    x, w, b = randn(2, 9, 5), weight(algebra, 2, 3, (3,)), randn(6)
    geometry = Geometry((1,), (1,), (1,), 1)

    def conv(lowering):
        return product.conv(x, w, b, geometry=geometry, algebra=algebra, lowering=lowering)

    assert_same(conv, [x, w, b], ["blocks"])


def test_large_layers_over_dual_and_cross_skip_their_zeros(monkeypatch):
    for algebra, done in ((DUAL, 3), (CROSS, 7)):  # of 4 and of 9; the paper's cross product has 6
        for skip_from, expected in ((1, done), (10**9, algebra.dim**2)):
            monkeypatch.setattr(auto, "CPU", Cpu(skipped_zeros=skip_from))
            x, w = randn(3, 5 * algebra.dim), weight(algebra, 2, 5)
            image, kernel = randn(2, 5 * algebra.dim, 4, 4), weight(algebra, 2, 5, (3, 3))
            with FlopCounterMode(display=False) as counter:
                product.linear(x, w, algebra=algebra)
            assert counter.get_total_flops() == 2 * expected * 3 * 2 * 5
            b = randn(2 * algebra.dim)

            def linear(lowering, algebra=algebra, x=x, w=w, b=b):
                return product.linear(x, w, b, algebra=algebra, lowering=lowering)

            def conv(lowering, algebra=algebra, image=image, kernel=kernel, b=b):
                return product.conv(image, kernel, b, geometry=GEOMETRIES["all"], algebra=algebra, lowering=lowering)

            assert_same(linear, [x, w, b], ["blocks"])
            assert_same(conv, [image, kernel, b], ["blocks"])


# Layout --------------------------------------------------------------------------------------------------------------


@over_all
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("stacks", [1, 3])
def test_weights_go_to_tuples_and_back(algebra, transposed, stacks):
    w = weight(algebra, 2, 3, (2,), stacks)
    t = product.weight_tuples(w, algebra, transposed, stacks)
    assert t.shape == (algebra.dim, stacks * 2, 3, 2)
    back = product.weight_from_tuples(t, algebra, transposed, stacks)
    torch.testing.assert_close(back, w, rtol=0, atol=0 if algebra.change is None else 1e-14)


@over_all
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("stacks", [1, 3])
def test_masks_go_to_stored_tuples_and_back(algebra, transposed, stacks):
    """Numbers are moved, not computed with. Zero tuples are zero in both bases."""
    w = torch.arange(prod(product.weight_shape(algebra, 2, 3, (2,), stacks))).reshape(
        product.weight_shape(algebra, 2, 3, (2,), stacks)
    )
    t = product.stored_tuples(w, algebra, transposed, stacks)
    assert t.shape == (algebra.dim, stacks * 2, 3, 2)
    assert torch.equal(product.weight_from_stored_tuples(t, algebra, transposed, stacks), w)
    thin = t.double() * (torch.arange(prod(t.shape[1:])).view(t.shape[1:]) % 3 == 0)
    w = product.weight_from_stored_tuples(thin, algebra, transposed, stacks)
    assert torch.equal(product.weight_tuples(w, algebra, transposed, stacks).any(0), thin.any(0))


def test_whole_numbers_are_refused_where_storing_them_would_round():
    w = torch.ones(product.weight_shape(clifford(2, 0), 2, 3), dtype=torch.int64)
    with pytest.raises(
        ValueError, match=r"clifford\(2,0,0\) are stored in another basis.* floating-point.*stored_tuples"
    ):
        product.weight_tuples(w, clifford(2, 0))
    with pytest.raises(ValueError, match="floating-point"):
        product.weight_from_tuples(torch.ones(4, 2, 3, dtype=torch.bool), clifford(2, 0))


@over_all
def test_weights_are_stored_by_an_isomorphism(algebra):
    """The product of stored tuples is that of the tuples."""
    a, b = (weight(algebra, 1, 1) for _ in range(2))
    x = from_tuples(product.weight_tuples(b, algebra)[:, 0], algebra)
    there = from_tuples(product.stored_tuples(b, algebra)[:, 0], algebra.stored)
    y = product.linear(x, a, algebra=algebra, lowering="reference")
    z = product.linear(there, a, algebra=algebra.stored, lowering="reference")
    expected = product.weight_from_tuples(tuples(y, algebra)[:, None], algebra)
    torch.testing.assert_close(product.stored_tuples(expected, algebra)[:, 0], tuples(z, algebra.stored))


@over_all
def test_activations_go_to_tuples_and_back(algebra):
    x = torch.randn(2, 3 * algebra.dim, 5)
    t = tuples(x, algebra, dim=1)
    assert t.shape == (2, algebra.dim, 3, 5)
    assert torch.equal(from_tuples(t, algebra, dim=1), x)
    assert torch.equal(t[:, algebra.order[0]], x[:, :3])
    if algebra.order == tuple(range(algebra.dim)):
        assert t.data_ptr() == x.data_ptr()


# Errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["H", "M2R", "quaternions", "octonion", "Cl(1,1)", "dual", "diagonal(3)"])
def test_functions_take_the_name_of_an_algebra(name):
    algebra = get(name)
    x, hidden = randn(5, 3 * algebra.dim), randn(1, 5, 2 * algebra.dim)
    w, v = weight(algebra, 2, 3), weight(algebra, 2, 2)
    kernel, images = weight(algebra, 2, 3, (3, 3)), randn(2, 3 * algebra.dim, 5, 4)

    def all_of(over):
        split = tuples(x, over)
        y, (state,) = product.recurrent(
            "RNN_TANH", x[None], (hidden,), [product.Direction(w, v, None, None)], algebra=over
        )
        return [
            split,
            from_tuples(split, over),
            product.linear(x, w, algebra=over),
            product.conv(images, kernel, geometry=GEOMETRIES["plain"], algebra=over),
            y,
            state,
            product.weight_tuples(w, over),
            product.weight_from_tuples(product.weight_tuples(w, over), over),
            product.real_weight(w, over),
        ]

    for ours, expected in zip(all_of(name), all_of(algebra), strict=True):
        assert torch.equal(ours, expected)
    assert product.weight_shape(name, 2, 3) == tuple(w.shape)
    assert product.num_tuples(w, name) == (2, 3)
    assert product.whole_tuples(3 * algebra.dim, name, "size") == 3
    assert product.tuples_per_head(6 * algebra.dim, 2, name) == 3
    assert product.tuple_axis(x, name, -1) == 1
    assert fans(w, name) == fans(w, algebra)


@pytest.mark.parametrize("name", ["H", "quaternions", "C*C"])
def test_functions_with_the_name_of_an_algebra_are_one_graph(name):
    """torch.compile cannot make an algebra such as C*C from its name, but finds it if `get` has made it before."""
    algebra = get(name)
    x, w = randn(5, 3 * algebra.dim), weight(algebra, 2, 3)

    def run(x, w):
        return from_tuples(tuples(x, name), name), product.linear(x, w, algebra=name)

    compiled = torch.compile(run, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, w), run(x, w))


def test_bad_input_says_what_must_hold():
    x, w = torch.randn(2, 12), torch.randn(product.weight_shape(H, 2, 3))
    with pytest.raises(ValueError, match=r"must hold 12 features \(3 H tuples\); got shape \(2, 8\)"):
        product.linear(x[:, :8], w, algebra=H)
    with pytest.raises(ValueError, match=r"the bias must hold 8 numbers, one per output component; got shape \(2,\)"):
        product.linear(x, w, torch.randn(2), algebra=H)
    with pytest.raises(ValueError, match="one of auto, blocks, parts, bilinear, kernels, reference; got 'fast'"):
        product.linear(x, w, algebra=H, lowering="fast")
    with pytest.raises(
        ValueError, match=r"a weight over H must be stored.*multiple of 4 and its second of 1.*\(6, 3\)"
    ):
        product.linear(x, torch.randn(6, 3), algebra=H)
    with pytest.raises(ValueError, match=r"a weight over M2R must be stored.*multiple of 6 and its second of 2"):
        product.linear(x, torch.randn(8, 6), algebra=M2R, stacks=3)
    kernel = torch.randn(product.weight_shape(H, 2, 3, (3, 3)))
    with pytest.raises(ValueError, match=r"12 channels, 2 spatial axes.*got shape \(1, 8, 5, 5\)"):
        product.conv(torch.randn(1, 8, 5, 5), kernel, geometry=GEOMETRIES["plain"], algebra=H)
    with pytest.raises(ValueError, match=r"axis 1 is 10, which does not hold whole H tuples.*such as 8 or 12"):
        tuples(torch.randn(2, 10), H)
    with pytest.raises(ValueError, match="axis 1 must hold the 4 components of H"):
        from_tuples(torch.randn(2, 3, 5), H, dim=1)
