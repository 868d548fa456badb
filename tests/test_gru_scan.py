"""GRUs over whole sequences in one kernel, in Triton's interpreter if there is no GPU."""

from types import SimpleNamespace

import pytest
import torch

import algebranets as an
from algebranets.algebra import M2C, M2R, M4R, C, H, R, direct_sum
from algebranets.ops import gru_scan
from algebranets.product import auto, kernels, reference, weight_shape
from algebranets.product.cells import Direction
from algebranets.product.thresholds import GPU
from conftest import captured, needs_triton, random_algebra

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def interpreted(test):
    """Run a test in the interpreter, in float32. Compiled kernels take half precision; tests marked gpu run them."""
    return needs_triton(pytest.mark.skipif(DEVICE == "cuda", reason="there is no interpreter")(test))


NAMES = ("x", "state", "w_ih", "w_hh", "b_ih", "b_hh")


def gru(algebra, time, batch, num_in, num_hidden, biases=(True, True), num_directions=1, device=DEVICE):
    """Return the input, first states and weights, scaled to keep gates away from 0 and 1. All need gradients."""

    def randn(*shape, by=1.0):
        return (torch.randn(*shape, device=device) * by).requires_grad_()

    by = (num_hidden * algebra.dim) ** -0.5
    directions = [
        Direction(
            randn(*weight_shape(algebra, num_hidden, num_in, stacks=3), by=by),
            randn(*weight_shape(algebra, num_hidden, num_hidden, stacks=3), by=by),
            *(randn(3 * algebra.dim * num_hidden) if has else None for has in biases),
        )
        for _ in range(num_directions)
    ]
    x, state = randn(time, batch, algebra.dim * num_in), randn(num_directions, batch, algebra.dim * num_hidden)
    return x, state, directions


def named(x, state, directions):
    tensors = [("x", x), ("state", state)]
    for direction in directions:
        tensors += zip(NAMES[2:], direction[:4], strict=True)
    return [(name, t) for name, t in tensors if t is not None]


def assert_same(found, expected, given, assert_close=torch.testing.assert_close):
    """Compare outputs, last states, and the gradients of all tensors in ``given``."""
    (y, (last,)), (z, (final,)) = found, expected
    assert_close(y, z)
    assert_close(last, final)
    grads = [torch.randn_like(z), torch.randn_like(final)]
    leaves = [t for _, t in named(*given)]
    ours = torch.autograd.grad([y, last], leaves, [g.to(y.dtype) for g in grads])
    theirs = torch.autograd.grad([z, final], leaves, grads)
    for (name, _), one, other in zip(named(*given), ours, theirs, strict=True):
        assert one.dtype == other.dtype
        assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")


def both(given, algebra):
    x, state, directions = given
    return kernels._scan(*given, algebra), reference.recurrent("GRU", x, (state,), directions, algebra)


@interpreted
@pytest.mark.parametrize("algebra", [M2R, M4R, C, H, M2C, direct_sum(C, M2R), random_algebra(1, 3)], ids=str)
@pytest.mark.parametrize("time", [1, 2, 5])
def test_it_is_the_references_gru(algebra, time):
    given = gru(algebra, time, 3, 2, 5)
    assert_same(*both(given, algebra), given)


@interpreted
@pytest.mark.parametrize("biases", [(True, False), (False, True), (False, False)])
@pytest.mark.parametrize("algebra", [M2R, H], ids=str)
def test_either_bias_may_be_missing(algebra, biases):
    given = gru(algebra, 3, 2, 3, 2, biases)
    assert_same(*both(given, algebra), given)


@interpreted
@pytest.mark.parametrize("algebra", [M2R, H, direct_sum(C, M2R)], ids=str)
def test_both_directions(algebra):
    given = gru(algebra, 4, 2, 3, 2, num_directions=2)
    assert_same(*both(given, algebra), given)


@interpreted
@pytest.mark.parametrize(("batch", "num_hidden"), [(1, 16), (9, 8), (20, 24)])
def test_rows_and_units_that_fill_tiles_and_that_do_not(batch, num_hidden):
    given = gru(M2R, 3, batch, 3, num_hidden)
    assert_same(*both(given, M2R), given)


@interpreted
def test_a_gradient_may_come_from_the_output_or_the_last_state_alone():
    given = x, state, directions = gru(M2R, 3, 2, 3, 2)
    for which in range(2):
        found, expected = ((y, *last)[which].square().sum() for y, last in both(given, M2R))
        leaves = [x, state, *directions[0][:4]]
        for one, other in zip(*(torch.autograd.grad(t, leaves) for t in (found, expected)), strict=True):
            torch.testing.assert_close(one, other)


@interpreted
def test_nothing_is_kept_where_no_gradients_are_recorded(monkeypatch):
    kept = []
    run = gru_scan._gru_scan
    monkeypatch.setattr(gru_scan, "_gru_scan", lambda *a: kept.append(run(*a)[1].numel()) or run(*a))
    given = gru(M2R, 3, 2, 3, 2)
    recorded = kernels._scan(*given, M2R)[0]
    with torch.no_grad():
        torch.testing.assert_close(kernels._scan(*given, M2R)[0], recorded.detach())
    assert kept == [3 * 4 * recorded[0].numel(), 0]


@interpreted
def test_it_compiles_into_one_graph():
    given = gru(H, 3, 2, 3, 2)
    compiled = torch.compile(kernels._scan, backend="aot_eager", fullgraph=True)
    assert_same(compiled(*given, H), both(given, H)[1], given)


@interpreted
def test_the_operators_keep_torchs_rules():
    gates, state, weight, bias = torch.randn(3, 4, 15), torch.randn(4, 5), torch.randn(15, 5), torch.randn(4, 2, 5)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(gru_scan._gru_scan, (gates, state, weight, bias, False, True), test_utils=checks)
    states, kept = gru_scan._gru_scan(gates, state, weight, bias, True, True)
    for last in (None, state):
        given = (torch.randn(3, 4, 5), last, states, kept, weight, True)
        torch.library.opcheck(gru_scan._gru_scan_backward, given, test_utils=checks)


@interpreted
def test_autocast_gives_its_precision():
    given = x, state, directions = gru(M2R, 3, 2, 3, 2)
    exact, _ = reference.recurrent("GRU", x, (state,), directions, M2R)
    with torch.autocast(DEVICE, dtype=torch.float16):
        y, (last,) = kernels._scan(*given, M2R)
    assert y.dtype == last.dtype == torch.float16
    assert (y - exact).norm() < 4 * torch.finfo(torch.float16).eps * exact.norm()
    assert all(grad.dtype == torch.float32 for grad in torch.autograd.grad(y.sum(), [t for _, t in named(*given)]))


@interpreted
def test_long_sequences_in_half_precision_take_it(monkeypatch):
    monkeypatch.setattr("algebranets.ops.device.is_usable", lambda _: True)
    x, state, directions = gru(M2R, GPU.scan_steps, 2, 3, 2)
    assert auto.recurrent("GRU", x, directions, M2R, None) == "blocks"
    half, w = x.bfloat16(), [Direction(*(t.bfloat16() for t in directions[0][:4]))]
    assert auto.recurrent("GRU", half, w, M2R, None) == "kernels"
    assert auto.recurrent("LSTM", half, w, M2R, None) == "blocks"
    assert auto.recurrent("GRU", half[1:], w, M2R, None) == "blocks"
    assert auto.recurrent("GRU", half[:, 0], w, M2R, torch.ones(len(x))) == "blocks"
    assert auto.recurrent("GRU", half, [w[0]._replace(w_hr=x)], M2R, None) == "blocks"
    calls = []
    monkeypatch.setattr(kernels, "_scan", lambda *a: calls.append(a))
    kernels.recurrent("GRU", half, (state.bfloat16(),), w, M2R)
    assert len(calls) == 1
    real, _, alone = gru(R, GPU.scan_steps, 2, 3, 2)
    assert not auto.is_gru_scan("GRU", real.bfloat16(), alone, R)


@needs_triton
def test_programs_are_as_many_as_run_at_once(monkeypatch):
    from algebranets.ops.gru_scan import launch

    h200 = SimpleNamespace(multi_processor_count=132, shared_memory_per_block_optin=232448)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: h200)
    device = torch.device("cuda")
    assert launch.choose(32, 1024, device) == (16, 16)
    assert launch.choose(64, 1024, device) == (32, 16)
    assert launch.choose(128, 512, device) == (32, 16)
    assert launch.choose(80, 1024, device) is None
    assert launch.choose(16, 1040, device) is None


# On a GPU -------------------------------------------------------------------------------------------------------------


def close(dtype):
    """Return a comparison of whole tensors up to the rounding of ``dtype``. Single numbers may differ by more."""

    def assert_close(one, other, msg=lambda text: text):
        error = (one.double() - other.double()).norm() / other.double().norm()
        assert error < 4 * torch.finfo(dtype).eps, msg(f"off by {error:.2e}")

    return assert_close


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("algebra", "time", "batch", "num_hidden"),
    [
        (M2R, 40, 16, 512),  # 64 programs for each of two groups of rows
        (M2R, 20, 32, 512),  # 32 rows a program
        (M2R, 20, 3, 40),
        (M4R, 20, 5, 8),
        (H, 20, 20, 36),
        (C, 20, 7, 8),  # one program
        (direct_sum(C, M2R), 20, 4, 24),
    ],
    ids=str,
)
def test_programs_that_wait_for_each_other_compute_the_reference(algebra, time, batch, num_hidden, dtype):
    given = x, state, directions = gru(algebra, time, batch, 8, num_hidden)
    with torch.autocast("cuda", dtype=dtype):
        assert auto.is_gru_scan("GRU", x, directions, algebra)
        found = kernels._scan(*given, algebra)
    expected = reference.recurrent("GRU", x, (state,), directions, algebra)
    assert_same(found, expected, given, close(dtype))


@pytest.mark.gpu
def test_a_long_sequence_and_both_directions(monkeypatch):
    calls, recurrent, assert_close = [], kernels._scan, close(torch.bfloat16)
    monkeypatch.setattr(kernels, "_scan", lambda *given: calls.append(given) or recurrent(*given))
    layer = an.nn.GRU(64, 256, bidirectional=True, algebra=M2R, device="cuda")
    x = torch.randn(2000, 5, 64, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y, _ = layer(x)
        layer.lowering = "blocks"
        z, _ = layer(x)
    assert len(calls) == 1
    assert_close(y, z)


@pytest.mark.gpu
def test_it_is_captured_and_replayed():
    layer = an.nn.GRU(64, 256, algebra=M2R, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(30, 8, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def step():
        y, _ = layer(x)
        return y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])

    graph, results = captured(step)
    with torch.no_grad():
        x.normal_()
    graph.replay()
    graph.replay()
    for one, other in zip(results, step(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.gpu
def test_it_compiles_into_one_graph_there():
    layer = an.nn.GRU(64, 256, algebra=M2R, device="cuda")
    x = torch.randn(30, 8, 64, device="cuda", requires_grad=True)
    compiled, assert_close = torch.compile(layer, fullgraph=True), close(torch.bfloat16)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        results = [(y, *torch.autograd.grad(y.sum(), [x, *layer.parameters()])) for y, _ in (layer(x), compiled(x))]
    for one, other in zip(*results, strict=True):
        assert_close(one, other)


@pytest.mark.gpu
def test_auto_takes_it_for_a_gru_alone():
    x = torch.randn(GPU.scan_steps, 4, 64, device="cuda", dtype=torch.bfloat16)
    for name, takes in (("GRU", True), ("LSTM", False)):
        layer = getattr(an.nn, name)(64, 64, algebra=M2R, device="cuda", dtype=torch.bfloat16)
        with torch.profiler.profile() as seen:
            layer(x)
        assert any("algebranets::gru_scan" in event.name for event in seen.events()) == takes
