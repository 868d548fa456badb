"""Sequences in every form torch takes, against torch over R and against the cells over any algebra."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch.profiler import ProfilerActivity, profile

import algebranets as an
from algebranets import M2R, C, H, R, diagonal
from conftest import ALGEBRAS

F64 = torch.float64
NAMES = ["RNN", "LSTM", "GRU"]
over_names = pytest.mark.parametrize("name", NAMES)
over_some = pytest.mark.parametrize("algebra", [R, C, H, M2R, diagonal(3)], ids=str)


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


@over_names
@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_a_layer_is_its_cell_step_by_step(name, algebra):
    layer = getattr(an.nn, name)(2 * algebra.dim, 3 * algebra.dim, dtype=F64, algebra=algebra)
    cell = getattr(an.nn, name + "Cell")(2 * algebra.dim, 3 * algebra.dim, dtype=F64, algebra=algebra)
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


def test_the_units_that_hold_biases_stay_out_of_outputs_and_states():
    layer = an.nn.GRU(8, 12, algebra=M2R)
    y, h = layer(torch.randn(5, 3, 8))
    assert y.shape == (5, 3, 12)
    assert h.shape == (1, 3, 12)
    assert layer(torch.randn(300, 1, 8))[0].abs().max() <= 1  # nothing drifts over many steps
