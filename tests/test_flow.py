"""Tracing a model finds the parts that keep tuples whole, and the operations that take tuples apart."""

import inspect
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import algebranets as an
from algebranets.algebra import M2R, C, H
from algebranets.conversion import convert
from algebranets.conversion.flow import trace
from laws import assert_exact, times

FEATURES, IMAGE, TEXT = (3, 24), (2, 24, 6, 6), (2, 5, 24)


class Net(nn.Module):
    """A model whose forward is a function of its layers and an input."""

    def __init__(self, run, **layers):
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, deepcopy(layer))
        self.run = run

    def forward(self, x):
        return self.run(self, x)


def linear(size_in, size_out):
    return nn.Linear(size_in, size_out, bias=False)


def conv(size_in, size_out, **options):
    return nn.Conv2d(size_in, size_out, 1, bias=False, **options)


def cat(net, x):
    return net.c(torch.cat([net.a(x), net.b(x)], 1))


def cat_of_cats(net, x):
    y = torch.cat([net.a(x), x], 1)
    return net.c(torch.cat([net.b(y), y], 1))


def residual_of_a_cat(net, x):
    return net.d(torch.cat([net.a(x), net.b(x)], 1) + net.c(x))


def chunk(net, x):
    p, q, r = net.a(x).chunk(3, -1)
    return net.b(p + q - r)


def sizes(net, x):
    p, q = net.a(x).split([8, 16], -1)
    return net.b(p) + net.c(q)


def only_the_first(net, x):
    return net.b(net.a(x)[..., :8])


def shuffle(net, x):
    return net.b(F.channel_shuffle(net.a(x), 3))


def shuffle_and_chunk(net, x):
    p, q = F.channel_shuffle(net.a(x), 2).chunk(2, 1)
    return net.b(p) + q


def flatten(net, x):
    return net.b(net.a(x).flatten(1))


def flattened_cat(net, x):
    return net.c(torch.cat([net.a(x), net.b(x)], 1).flatten(1))


def pixel_shuffle(net, x):
    return net.b(F.pixel_shuffle(net.a(x), 2))


def pixel_unshuffle(net, x):
    return net.b(F.pixel_unshuffle(net.a(x), 2))


def unfold(net, x):
    return net.b(F.unfold(net.a(x), 2).transpose(1, 2))


def interleaved_pairs(net, x):
    y = net.a(x)
    return net.b(torch.stack([y[..., ::2] - y[..., 1::2], y[..., ::2] + y[..., 1::2]], -1).flatten(-2))


def sum_of_pieces(net, x):
    return net.b(net.a(x).unflatten(-1, (3, 8)).sum(-2))


def weighted_pieces(net, x):
    weights = torch.tensor([0.5, 2.0, -1.0], dtype=x.dtype)
    return net.b(torch.einsum("k,nkd->nd", weights, net.a(x).unflatten(-1, (3, 8))))


def token_in_front(net, x):
    y = net.a(x)
    return net.b(torch.cat([torch.zeros_like(x[:, :1]), y], 1))


#: Linear networks: the forward, the layers, the shape of the input, and the parts that are expected over H.
LINEAR = {
    "cat": (cat, {"a": conv(24, 8), "b": conv(24, 16), "c": conv(24, 8)}, IMAGE, {"c": (8, 16)}, {}),
    "cat of cats": (
        cat_of_cats, {"a": conv(24, 8), "b": conv(32, 16), "c": conv(48, 8)}, IMAGE,
        {"b": (8, 24), "c": (16, 8, 24)}, {},
    ),
    "residual of a cat": (
        residual_of_a_cat, {"a": linear(24, 8), "b": linear(24, 16), "c": linear(24, 24), "d": linear(24, 8)}, FEATURES,
        {"d": (8, 16)}, {"c": (8, 16)},
    ),
    "chunk": (chunk, {"a": linear(24, 48), "b": linear(16, 8)}, FEATURES, {}, {"a": (16, 16, 16)}),
    "split": (sizes, {"a": linear(24, 24), "b": linear(8, 8), "c": linear(16, 8)}, FEATURES, {}, {"a": (8, 16)}),
    "slice": (only_the_first, {"a": linear(24, 24), "b": linear(8, 8)}, FEATURES, {}, {"a": (8, 16)}),
    "shuffle": (shuffle, {"a": conv(24, 24), "b": conv(24, 8)}, IMAGE, {}, {"a": (8, 8, 8)}),
    "shuffle and chunk": (shuffle_and_chunk, {"a": conv(24, 32), "b": conv(16, 16)}, IMAGE, {}, {"a": (8,) * 4}),
    "flatten": (flatten, {"a": conv(24, 8), "b": linear(8 * 36, 8)}, IMAGE, {}, {}),
    "flattened cat": (
        flattened_cat, {"a": conv(24, 8), "b": conv(24, 16), "c": linear(24 * 36, 8)}, IMAGE,
        {"c": (8 * 36, 16 * 36)}, {},
    ),
    "pixel shuffle": (pixel_shuffle, {"a": conv(24, 32), "b": conv(8, 8)}, IMAGE, {}, {}),
    "pixel unshuffle": (pixel_unshuffle, {"a": conv(24, 8), "b": conv(32, 8)}, IMAGE, {}, {}),
    "unfold": (unfold, {"a": conv(24, 8), "b": linear(32, 8)}, IMAGE, {}, {}),
    "interleaved pairs": (interleaved_pairs, {"a": linear(24, 24), "b": linear(24, 8)}, FEATURES, {}, {}),
    "sum of pieces": (sum_of_pieces, {"a": linear(24, 24), "b": linear(8, 8)}, FEATURES, {}, {"a": (8, 8, 8)}),
    "weighted pieces": (weighted_pieces, {"a": linear(24, 24), "b": linear(8, 8)}, FEATURES, {}, {"a": (8, 8, 8)}),
    "token in front": (token_in_front, {"a": linear(24, 24), "b": linear(24, 8)}, TEXT, {}, {}),
}  # fmt: skip


def traced(run, layers, shape, algebra=H):
    return trace(Net(run, **layers), (torch.randn(shape),), {}, dict.fromkeys(layers, algebra))


@pytest.mark.parametrize("name", LINEAR)
def test_the_parts_are_those_that_the_code_cuts_and_joins(name):
    run, layers, shape, in_parts, out_parts = LINEAR[name]
    flow = traced(run, layers, shape)
    assert (flow.in_parts, flow.out_parts, flow.torn) == (in_parts, out_parts, ())


@pytest.mark.parametrize("algebra", [C, H, M2R], ids=str)
@pytest.mark.parametrize("name", LINEAR)
def test_a_converted_linear_network_commutes_with_multiplication_on_the_right(name, algebra):
    torch.manual_seed(0)
    run, layers, shape, *_ = LINEAR[name]
    x = torch.randn(shape, dtype=torch.float64)
    net = convert(Net(run, **layers).double(), algebra, keep="none", inputs=x)
    assert not net.conversion.torn
    q = torch.randn(algebra.dim, dtype=torch.float64)
    dim = 1 if len(shape) == 4 else -1
    y = net(x)
    assert_exact(net(times(x, q, algebra, dim)), times(y, q, algebra, 1 if y.dim() == 4 else -1))


def attention(net, x):
    """Attention over R, written as most models write it, with a fused layer for queries, keys and values."""
    q, k, v = (part.unflatten(-1, (3, -1)).transpose(1, 2) for part in net.qkv(x).chunk(3, -1))
    return net.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


def attention_by_einsum(net, x):
    q, k, v = net.qkv(x).reshape(*x.shape[:-1], 3, 3, -1).unbind(-3)
    scores = torch.einsum("bthd,bshd->bhts", q, k).softmax(-1)
    return net.out(torch.einsum("bhts,bshd->bthd", scores, v).flatten(-2))


def attention_with_qkv_last(net, x):
    q, k, v = (part.transpose(1, 2) for part in net.qkv(x).unflatten(-1, (2, 12, 3)).unbind(-1))
    return net.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


def rotary_attention(net, x):
    """Shared keys and values, and rotary positions: each head is rotated by halves."""
    q, k, v = net.q(x), net.k(x), net.v(x)
    q, k, v = (part.unflatten(-1, (-1, 8)).transpose(1, 2) for part in (q, k, v))
    angle = torch.arange(x.shape[1])[:, None] / torch.arange(1, 5).repeat(2)
    q, k = (y * angle.cos() + torch.cat([-y[..., 4:], y[..., :4]], -1) * angle.sin() for y in (q, k))
    k, v = (y[:, :, None].expand(-1, -1, 3, -1, -1).flatten(1, 2) for y in (k, v))
    return net.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


def gated(net, x):
    return net.b(F.glu(net.a(x)))


def gated_by_chunks(net, x):
    value, gate = net.a(x).chunk(2, -1)
    return net.b(value * gate.sigmoid())


OTHERS = {
    "attention": (
        attention, {"qkv": linear(24, 72), "out": linear(24, 24)}, TEXT, {"out": (8, 8, 8)}, {"qkv": (8,) * 9},
    ),
    "attention by einsum": (
        attention_by_einsum, {"qkv": linear(24, 72), "out": linear(24, 24)}, TEXT, {"out": (8,) * 3}, {"qkv": (8,) * 9},
    ),
    "attention with q, k, v last": (
        attention_with_qkv_last, {"qkv": linear(24, 72), "out": linear(24, 24)}, TEXT,
        {"out": (12, 12)}, {"qkv": (36, 36)},
    ),
    "rotary attention": (
        rotary_attention, {"q": linear(24, 24), "k": linear(24, 8), "v": linear(24, 8), "out": linear(24, 24)}, TEXT,
        {"out": (8, 8, 8)}, {"q": (4,) * 6, "k": (4, 4)},
    ),
    "GLU": (gated, {"a": linear(24, 16), "b": linear(8, 8)}, FEATURES, {}, {"a": (8, 8)}),
    "chunks": (gated_by_chunks, {"a": linear(24, 16), "b": linear(8, 8)}, FEATURES, {}, {"a": (8, 8)}),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_heads_and_gates_have_whole_tuples(name):
    run, layers, shape, in_parts, out_parts = OTHERS[name]
    flow = traced(run, layers, shape)
    assert (flow.in_parts, flow.out_parts, flow.torn) == (in_parts, out_parts, ())


@pytest.mark.parametrize("name", [name for name in OTHERS if name.startswith("attention")])
def test_converted_attention_commutes_with_quaternions_of_norm_one(name):
    """Scores are products of whole tuples, which a rotation does not change."""
    torch.manual_seed(0)
    run, layers, shape, *_ = OTHERS[name]
    x = torch.randn(shape, dtype=torch.float64)
    net = convert(Net(run, **layers).double(), H, keep="none", inputs=x)
    q = F.normalize(torch.randn(4, dtype=torch.float64), dim=0)
    assert_exact(net(times(x, q, H, -1)), times(net(x), q, H, -1))


def test_a_gate_with_equal_components_scales_its_tuple():
    torch.manual_seed(0)
    run, layers, shape, *_ = OTHERS["GLU"]
    x = torch.randn(shape, dtype=torch.float64)
    net = convert(Net(run, **layers).double(), H, keep="none", inputs=x)
    seen = {}
    net.b.register_forward_pre_hook(lambda _, args: seen.update(x=args[0]))
    net.a.register_forward_hook(lambda _, _args, y: torch.cat([y[:, :8], torch.full_like(y[:, 8:], 2.0)], -1))
    net(x)
    value = an.nn.Linear.forward(net.a, x)
    assert_exact(seen["x"], an.split(value, [8, 8], -1, algebra=H)[0] * torch.tensor(2.0).double().sigmoid())


def odd_chunk(net, x):
    return net.b(net.a(x)[..., :6].repeat(1, 4))


def rolled(net, x):
    return net.b(net.a(x) + net.a(x).roll(1, -1))


def padded(net, x):
    return net.b(net.a(x) + F.pad(net.c(x), (0, 16)))


def sorted_channels(net, x):
    return net.b(net.a(x).sort(-1).values)


def written_into_a_buffer(net, x):
    buffer = x.new_zeros(len(x), 32)
    buffer[:, :24] = net.a(x)
    return net.c(buffer[:, :8])


def written_by_index(net, x):
    y = net.a(x)
    y[:, [0, 1, 2]] = y[:, [5, 6, 7]]
    return net.b(y)


def pooled_over_channels(net, x):
    return net.b(F.avg_pool1d(net.a(x), 3, stride=1, padding=1))


@pytest.mark.parametrize(
    ("run", "op", "reason"),
    [
        (odd_chunk, "Linear in b", "reads channels that are not whole tuples"),
        (rolled, "add in the model", "combines components of different tuples"),
        (written_by_index, "index_put in the model", "is not known"),
        (pooled_over_channels, "avg_pool2d in the model", "depends on the order of channels"),
        (sorted_channels, "sort in the model", "depends on the order of channels"),
        (padded, "add in the model", "combines components of different tuples"),
        (written_into_a_buffer, "copy in the model", "writes into a part of another tensor"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_operations_that_take_tuples_apart_are_named(run, op, reason):
    layers = {"a": linear(24, 24), "b": linear(24, 8), "c": linear(24 if run is padded else 8, 8)}
    (torn,) = traced(run, layers, FEATURES).torn
    lines = (run.__code__.co_firstlineno, run.__code__.co_firstlineno + 4)
    assert str(torn).startswith(f"{op} (test_flow.py:{torn.place.line}): {reason}")
    assert lines[0] < torn.place.line < lines[1]


def test_layers_of_two_algebras_read_the_same_parts():
    run, layers, shape, in_parts, _ = LINEAR["cat"]
    net = Net(run, **layers)
    flow = trace(net, (torch.randn(shape),), {}, {"a": H, "b": H, "c": C})
    assert (flow.in_parts, flow.torn) == (in_parts, ())


def test_a_layer_that_is_called_twice_must_read_the_same_parts():
    layers = {"a": linear(24, 8), "b": linear(24, 16), "c": linear(24, 24)}
    flow = traced(lambda net, x: net.c(net.c(torch.cat([net.a(x), net.b(x)], -1))), layers, FEATURES)
    assert flow.out_parts == {}
    assert [torn.reason for torn in flow.torn] == ["reads channels in different orders"]


def test_weights_that_are_read_without_a_call_are_reported():
    layers = {"a": linear(24, 24), "b": linear(24, 24)}
    flow = traced(lambda net, x: F.linear(net.a(x), net.b.weight), layers, FEATURES)
    assert flow.bypassed == {"b": ""}


def test_layers_that_mix_another_axis_leave_channels_as_they_are():
    def run(net, x):
        y = net.a(x)
        return net.c(net.b(y + net.time(y.transpose(1, 2)).transpose(1, 2)))

    layers = {"a": linear(24, 24), "time": linear(8, 8), "b": linear(24, 8), "c": linear(8, 8)}
    flow = traced(run, layers, (2, 8, 24))
    assert (flow.in_parts, flow.out_parts, flow.torn) == ({}, {}, ())


def last_state(net, x):
    y, h = net.rnn(x)
    return net.b(torch.cat([y[-1][:, :8], h[0][:, 8:]], -1))


def test_the_states_of_recurrent_layers_have_no_parts():
    """A recurrent layer can write its output in parts, but not its states."""
    flow = traced(last_state, {"rnn": nn.GRU(24, 16), "b": linear(16, 8)}, TEXT)
    assert flow.out_parts == {}
    assert [torn.reason for torn in flow.torn] == ["reads channels that are not whole tuples"]
    layers = {"rnn": nn.LSTM(24, 16, bidirectional=True), "b": linear(32, 8)}
    flow = traced(lambda net, x: net.b(torch.cat([*net.rnn(x)[1][0]], -1)), layers, TEXT)
    assert (flow.in_parts, flow.out_parts, flow.torn) == ({"b": (16, 16)}, {}, ())
    flow = traced(lambda net, x: net.b(net.rnn(x)[0].chunk(2, -1)[1].repeat(1, 1, 2)), layers, TEXT)
    assert (flow.in_parts, flow.out_parts, flow.torn) == ({"b": (16, 16)}, {"rnn": (16, 16)}, ())


def test_a_group_norm_writes_the_parts_that_it_reads():
    layers = {"a": conv(24, 8), "b": conv(24, 16), "norm": nn.GroupNorm(2, 24), "c": conv(24, 8)}
    flow = traced(lambda net, x: net.c(net.norm(torch.cat([net.a(x), net.b(x)], 1))), layers, IMAGE)
    assert (flow.in_parts, flow.out_parts) == ({"norm": (8, 16), "c": (8, 16)}, {"norm": (8, 16)})


ACTIVATIONS = [
    nn.CELU, nn.ELU, nn.GELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.LeakyReLU, nn.LogSigmoid,
    nn.Mish, nn.PReLU, nn.ReLU, nn.ReLU6, nn.RReLU, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Softshrink,
    nn.Softsign, nn.Tanh, nn.Tanhshrink,
]  # fmt: skip


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_channels_are_followed_through_activations(activation, inplace):
    if inplace and "inplace" not in inspect.signature(activation).parameters:
        pytest.skip("it has no version in place")
    net = Net(lambda net, x: net.b(torch.cat([net.act(net.a(x)), net.a(x)], -1)), a=linear(24, 24), b=linear(48, 8))
    net.act = activation(**({"inplace": True} if inplace else {}))
    flow = trace(net, (torch.randn(FEATURES),), {}, {"a": H, "b": H})
    assert flow.torn == ()
    assert flow.in_parts == {"b": (24, 24)}


REDUCTIONS = {
    "amax": lambda y: y.amax(2),
    "logsumexp": lambda y: y.logsumexp(2),
    "max": lambda y: y.max(2).values,
    "max, with its axis": lambda y: y.max(2, keepdim=True).values.flatten(1),
    "mean": lambda y: y.mean(2),
    "median": lambda y: y.median(2).values,
    "min": lambda y: y.min(2).values,
    "norm": lambda y: torch.linalg.vector_norm(y, dim=2),
    "prod": lambda y: y.prod(2),
    "std": lambda y: y.std(2),
    "sum": lambda y: y.sum(2),
    "maximum of two": lambda y: torch.max(y[..., 0], y[..., 1]),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_channels_are_followed_through_reductions_of_another_axis(name):
    reduce = REDUCTIONS[name]
    layers = {"a": nn.Conv1d(24, 8, 3), "b": nn.Conv1d(24, 16, 2), "c": linear(24, 8)}
    flow = traced(lambda net, x: net.c(torch.cat([reduce(net.a(x)), reduce(net.b(x))], 1)), layers, (2, 24, 9))
    assert (flow.in_parts, flow.out_parts, flow.torn) == ({"c": (8, 16)}, {}, ())
