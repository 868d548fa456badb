"""Recurrent layers give what torch's give over R, and what their cells give over any algebra."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch.profiler import ProfilerActivity, profile

import algebranets as an
from algebranets import M2R, C, H, R, diagonal
from algebranets.product.cells import MODES
from conftest import ALGEBRAS, thinned

F64 = torch.float64
NAMES = ["RNN", "LSTM", "GRU"]
over_names = pytest.mark.parametrize("name", NAMES)
SOME = [R, C, H, M2R, diagonal(3)]
over_some = pytest.mark.parametrize("algebra", SOME, ids=str)


def twins(name, **options):
    theirs = getattr(nn, name)(3, 4, **options, dtype=F64)
    ours = getattr(an.nn, name)(3, 4, **options, dtype=F64, algebra=R)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def flat(result):
    out, state = result
    out = [out.data, out.batch_sizes] if isinstance(out, PackedSequence) else [out]
    return [*out, *(state if isinstance(state, tuple) else (state,))]


@over_names
@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_over_r_packed_sequences_and_states_are_torchs(name, sort, bidirectional):
    ours, theirs = twins(name, num_layers=2, bidirectional=bidirectional)
    lengths = [5, 3, 3, 1] if sort else [3, 5, 1, 3]
    packed = pack_sequence([torch.randn(n, 3, dtype=F64) for n in lengths], enforce_sorted=sort)
    h = torch.randn(4 if bidirectional else 2, 4, 4, dtype=F64)
    for hx in (None, (h, h + 1) if name == "LSTM" else h):
        for a, b in zip(flat(ours(packed, hx)), flat(theirs(packed, hx)), strict=True):
            torch.testing.assert_close(a, b)


@over_names
def test_over_r_batch_first_unbatched_and_given_states_are_torchs(name):
    ours, theirs = twins(name, batch_first=True)
    x, h = torch.randn(2, 5, 3, dtype=F64), torch.randn(1, 2, 4, dtype=F64)
    for data, state in ((x, h), (x[0], h[:, 0])):
        hx = (state, 2 * state) if name == "LSTM" else state
        for a, b in zip(flat(ours(data, hx)), flat(theirs(data, hx)), strict=True):
            torch.testing.assert_close(a, b)


def test_over_r_lstm_projections_are_torchs():
    ours, theirs = twins("LSTM", num_layers=2, proj_size=2, bidirectional=True)
    x = torch.randn(5, 2, 3, dtype=F64)
    for a, b in zip(flat(ours(x)), flat(theirs(x)), strict=True):
        torch.testing.assert_close(a, b)


# Empty batches: test_layers.py has those of every layer ---------------------------------------------------------------


@pytest.mark.parametrize("lowering", ["auto", "reference"])
@over_names
def test_over_r_a_packed_sequence_of_no_examples_gives_what_torchs_gives(name, lowering):
    theirs = getattr(nn, name)(3, 4, 2, bidirectional=True)
    ours = getattr(an.nn, name)(3, 4, 2, bidirectional=True, algebra=R, lowering=lowering)
    empty = PackedSequence(torch.randn(0, 3), torch.tensor([0]))
    for a, b in zip(flat(ours(empty)), flat(theirs(empty)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("lowering", ["auto", "bilinear", "reference"])
@over_some
def test_projections_of_an_empty_batch_are_empty(algebra, lowering):
    options = {"bidirectional": True, "proj_size": 2 * algebra.dim, "algebra": algebra, "lowering": lowering}
    layer = an.nn.LSTM(2 * algebra.dim, 3 * algebra.dim, 2, **options)
    x, h, c = (torch.randn(n, 0, m * algebra.dim, requires_grad=True) for n, m in ((5, 2), (4, 2), (4, 3)))
    y, final = layer(x, (h, c))
    assert [t.shape for t in (y, *final)] == [(5, 0, 4 * algebra.dim), h.shape, c.shape]
    grads = torch.autograd.grad(sum(t.sum() for t in (y, *final)), [x, h, c, *layer.parameters()])
    assert not any(grad.any() for grad in grads)


@pytest.mark.parametrize(
    ("name", "algebra"),
    thinned(((n, a) for n in NAMES for a in (M2R, H)), lambda *case: case in (("GRU", M2R), ("LSTM", H))),
    ids=str,
)
def test_an_empty_batch_goes_through_a_compiled_layer(name, algebra):
    torch._dynamo.reset()
    layer = getattr(an.nn, name)(8, 12, algebra=algebra)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_compiled_is_eager(compiled, layer, torch.randn(5, 0, 8))


@over_names
@pytest.mark.parametrize("lowering", ["auto", "reference"])
def test_a_sequence_without_steps_is_explained(name, lowering):
    layer = getattr(an.nn, name)(8, 12, batch_first=True, lowering=lowering, algebra=M2R)
    for x in (torch.randn(2, 0, 8), torch.randn(0, 8)):
        with pytest.raises(ValueError, match="a sequence must have at least one step"):
            layer(x)


# torch.jit.trace ------------------------------------------------------------------------------------------------------


class Padded(nn.Module):
    """Packs the input, runs a layer and unpacks its output."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, lengths):
        y, state = self.layer(pack_padded_sequence(x, lengths, enforce_sorted=False))
        return pad_packed_sequence(y)[0], state


#: One layer over every algebra, every layer over one algebra, and one case without gradients.
TRACED = [*((n, a, True) for n in NAMES for a in SOME if n == "GRU" or a == M2R), ("LSTM", M2R, False)]


@pytest.mark.parametrize(("name", "algebra", "recorded"), TRACED, ids=str)
@pytest.mark.filterwarnings("ignore")  # of torch: jit is deprecated, and checked sizes become constants
def test_a_trace_serves_sequences_of_other_lengths(name, algebra, recorded):
    layer = getattr(an.nn, name)(2 * algebra.dim, 3 * algebra.dim, 2, bidirectional=True, algebra=algebra, dtype=F64)
    with torch.set_grad_enabled(recorded):
        traced = torch.jit.trace(layer, torch.randn(5, 2, 2 * algebra.dim, dtype=F64))
    for shape in ((5, 2), (1, 1), (8, 3), (4, 0)):
        x = torch.randn(*shape, 2 * algebra.dim, dtype=F64)
        results = [flat(run(x)) for run in (traced, layer)]
        torch.testing.assert_close(*results)
        grads = [torch.autograd.grad(sum(y.square().sum() for y in ys), layer.parameters()) for ys in results]
        torch.testing.assert_close(*grads)


@over_names
@pytest.mark.parametrize("algebra", [M2R, H], ids=str)
@pytest.mark.filterwarnings("ignore")
def test_a_trace_serves_packed_sequences_of_other_batches(name, algebra):
    layer = Padded(getattr(an.nn, name)(8, 12, bidirectional=True, algebra=algebra))
    traced = torch.jit.trace(layer, (torch.randn(5, 3, 8), torch.tensor([3, 5, 2])))
    for lengths in ([5, 4, 2], [5, 7, 2, 1]):
        x = torch.randn(max(lengths), len(lengths), 8)
        for a, b in zip(*(flat(run(x, torch.tensor(lengths))) for run in (traced, layer)), strict=True):
            torch.testing.assert_close(a, b)


@over_names
@pytest.mark.parametrize("recurrent_bias", [True, False])
@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_a_layer_is_its_cell_step_by_step(name, recurrent_bias, algebra):
    options = {"recurrent_bias": recurrent_bias, "dtype": F64, "algebra": algebra}
    layer = getattr(an.nn, name)(2 * algebra.dim, 3 * algebra.dim, **options)
    cell = getattr(an.nn, name + "Cell")(2 * algebra.dim, 3 * algebra.dim, **options)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)  # biases as well: they differ between the copies of a block
    cell.load_state_dict({key.removesuffix("_l0"): value for key, value in layer.state_dict().items()})
    x = torch.randn(4, 2, 2 * algebra.dim, dtype=F64)
    y, final = layer(x)
    state = None
    for t in range(4):
        state = cell(x[t], state)
        torch.testing.assert_close(y[t], state[0] if name == "LSTM" else state)
    for a, b in zip(final if name == "LSTM" else (final,), state if name == "LSTM" else (state,), strict=True):
        torch.testing.assert_close(a[0], b)


@over_names
@over_some
def test_a_packed_sequence_gives_what_each_of_its_sequences_gives(name, algebra):
    layer = getattr(an.nn, name)(2 * algebra.dim, 3 * algebra.dim, 2, bidirectional=True, dtype=F64, algebra=algebra)
    sequences = [torch.randn(n, 2 * algebra.dim, dtype=F64) for n in (2, 4, 1)]
    padded = nn.utils.rnn.pad_sequence(sequences)
    packed = pack_padded_sequence(padded, torch.tensor([2, 4, 1]), enforce_sorted=False)
    y, final = layer(packed)
    y, lengths = pad_packed_sequence(y)
    assert lengths.tolist() == [2, 4, 1]
    for n, sequence in enumerate(sequences):
        alone, alone_final = layer(sequence)
        torch.testing.assert_close(y[: len(sequence), n], alone)
        for a, b in zip(*((f if name == "LSTM" else (f,)) for f in (final, alone_final)), strict=True):
            torch.testing.assert_close(a[:, n], b)


@over_names
@over_some
def test_without_a_recurrent_bias_a_layer_is_one_whose_recurrent_bias_is_zero(name, algebra):
    sizes, options = (2 * algebra.dim, 3 * algebra.dim, 2), {"bidirectional": True, "dtype": F64, "algebra": algebra}
    one, two = (getattr(an.nn, name)(*sizes, **options, recurrent_bias=wanted) for wanted in (False, True))
    for parameter in one.parameters():
        nn.init.normal_(parameter, std=0.5)
    missing = two.load_state_dict(one.state_dict(), strict=False)  # its recurrent biases start as zeros
    assert not missing.unexpected_keys
    assert missing.missing_keys == [key for key in two.state_dict() if key.startswith("bias_hh")]
    packed = pack_sequence([torch.randn(n, 2 * algebra.dim, dtype=F64) for n in (4, 2, 2)])
    for x in (torch.randn(4, 2, 2 * algebra.dim, dtype=F64), packed):
        results = [flat(layer(x)) for layer in (one, two)]
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b)
        for result in results:
            result[0].square().sum().backward()
    for key, parameter in one.named_parameters():
        torch.testing.assert_close(parameter.grad, two.get_parameter(key).grad)


@over_names
def test_biases_are_there_as_asked_for(name):
    for suffix, made in (("_l0", getattr(an.nn, name)), ("", getattr(an.nn, name + "Cell"))):
        for options, biases in (
            ({}, ["bias_ih", "bias_hh"]),
            ({"recurrent_bias": False}, ["bias_ih"]),
            ({"bias": False}, []),
            ({"bias": False, "recurrent_bias": False}, []),
        ):
            layer = made(8, 8, **options, algebra=M2R)
            assert [key for key in layer.state_dict() if key.startswith("bias")] == [key + suffix for key in biases]
            assert ("recurrent_bias=False" in repr(layer)) == ("recurrent_bias" in options)
            assert layer(torch.randn(3, 8))[0].shape[-1] == 8


@over_some
def test_both_directions_lie_side_by_side_in_each_component(algebra):
    layer = an.nn.GRU(2 * algebra.dim, 3 * algebra.dim, bidirectional=True, dtype=F64, algebra=algebra)
    y, h = layer(torch.randn(4, 2, 2 * algebra.dim, dtype=F64))
    forth, back = an.tuples(y, algebra, dim=2).chunk(2, dim=-1)
    torch.testing.assert_close(forth[-1], an.tuples(h[0], algebra))
    torch.testing.assert_close(back[0], an.tuples(h[1], algebra))


def test_dropout_acts_between_layers_in_training_only():
    layer = an.nn.GRU(8, 8, num_layers=2, dropout=0.9, algebra=M2R)
    x = torch.randn(3, 2, 8)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])


@pytest.mark.parametrize("algebra", [C, H, M2R], ids=str)
def test_layers_run_torchs_fused_kernel_not_a_loop_in_python(algebra):
    """The number of calls from Python does not grow with the sequence: one call per layer."""

    def calls(steps):
        layer = an.nn.GRU(4 * algebra.dim, 4 * algebra.dim, algebra=algebra)
        with profile(activities=[ProfilerActivity.CPU]) as run:
            layer(torch.randn(steps, 2, 4 * algebra.dim))
        return sum(event.count for event in run.key_averages() if event.key == "aten::gru")

    assert calls(3) == calls(30) == 1


def test_without_a_recurrent_bias_no_units_hold_it():
    def hidden_units(**options):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as run:
            an.nn.GRU(8, 12, **options, algebra=M2R)(torch.randn(5, 3, 8))
        (event,) = [e for e in run.key_averages(group_by_input_shape=True) if e.key == "aten::gru"]
        return event.input_shapes[1][-1]

    assert hidden_units() == 12 // 2 + 8
    assert hidden_units(recurrent_bias=False) == hidden_units(bias=False) == 12 // 2


def test_the_units_that_hold_biases_stay_out_of_outputs_and_states():
    layer = an.nn.GRU(8, 12, algebra=M2R)
    y, h = layer(torch.randn(5, 3, 8))
    assert y.shape == (5, 3, 12)
    assert h.shape == (1, 3, 12)
    assert layer(torch.randn(300, 1, 8))[0].abs().max() <= 1  # nothing drifts over many steps


# torch.compile --------------------------------------------------------------------------------------------------------


def assert_compiled_is_eager(compiled, layer, x):
    """Compare the outputs and gradients of a compiled layer with those of the eager one."""
    results = []
    for run in (compiled, layer):
        outputs = [y for y in flat(run(x)) if y.is_floating_point()]
        results.append([*outputs, *torch.autograd.grad(sum(y.square().sum() for y in outputs), layer.parameters())])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", thinned(((n,) for n in NAMES), lambda name: name != "RNN"))
def test_a_graph_holds_one_operator_a_layer_and_serves_every_length(name):
    torch._dynamo.reset()
    layer = getattr(an.nn, name)(8, 12, algebra=M2R)
    backend = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    for steps in (3, 7, 40, 12):
        assert_compiled_is_eager(compiled, layer, torch.randn(steps, 2, 8))
    assert backend.frame_count == 2  # one for the first length, and one for any length
    for graph in backend.graphs:
        assert sum("algebranets.torch_rnn" in str(node.target) for node in graph.graph.nodes) == 1
    with torch.no_grad():
        x = torch.randn(5, 2, 8)
        for a, b in zip(flat(compiled(x)), flat(layer(x)), strict=True):
            torch.testing.assert_close(a, b)


def test_the_default_compiler_trains_a_layer():
    torch._dynamo.reset()
    layer = an.nn.GRU(8, 12, bidirectional=True, algebra=M2R)
    assert_compiled_is_eager(torch.compile(layer, fullgraph=True), layer, torch.randn(4, 3, 8))


@over_names
def test_compile_breaks_the_graph_of_a_packed_sequence_where_its_batch_size_is_read(name):
    torch._dynamo.reset()
    layer = getattr(an.nn, name)(8, 12, bidirectional=True, algebra=M2R)
    backend = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, backend=backend)
    assert_compiled_is_eager(compiled, layer, pack_sequence([torch.randn(n, 8) for n in (5, 3, 1)]))
    assert sum("algebranets.torch_rnn" in str(n.target) for g in backend.graphs for n in g.graph.nodes) == 1


@over_names
def test_compiled_under_autocast_a_layer_runs_in_autocasts_precision(name):
    torch._dynamo.reset()
    layer = getattr(an.nn, name)(8, 12, algebra=M2R)
    x = torch.randn(4, 3, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = flat(torch.compile(layer, fullgraph=True, backend="aot_eager")(x))
    for a, b in zip(rough, flat(layer(x)), strict=True):
        assert a.dtype == torch.bfloat16
        torch.testing.assert_close(a.float(), b, atol=0.1, rtol=0.1)
    rough[0].float().square().sum().backward()
    assert all(p.grad.dtype == torch.float32 and torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_operator_keeps_what_torch_asks_of_operators(mode, packed, steps):
    """Outputs alias nothing, fake tensors have the right shapes and strides, and autograd works with dynamic shapes."""
    gates, states = MODES[mode].num_gates, MODES[mode].num_states
    x = torch.randn(*([steps] if packed else [steps, 1]), 3, requires_grad=True)
    state = [torch.randn(2, 1, 4, requires_grad=True) for _ in range(states)]
    weights = [torch.randn(gates * 4, *n, requires_grad=True) for n in ((3,), (4,), (), ()) * 2]
    arguments = (mode, x, state, weights, True, torch.ones(steps, dtype=torch.int64) if packed else None)
    torch.library.opcheck(torch.ops.algebranets.torch_rnn.default, arguments)
    grads = [torch.randn(*x.shape[:-1], 8), *(torch.randn(2, 1, 4) for _ in range(states))]
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.algebranets.torch_rnn_backward.default, (grads, *arguments), test_utils=checks)
