"""Tests that need a CUDA device: run them with ``pytest -m gpu``."""

import copy
import warnings
from unittest.mock import Mock

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

import algebranets as an
import zoo
from algebranets import CROSS, DUAL, M2C, M2R, M3R, M4R, C, H, R, product
from algebranets.lab import recipes, train
from algebranets.lab.train.cuda_graphs import capture
from algebranets.nn.relative import RelativeAttention, sinusoids
from algebranets.ops.window_attention import window_attention
from algebranets.product import Geometry
from algebranets.pruning import Pruner
from conftest import ALGEBRAS, captured
from test_models import logits_of, small
from test_whitening import assert_compiled_alike, assert_whitening_sums, over_sums

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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("algebra", [R, C, H, M2R, M3R, M2C], ids=str)
def test_a_sparse_layer_computes_what_the_pruned_one_does(algebra, dtype):
    """Few rows go through the kernels, many through a dense matrix. Later calls read weights early."""
    layer = an.nn.Linear(96 * algebra.dim, 40 * algebra.dim, device="cuda", dtype=dtype, algebra=algebra)
    Pruner(layer, 0.8, layers="*").finish()
    made, eps = an.sparse(layer), torch.finfo(dtype).eps
    with torch.no_grad():
        for rows in (1, 7, 40, 300, 1):
            x = torch.randn(rows, 96 * algebra.dim, device="cuda", dtype=dtype)
            exact = an.product.linear(
                x.double(), layer.weight.double(), layer.bias.double(), algebra=algebra, lowering="reference"
            )
            assert_same(made(x, activation="relu").double(), exact.relu(), atol=max(4 * eps, 1e-5), rtol=4 * eps)


@pytest.mark.parametrize("lowering", ["blocks", "bilinear", "kernels"])
@pytest.mark.parametrize("algebra", [C, H, M2R, M2C, DUAL], ids=str)
def test_every_lowering_computes_the_reference_product(algebra, lowering):
    """Compare outputs and all gradients, with Triton's kernels compiled."""

    def randn(*shape):
        return torch.randn(*shape, device="cuda", requires_grad=True)

    x, w, b = randn(3, 5 * algebra.dim), randn(*product.weight_shape(algebra, 7, 5)), randn(7 * algebra.dim)
    image = randn(2, 8 * algebra.dim, 7, 6).detach().to(memory_format=torch.channels_last).requires_grad_()
    depthwise = randn(*product.weight_shape(algebra, 8, 1, (3, 3)))
    strided = Geometry((2, 1), (1, 1), (1, 1), 8)
    step, h = randn(1, 3, 5 * algebra.dim), randn(1, 3, 7 * algebra.dim)
    weights = [randn(*product.weight_shape(algebra, 7, n, stacks=3)) for n in (5, 7)]
    cell = product.Direction(*weights, randn(21 * algebra.dim), randn(21 * algebra.dim))

    def outputs(lowering):
        options = {"algebra": algebra, "lowering": lowering}
        y = product.linear(x, w, b, **options, activation="gelu")
        z = product.conv(image, depthwise, geometry=strided, **options)
        return [
            (y, [x, w, b]),
            (z, [image, depthwise]),
            (product.recurrent("GRU", step, (h,), [cell], **options)[0], [step, h, *weights]),
        ]

    for (y, inputs), (z, _) in zip(outputs(lowering), outputs("reference"), strict=True):
        assert_same(y, z, atol=1e-4, rtol=1e-4)
        grads = [torch.autograd.grad(t.square().sum(), inputs) for t in (y, z)]
        assert_same(*grads, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("algebra", [C, H, M2R, M4R, M2C], ids=str)
@pytest.mark.parametrize(("num_in", "num_out"), [(64, 64), (8192, 96)])  # as much as programs load at once, and more
def test_half_precision_is_right_to_its_rounding(num_in, num_out, algebra, dtype):
    x = torch.randn(32, num_in * algebra.dim, device="cuda", dtype=dtype)
    w = torch.randn(product.weight_shape(algebra, num_out, num_in), device="cuda", dtype=dtype) / num_in**0.5
    exact = product.linear(x.double(), w.double(), algebra=algebra, lowering="reference")
    for lowering in ("blocks", "kernels"):
        for rows in (1, 3, 32):  # on CUDA cores, and on tensor cores
            y = product.linear(x[:rows], w, algebra=algebra, lowering=lowering)
            error = (y.double() - exact[:rows]).norm() / exact[:rows].norm()
            assert error < torch.finfo(dtype).eps


@pytest.mark.parametrize("algebra", [M2R, H], ids=str)
def test_a_lift_is_merged_into_the_first_convolution(algebra, monkeypatch):
    model = an.models.create("resnet18", algebra=algebra, width=0.25, num_classes=10).cuda().eval()
    x = torch.randn(2, 3, 64, 64, device="cuda")
    with monkeypatch.context() as patch:
        patch.setattr(an.nn.Lift2d, "forward", None)  # a call would be an error
        merged = model(x)
    seen = []
    model.lift.register_forward_hook(lambda *_: seen.append(True))
    assert_same(model(x), merged, atol=1e-3, rtol=1e-3)
    assert seen  # with a hook, the lift is called


@pytest.mark.parametrize("channels", [4, 68])  # few enough to convolve all copies at once, and too many
@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_products_on_the_gpu_are_the_references(algebra, channels):
    factory = {"device": "cuda", "dtype": torch.float64}
    x = torch.randn(3, 5 * algebra.dim, **factory)
    w = torch.randn(product.weight_shape(algebra, 7, 5), **factory)
    b = torch.randn(7 * algebra.dim, **factory)
    image = torch.randn(2, channels * algebra.dim, 6, 5, **factory)
    assert_same(*(product.linear(x, w, b, algebra=algebra, lowering=low) for low in ("blocks", "reference")))
    for groups, stride in ((1, (1, 2)), (1, (2, 1)), (2, (1, 2)), (4, (1, 2))):
        geometry = Geometry(stride, (1, 0), (1, 1), groups)
        kernel = torch.randn(product.weight_shape(algebra, channels, channels // groups, (3, 3)), **factory)
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
        warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")  # on some CPUs
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
    has_statistics = "Whitening" in example.name or example.options.get("track_running_stats")  # other ones in training
    if example.name not in ("TupleGate", "TupleDropout") and not has_statistics:
        assert_same(rough, exact, atol=0.15, rtol=0.15)
    sum((y.float() ** 2).sum() for y in zoo.outputs(rough) if y.requires_grad).backward()
    assert all(torch.isfinite(x.grad).all() for x in inputs if x.grad is not None)


@pytest.mark.parametrize("name", ["Linear", "Conv2d", "MultiheadAttention", "Whitening2d"])
@over_two
def test_the_default_compiler_on_the_gpu(name, algebra):
    torch._dynamo.reset()
    example = zoo.plainest(name)
    layer = example.make(algebra, device="cuda")
    twin = copy.deepcopy(layer)
    inputs = [x.cuda() for x in example.feed(algebra)]
    assert_same(torch.compile(layer, fullgraph=True)(*inputs), twin(*inputs), atol=1e-4, rtol=1e-4)


@over_sums
def test_whitenings_kernel_on_the_gpu(shape):
    assert_whitening_sums(shape, "cuda")


@pytest.mark.parametrize("algebra", [C, H], ids=str)
def test_compiled_whitening_on_the_gpu_is_the_same_function(algebra):
    assert_compiled_alike(algebra, backend="inductor", device="cuda")


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("algebra", [C, M2R], ids=str)
def test_compile_takes_recurrent_layers_whole(algebra, name, backend):
    torch._dynamo.reset()
    options = {"num_layers": 2, "bidirectional": True, "device": "cuda", "algebra": algebra}
    layer = getattr(an.nn, name)(2 * algebra.dim, 3 * algebra.dim, **options)
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    for steps in (3, 7, 20):
        x = torch.randn(steps, 4, 2 * algebra.dim, device="cuda", requires_grad=True)
        results = [compiled(x), layer(x)]
        assert_same(*results, atol=1e-4, rtol=1e-4)
        losses = [sum(y.square().sum() for y in zoo.outputs(result)) for result in results]
        assert_same(*(torch.autograd.grad(loss, [x, *layer.parameters()]) for loss in losses), atol=1e-3, rtol=1e-3)
    assert counter.frame_count == 2  # one for the first length, and one for any length
    with torch.no_grad():
        assert_same(compiled(x), layer(x), atol=1e-4, rtol=1e-4)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        results = [compiled(x), layer(x)]
    assert all(y.dtype == torch.bfloat16 for y in zoo.outputs(results[0]))
    assert_same(*results, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_compile_takes_packed_sequences(name):
    torch._dynamo.reset()
    layer = getattr(an.nn, name)(8, 12, bidirectional=True, device="cuda", algebra=M2R)
    packed = nn.utils.rnn.pack_sequence([torch.randn(n, 8, device="cuda") for n in (5, 3, 1)])
    results = [run(packed)[0].data for run in (torch.compile(layer, backend="aot_eager"), layer)]
    assert_same(*results, atol=1e-4, rtol=1e-4)
    grads = [torch.autograd.grad(y.square().sum(), layer.parameters()) for y in results]
    assert_same(*grads, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("algebra", [R, C, H, M2R, M4R, M2C], ids=str)
def test_layers_can_be_captured_in_a_cuda_graph(algebra):
    model = nn.Sequential(an.nn.Linear(64, 64, algebra=algebra), nn.ReLU(), an.nn.Linear(64, 64, algebra=algebra)).to(
        "cuda", torch.bfloat16
    )
    x = torch.randn(8, 64, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        graph, y = captured(lambda: model(x))
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.testing.assert_close(y, model(x))


@pytest.mark.parametrize("algebra", [R, C, H, M2R], ids=str)
def test_training_steps_of_depthwise_convolutions_can_be_captured(algebra):
    layer = an.nn.Conv2d(32, 32, 3, padding=1, groups=32 // algebra.dim, algebra=algebra, device="cuda")
    x = torch.randn(4, 32, 8, 8, device="cuda").to(memory_format=torch.channels_last).requires_grad_()

    def step():
        return torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])

    graph, grads = captured(step)
    with torch.no_grad():
        x.copy_(torch.randn_like(x))
    graph.replay()
    assert_same(grads, step(), atol=1e-4, rtol=1e-4)


# Models ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenet_v1", "cifar_resnet", "transformer_xl", "gru_lm"])
@over_two
def test_a_model_gives_on_the_gpu_what_it_gives_on_the_cpu(name, algebra):
    model, x = small(name, algebra)
    model.double()
    x = x.double() if x.is_floating_point() else x
    there = copy.deepcopy(model).to("cuda")
    results = [logits_of(there(x.cuda())), logits_of(model(x))]
    assert_same(*results)
    for result in results:
        result.square().sum().backward()
    for p, q in zip(there.parameters(), model.parameters(), strict=True):
        assert_same(p.grad, q.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("algebra", "size"), [(R, 32), (M2R, 128), (CROSS, 48)], ids=str)
@pytest.mark.parametrize(
    ("time", "past", "window"), [(130, 0, 300), (130, 77, 77), (64, 300, 300), (5, 0, 3), (256, 900, 2000)]
)
@pytest.mark.parametrize("compiled", [False, True])
def test_window_attention_is_as_near_to_the_masked_attention_as_that_is_in_its_precision(
    algebra, size, time, past, window, compiled
):
    torch._dynamo.reset()
    assert_as_near_by_kernels(algebra, size, time, past, window, compiled)


@pytest.mark.parametrize(
    ("algebra", "size"), [(R, 144), (M3R, 144), (H, 64), (H, 48), (M2R, 16), (M2C, 16), (M4R, 16), (C, 256)], ids=str
)
def test_window_attention_reads_heads_in_any_pieces(algebra, size):
    assert_as_near_by_kernels(algebra, size, time=130, past=77, window=100)


def assert_as_near_by_kernels(algebra, size, time, past, window, compiled=False):
    embed = 4 * size
    layers = [RelativeAttention(embed, 4, algebra=algebra, kernel=kernel).to("cuda") for kernel in ("sdpa", "triton")]
    layers[1].load_state_dict(layers[0].state_dict())
    if compiled:
        layers[1].compile(fullgraph=True)
    positions = sinusoids(window + 1, embed, "cuda")
    leaves = [torch.randn(*shape, device="cuda") for shape in ((2, time, embed), (2, past, embed), (embed,), (embed,))]
    results = []
    for layer, half in ((layers[0], False), (layers[0], True), (layers[1], True)):
        x, memory, u, v = inputs = [leaf.clone().requires_grad_() for leaf in leaves]
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            y = layer(x, positions, u, v, memory)
        results.append([y, *torch.autograd.grad(y.float().square().sum(), [*inputs, *layer.parameters()])])
    for exact, masked, ours in zip(*results, strict=True):
        assert (ours - exact).norm() <= 2 * (masked - exact).norm() + 1e-3 * exact.norm()


@pytest.mark.parametrize("algebra", [R, M2R], ids=str)
def test_window_attention_has_more_scores_than_int32_has_numbers(algebra):
    def tensors(*shapes):
        return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]

    batch, heads, time, size = 17, 8, 4096, 32
    assert batch * heads * time * time > 2**31
    content, position, k, v, grad = tensors(*[(batch, time, heads * size)] * 5)
    (r,) = tensors((time, heads * size))
    results = []
    for rows in (slice(None), slice(-1, None)):  # all texts, and the last by itself
        given = [t[rows].clone().requires_grad_() for t in (content, position, k, v)]
        y = window_attention(given[:2], *given[2:], r, heads, dim=algebra.dim)
        results.append([t[-1] for t in (y, *torch.autograd.grad(y, given, grad[rows]))])
    assert_same(*results)


def test_transformer_xl_compiles_whole_on_the_gpu():
    torch._dynamo.reset()
    model = an.models.create("transformer_xl", algebra=M2R, num_layers=2, d_model=128, ff_size=256, window=128)
    model.to("cuda")
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, fullgraph=True)
    tokens = torch.randint(256, (2, 3, 128), device="cuda")
    results = []
    for net, module in ((compiled, model), (twin, twin)):
        _, memory = net(tokens[0])
        logits, _ = net(tokens[1], memory)
        logits.square().mean().backward()
        results.append([logits, *(p.grad for p in module.parameters())])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-3 * b.abs().max().item(), rtol=1e-2)


def test_the_gru_model_compiles_whole_on_the_gpu():
    torch._dynamo.reset()
    model, tokens = small("gru_lm", M2R)
    model.to("cuda")
    twin = copy.deepcopy(model)
    results = []
    for net, module in ((torch.compile(model, fullgraph=True), model), (twin, twin)):
        logits, _ = net(tokens.cuda())
        logits.square().mean().backward()
        results.append([logits, *(p.grad for p in module.parameters())])
    assert_same(*results, atol=1e-4, rtol=1e-3)


def test_decoding_can_be_captured_in_a_cuda_graph():
    model = an.models.create("transformer_xl", algebra=M2R, num_layers=2, d_model=64, ff_size=128, window=9)
    model.to("cuda").eval()
    tokens = torch.randint(256, (2, 20), device="cuda")
    with torch.no_grad():
        whole, _ = model(tokens)
        caches = model.cache(batch_size=2)
        token = tokens[:, :1].clone()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            model(token, model.cache(batch_size=2))
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits, _ = model(token, caches)
        for cache in caches:  # capturing does not run the kernels
            cache.position.zero_()
        for i in range(20):
            token.copy_(tokens[:, i : i + 1])
            graph.replay()
            torch.testing.assert_close(logits[:, 0], whole[:, i], atol=1e-4, rtol=1e-4)


def test_text_is_generated_on_the_gpu():
    model = an.models.create("transformer_xl", algebra=M2R, num_layers=2, d_model=64, ff_size=128, window=9).cuda()
    texts = ["".join(an.models.generate(model, "AlgebraNets", 30, seed=s)) for s in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("algebra", [R, C, M2R, H], ids=str)
def test_torchs_counter_sees_cudnns_recurrent_kernels(algebra):
    model, x = small("gru_lm", algebra)
    model.cuda()
    extra = 0
    if algebra.blocks[0].num_copies > 1:  # biases of copies enter as eight more input features
        extra = x.numel() * algebra.dim * 3 * (model.hidden_size // algebra.dim) * 8
    with FlopCounterMode(display=False) as counter:
        logits = model(x.cuda())[0]
    forward = counter.get_total_flops()
    assert forward == 2 * (an.account(model, x.cuda()).multiplies + extra)
    with counter:  # starts a new count
        logits.sum().backward()
    assert counter.get_total_flops() == 2 * forward


@pytest.mark.parametrize("settings", [{}, {"model.norm": "whitening"}, {"pruning.sparsity": 0.5}], ids=str)
def test_captured_training_is_training(settings, tmp_path):
    """A compiled run, with forward and backward as CUDA graphs, has the losses of a plain run up to rounding."""
    from test_training import SMALL, rows

    settings = {**SMALL["digits"], "steps": 6, "evaluations": 2, "pruning.every": 2, **settings}
    experiment = recipes.create("digits", "M2R", settings=settings)
    for name in ("plain", "compiled"):
        hardware = train.Hardware(accelerator="cuda", precision="32", log_steps=1, compile=name == "compiled")
        train.run(experiment, tmp_path / name, hardware)
    for one, two in zip(rows(tmp_path / "plain"), rows(tmp_path / "compiled"), strict=True):
        for name in ("train_loss", "loss"):
            assert one.get(name) == pytest.approx(two.get(name), rel=1e-2)


@pytest.mark.parametrize(
    ("recipe", "algebra", "strategy"),
    [
        ("transformer_xl", "R", "auto"),
        ("transformer_xl", "M2R", "auto"),
        ("transformer_xl", "M2R", "ddp"),
        ("gru", "R", "auto"),
        ("gru", "M2R", "auto"),
        ("gru", "M2R", "ddp"),
    ],
)
def test_captured_training_on_text_is_training(recipe, algebra, strategy, tmp_path, monkeypatch):
    """This includes steps at which a pass over the text ends and the state is dropped. Evaluation is only compiled."""
    from algebranets.lab.train import cuda_graphs
    from test_training import SMALL, rows

    (tmp_path / "text").write_bytes(b"All algebras are equal. " * 20)
    settings = {**SMALL[recipe], "steps": 12, "evaluations": 3, "data.name": str(tmp_path / "text")}
    settings |= {"data.eval_batch_size": 1, "data.eval_length": 3}
    if recipe == "transformer_xl":
        settings |= {"model.dropout": 0.0, "data.eval_window": 9}
    experiment = recipes.create(recipe, algebra, settings=settings)
    captures = Mock(wraps=capture)
    monkeypatch.setattr(cuda_graphs, "capture", captures)
    train.run(experiment, tmp_path / "plain", train.Hardware(accelerator="cuda", log_steps=1))
    compiled = train.Hardware(accelerator="cuda", log_steps=1, compile=True, strategy=strategy)
    train.run(experiment, tmp_path / "compiled", compiled)
    captures.assert_called_once()
    for one, two in zip(rows(tmp_path / "plain"), rows(tmp_path / "compiled"), strict=True):
        for name in ("train_loss", "loss"):
            assert one.get(name) == pytest.approx(two.get(name), rel=2e-2)


def save_gradients(rank, folder):
    """Save the gradients of three captured steps in one of two processes, and those of a model that is alone."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    torch.manual_seed(0)
    layers = [an.nn.Linear(16, 32, algebra=M2R), nn.GELU(), an.nn.Linear(32, 16, algebra=M2R)]
    alone = nn.Sequential(*layers).cuda()
    model = copy.deepcopy(alone)
    with torch.cuda.stream(torch.cuda.Stream()):  # as in Lightning: captured work must not wait for the default stream
        wrapped = DistributedDataParallel(model, device_ids=[0])
    batches = torch.randn(3, 2, 8, 16, device="cuda")
    capture(model, batches[0, rank].clone())
    captured, expected = [], []
    for batch in batches:
        wrapped.zero_grad()
        alone.zero_grad()
        wrapped(batch[rank]).square().mean().backward()
        alone(batch).square().mean().backward()
        captured += [p.grad.clone() for p in model.parameters()]
        expected += [p.grad.clone() for p in alone.parameters()]
    torch.save((captured, expected), folder / f"rank{rank}.pt")
    dist.destroy_process_group()


def test_what_is_captured_has_gradients_of_all_processes(tmp_path):
    """Two processes communicate over gloo, since NCCL needs a GPU for each."""
    mp.spawn(save_gradients, args=(tmp_path,), nprocs=2)
    for rank in range(2):
        captured, expected = torch.load(tmp_path / f"rank{rank}.pt")
        assert len(captured) == 12  # three steps, and two layers with a weight and a bias
        torch.testing.assert_close(captured, expected)


def test_captured_dropout_is_drawn_anew_at_each_step(tmp_path):
    """Dropout depends on the seed and the step, so two runs have the same losses.

    On a text of one character, the losses of a run's steps differ only by dropout.
    """
    from test_training import SMALL, rows

    (tmp_path / "text").write_bytes(b"a" * 2000)
    settings = {**SMALL["transformer_xl"], "data.name": str(tmp_path / "text"), "data.eval_batch_size": 1}
    settings |= {"data.fresh_every": 0, "model.dropout": 0.5, "optimizer.lr": 1e-9}
    hardware = train.Hardware(accelerator="cuda", log_steps=1, compile=True)
    losses = []
    for name in ("one", "two"):
        train.run(recipes.create("transformer_xl", "M2R", settings=settings), tmp_path / name, hardware)
        losses.append([row["train_loss"] for row in rows(tmp_path / name) if "train_loss" in row])
    captured = losses[0][6:]
    assert max(captured) - min(captured) > 0.01
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize(
    "options",
    [{}, {"compile": True}, {"precision": "32"}, {"precision": "16"}, {"strategy": "ddp"}, {"strategy": "fsdp"}],
    ids=str,
)
@pytest.mark.parametrize("recipe", ["digits", "char-lm"])
def test_a_run_trains_on_the_gpu_and_resumes(recipe, options, tmp_path):
    """A run that crashes at step 3 and resumes from step 2 has the losses of an unbroken run up to rounding."""
    from test_training import SMALL, WIDTHS, Crash, CrashAt, rows

    settings = {**SMALL[recipe], "steps": 4, "evaluations": 2}
    experiment = recipes.create(recipe, "M2R", WIDTHS.get(recipe, 1.0), settings=settings)
    hardware = train.Hardware(accelerator="cuda", log_steps=1, checkpoint_steps=2, **options)
    result = train.run(experiment, tmp_path / "whole", hardware)
    assert result.environment["device"] == torch.cuda.get_device_name()
    with pytest.raises(Crash):
        train.run(experiment, tmp_path / "broken", hardware, [CrashAt(3)])
    train.resume(tmp_path / "broken")
    for one, two in zip(rows(tmp_path / "whole"), rows(tmp_path / "broken"), strict=True):
        assert one["step"] == two["step"]
        for name in ("train_loss", "loss"):
            assert one.get(name) == pytest.approx(two.get(name), rel=2e-2)
    measured = train.evaluate(tmp_path / "whole", train.Hardware(accelerator="cuda", precision="32"))
    assert measured["loss"] == pytest.approx(result.curve[-1]["loss"], rel=3e-2)
