"""Functions that cut and join the channel axis keep tuples whole."""

import pytest
import torch

import algebranets as an
from algebranets.algebra import CROSS, M2R, C, H, R
from conftest import over_kinds
from laws import times

SHAPES = [(1, (2, "3", 5, 4)), (-1, (5, "3")), (0, ("3",)), (2, (2, 1, "3", 4))]


def tensor(algebra, shape, num_tuples=None):
    return torch.randn([int(n) * algebra.dim if isinstance(n, str) else n for n in _with(shape, num_tuples)])


def _with(shape, num_tuples):
    return [str(num_tuples) if isinstance(n, str) and num_tuples else n for n in shape]


@over_kinds
@pytest.mark.parametrize(("dim", "shape"), SHAPES)
def test_cat_gives_the_tuples_of_one_tensor_and_then_of_the_other(algebra, dim, shape):
    parts = [tensor(algebra, shape, n) for n in (3, 1, 2)]
    joined = an.cat(parts, dim, algebra=algebra)
    axis = dim % len(shape)
    expected = torch.cat([an.tuples(x, algebra, axis) for x in parts], axis + 1)
    assert torch.equal(an.tuples(joined, algebra, axis), expected)


@over_kinds
@pytest.mark.parametrize(("dim", "shape"), SHAPES)
def test_split_and_chunk_undo_cat(algebra, dim, shape):
    parts = [tensor(algebra, shape, n) for n in (2, 2, 1)]
    joined = an.cat(parts, dim, algebra=algebra)
    sizes = [n * algebra.dim for n in (2, 2, 1)]
    for cut in (
        an.split(joined, sizes, dim, algebra=algebra),
        an.split(joined, 2 * algebra.dim, dim, algebra=algebra),
        an.chunk(joined, 3, dim, algebra=algebra),
    ):
        assert len(cut) == 3
        assert all(torch.equal(x, y) for x, y in zip(cut, parts, strict=True))


@pytest.mark.parametrize("num_tuples", [1, 2, 5, 6, 7])
@pytest.mark.parametrize("chunks", [1, 2, 3, 4, 9])
def test_over_r_cat_split_and_chunk_are_torchs(num_tuples, chunks):
    x = torch.randn(2, num_tuples, 3)
    pairs = [
        (an.chunk(x, chunks, 1, algebra=R), torch.chunk(x, chunks, 1)),
        (an.split(x, chunks, 1, algebra=R), torch.split(x, chunks, 1)),
        ([an.cat([x, x], 1, algebra=R)], [torch.cat([x, x], 1)]),
    ]
    for ours, theirs in pairs:
        assert [tuple(part.shape) for part in ours] == [tuple(part.shape) for part in theirs]
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("algebra", [C, H, M2R], ids=str)
def test_cat_and_chunk_commute_with_multiplication_on_the_right_and_torchs_do_not(algebra):
    x, y = (torch.randn(2, n * algebra.dim, 3, dtype=torch.float64) for n in (2, 4))
    q = torch.randn(algebra.dim, dtype=torch.float64)

    def error(function):
        first, then = function(*(times(t, q, algebra, 1) for t in (x, y))), times(function(x, y), q, algebra, 1)
        return (first - then).abs().max()

    assert error(lambda x, y: an.cat([x, y], 1, algebra=algebra)) < 1e-12
    assert error(lambda _, y: an.chunk(y, 2, 1, algebra=algebra)[1]) < 1e-12
    assert error(lambda _, y: an.split(y, algebra.dim, 1, algebra=algebra)[2]) < 1e-12
    assert error(lambda x, y: torch.cat([x, y], 1)) > 0.1
    assert error(lambda _, y: torch.chunk(y, 2, 1)[1]) > 0.1


def test_heads_hold_whole_tuples():
    x = torch.randn(2, 5, 24, dtype=torch.float64)
    q = torch.randn(4, dtype=torch.float64)
    heads = an.split_heads(x, 3, algebra="H")
    assert heads.shape == (2, 3, 5, 8)
    assert torch.allclose(an.split_heads(times(x, q, H, -1), 3, algebra="H"), times(heads, q, H, -1))
    assert torch.equal(an.join_heads(heads, algebra="H"), x)


@over_kinds
def test_gradients_pass_through(algebra):
    x, y = (torch.randn(2, n * algebra.dim, dtype=torch.float64, requires_grad=True) for n in (1, 3))

    def cut(x, y):
        return an.chunk(an.cat([x, y], -1, algebra=algebra), 2, -1, algebra=algebra)

    assert torch.autograd.gradcheck(cut, (x, y))


def test_channels_last_images_stay_in_their_format():
    x, y = (torch.randn(2, 8, 5, 4).contiguous(memory_format=torch.channels_last) for _ in range(2))
    joined = an.cat([x, y], 1, algebra="H")
    assert joined.is_contiguous(memory_format=torch.channels_last)
    assert all(t.is_contiguous(memory_format=torch.channels_last) for t in an.chunk(joined, 2, 1, algebra="H"))


def test_cat_split_and_chunk_can_be_compiled_and_traced():
    def cut(x, y):
        return an.chunk(an.cat([x, y], 1, algebra=M2R), 2, 1, algebra=M2R)

    x, y = torch.randn(2, 8, 3), torch.randn(2, 16, 3)
    for made in (torch.compile(cut, backend="eager", fullgraph=True), torch.jit.trace(cut, (x, y))):
        assert all(torch.equal(a, b) for a, b in zip(made(x, y), cut(x, y), strict=True))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: an.cat([x, x[:, :6]], 1, algebra="H"), "the size of axis 1 is 6, .* multiple of 4, such as 4 or 8"),
        (lambda _: an.cat([], 1, algebra="H"), "at least one tensor; got none"),
        (lambda x: an.cat([x, x], 0, algebra="H"), "axis 0 is 2, .* that does not hold tuples, use torch.cat"),
        (lambda x: an.split(x, [4, 8], 1, algebra="H"), r"add up to the 16 channels of axis 1; got \[4, 8\]"),
        (lambda x: an.split(x, [6, 10], 1, algebra="H"), "a size in split_size is 6"),
        (lambda x: an.split(x, 6, 1, algebra="H"), "split_size is 6"),
        (lambda x: an.chunk(x, 0, 1, algebra="H"), "chunks must be at least 1; got 0"),
        (lambda x: an.chunk(x, 2, 1, algebra=CROSS), "does not hold whole CROSS tuples"),
        (lambda x: an.split_heads(x.mT, 3, algebra="H"), "features=16 cannot be split into 3 heads of whole H tuples"),
        (lambda x: an.split_heads(x.mT, 0, algebra="H"), "num_heads must be at least 1; got 0"),
        (lambda x: an.join_heads(x, algebra="H"), "the size of axis 2 is 3"),
    ],
)
def test_wrong_arguments_say_what_must_hold(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.randn(2, 16, 3))
