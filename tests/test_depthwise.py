"""Triton's depthwise convolutions give the reference's outputs and gradients, interpreted if there is no GPU."""

import pytest
import torch

from algebranets import product
from algebranets.algebra import M2R, Algebra, C, H, R, matrix
from algebranets.ops.device import is_channels_last
from algebranets.product import Geometry, auto, kernels, reference
from conftest import ALGEBRAS, KINDS, needs_triton, thinned

pytestmark = needs_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TUPLES = 3

#: Kernel sizes and geometries: strides that skip pixels or overlap, dilation, more padding after than before.
SLIDES = [
    ((3, 3), Geometry((1, 1), (1, 1), (1, 1), TUPLES)),
    ((3, 2), Geometry((2, 2), (1, 0), (1, 1), TUPLES)),
    ((3, 3), Geometry((2, 3), (0, 2), (2, 1), TUPLES)),
    ((1, 2), Geometry((3, 1), (0, 1), (1, 3), TUPLES)),
    ((2, 4), Geometry((1, 1), "same", (1, 1), TUPLES)),
    ((2, 3), Geometry((1, 2), "valid", (1, 2), TUPLES)),
]


@pytest.fixture(autouse=True)
def kernels_run_anywhere(monkeypatch):
    monkeypatch.setattr("algebranets.ops.device._has_device", lambda _: True)


FORMATS = [torch.channels_last, torch.contiguous_format]


def inputs(
    algebra: Algebra,
    kernel: tuple[int, int],
    memory_format: torch.memory_format = torch.channels_last,
    size: tuple[int, int, int] = (2, 5, 7),
    dtype: torch.dtype = torch.float64,
) -> list[torch.Tensor]:
    batch, *place = size
    x = torch.randn(batch, TUPLES * algebra.dim, *place, dtype=dtype, device=DEVICE)
    weight = torch.randn(product.weight_shape(algebra, TUPLES, 1, kernel), dtype=dtype, device=DEVICE)
    bias = torch.randn(TUPLES * algebra.dim, dtype=dtype, device=DEVICE)
    return [t.requires_grad_() for t in (x.contiguous(memory_format=memory_format), weight, bias)]


def assert_same(algebra, kernel, geometry, memory_format, with_bias=True, size=(2, 5, 7)):
    tensors = inputs(algebra, kernel, memory_format, size)
    if not with_bias:
        tensors.pop()
    y, expected = (f.conv(*tensors, *([] if with_bias else [None]), algebra, geometry) for f in (kernels, reference))
    torch.testing.assert_close(y, expected)
    assert is_channels_last(y) == (memory_format == torch.channels_last)
    dy = torch.randn_like(y)
    grads, expected_grads = (torch.autograd.grad(out, tensors, dy) for out in (y, expected))
    for name, grad, expected_grad in zip(["x", "weight", "bias"], grads, expected_grads, strict=False):
        torch.testing.assert_close(grad, expected_grad, msg=lambda m, name=name: f"gradient of {name}: {m}")


@pytest.mark.parametrize(
    "which",
    thinned(((n,) for n in range(len(ALGEBRAS))), lambda n: ALGEBRAS[n] in KINDS),
    ids=lambda n: str(ALGEBRAS[n]),
)
def test_every_algebra_has_the_reference_product(which):
    # The kernel computes a product term by term, which is slow in the interpreter, so large algebras have fewer taps.
    kernel, geometry = SLIDES[which % 2 if ALGEBRAS[which].dim < 8 else 3]
    assert_same(ALGEBRAS[which], kernel, geometry, FORMATS[which % 3 == 2], with_bias=which % 2 == 0, size=(1, 3, 4))


GEOMETRIES = [(*slide, *case) for slide in SLIDES for case in ((R, FORMATS[0]), (R, FORMATS[1]), (M2R, FORMATS[0]))]


def is_slid_often(kernel, geometry, *case):
    """Select every geometry for one algebra and format, and two geometries for the others."""
    return case == (R, FORMATS[0]) or (kernel, geometry) in (SLIDES[1], SLIDES[-1])


@pytest.mark.parametrize(
    ("kernel", "geometry", "algebra", "memory_format"), thinned(GEOMETRIES, is_slid_often), ids=str
)
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_every_geometry_is_the_references(kernel, geometry, algebra, memory_format):
    assert_same(algebra, kernel, geometry, memory_format)


@pytest.fixture
def blocks(monkeypatch):
    """Let threads compute three rows of two outputs, if they go down the image for the product."""
    from algebranets.ops.depthwise import launch

    for name in ("tile_of_images", "tile_of_sums"):
        monkeypatch.setattr(launch, name, lambda *_: launch.Tile(4, 1, 2, 3, 1))


@pytest.mark.parametrize(("kernel", "geometry"), SLIDES, ids=str)
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.usefixtures("blocks")
def test_threads_may_go_down_the_image(kernel, geometry):
    assert_same(H, kernel, geometry, FORMATS[0])


def test_few_multiplies_are_used_where_they_are_half(monkeypatch):
    from algebranets.ops.depthwise import launch

    ranks = []
    product_of = launch.product_of
    monkeypatch.setattr(launch, "product_of", lambda *given: ranks.append(product_of(*given)) or ranks[-1])
    kernel, geometry = SLIDES[0]
    for algebra, channels in ((M2R, 16), (H, 16), (H, 2)):  # with a threshold of `channels` for images
        ranks.clear()
        monkeypatch.setattr(launch, "TABLE_CHANNELS", channels)
        assert_same(algebra, kernel, geometry, FORMATS[0], with_bias=False)
        image, gradient, weight = (len(product.table) for product in ranks)
        few = {(M2R, 16): (4, 4), (H, 16): (8, 8), (H, 2): (4, 8)}[algebra, channels]
        assert (image, weight) == few
        assert gradient == image


@pytest.mark.parametrize("algebra", [M2R, H], ids=str)
def test_gradients_have_gradients(algebra):
    kernel, geometry = (2, 1), Geometry((2, 1), (1, 0), (1, 1), TUPLES)
    tensors = inputs(algebra, kernel, size=(1, 3, 3))[:2]
    dy = torch.randn_like(kernels.conv(*tensors, None, algebra, geometry)).requires_grad_()
    further = [torch.randn_like(t) for t in tensors]

    def second(lowering):
        y = lowering.conv(*tensors, None, algebra, geometry)
        grads = torch.autograd.grad(y, tensors, dy, create_graph=True)
        return torch.autograd.grad(grads, [*tensors, dy], further)

    for name, found, expected in zip(["x", "weight", "dy"], second(kernels), second(reference), strict=True):
        torch.testing.assert_close(found, expected, msg=lambda m, name=name: f"second gradient of {name}: {m}")


@pytest.mark.parametrize("needed", range(2), ids=["x", "weight"])
def test_only_one_factor_may_need_a_gradient(needed):
    kernel, geometry = SLIDES[0]
    tensors = inputs(M2R, kernel)
    tensors[1 - needed] = tensors[1 - needed].detach()
    grads = (torch.autograd.grad(f.conv(*tensors, M2R, geometry).square().sum(), tensors[needed])[0]
             for f in (kernels, reference))  # fmt: skip
    torch.testing.assert_close(*grads)


def test_it_is_one_graph_for_torch_compile():
    kernel, geometry = SLIDES[1]
    tensors = inputs(M2R, kernel)
    compiled = torch.compile(lambda *t: kernels.conv(*t, M2R, geometry), backend="aot_eager", fullgraph=True)
    y, expected = compiled(*tensors), reference.conv(*tensors, M2R, geometry)
    torch.testing.assert_close(y, expected)
    dy = torch.randn_like(y)
    for grads in zip(*(torch.autograd.grad(out, tensors, dy) for out in (y, expected)), strict=True):
        torch.testing.assert_close(*grads)


def test_an_empty_batch_has_gradients_of_zero():
    kernel, geometry = SLIDES[0]
    tensors = inputs(H, kernel, size=(0, 5, 7))
    y = kernels.conv(*tensors, H, geometry)
    assert y.shape == (0, TUPLES * H.dim, 5, 7)
    for grad in torch.autograd.grad(y.sum(), tensors):
        assert not grad.any()


def test_gradients_may_lie_anyhow_in_memory():
    kernel, geometry = SLIDES[0]
    tensors = inputs(M2R, kernel)
    for grads in zip(*(torch.autograd.grad(f.conv(*tensors, M2R, geometry).sum(), tensors)
                       for f in (kernels, reference)), strict=True):  # fmt: skip
        torch.testing.assert_close(*grads)


def test_many_channels_fall_to_several_programs():
    kernel, geometry = (3, 3), Geometry((1, 1), (1, 1), (1, 1), 35)
    x = torch.randn(1, 70, 4, 5, dtype=torch.float64, device=DEVICE).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(product.weight_shape(C, 35, 1, kernel), dtype=torch.float64, device=DEVICE)
    tensors = [t.requires_grad_() for t in (x, weight)]
    y, expected = (f.conv(*tensors, None, C, geometry) for f in (kernels, reference))
    torch.testing.assert_close(y, expected)
    dy = torch.randn_like(y)
    for grads in zip(*(torch.autograd.grad(out, tensors, dy) for out in (y, expected)), strict=True):
        torch.testing.assert_close(*grads)


def test_low_precision_is_summed_in_float32():
    kernel, geometry = SLIDES[0]
    tensors = [t.detach().bfloat16() for t in inputs(M2R, kernel)]
    y = kernels.conv(*tensors[:2], None, M2R, geometry)
    expected = reference.conv(*(t.float() for t in tensors[:2]), None, M2R, geometry)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), expected, rtol=2**-7, atol=1e-6)  # the interpreter truncates


def test_autocast_casts_as_torchs_convolution():
    kernel, geometry = SLIDES[0]
    tensors = inputs(M2R, kernel, dtype=torch.float32)
    with torch.autocast(DEVICE, torch.bfloat16):
        y = kernels.conv(*tensors, M2R, geometry)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert all(t.grad is not None and t.grad.dtype == torch.float32 for t in tensors)


def test_it_applies_to_depthwise_convolutions_in_two_axes():
    kernel, geometry = SLIDES[0]
    x, weight, _ = inputs(M2R, kernel)
    assert auto.is_depthwise(x, weight, M2R, geometry)
    assert not auto.is_depthwise(x, weight, M2R, Geometry((1, 1), (1, 1), (1, 1), 1))
    assert not auto.is_depthwise(x, weight, M2R, Geometry((1, 1), (1, 1), (1, 1), TUPLES, True))
    assert not auto.is_depthwise(x, weight, M2R, Geometry((9, 9), (1, 1), (1, 1), TUPLES))
    assert not auto.is_depthwise(x, weight.float(), M2R, geometry)
    large = matrix(5)
    x, weight, _ = inputs(large, kernel)
    assert not auto.is_depthwise(x, weight, large, geometry)


def test_a_kernel_larger_than_the_image_says_so():
    x, weight, _ = inputs(M2R, (3, 3), size=(1, 2, 5))
    with pytest.raises(ValueError, match="must fit into the padded image"):
        kernels.conv(x, weight, None, M2R, Geometry((1, 1), (0, 0), (1, 1), TUPLES))
