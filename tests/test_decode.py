"""Decoding kernels compute the reference product, in Triton's interpreter if there is no GPU."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from algebranets.algebra import M2C, M2R, SPLIT_QUATERNIONS, C, H, direct_sum, get
from algebranets.ops import decode_linear as decode_module
from algebranets.ops.decode_linear import decode_linear
from algebranets.ops.device import is_frozen
from algebranets.ops.table import decode_algebra, encode_algebra
from algebranets.product import auto, kernels, reference, weight_shape
from algebranets.product.activation import ACTIVATIONS
from algebranets.product.cells import MODES, Direction
from conftest import ALGEBRAS, needs_triton, over_kinds, random_algebra, thinned

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def tensors(algebra, batch, num_in, num_out, stacks=1, dtype=torch.float64):
    """Return an input, a weight and a bias."""
    shapes = (*batch, algebra.dim * num_in), weight_shape(algebra, num_out, num_in, stacks=stacks)
    made = [torch.randn(shape, dtype=torch.float64) for shape in (*shapes, (stacks * algebra.dim * num_out,))]
    return [t.to(DEVICE, dtype) for t in made]


both_versions = pytest.mark.parametrize("version", ["fma", "dot"], indirect=True)


@pytest.fixture
def version(request, monkeypatch):
    """Force the use of one of the two kernels."""
    from algebranets.ops.decode_linear import launch

    def dot(plan, num_rows, _itemsize, stacks):
        return launch.dot_tile(plan, num_rows, stacks, inp=16, splits=2)

    monkeypatch.setattr(launch, *(("DOT_FROM", float("inf")) if request.param == "fma" else ("choose", dot)))


@both_versions
@over_kinds
def test_both_kernels_compute_the_reference_product(algebra, version):  # noqa: ARG001, a fixture that changes the choice
    x, weight, bias = tensors(algebra, (3,), 5, 3)
    for rows in (x, x[:1]):
        expected = reference.linear(rows, weight, bias, algebra)
        torch.testing.assert_close(decode_linear(rows, weight, bias, algebra), expected)


@both_versions
@pytest.mark.parametrize(("batch", "stacks"), [((), 3), ((1,), 1), ((2, 3), 1), ((0,), 3)], ids=str)
@pytest.mark.parametrize(
    "algebra",
    thinned([(H,), (direct_sum(C, M2R),), (SPLIT_QUATERNIONS,)], lambda algebra: algebra != direct_sum(C, M2R)),
    ids=str,
)
def test_every_batch_and_several_layers_at_once(algebra, batch, stacks, version):  # noqa: ARG001, a fixture that changes the choice
    x, weight, bias = tensors(algebra, batch, 3, 2, stacks)
    for given in (None, bias):
        expected = reference.linear(x, weight, given, algebra, stacks)
        torch.testing.assert_close(decode_linear(x, weight, given, algebra, stacks), expected)


@pytest.mark.parametrize("in_registers", [True, False])
@pytest.mark.parametrize("name", ["clifford(2,0)", "C*C", "clifford(1,3)"])
def test_a_change_of_basis_is_computed_in_the_kernel_or_apart(name, in_registers, monkeypatch):
    algebra = get(name)
    monkeypatch.setattr(auto, "changes_in_registers", lambda *_: in_registers)
    x, weight, bias = tensors(algebra, (2,), 3, 2, stacks=2)
    expected = ACTIVATIONS["relu"](reference.linear(x, weight, bias, algebra, 2))
    torch.testing.assert_close(kernels.decode(x, weight, bias, algebra, 2, "relu"), expected)


def spread(t):
    """Return an equal tensor whose numbers are not next to each other in memory."""
    return t.repeat_interleave(2, -1)[..., ::2]


@both_versions
def test_operands_may_have_any_strides(version):  # noqa: ARG001, a fixture that changes the choice
    operands = tensors(H, (3,), 5, 3)
    expected = reference.linear(*operands, H)
    torch.testing.assert_close(decode_linear(*map(spread, operands), H), expected)


@pytest.mark.parametrize("algebra", [M2R, C], ids=str)
@pytest.mark.parametrize(("num_in", "num_out"), [(16, 8), (65, 9), (40, 4)])
@both_versions
def test_sizes_that_fill_tiles_and_sizes_that_do_not(algebra, num_in, num_out, version):  # noqa: ARG001, a fixture that changes the choice
    x, weight, bias = tensors(algebra, (2,), num_in, num_out)
    torch.testing.assert_close(decode_linear(x, weight, bias, algebra), reference.linear(x, weight, bias, algebra))


@pytest.mark.parametrize("programs", [1, 256])
@pytest.mark.parametrize("algebra", thinned([(C,), (H,), (M2C,)], lambda algebra: algebra != M2C), ids=str)
def test_one_row_by_one_warp_or_four_in_one_round_or_more(algebra, programs, monkeypatch):
    from algebranets.ops.decode_linear import launch

    monkeypatch.setattr(launch, "PROGRAMS", programs)  # the number that counts as enough
    x, weight, bias = tensors(algebra, (1,), 300, 9)
    (plan,) = launch.plans(algebra, 300, 9)
    tile = launch.choose(plan, plan.num_copies, 8)
    assert tile.num_warps == (1 if algebra.dim >= 4 and programs == 1 else 4)
    assert tile.inp < 300  # so that it loops
    torch.testing.assert_close(decode_linear(x, weight, bias, algebra), reference.linear(x, weight, bias, algebra))


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_tiles_are_powers_of_two_as_triton_wants_them(algebra):
    from algebranets.ops.decode_linear import launch

    for num_in, num_out in [(1, 1), (40, 4), (5000, 300), (300, 5000), (3 << 12, 3 << 12)]:
        for plan in launch.plans(algebra, num_in, num_out):
            for batch, itemsize in [(1, 2), (1, 4), (1, 8), (3, 2), (3, 4), (32, 2)]:
                for choose in (launch.choose, launch.int8_tile):
                    tile = choose(plan, batch * plan.num_copies, itemsize)
                    for number in (tile.out, tile.inp, tile.num_warps, tile.lanes or 1):
                        assert number.bit_count() == 1


# The interpreter has no dot product in bfloat16.
@pytest.mark.parametrize(
    ("dtype", "version"),
    [(torch.float32, "fma"), (torch.float32, "dot"), (torch.bfloat16, "fma"), (torch.float16, "fma")],
    ids=str,
    indirect=["version"],
)
@pytest.mark.parametrize("algebra", [M2R, H], ids=str)
def test_sums_are_at_least_float32(algebra, dtype, version):  # noqa: ARG001, a fixture that changes the choice
    x, weight, bias = tensors(algebra, (2,), 37, 3, dtype=dtype)
    exact = reference.linear(x.double(), weight.double(), bias.double(), algebra)
    error = (decode_linear(x, weight, bias, algebra).double() - exact).norm() / exact.norm()
    assert error < 4 * torch.finfo(dtype).eps


@both_versions
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_torchs(activation, version):  # noqa: ARG001, a fixture that changes the choice
    x, weight, bias = tensors(C, (3,), 5, 3)
    expected = ACTIVATIONS[activation](reference.linear(x, weight, bias, C))
    torch.testing.assert_close(decode_linear(x, weight, bias, C, activation=activation), expected)


@pytest.mark.parametrize(
    "algebra",
    thinned([(C,), (M2R,), (M2C,), (direct_sum(C, M2R),), (random_algebra(2, 5),)], lambda a: a.dim != 4),
    ids=str,
)
def test_programs_share_a_sum(algebra, monkeypatch):
    from algebranets.ops.decode_linear import launch

    counted = torch.zeros(64, dtype=torch.int32, device=DEVICE)
    monkeypatch.setattr("algebranets.ops.launch.counters", lambda _, count: counted[:count])
    monkeypatch.setattr(launch, "choose", lambda plan, *_: launch.dot_tile(plan, 2, inp=16, splits=3))
    x, weight, bias = tensors(algebra, (5,), 100, 17, stacks=2)
    expected = ACTIVATIONS["tanh"](reference.linear(x, weight, bias, algebra, 2))
    torch.testing.assert_close(decode_linear(x, weight, bias, algebra, 2, "tanh"), expected)
    assert not counted.any()


def test_captured_kernels_and_streams_have_their_own_counters(monkeypatch):
    from algebranets.ops import counters as module

    stream = SimpleNamespace(cuda_stream=1)
    monkeypatch.setattr(module, "NUM_COUNTERS", 2000)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream)
    counters = module.Counters(torch.device("cpu"))
    taken = [counters.take(8, captures=False)]
    assert counters.take(5, captures=False) is taken[0]
    taken += [counters.take(8, captures=True), counters.take(8, captures=True)]
    stream.cuda_stream = 2
    taken += [counters.take(600, captures=False), counters.take(2000, captures=True)]
    for own in taken:
        own.fill_(1)
        assert sum(bool(other.any()) for other in taken) == 1
        own.zero_()


@needs_triton
@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize("algebra", [H, M2R], ids=str)
def test_gradients_go_through_blocks(algebra, activation, monkeypatch):
    """The operator has no gradients. Inputs that need gradients go through blocks; backward through it is an error."""
    monkeypatch.setattr("algebranets.ops.device._has_device", lambda _: True)
    given = tensors(algebra, (2,), 3, 2, stacks=2)
    expected = ACTIVATIONS[activation](reference.linear(*given, algebra, 2))
    for needed in range(3):
        leaf = given[needed].clone().requires_grad_()
        some = [*given[:needed], leaf, *given[needed + 1 :]]
        y = kernels.linear(*some, algebra, 2, activation)
        torch.testing.assert_close(y, expected)
        wanted = torch.autograd.grad(ACTIVATIONS[activation](reference.linear(*some, algebra, 2)).sum(), leaf)
        torch.testing.assert_close(torch.autograd.grad(y.sum(), leaf), wanted)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        decode_linear(given[0], given[1], leaf, algebra, 2).sum().backward()


@pytest.mark.parametrize("algebra", thinned([(M2R,), (H,)], lambda algebra: algebra == M2R), ids=str)
def test_it_compiles_into_one_graph(algebra):
    x, weight, bias = tensors(algebra, (2,), 3, 5)
    weight = nn.Parameter(weight)
    compiled = torch.compile(decode_linear, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(
            compiled(x, weight, bias, algebra, 1, "relu"), decode_linear(x, weight, bias, algebra, 1, "relu")
        )


def test_the_operators_keep_torchs_rules():
    x, weight, bias = tensors(C, (2,), 3, 2)
    spelling = encode_algebra(C)
    assert decode_algebra(spelling).terms == C.terms
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(decode_module._decode_linear, (x, weight, bias, spelling, 1, "relu", False), test_utils=tests)


def test_it_applies_to_inference_of_few_rows():
    x, weight, _ = tensors(H, (4,), 8, 8, dtype=torch.bfloat16)
    assert auto._decodes(x, weight, H)
    assert not auto._decodes(x.repeat(33, 1), weight, H)
    assert not auto._decodes(x.float(), weight, H)
    parameter = nn.Parameter(weight)
    assert not auto._decodes(x, parameter, H)
    with torch.no_grad():
        assert auto._decodes(x, parameter, H)


# Recurrent steps ------------------------------------------------------------------------------------------------------


def cell(mode, algebra, batch, num_in, num_hidden, biases=(True, True), dtype=torch.float64):
    """Return the input, the states and the weights of one step."""
    gates, dim = MODES[mode].num_gates, algebra.dim
    x, w_ih, b_ih = tensors(algebra, (1, batch), num_in, num_hidden, gates, dtype)
    h, w_hh, b_hh = tensors(algebra, (1, batch), num_hidden, num_hidden, gates, dtype)
    state = (h, torch.randn_like(h))[: MODES[mode].num_states]
    assert h.shape[-1] == dim * num_hidden
    return x, state, Direction(w_ih, w_hh, b_ih if biases[0] else None, b_hh if biases[1] else None)


def assert_same_step(found, expected):
    torch.testing.assert_close(found[0], expected[0])
    for one, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(one, other)


STEPS = [(M2R, 1), (M2R, 6), (H, 1), (direct_sum(C, M2R), 2)]


@pytest.mark.parametrize(
    ("mode", "algebra", "batch"),
    thinned(((mode, *step) for mode in MODES for step in STEPS), lambda mode, *step: mode == "GRU" or step == (M2R, 1)),
    ids=str,
)
def test_a_step_is_the_references(mode, algebra, batch):
    x, state, direction = cell(mode, algebra, batch, 3, 2)
    expected = reference.recurrent(mode, x, state, [direction], algebra)
    assert_same_step(kernels._step(mode, x, state, direction, algebra), expected)


def test_operands_of_a_step_may_have_any_strides():
    x, state, direction = cell("GRU", M2R, 2, 3, 2)
    expected = reference.recurrent("GRU", x, state, [direction], M2R)
    strided = Direction(*(spread(part) for part in direction if part is not None))
    assert_same_step(kernels._step("GRU", spread(x), tuple(map(spread, state)), strided, M2R), expected)


@pytest.mark.parametrize("biases", [(True, False), (False, True), (False, False)])
def test_either_bias_of_a_step_may_be_missing(biases):
    x, state, direction = cell("GRU", M2C, 1, 1, 2, biases)
    assert_same_step(
        kernels._step("GRU", x, state, direction, M2C), reference.recurrent("GRU", x, state, [direction], M2C)
    )


@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_a_step_go_through_blocks(mode, monkeypatch):
    monkeypatch.setattr("algebranets.ops.device._has_device", lambda _: True)
    x, state, direction = cell(mode, M2R, 2, 2, 3)
    given = [t.requires_grad_() for t in (x, *state, *direction[:4])]

    def grads(lowering):
        output, new = lowering.recurrent(mode, x, state, [direction], M2R)
        return torch.autograd.grad([output.sin().sum() + sum(s.cos().sum() for s in new)], given)

    for one, other in zip(grads(kernels), grads(reference), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("mode", thinned([("GRU",), ("LSTM",)], lambda mode: mode == "GRU"))
def test_a_step_compiles_into_one_graph(mode):
    x, state, direction = cell(mode, H, 1, 2, 3)
    compiled = torch.compile(kernels._step, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert_same_step(compiled(mode, x, state, direction, H), reference.recurrent(mode, x, state, [direction], H))


def test_steps_apply_one_at_a_time():
    x, _, direction = cell("GRU", H, 2, 2, 3)
    assert auto.is_single_step(x, [direction])
    assert not auto.is_single_step(x.repeat(2, 1, 1), [direction])
    assert not auto.is_single_step(x, [direction, direction])
    assert not auto.is_single_step(x[0], [direction], torch.ones(1))
    assert not auto.is_single_step(x, [direction._replace(w_hr=x)])


def test_autocast_gives_its_precision():
    x, state, direction = cell("LSTM", H, 1, 2, 3, dtype=torch.float32)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert decode_linear(x, direction.w_ih, None, H, MODES["LSTM"].num_gates).dtype == torch.bfloat16
        assert kernels._step("LSTM", x, state, direction, H)[0].dtype == torch.bfloat16
        assert not auto._decodes(x, direction.w_ih, H)


def test_a_weight_is_read_early_only_if_nobody_wrote_it_since_it_was_read():
    weight, buffer = nn.Parameter(torch.randn(8, 2)), nn.Buffer(torch.randn(2))
    assert not is_frozen(weight)  # gradients are recorded
    with torch.no_grad():
        assert [is_frozen(buffer) for _ in range(2)] == [False, True]
        assert [is_frozen(weight) for _ in range(3)] == [False, True, True]
        weight.mul_(2)
        assert [is_frozen(weight) for _ in range(2)] == [False, True]
        assert not is_frozen(weight * 1)
        assert not is_frozen(weight * 1)
    with torch.inference_mode():
        assert is_frozen(weight)
        made_here = nn.Parameter(torch.randn(2), requires_grad=False)
        assert [is_frozen(made_here) for _ in range(2)] == [False, False]
