"""Tests of every layer: over R it is torch's layer, and torch's tools work on it over any algebra."""

import copy
import inspect
import io
import math
import re
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import algebranets as an
import zoo
from algebranets import M2C, M2R, C, H, R, product
from algebranets.algebra import CATALOGUE, direct_sum
from algebranets.nn import __all__ as our_names
from conftest import ALGEBRAS, over_kinds, thinned
from fuzz import fuzzed

over_layers = pytest.mark.parametrize("example", zoo.LAYERS, ids=lambda e: e.label)
over_twins = pytest.mark.parametrize("example", zoo.TWINS, ids=lambda e: e.label)
over_two = pytest.mark.parametrize("algebra", [M2R, H], ids=str)
RECURRENT = ("RNN", "LSTM", "GRU")
#: Layers that compute products of an algebra or treat components one by one. Other layers are built from these.
OF_PRODUCTS = ("Linear", "Conv2d", "ConvTranspose2d", "GRU", "TupleNorm", "TupleGate")
#: Layers whose class is tested with another number of axes.
SAME_CLASS = (
    "Conv3d", "ConvTranspose1d", "ConvTranspose3d", "InstanceNorm1d", "InstanceNorm3d", "Lift1d", "Lift3d",
    "Whitening1d", "Whitening3d",
)  # fmt: skip


def is_traced_often(example, algebra):
    """Select one example of each class over M2R, and of the classes in OF_PRODUCTS over other algebras."""
    names = OF_PRODUCTS if algebra != M2R else our_names
    is_chosen = example in zoo.ONE_EACH or example.name == "Linear"
    return is_chosen and example.name in names and example.name not in SAME_CLASS


#: Every example over M2R, and over H one of each class that computes with an algebra's table itself.
PAIRS = [(e, M2R) for e in zoo.LAYERS] + [(e, H) for e in zoo.ONE_EACH if e.name in (*OF_PRODUCTS, "Bilinear")]
over_traced = pytest.mark.parametrize(
    ("example", "algebra"), thinned(PAIRS, is_traced_often), ids=lambda v: getattr(v, "label", str(v))
)


def assert_same(result, expected, **tolerance):
    for a, b in zip(zoo.outputs(result), zoo.outputs(expected), strict=True):
        torch.testing.assert_close(a, b, **tolerance)


def test_the_zoo_has_every_layer():
    """Sparse and quantized layers are made from others. Layers that take indices or are lazy have own tests."""
    ours = {name: getattr(an.nn, name) for name in our_names}
    layers = {name for name, value in ours.items() if isinstance(value, type) and issubclass(value, an.nn.Layer)}
    layers -= {"Layer", "QuantizedLinear", "SparseLinear"}
    elsewhere = {"Embedding", "EmbeddingBag", "AdaptiveLogSoftmaxWithLoss"} | {
        n for n in layers if n.startswith("Lazy")
    }
    assert {example.name for example in zoo.LAYERS} == layers - elsewhere
    assert SOUND.keys() == layers


@over_twins
def test_over_r_a_layer_is_torchs_weight_for_weight(example):
    assert_torchs(example, example.feed(R, torch.float64))


#: Layers of torch that give a wrong shape or raise an error in the backward of an empty batch.
NOT_EMPTY = ("InstanceNorm2d", "InstanceNorm3d", "PixelShuffle", "PixelUnshuffle")


@pytest.mark.parametrize(
    "example", [e for e in zoo.TWINS if e.batch_axis is not None and e.name not in NOT_EMPTY], ids=lambda e: e.label
)
@pytest.mark.parametrize("lowering", ["auto", "bilinear", "reference"])
def test_over_r_a_layer_does_with_an_empty_batch_what_torchs_does(example, lowering):
    inputs = example.rebatch(example.feed(R, torch.float64), lambda x, axis: x.narrow(axis, 0, 0))
    assert_torchs(example, inputs, lowering=lowering)


def assert_torchs(example, inputs, **options):
    """Compare outputs and all gradients with those of torch's layer."""
    theirs = example.make_real(dtype=torch.float64)
    ours = example.make(R, dtype=torch.float64, **options)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    inputs = [x.requires_grad_() for x in inputs]
    results = []
    for layer in (ours, theirs):
        y = layer(*inputs)
        loss = sum((t**2).sum() for t in zoo.outputs(y) if t.requires_grad)
        parameters = dict(layer.named_parameters())
        grads = torch.autograd.grad(loss, [*inputs, *parameters.values()], allow_unused=True)
        results.append((y, dict(zip([*range(len(inputs)), *parameters], grads, strict=True))))
    assert_same(results[0][0], results[1][0])
    assert results[0][1].keys() == results[1][1].keys()
    for name, grad in results[0][1].items():
        torch.testing.assert_close(grad, results[1][1][name], msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("example", [e for e in zoo.LAYERS if e.batch_axis is not None], ids=lambda e: e.label)
@pytest.mark.parametrize("algebra", [C, M2R, direct_sum(C, M2R)], ids=str)
def test_an_empty_batch_goes_through_every_layer(example, algebra):
    layer, inputs = example.make(algebra), example.feed(algebra)

    def shapes(change):
        given = [x.requires_grad_() for x in example.rebatch(inputs, change)]
        results = zoo.outputs(layer(*given))
        loss = sum((y**2).sum() for y in results)
        grads = torch.autograd.grad(loss, [*given, *layer.parameters()], allow_unused=True)
        assert all(grad is None or torch.isfinite(grad).all() for grad in grads)
        return [y.shape for y in results]

    once, twice = (shapes(lambda x, axis, n=n: torch.cat([x] * n, axis)) for n in (1, 2))
    expected = [[a if a == b else 0 for a, b in zip(*sizes, strict=True)] for sizes in zip(once, twice, strict=True)]
    assert [list(shape) for shape in shapes(lambda x, axis: x.narrow(axis, 0, 0))] == expected


#: Without TupleDropout, whose output is random.
TRACED = [(e, a) for e, a in PAIRS if e.batch_axis is not None and e.name != "TupleDropout"]


@pytest.mark.parametrize(
    ("example", "algebra"), thinned(TRACED, is_traced_often), ids=lambda v: getattr(v, "label", str(v))
)
@pytest.mark.filterwarnings("ignore")  # of torch: jit is deprecated, and checked sizes become constants
def test_a_trace_serves_batches_of_other_sizes(example, algebra):
    layer, inputs = example.make(algebra), example.feed(algebra)
    traced = torch.jit.trace(copy.deepcopy(layer), tuple(inputs))
    more = example.rebatch(inputs, lambda x, axis: torch.cat([x, 2 * x, x + 1], axis))
    assert_same(traced(*more), layer(*more))


@pytest.mark.parametrize("num_axes", [1, 2, 3])
@pytest.mark.parametrize(
    "options", [{}, {"stride": 2}, {"stride": 3, "padding": 1}, {"stride": 2, "dilation": 3}], ids=str
)
@pytest.mark.parametrize("batched", [True, False])
def test_an_output_size_of_a_transposed_convolution_means_what_it_does_to_torch(num_axes, options, batched):
    """Try sizes that fit and sizes that do not, for the spatial axes, for more axes and for fewer."""
    name = f"ConvTranspose{num_axes}d"
    theirs = getattr(nn, name)(3, 2, 3, **options)
    ours = getattr(an.nn, name)(3, 2, 3, **options, algebra=R)
    ours.load_state_dict(theirs.state_dict())
    over_h = getattr(an.nn, name)(12, 8, 3, **options, algebra=H)
    x = torch.randn(*[1] * batched, 3, *(4, 5, 3)[:num_axes])
    many = torch.cat([x] * 4, -num_axes - 1)
    least = theirs(x).shape[-num_axes:]
    for more in range(-1, 4):
        size = [n + more for n in least]
        for wanted in (size, [2, *size], [1, 2, *size], [9, 9, *size], [1, 1, 2, *size], size[1:], []):
            try:
                expected = theirs(x, output_size=wanted)
            except ValueError:
                for layer, given in ((ours, x), (over_h, many)):
                    with pytest.raises(ValueError, match="output_size must"):
                        layer(given, output_size=wanted)
            else:
                torch.testing.assert_close(ours(x, output_size=wanted), expected)
                assert over_h(many, output_size=wanted).shape[-num_axes:] == expected.shape[-num_axes:]


def test_over_r_embedding_is_torchs():
    theirs, ours = nn.Embedding(7, 4, padding_idx=2), an.nn.Embedding(7, 4, padding_idx=2, algebra=R)
    ours.load_state_dict(theirs.state_dict())
    index = torch.tensor([[1, 2], [6, 0]])
    assert torch.equal(ours(index), theirs(index))
    table = torch.randn(7, 8)
    pretrained = an.nn.Embedding.from_pretrained(table, freeze=False, padding_idx=1, algebra=M2R)
    assert torch.equal(pretrained(index), table[index])
    assert pretrained.weight.requires_grad
    assert pretrained.algebra is M2R
    assert an.tuples(an.nn.Embedding(7, 12, algebra=M2R)(index), M2R, dim=2).shape == (2, 2, 4, 3)


@over_layers
@over_kinds
def test_every_layer_runs_forward_and_backward_over_every_algebra(example, algebra):
    layer = example.make(algebra)
    inputs = [x.requires_grad_() for x in example.feed(algebra)]
    results = zoo.outputs(layer(*inputs))
    assert all(torch.isfinite(y).all() for y in results)
    sum((y**2).sum() for y in results).backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    assert f"algebra={algebra.name}" in repr(layer)


@pytest.mark.parametrize(
    "example", [e for e in zoo.LAYERS if zoo.taken(getattr(an.nn, e.name), {"lowering": "auto"})], ids=lambda e: e.label
)
@over_two
def test_the_lowerings_of_a_layer_agree(example, algebra):
    layer = example.make(algebra, dtype=torch.float64)
    oracle = example.make(algebra, dtype=torch.float64, lowering="reference")
    oracle.load_state_dict(layer.state_dict())
    inputs = example.feed(algebra, torch.float64)
    assert_same(layer(*inputs), oracle(*inputs))


@over_layers
@over_two
def test_state_dict_deepcopy_and_pickle_keep_a_layer(example, algebra):
    layer = example.make(algebra).eval()
    inputs = example.feed(algebra)
    expected = layer(*inputs)
    other = example.make(algebra).eval()
    missing = other.load_state_dict(layer.state_dict())
    assert not missing.missing_keys
    assert not missing.unexpected_keys
    assert_same(other(*inputs), expected)
    assert_same(copy.deepcopy(layer)(*inputs), expected)
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    assert_same(torch.load(buffer, weights_only=False)(*inputs), expected)


@over_layers
@over_two
def test_a_layer_moves_between_dtypes_and_devices(example, algebra):
    layer = example.make(algebra).double()
    assert all(y.dtype == torch.float64 for y in zoo.outputs(layer(*example.feed(algebra, torch.float64))))
    meta = [x.to("meta") for x in example.feed(algebra)]
    shapes = [y.shape for y in zoo.outputs(example.make(algebra)(*example.feed(algebra)))]
    on_meta = zoo.outputs(example.make(algebra).to("meta")(*meta))
    assert [y.shape for y in on_meta] == shapes
    assert all(y.device.type == "meta" for y in on_meta)
    if any(True for _ in layer.parameters()):
        born_there = example.make(algebra, device="meta", dtype=torch.float64)
        assert all(p.device.type == "meta" and p.dtype == torch.float64 for p in born_there.parameters())


@over_layers
@over_two
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(example, algebra, dtype):
    layer = example.make(algebra)
    inputs = example.feed(algebra)
    for x in inputs:
        x.requires_grad_()
    if example.name in RECURRENT:
        _autocast_recurrent(example, layer, inputs, dtype)
        return
    exact = layer.eval()(*inputs)
    with torch.autocast("cpu", dtype=dtype):
        rough = layer(*inputs)
        if example in zoo.TWINS:
            theirs = example.make_real().eval()(*example.feed(R))
            assert [y.dtype for y in zoo.outputs(rough)] == [y.dtype for y in zoo.outputs(theirs)]
    if example.name != "TupleGate":  # a step is not continuous
        for a, b in zip(zoo.outputs(rough), zoo.outputs(exact), strict=True):
            torch.testing.assert_close(a.float(), b, atol=0.1, rtol=0.1)
    sum((y.float() ** 2).sum() for y in zoo.outputs(rough) if y.requires_grad).backward()
    assert all(torch.isfinite(x.grad).all() for x in inputs if x.grad is not None)


def _autocast_recurrent(example, layer, inputs, dtype):
    """Our recurrent layers must run under autocast if torch's do."""
    with torch.autocast("cpu", dtype=dtype):
        try:
            example.make_real()(*example.feed(R))
        except (RuntimeError, ValueError) as error:
            pytest.skip(f"torch.nn's own does not: {error}"[:100])
        rough = layer(*inputs)
    for a, b in zip(zoo.outputs(rough), zoo.outputs(layer(*inputs)), strict=True):
        torch.testing.assert_close(a.float(), b, atol=0.1, rtol=0.1)


#: One example of each class. The other examples are traced by torch.export and by torch.jit. Recurrent layers have many
#: weights, and tracing rho(w) over H takes long, so they use C instead of H, whose weights are stored and expanded in
#: the same way.
COMPILED = [(e, C if e.name in RECURRENT and a == H else a) for e, a in PAIRS if e in zoo.ONE_EACH]


@pytest.mark.parametrize(
    ("example", "algebra"), thinned(COMPILED, is_traced_often), ids=lambda v: getattr(v, "label", str(v))
)
def test_compile_takes_a_layer_whole(example, algebra):
    torch._dynamo.reset()
    layer = example.make(algebra)
    if example.name == "TupleDropout":
        layer.eval()
    inputs = example.feed(algebra)
    if example.name.startswith("Whitening"):  # squares of white outputs sum to a constant, so gradients are rounding
        layer, inputs = layer.double(), [x.double() for x in inputs]
    twin = copy.deepcopy(layer)
    inputs = [x.requires_grad_() for x in inputs]
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    results = [compiled(*inputs), twin(*inputs)]
    assert_same(*results)
    grads = [
        torch.autograd.grad(
            sum((y**2).sum() for y in zoo.outputs(result) if y.requires_grad),
            [*inputs, *module.parameters()],
            allow_unused=True,
        )
        for result, module in zip(results, (layer, twin), strict=True)
    ]
    assert_same(*grads)


@pytest.mark.parametrize("name", ["Conv2d", "MultiheadAttention", "Whitening2d"])
def test_the_default_compiler_gives_the_same_result(name):
    torch._dynamo.reset()
    example = zoo.plainest(name)
    layer = example.make(M2R)
    twin = copy.deepcopy(layer)
    inputs = example.feed(M2R)
    assert_same(torch.compile(layer, fullgraph=True)(*inputs), twin(*inputs))


@over_traced
def test_export(example, algebra):
    layer = example.make(algebra).eval()
    inputs = tuple(example.feed(algebra))
    if example.name in RECURRENT:
        try:
            torch.export.export(example.make_real().eval(), tuple(example.feed(R)))
        except Exception as error:
            pytest.skip(f"torch.nn's own does not: {error}"[:100])
    program = torch.export.export(layer, inputs)
    assert_same(program.module()(*inputs), layer(*inputs))


BATCHES = [("Linear", 0), ("Conv2d", 0), ("Whitening2d", 0), ("GRU", 1), ("MultiheadAttention", 1)]


@pytest.mark.parametrize(
    ("name", "axis", "algebra"),
    thinned(((*case, a) for case in BATCHES for a in (M2R, H)), lambda n, _, a: a == (H if n in OF_PRODUCTS else M2R)),
    ids=str,
)
def test_export_keeps_the_batch_size_open(name, axis, algebra):
    example = zoo.plainest(name)
    layer, inputs = example.make(algebra).eval(), example.feed(algebra)
    program = torch.export.export(
        layer, tuple(inputs), dynamic_shapes=tuple({axis: torch.export.Dim.DYNAMIC} for _ in inputs)
    )
    more = [torch.cat([x, x, x], axis) for x in inputs]
    assert_same(program.module()(*more), layer(*more))


@pytest.mark.parametrize("algebra", [R, C, H, M2R, M2C], ids=str)
def test_torch_func_sees_through_a_layer(algebra):
    layer = an.nn.Linear(2 * algebra.dim, algebra.dim, algebra=algebra).double()
    conv = an.nn.Conv2d(2 * algebra.dim, 2 * algebra.dim, 3, groups=2, algebra=algebra).double()
    x = torch.randn(3, 2 * algebra.dim, dtype=torch.float64)
    image = torch.randn(3, 2 * algebra.dim, 4, 4, dtype=torch.float64)
    for module, data in ((layer, x), (conv, image)):
        parameters = dict(module.named_parameters())

        def loss(parameters, row, module=module):
            return torch.func.functional_call(module, parameters, (row,)).square().sum()

        per_row = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, data)
        whole = torch.func.grad(loss)(parameters, data)
        for name, grad in whole.items():
            torch.testing.assert_close(per_row[name].sum(0), grad)
    models = [an.nn.Linear(2 * algebra.dim, algebra.dim, algebra=algebra).double() for _ in range(2)]
    stacked, _ = torch.func.stack_module_state(models)
    together = torch.func.vmap(lambda p, x: torch.func.functional_call(layer, p, (x,)), in_dims=(0, None))(stacked, x)
    torch.testing.assert_close(together, torch.stack([model(x) for model in models]))
    jacobian = torch.func.jacrev(layer)(x[0])
    torch.testing.assert_close(torch.func.jvp(layer, (x[0],), (x[1],))[1], jacobian @ x[1])


@pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("name", ["Conv2d", "ConvTranspose2d"])
def test_channels_last_goes_in_and_comes_out(algebra, groups, name):
    conv = getattr(an.nn, name)(4 * algebra.dim, 4 * algebra.dim, 3, padding=1, groups=groups, algebra=algebra)
    x = torch.randn(2, 4 * algebra.dim, 5, 6)
    y = conv(x.to(memory_format=torch.channels_last))
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, conv(x))
    torch.testing.assert_close(conv.to(memory_format=torch.channels_last)(x), conv(x))


@pytest.mark.parametrize("algebra", [R, C, H, M2R, M2C], ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda a: an.nn.Lift2d(3, algebra=a),
        lambda a: an.nn.Lift2d(3, num_layers=2, algebra=a),
        lambda a: an.nn.Lift2d(3, mode="zeros", algebra=a),
        lambda a: an.nn.Lift2d(3, mode="copy", algebra=a),
        lambda a: an.nn.Whitening2d(3 * a.dim, algebra=a),
        lambda a: an.nn.Whitening2d(3 * a.dim, algebra=a).eval(),
        lambda a: an.nn.TupleGate(dim=1, algebra=a),
        lambda a: an.nn.TupleDropout(dim=1, algebra=a).eval(),
        lambda a: an.nn.TupleNorm(dim=1, algebra=a),
    ],
)
def test_channels_last_passes_through_every_layer_for_images(make, algebra):
    layer = make(algebra)
    x = torch.randn(2, 3 if isinstance(layer, an.nn.Lift2d) else 3 * algebra.dim, 5, 4)
    y = layer(x.to(memory_format=torch.channels_last))
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, layer(x))


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
@pytest.mark.parametrize("name", ["Linear", "Conv2d", "ConvTranspose2d"])
def test_weight_tuples_read_and_write_the_weight(algebra, name):
    kernel = () if name == "Linear" else (3,)
    layer = getattr(an.nn, name)(2 * algebra.dim, 3 * algebra.dim, *kernel, algebra=algebra)
    t = torch.randn_like(layer.weight_tuples)
    layer.weight_tuples = t
    torch.testing.assert_close(layer.weight_tuples, t)
    if algebra.change is None:
        assert torch.equal(layer.weight_tuples, t)
    with pytest.raises(ValueError, match="weight_tuples must have shape"):
        layer.weight_tuples = t[:, :1]
    if name == "Linear":
        x = torch.randn(2 * algebra.dim)
        expected = product.linear(x, product.weight_from_tuples(t, algebra), layer.bias, algebra=algebra)
        torch.testing.assert_close(layer(x), expected)


def test_parameters_shrink_as_the_paper_says():
    for algebra in CATALOGUE.values():
        layer = an.nn.Linear(4 * algebra.dim, 3 * algebra.dim, bias=False, algebra=algebra)
        assert layer.weight.numel() * algebra.dim == 4 * algebra.dim * 3 * algebra.dim


def test_names_that_need_no_algebra_are_torchs():
    assert an.nn.ReLU is nn.ReLU
    assert an.nn.BatchNorm2d is nn.BatchNorm2d
    assert an.nn.functional.relu is nn.functional.relu
    assert {"Linear", "ReLU", "Lift"} <= {*dir(an.nn)}
    with pytest.raises(AttributeError):
        an.nn.NoSuchLayer  # noqa: B018


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: an.nn.Linear(10, 8, algebra=H), "in_features is 10, which does not hold whole H tuples: it must be a multiple of 4, such as 8 or 12."),
        (lambda: an.nn.Linear(8, 3, algebra=H), "out_features is 3, .* such as 4."),
        (lambda: an.nn.Linear(8, 8, algebra="Q"), "unknown algebra 'Q'"),
        (lambda: an.nn.Conv2d(8, 10, 3, algebra=H), "out_channels is 10"),
        (lambda: an.nn.Conv2d(8, 8, 3, groups=4, algebra=H), "groups=4 must divide the tuples on both sides: 8 channels in are 2 H tuples"),
        (lambda: an.nn.Conv2d(8, 8, 3, groups=0, algebra=H), "groups=0 must divide"),
        (lambda: an.nn.Conv2d(8, 8, (3, 3, 3), algebra=H), "kernel_size must be one number or 2 of them"),
        (lambda: an.nn.Conv2d(8, 8, 3, padding="all", algebra=H), "padding must be one number, 2 of them, 'same' or 'valid'"),
        (lambda: an.nn.Conv2d(8, 8, 3, padding="same", stride=2, algebra=H), "padding='same' needs stride 1"),
        (lambda: an.nn.Conv2d(8, 8, 3, padding_mode="mirror", algebra=H), "padding_mode must be one of zeros, reflect"),
        (lambda: an.nn.ConvTranspose2d(8, 8, 3, padding_mode="reflect", algebra=H), "padding_mode must be one of zeros;"),
        (lambda: an.nn.ConvTranspose2d(8, 8, 3, padding="same", algebra=H), "padding must be one number, 2 of them; got 'same'"),
        (lambda: an.nn.ConvTranspose2d(8, 8, 3, stride=2, algebra=H)(torch.randn(1, 8, 4, 4), output_size=[20, 20]), "output_size must lie between 9 and 10"),
        (lambda: an.nn.Embedding(8, 6, algebra=H), "embedding_dim is 6"),
        (lambda: an.nn.GRU(8, 6, algebra=H), "hidden_size is 6"),
        (lambda: an.nn.GRU(8, 8, proj_size=4, algebra=H), "proj_size is only for the LSTM"),
        (lambda: an.nn.LSTM(8, 8, proj_size=8, algebra=H), "proj_size must be at least 0 and less than hidden_size=8"),
        (lambda: an.nn.RNN(8, 8, nonlinearity="gelu", algebra=H), "nonlinearity must be one of tanh, relu; got 'gelu'. Did you mean 'relu'"),
        (lambda: an.nn.GRU(8, 8, num_layers=0, algebra=H), "num_layers must be at least 1"),
        (lambda: an.nn.GRU(8, 8, dropout=2, algebra=H), "dropout must lie between 0 and 1"),
        (lambda: an.nn.GRU(8, 8, algebra=H)(torch.randn(3, 2, 4)), "input_size=8 features; got 4"),
        (lambda: an.nn.GRU(8, 8, algebra=H)(torch.randn(8)), "must be .time, features. or have a batch axis"),
        (lambda: an.nn.GRU(8, 8, algebra=H)(torch.randn(3, 2, 8), torch.randn(1, 3, 8)), r"a hidden state must have shape \(1, 2, 8\); got \(1, 3, 8\)"),
        (lambda: an.nn.MultiheadAttention(8, 4, algebra=H), "embed_dim=8 cannot be split into 4 heads of whole H tuples: it must be a multiple of 16"),
        (lambda: an.nn.MultiheadAttention(8, 2, kdim=6, algebra=H), "kdim is 6"),
        (lambda: an.nn.TransformerEncoderLayer(8, 2, activation="tanh", algebra=H), "activation must be one of relu, gelu; got 'tanh'"),
        (lambda: an.nn.Lift(3, mode="ones", algebra=H), "mode must be one of learned, zeros, copy"),
        (lambda: an.nn.Lift(3, num_layers=3, algebra=H), "num_layers must be one of 1, 2; got 3"),
        (lambda: an.nn.Lift(3, algebra=H)(torch.randn(2, 4)), "must have 3 channels; got shape"),
        (lambda: an.nn.TupleNorm(dim=-1, algebra=H)(torch.randn(2, 6)), "axis 1 is 6, which does not hold whole H tuples"),
        (lambda: an.nn.TupleGate("median", dim=1, algebra=H), "g must be 'mean', 'determinant' or a function"),
        (lambda: an.nn.TupleGate(f="step", dim=1, algebra=H), "f must be 'heaviside' or an activation"),
        (lambda: an.nn.TupleDropout(1.5, dim=1, algebra=H), "p must lie between 0 and 1"),
        (lambda: an.nn.Whitening2d(6, algebra=H), "num_features is 6"),
        (lambda: an.nn.Whitening2d(8, eps=0, algebra=H), "eps must be a positive number; got 0"),
        (lambda: an.nn.Whitening2d(8, algebra=H)(torch.randn(2, 8)), "must have 4 axes with 8 channels"),
    ],
)  # fmt: skip
def test_bad_arguments_say_what_must_hold(make, message):
    with pytest.raises(
        ValueError, match=message if message.startswith(("a ", "must")) or ".*" in message else re.escape(message)
    ):
        make()


#: Valid arguments of each layer over H.
SOUND = {
    name: options
    for names, options in (
        ("Linear", {"in_features": 8, "out_features": 4}),
        ("LazyLinear", {"out_features": 4}),
        ("Bilinear", {"in1_features": 8, "in2_features": 12, "out_features": 4}),
        ("AdaptiveLogSoftmaxWithLoss", {"in_features": 8, "n_classes": 10, "cutoffs": [4]}),
        ("Conv1d Conv2d Conv3d", {"in_channels": 8, "out_channels": 4, "kernel_size": 3}),
        (
            "ConvTranspose1d ConvTranspose2d ConvTranspose3d",
            {"in_channels": 8, "out_channels": 4, "kernel_size": 3, "stride": 2},
        ),
        ("LazyConv1d LazyConv2d LazyConv3d", {"out_channels": 4, "kernel_size": 3}),
        (
            "LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d",
            {"out_channels": 4, "kernel_size": 3, "stride": 2},
        ),
        ("Embedding EmbeddingBag", {"num_embeddings": 3, "embedding_dim": 8}),
        ("RNN GRU LSTM RNNCell GRUCell LSTMCell", {"input_size": 8, "hidden_size": 12}),
        ("MultiheadAttention RelativeAttention", {"embed_dim": 16, "num_heads": 2}),
        ("TransformerEncoderLayer TransformerDecoderLayer Transformer", {"d_model": 8, "nhead": 2}),
        ("Lift Lift1d Lift2d Lift3d", {"channels": 3, "num_layers": 2}),
        ("TupleNorm TupleGate TupleDropout", {"dim": -1}),
        ("TupleLayerNorm Whitening1d Whitening2d Whitening3d", {"num_features": 8}),
        ("InstanceNorm1d InstanceNorm2d InstanceNorm3d", {"num_features": 8}),
        ("LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d GLU", {}),
        ("GroupNorm", {"num_groups": 2, "num_channels": 8}),
        ("RMSNorm", {"normalized_shape": 8}),
        ("LocalResponseNorm", {"size": 3}),
        ("ChannelShuffle", {"groups": 2}),
        ("PixelShuffle", {"upscale_factor": 2}),
        ("PixelUnshuffle", {"downscale_factor": 2}),
    )
    for name in names.split()
}
NO_NUMBER = (True, "1", math.nan, [1])
NO_SIZE = (0, -4, 8.0, 1e300, None, *NO_NUMBER)
NO_SHARE = (-0.1, 1.1, math.inf, None, *NO_NUMBER)
#: Invalid values by argument name, for every layer that has the argument.
UNSOUND = [
    (("in_features", "out_features", "in_channels", "out_channels", "embedding_dim", "input_size", "hidden_size"), NO_SIZE),
    (("embed_dim", "d_model", "dim_feedforward", "num_features", "channels"), NO_SIZE),
    (("num_channels", "normalized_shape", "size", "upscale_factor", "downscale_factor"), NO_SIZE),
    (("num_groups",), (3, *NO_SIZE)),
    (("alpha", "beta", "k"), (-1, math.inf, None, *NO_NUMBER)),
    (("num_heads", "nhead", "num_layers", "num_encoder_layers", "num_decoder_layers"), NO_SIZE),
    (("in1_features", "in2_features", "n_classes"), NO_SIZE),
    (("cutoffs",), ([], [0], [4, 4], [5, 4], [10], [1.5], 4, None, True, "4")),
    (("div_value",), (0, -1, math.inf, None, *NO_NUMBER)),
    (("kernel_size", "stride", "dilation"), (0, -1, 1.5, None, True, "3", math.nan, (), (3, 3, 3, 3), (1.5,) * 4)),
    (("padding", "output_padding"), (-1, 0.5, None, True, "much", (), (0, 0, 0, 0))),
    (("output_padding",), (2, 5)),
    (("groups",), (0, -1, 3, 1.0, None, *NO_NUMBER)),
    (("hidden_channels",), (0, -1, 8.0, *NO_NUMBER)),
    (("kdim", "vdim"), (0, -4, 8.0, 6, *NO_NUMBER)),
    (("proj_size",), (-4, 12, 16, 2, 4.0, *NO_NUMBER)),
    (("dropout", "p"), NO_SHARE),
    (("momentum",), (-0.1, 1.1, *NO_NUMBER)),
    (("eps", "layer_norm_eps"), (-1e-5, math.inf, None, *NO_NUMBER)),
    (("num_embeddings",), (-1, 3.0, None, *NO_NUMBER)),
    (("padding_idx",), (3, -4, 0.0, *NO_NUMBER)),
    (("max_norm",), (-1.0, *NO_NUMBER)),
    (("dim",), (0.5, None, *NO_NUMBER)),
    (("lowering",), ("nonsense", None, 5, ["auto"])),
    (("algebra",), (5, None, "nonsense")),
]  # fmt: skip


#: Values that are valid for a layer although they are in UNSOUND.
SOUND_FOR = [("RMSNorm", "eps", None), ("ChannelShuffle", "groups", 3)]


def takes(name, argument):
    """Whether a layer takes an argument, itself or in ``**kwargs`` for its base."""
    for layer in getattr(an.nn, name).__mro__[:-1]:
        parameters = inspect.signature(layer.__init__).parameters
        if argument in parameters or all(p.kind is not p.VAR_KEYWORD for p in parameters.values()):
            return argument in parameters
    return False


LAYERS_WITH_A_LOWERING = [name for name in SOUND if takes(name, "lowering")]


@pytest.mark.parametrize("name", LAYERS_WITH_A_LOWERING)
@pytest.mark.parametrize("algebra", [R, H, M2R], ids=str)
def test_an_unknown_lowering_fails_when_the_layer_is_made(name, algebra):
    make = getattr(an.nn, name)
    make(**SOUND[name], algebra=algebra, lowering="reference")
    with pytest.raises(ValueError, match=r"lowering must be one of auto, blocks, .*, reference; got 'fast'"):
        make(**SOUND[name], algebra=algebra, lowering="fast")


@pytest.mark.parametrize("name", SOUND)
def test_no_layer_is_made_with_unsound_numbers(name):
    make = getattr(an.nn, name)
    make(**SOUND[name], algebra=H)
    tried = set()
    for arguments, values in UNSOUND:
        for argument in arguments:
            if not takes(name, argument) or (argument == "proj_size" and name != "LSTM"):
                continue
            tried.add(argument)
            for value in values:
                if (name, argument, value) in SOUND_FOR:
                    continue
                with pytest.raises(ValueError, match=argument.replace("_", ".")):
                    make(**{**SOUND[name], "algebra": H, argument: value})
    assert tried >= SOUND[name].keys()


def numbers(*others, least=-1, most=4):
    """Draw a number, a number for each of two axes, or one of ``others``."""
    number = st.integers(least, most)
    return number | st.tuples(number, number) | st.sampled_from(others or (1,))


CONVOLUTIONS = {
    "stride": numbers(),
    "padding": numbers("same", "valid"),
    "dilation": numbers(),
    "groups": st.integers(-1, 4),
    "output_padding": numbers(),
    "padding_mode": st.sampled_from(["zeros", "reflect", "replicate", "circular"]),
}


def has_less(value, least):
    return value not in ("same", "valid") and min(value if isinstance(value, tuple) else (value,)) < least


@fuzzed(0.15)
@given(st.booleans(), st.fixed_dictionaries({"kernel_size": numbers()}, optional=CONVOLUTIONS))
def test_over_r_convolutions_of_any_numbers_are_torchs_or_explained(transposed, options):
    name = "ConvTranspose2d" if transposed else "Conv2d"
    options = {k: v for k, v in options.items() if transposed or k != "output_padding"}
    x = torch.randn(1, 4, 5, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about weights without elements
        try:
            theirs = getattr(nn, name)(4, 4, **options)
            expected = theirs(x)
        except Exception:
            expected = None
    try:
        ours = getattr(an.nn, name)(4, 4, **options, algebra=R)
    except ValueError:
        # torch accepts some unsound numbers, such as dilation 0 or negative padding with a mode other than zeros.
        least = {"kernel_size": 1, "stride": 1, "dilation": 1, "padding": 0}
        assert expected is None or any(has_less(options.get(k, 1), n) for k, n in least.items())
        return
    if expected is None:  # sound numbers for an image of another size
        with pytest.raises(RuntimeError):
            ours(x)
    else:
        ours.load_state_dict(theirs.state_dict())
        torch.testing.assert_close(ours(x), expected)
