"""The choice of a lowering: by name, or for "auto" by `product.auto`."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from algebranets import M2R, C, H, R, diagonal, product
from algebranets.algebra import CATALOGUE, clifford, get
from algebranets.product import Geometry, auto
from algebranets.product.activation import ACTIVATIONS
from algebranets.product.cells import MODES, Direction
from algebranets.product.thresholds import CPU, GPU
from conftest import thinned

DEPTHWISE, FULL = Geometry((1, 1), (1, 1), (1, 1), groups=2), Geometry((1, 1), (1, 1), (1, 1))
LOWERINGS = ["auto", "blocks", "bilinear", "kernels", "reference"]


@pytest.fixture
def usable(monkeypatch):
    """Let kernels run on a CPU, in triton's interpreter."""
    pytest.importorskip("triton")
    monkeypatch.setattr("algebranets.ops.device.is_usable", lambda _: True)


def weight(algebra, first, second, kernel=(), stacks=1, dtype=torch.float32, device=None):
    return torch.randn(product.weight_shape(algebra, first, second, kernel, stacks), dtype=dtype, device=device)


def cell(algebra, batch=2, time=1, dtype=torch.float32):
    """Return the input, state and weights of a GRU with three tuples in and two out."""
    gates = MODES["GRU"].num_gates
    x, h = (torch.randn(n, batch, f * algebra.dim, dtype=dtype) for n, f in ((time, 3), (1, 2)))
    w_ih, w_hh = (weight(algebra, 2, n, stacks=gates, dtype=dtype) for n in (3, 2))
    return x, (h,), [Direction(w_ih, w_hh, *torch.randn(2, gates * 2 * algebra.dim, dtype=dtype))]


def for_linear(algebra, rows, num_in=4, num_out=4, dtype=torch.float32, grad=False, device="meta"):
    """Return the lowering that is chosen for a layer with this many tuples. Nothing is computed."""
    x = torch.empty(rows, num_in * algebra.dim, dtype=dtype, device=device)
    w = torch.empty(product.weight_shape(algebra, num_out, num_in), dtype=dtype, device=device, requires_grad=grad)
    return auto.linear(x, w, algebra, num_in, num_out)


class Operators(TorchDispatchMode):
    """Records the names of our operators that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "algebranets":
            self.names.append(func._opname)
        return func(*args, **kwargs or {})


def operators(run):
    with Operators() as seen, torch.no_grad():
        run()
    return seen.names


# By name --------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize("algebra", thinned([(M2R,), (H,)], lambda algebra: algebra == M2R), ids=str)
def test_kernels_are_reached_by_name_and_by_auto_and_compute_the_reference(algebra):
    x, w, b = torch.randn(2, 3 * algebra.dim), weight(algebra, 2, 3), torch.randn(2 * algebra.dim)
    image, taps = torch.randn(1, 2 * algebra.dim, 3, 4), weight(algebra, 2, 1, (3, 3))
    gru = cell(algebra)
    runs = {
        "decode_linear": lambda way: product.linear(x, w, b, algebra=algebra, lowering=way),
        "depthwise": lambda way: product.conv(image, taps, b, geometry=DEPTHWISE, algebra=algebra, lowering=way),
        "decode_step": lambda way: product.recurrent("GRU", *gru, algebra=algebra, lowering=way),
    }
    for name, run in runs.items():
        for way in ("kernels", "auto"):
            assert operators(lambda run=run, way=way: run(way)) == [name]
            with torch.no_grad():
                torch.testing.assert_close(run(way), run("reference"))
        assert name not in operators(lambda run=run: run("blocks"))


@pytest.mark.usefixtures("usable")
def test_what_kernels_are_not_for_goes_through_blocks():
    image, taps, gru = torch.randn(1, 8, 3, 4), weight(H, 2, 2, (3, 3)), cell(H, time=3)
    for run in (
        lambda way: product.conv(image, taps, geometry=FULL, algebra=H, lowering=way),
        lambda way: product.recurrent("GRU", *gru, algebra=H, lowering=way),
    ):
        assert not {"depthwise", "decode_linear", "decode_step"} & {*operators(lambda run=run: run("kernels"))}
        torch.testing.assert_close(run("kernels"), run("reference"))


def test_kernels_on_a_cpu_are_refused():
    message = r"lowering 'kernels' needs triton and a CUDA device; got a tensor on cpu. .*lowering='auto'"
    with pytest.raises(ValueError, match=message):
        product.linear(torch.randn(2, 8), weight(H, 2, 2), algebra=H, lowering="kernels")
    with pytest.raises(ValueError, match=message):
        product.conv(
            torch.randn(1, 8, 3, 4), weight(H, 2, 1, (3, 3)), geometry=DEPTHWISE, algebra=H, lowering="kernels"
        )
    with pytest.raises(ValueError, match=message):
        product.recurrent("GRU", *cell(H), algebra=H, lowering="kernels")


# By choice ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)
def test_a_cpu_takes_blocks(algebra):
    for rows, width in ((1, 4), (4096, 1024)):
        assert for_linear(algebra, rows, width, width, device="cpu") == "blocks"
    with torch.no_grad():
        assert for_linear(algebra, 1, device="cpu") == "blocks"
    image, taps = torch.randn(1, 2 * algebra.dim, 3, 4), weight(algebra, 2, 1, (3, 3))
    assert auto.conv(image, taps, algebra, DEPTHWISE) == "blocks"
    x, _, directions = cell(algebra)
    assert auto.recurrent("GRU", x, directions, algebra, None) == "blocks"


def test_a_cpu_takes_parts_for_convolutions_that_save_enough_multiplies():
    algebra = clifford(2, 0)
    depthwise, image = Geometry((1, 1), (1, 1), (1, 1), groups=16), torch.randn(1, 64, 3, 4)
    assert auto.conv(image, weight(algebra, 16, 16, (3, 3)), algebra, FULL) == "parts"
    assert auto.conv(image, weight(algebra, 16, 16, (1, 1)), algebra, FULL) == "blocks"
    assert auto.conv(image, weight(algebra, 16, 1, (3, 3)), algebra, depthwise) == "blocks"


def test_a_cpu_takes_parts_for_large_recurrent_layers():
    algebra, num = clifford(2, 0), CPU.step_features // 4

    def chosen(num_hidden):
        with torch.device("meta"):
            w_ih, w_hh = (weight(algebra, 3 * num_hidden, n) for n in (2, num_hidden))
        return auto.recurrent("GRU", torch.randn(5, 1, 8), [Direction(w_ih, w_hh, None, None)], algebra)

    assert chosen(num) == "parts"
    assert chosen(num - 1) == "blocks"


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize("algebra", [C, M2R, H, diagonal(4)], ids=str)
def test_few_rows_without_gradients_take_a_kernel(algebra):
    few = GPU.decode_folded_rows // algebra.blocks[0].num_copies if algebra.folded else GPU.decode_rows
    assert for_linear(algebra, 1) == "kernels"
    assert for_linear(algebra, few) == "kernels"
    assert for_linear(algebra, few + 1) == "blocks"
    assert for_linear(algebra, 1, grad=True) == "blocks"
    assert for_linear(algebra, 1, dtype=torch.float64) == "blocks"
    with torch.no_grad():
        assert for_linear(algebra, 1, grad=True) == "kernels"
    assert for_linear(R, 1) == "blocks"  # its weights are no smaller


@pytest.mark.usefixtures("usable")
def test_tensor_cores_take_more_rows():
    half, most = {"dtype": torch.bfloat16}, GPU.decode_rows_half
    for algebra in (C, M2R):
        assert for_linear(algebra, most, **half) == "kernels"
        assert for_linear(algebra, most + 1, **half) == "blocks"
    # Large folded weights are multiplied by fewer rows.
    wide = GPU.decode_folded_multiplies // (2 * most) // M2R.dim
    assert for_linear(M2R, most, wide, 1, **half) == "kernels"
    assert for_linear(M2R, most, wide + 1, 1, **half) == "blocks"
    few = GPU.decode_folded_rows_half // 2
    assert for_linear(M2R, few, 64 * wide, 1, **half) == "kernels"
    assert for_linear(M2R, few + 1, 64 * wide, 1, **half) == "blocks"


@pytest.mark.usefixtures("usable")
def test_tensor_cores_take_more_components_in_small_blocks():
    half, most = {"dtype": torch.bfloat16}, GPU.decode_rows_half
    assert for_linear(get("M4C"), most, **half) == "kernels"
    assert for_linear(diagonal(GPU.decode_dim_half + 1), 1, **half) == "blocks"
    assert for_linear(get("M4C"), 1) == "blocks"
    m2h, projective = get("M2H"), clifford(3, 0, 1)  # in which one block has 16 rows
    assert m2h.dim == projective.dim == GPU.decode_dim_one_row
    assert for_linear(m2h, most, **half) == for_linear(m2h, 1) == "kernels"
    assert for_linear(m2h, 2) == "blocks"
    assert for_linear(projective, 1, **half) == "kernels"
    assert for_linear(projective, 2, **half) == "blocks"


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize(
    ("algebra", "rows", "num", "ways"),
    [
        (clifford(2, 0), 32, 2048, ["decode_linear"]),
        (clifford(2, 0), 33, 2048, ["combine", "combine"]),  # M2(R) through blocks
        (clifford(3, 0), 16, 1024, ["decode_linear"]),
        (clifford(3, 0), 17, 1024, ["combine", "decode_linear", "combine"]),
        (clifford(1, 3), 1, 64, ["decode_linear"]),
        (clifford(1, 3), 2, 64, ["combine", "decode_linear", "combine"]),
        (clifford(4, 1), 1, 64, ["combine", "decode_linear", "combine"]),
    ],
)
def test_bases_change_in_registers_if_there_is_little_work(algebra, rows, num, ways):
    """Width 8192, and smaller over algebras with many components."""
    x = torch.empty(rows, num * algebra.dim, dtype=torch.bfloat16, device="meta")
    w = weight(algebra, num, num, dtype=torch.bfloat16, device="meta")
    assert operators(lambda: product.linear(x, w, algebra=algebra)) == ways


@pytest.mark.usefixtures("usable")
def test_fewer_multiplies_are_for_many_tuples_and_rows():
    many = {"rows": 8192, "num_in": 2048, "num_out": 2048}
    for grad in (False, True):
        assert for_linear(H, **many, grad=grad) == "bilinear"
        assert for_linear(H, **many, dtype=torch.bfloat16, grad=grad) == "bilinear"
    assert for_linear(H, **{**many, "rows": GPU.bilinear_rows}) == "bilinear"
    assert for_linear(H, **{**many, "rows": GPU.bilinear_rows - 1}) == "blocks"
    assert for_linear(H, **{**many, "num_in": 16}) == "blocks"
    # Where multiplies are cheap, more of them must be saved.
    between = {"rows": 8192, "num_in": 256, "num_out": 256}
    assert for_linear(H, **between) == "bilinear"
    assert for_linear(H, **between, dtype=torch.bfloat16) == "blocks"
    for algebra in CATALOGUE.values():
        saves = algebra.bilinear.rank < sum(block.num_copies * block.size**2 for block in algebra.blocks)
        for dtype, growth in (
            (torch.float32, algebra.bilinear.growth),
            (torch.bfloat16, algebra.bilinear.half_growth),
        ):
            taken = saves and growth <= (GPU.max_growth_half if dtype == torch.bfloat16 else GPU.max_growth)
            assert (for_linear(algebra, **many, dtype=dtype) == "bilinear") == taken
        assert for_linear(algebra, **many, dtype=torch.float16) == "blocks"  # combinations would overflow
    assert for_linear(M2R, **many) == "blocks"  # Strassen's errors grow


@pytest.mark.usefixtures("usable")
def test_depthwise_convolutions_take_a_kernel():
    for algebra in (R, M2R, H):
        image, taps = torch.randn(1, 2 * algebra.dim, 3, 4), weight(algebra, 2, 1, (3, 3))
        for grad in (False, True):
            assert auto.conv(image, taps.requires_grad_(grad), algebra, DEPTHWISE) == "kernels"
        assert auto.conv(image, weight(algebra, 2, 2, (3, 3)), algebra, FULL) == "blocks"


@pytest.mark.usefixtures("usable")
def test_single_steps_without_gradients_take_a_kernel():
    x, _, (direction,) = cell(H)
    assert auto.recurrent("GRU", x, [direction], H, None) == "kernels"
    assert auto.recurrent("GRU", x, [direction, direction], H, None) == "blocks"
    assert auto.recurrent("GRU", x.repeat(2, 1, 1), [direction], H, None) == "blocks"
    assert auto.recurrent("GRU", x[0], [direction], H, torch.tensor([2])) == "blocks"
    assert auto.recurrent("GRU", x.repeat(1, GPU.decode_rows, 1), [direction], H, None) == "blocks"
    for name in ("w_ih", "w_hh"):
        trained = direction._replace(**{name: getattr(direction, name).clone().requires_grad_()})
        assert auto.recurrent("GRU", x, [trained], H, None) == "blocks"
        with torch.no_grad():
            assert auto.recurrent("GRU", x, [trained], H, None) == "kernels"


# Activations ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_torchs_through_every_lowering(activation):
    x, w, b = torch.randn(3, 8), weight(H, 2, 2), torch.randn(8)
    plain = product.linear(x, w, b, algebra=H, lowering="reference")
    function = getattr(F, activation) if activation else torch.clone
    for way in LOWERINGS:
        y = product.linear(x, w, b, algebra=H, lowering=way, activation=activation)
        torch.testing.assert_close(y, function(plain))


@pytest.mark.parametrize("way", LOWERINGS)
def test_an_unknown_activation_is_refused_by_every_lowering(way):
    with pytest.raises(ValueError, match="one of None, relu, silu, gelu, sigmoid, tanh; got 'swish'"):
        product.linear(torch.randn(3, 8), weight(H, 2, 2), algebra=H, lowering=way, activation="swish")
