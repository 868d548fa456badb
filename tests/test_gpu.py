"""What needs a CUDA device: run with ``pytest -m gpu``."""

import copy
import warnings

import pytest
import torch
from torch import nn

import algebranets as an
import zoo
from algebranets import M2C, M2R, M4R, C, H, R, product
from algebranets.product import Geometry
from conftest import ALGEBRAS

pytestmark = pytest.mark.gpu
over_layers = pytest.mark.parametrize("example", zoo.LAYERS, ids=lambda e: e.label)
over_two = pytest.mark.parametrize("algebra", [M2R, H], ids=str)


@pytest.fixture(autouse=True)
def exact_float32():
    torch.use_deterministic_algorithms(False)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def assert_same(result, expected, **tolerance):
    for a, b in zip(zoo.outputs(result), zoo.outputs(expected), strict=True):
        torch.testing.assert_close(a.cpu().to(b.dtype), b.cpu(), **tolerance)


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_products_on_the_gpu_are_the_references(algebra):
    factory = {"device": "cuda", "dtype": torch.float64}
    x = torch.randn(3, 5 * algebra.dim, **factory)
    w = torch.randn(product.weight_shape(algebra, 7, 5), **factory)
    b = torch.randn(7 * algebra.dim, **factory)
    image = torch.randn(2, 4 * algebra.dim, 6, 5, **factory)
    assert_same(*(product.linear(x, w, b, algebra=algebra, lowering=low) for low in ("blocks", "reference")))
    for groups in (1, 2, 4):
        geometry = Geometry((1, 2), (1, 0), (1, 1), groups)
        kernel = torch.randn(product.weight_shape(algebra, 4, 4 // groups, (3, 3)), **factory)
        for memory_format in (torch.contiguous_format, torch.channels_last):
            data = image.to(memory_format=memory_format)
            results = [product.conv(data, kernel, geometry=geometry, algebra=algebra, lowering=low)
                       for low in ("blocks", "reference")]  # fmt: skip
            assert_same(*results)


@over_layers
@over_two
def test_a_layer_gives_on_the_gpu_what_it_gives_on_the_cpu(example, algebra):
    if example.name == "TupleDropout":
        pytest.skip("random")
    layer = example.make(algebra)
    there = copy.deepcopy(layer).to("cuda")
    inputs = [x.requires_grad_() for x in example.feed(algebra)]
    moved = [x.detach().cuda().requires_grad_() for x in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = [there(*moved), layer(*inputs)]
    assert_same(*results, atol=1e-4, rtol=1e-4)
    grads = [
        torch.autograd.grad(
            sum((y**2).sum() for y in zoo.outputs(result) if y.requires_grad),
            [*leaves, *module.parameters()],
            allow_unused=True,
        )
        for result, leaves, module in zip(results, (moved, inputs), (there, layer), strict=True)
    ]
    assert_same(*([g for g in grad if g is not None] for grad in grads), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_cudnns_recurrent_layers_give_what_the_cpus_give(name, algebra):
    layer = getattr(an.nn, name)(2 * algebra.dim, 3 * algebra.dim, 2, bidirectional=True, algebra=algebra)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = [torch.randn(n, 2 * algebra.dim) for n in (5, 3, 1)]
    packed = nn.utils.rnn.pack_sequence(x)
    there = copy.deepcopy(layer).to("cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(there(packed.to("cuda"))[0].data, layer(packed)[0].data, atol=1e-4, rtol=1e-4)
        assert_same(there(x[0].cuda()), layer(x[0]), atol=1e-4, rtol=1e-4)


@over_layers
@over_two
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_on_the_gpu(example, algebra, dtype):
    layer = example.make(algebra).to("cuda")
    inputs = [x.cuda().requires_grad_() for x in example.feed(algebra)]
    layer.eval()
    exact = layer(*inputs)
    layer.train()
    with torch.autocast("cuda", dtype=dtype):
        rough = layer(*inputs)
    if example.name not in ("TupleGate", "TupleDropout") and "Whitening" not in example.name:
        assert_same(rough, exact, atol=0.15, rtol=0.15)
    sum((y.float() ** 2).sum() for y in zoo.outputs(rough) if y.requires_grad).backward()
    assert all(torch.isfinite(x.grad).all() for x in inputs if x.grad is not None)


@pytest.mark.parametrize("name", ["Linear", "Conv2d", "MultiheadAttention", "Whitening2d"])
@over_two
def test_the_default_compiler_on_the_gpu(name, algebra):
    torch._dynamo.reset()
    example = next(e for e in zoo.LAYERS if e.name == name)
    layer = example.make(algebra, device="cuda")
    twin = copy.deepcopy(layer)
    inputs = [x.cuda() for x in example.feed(algebra)]
    assert_same(torch.compile(layer, fullgraph=True)(*inputs), twin(*inputs), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("algebra", [R, C, H, M2R, M4R, M2C], ids=str)
def test_layers_can_be_captured_in_a_cuda_graph(algebra):
    model = nn.Sequential(an.nn.Linear(64, 64, algebra=algebra), nn.ReLU(), an.nn.Linear(64, 64, algebra=algebra)).to(
        "cuda", torch.bfloat16
    )
    x = torch.randn(8, 64, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            model(x)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.testing.assert_close(y, model(x))
