"""Layers whose channel axes have parts compute the same as layers with planar axes, up to the order of channels."""

import copy
import pickle

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import algebranets as an
from algebranets.algebra import M2R, M3R, C, H
from algebranets.conversion.parts import from_planar, parted, planar_index, to_planar
from laws import assert_exact

over_algebras = pytest.mark.parametrize("algebra", [C, H, M2R, M3R], ids=str)


def sizes(algebra, *counts):
    return tuple(algebra.dim * count for count in counts)


@over_algebras
@pytest.mark.parametrize("counts", [(3,), (2, 2), (1, 2, 2, 3), (2, 2, 1, 1)], ids=str)
def test_an_axis_with_parts_holds_the_tuples_of_its_parts_one_after_the_other(algebra, counts):
    parts = sizes(algebra, *counts)
    x = torch.randn(2, sum(parts), 3, dtype=torch.float64)
    planar = to_planar(x, parts, 1, algebra)
    assert torch.equal(planar, an.cat(x.split(parts, 1), 1, algebra=algebra))
    assert torch.equal(from_planar(planar, parts, 1, algebra), x)
    assert torch.equal(from_planar(planar, parts, -2, algebra), x)
    assert torch.equal(x[:, planar_index(parts, algebra)], planar)


def example(name, algebra):
    """A layer with 5 tuples in and 6 out, and an input for it."""
    inp, out = 5 * algebra.dim, 6 * algebra.dim
    options = {"algebra": algebra, "dtype": torch.float64}
    if name == "Linear":
        return an.nn.Linear(inp, out, **options), torch.randn(2, 3, inp)
    if name.startswith("Conv"):
        return getattr(an.nn, name)(inp, out, 3, **options), torch.randn(2, inp, *[5] * int(name[-2]))
    return getattr(an.nn, name)(inp, out, num_layers=2, **options), torch.randn(4, 2, inp)


LAYERS = ["Linear", *(f"Conv{kind}{n}d" for kind in ("", "Transpose") for n in (1, 2, 3)), "RNN", "GRU", "LSTM"]


def first(result):
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize("algebra", [H, M2R], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_with_parts_computes_the_layer(name, algebra):
    torch.manual_seed(0)
    layer, x = example(name, algebra)
    x = x.double()
    dim = 1 if name.startswith("Conv") else -1
    in_parts, out_parts = sizes(algebra, 2, 2, 1), sizes(algebra, 1, 5)
    expected = from_planar(first(layer(x)), out_parts, dim, algebra)
    other = parted(copy.deepcopy(layer), in_parts, out_parts)
    seen = from_planar(x, in_parts, dim, algebra)
    assert_exact(first(other(seen)), expected)
    assert isinstance(other, type(layer))
    assert list(other.state_dict()) == list(layer.state_dict())
    assert type(other).__name__ != type(layer).__name__
    assert str(other).startswith(f"{name}(")
    assert "in_parts=" in str(other)
    for again in (copy.deepcopy(other), pickle.loads(pickle.dumps(other))):
        assert_exact(first(again(seen)), expected)


def test_attention_reads_and_writes_parts():
    torch.manual_seed(0)
    layer = an.nn.MultiheadAttention(24, 2, batch_first=True, kdim=16, algebra=H, dtype=torch.float64)
    same = an.nn.MultiheadAttention(24, 2, algebra=H, dtype=torch.float64)
    x, keys = torch.randn(2, 5, 24, dtype=torch.float64), torch.randn(2, 7, 16, dtype=torch.float64)
    values = torch.randn(2, 7, 24, dtype=torch.float64)
    seen = from_planar(x, (8, 16), -1, H)
    with_parts = parted(copy.deepcopy(layer), (8, 16), (16, 8))
    y, scores = with_parts(seen, keys, from_planar(values, (8, 16), -1, H))
    expected, expected_scores = layer(x, keys, values)
    assert_exact(y, from_planar(expected, (16, 8), -1, H))
    assert_exact(scores, expected_scores)
    assert_exact(parted(copy.deepcopy(same), (8, 16), None)(seen, seen, seen)[0], same(x, x, x)[0])


def test_a_packed_sequence_may_have_parts():
    torch.manual_seed(0)
    layer = an.nn.GRU(24, 8, algebra=H, dtype=torch.float64)
    packed = pack_sequence([torch.randn(n, 24, dtype=torch.float64) for n in (4, 2)])
    seen = packed._replace(data=from_planar(packed.data, (8, 16), -1, H))
    y, h = parted(copy.deepcopy(layer), (8, 16), (4, 4))(seen)
    expected, expected_h = layer(packed)
    assert isinstance(y, PackedSequence)
    assert_exact(y.data, from_planar(expected.data, (4, 4), -1, H))
    assert_exact(h, expected_h)


def test_a_group_norm_returns_the_parts_that_it_reads():
    torch.manual_seed(0)
    norm = an.nn.GroupNorm(3, 24, algebra=H, dtype=torch.float64)
    x = torch.randn(2, 24, 5, dtype=torch.float64)
    y = parted(copy.deepcopy(norm), (8, 16), (8, 16))(from_planar(x, (8, 16), 1, H))
    assert_exact(y, from_planar(norm(x), (8, 16), 1, H))


def test_layers_with_parts_compile_and_export():
    layer = parted(an.nn.Linear(24, 24, algebra=H), (8, 8, 8), (8, 16))
    x = torch.randn(3, 24)
    torch.testing.assert_close(torch.compile(layer, backend="aot_eager", fullgraph=True)(x), layer(x))
    torch.testing.assert_close(torch.export.export(layer, (x,)).module()(x), layer(x))


def test_wrong_parts_are_refused():
    with pytest.raises(ValueError, match="a size in in_parts is 6, which does not hold whole H tuples"):
        parted(an.nn.Linear(12, 8, algebra=H), (6, 6), None)
    with pytest.raises(ValueError, match="Embedding cannot have channel axes in parts; these layers can: Linear"):
        parted(an.nn.Embedding(3, 8, algebra=H), None, (4, 4))
    with pytest.raises(ValueError, match=r"must have 16 channels, in parts of \(8, 8\); got \(3, 12\)"):
        parted(an.nn.Linear(16, 8, algebra=H), (8, 8), None)(torch.randn(3, 12))
    layer = an.nn.Linear(16, 8, algebra=H)
    assert parted(layer, None, None) is layer
    assert type(layer) is an.nn.Linear
