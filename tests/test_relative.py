"""Windowed attention's kernels compute what torch's masked attention does, by the interpreter where there is no GPU."""

import pytest
import torch

from algebranets import M2R, H, R
from algebranets.nn import windowed
from algebranets.nn.relative import RelativeAttention, _attend_by_sdpa, sinusoids
from algebranets.product import kernels
from conftest import needs_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of sixteens, so that short texts have whole ones and borders."""
    from algebranets.nn.jit import relative

    for name, queries, keys in (("FORWARD", 32, 16), ("BACKWARD", 16, 32), ("QUERIES", 16, 16)):
        monkeypatch.setattr(relative, name, {256: relative.Tile(queries, keys, 4, 1)})


def tensors(time, past, window, size, batch=1, dtype=torch.float32, heads=2):
    """Queries for content and for position, keys, values, and vectors of as many distances as there can be."""
    shapes = [(batch, heads, n, size) for n in (time, time, past + time, past + time)]
    shapes.append((heads, min(window + 1, past + time), size))
    return [torch.randn(shape, device=DEVICE, dtype=dtype).requires_grad_() for shape in shapes]


def masked(content, position, k, v, r):
    """The same by torch's attention, in float64."""
    content, position, k, v, r = (x.double() for x in (content, position, k, v, r))
    return _attend_by_sdpa(torch.zeros_like(content), k, v, r, content, position)


@needs_triton
@pytest.mark.parametrize(
    ("time", "past", "window", "size", "batch"),
    [
        (50, 0, 200, 16, 1),  # no memory: the window is the text
        (33, 19, 19, 16, 2),  # a window shorter than the text, full
        (33, 13, 60, 48, 1),  # a memory shorter than the window
        (48, 64, 64, 16, 1),
        (3, 61, 100, 16, 1),
        (16, 90, 90, 128, 1),
        (1, 0, 1, 16, 1),
    ],
)
def test_outputs_and_gradients_are_the_masked_attentions(time, past, window, size, batch, small_tiles):  # noqa: ARG001
    given = tensors(time, past, window, size, batch)
    y, expected = windowed.attend(*given), masked(*given)
    torch.testing.assert_close(y.double(), expected, atol=1e-5, rtol=1e-5)
    grad = torch.randn_like(y)
    found, wanted = torch.autograd.grad(y, given, grad), torch.autograd.grad(expected, given, grad.double())
    for name, one, other in zip(("content", "position", "k", "v", "r"), found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@needs_triton
@pytest.mark.parametrize("algebra", [R, M2R], ids=str)
def test_a_layer_gives_the_same_by_either_kernel(algebra, small_tiles, monkeypatch):  # noqa: ARG001
    monkeypatch.setattr(windowed, "applies", lambda _: True)
    embed, time, past = 2 * 16, 19, 14
    layers = [RelativeAttention(embed, 2, algebra=algebra, kernel=kernel).to(DEVICE) for kernel in ("triton", "sdpa")]
    layers[1].load_state_dict(layers[0].state_dict())
    given = [torch.randn(*shape, device=DEVICE) for shape in ((2, time, embed), (2, past, embed), (embed,), (embed,))]
    results = []
    for layer in layers:
        x, memory, u, v = leaves = [t.clone().requires_grad_() for t in given]
        y = layer(x, sinusoids(18, embed, DEVICE), u, v, memory)
        results.append([y, *torch.autograd.grad(y.square().sum(), [*leaves, *layer.parameters()])])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5 * other.abs().max().item(), rtol=1e-4)


@pytest.mark.parametrize(("time", "past", "num_distances"), [(9, 0, 9), (13, 5, 7), (8, 70, 71), (3, 64, 66)])
def test_every_score_has_one_place_and_aligned_keys_aligned_columns(time, past, num_distances):
    _, position, _, _, r = tensors(time, past, num_distances - 1, 16, batch=2, dtype=torch.float64)
    place = windowed.layout(past, num_distances)
    assert (place.nearest - past) % windowed.PHASES == place.columns % windowed.UNIT == 0
    rows = windowed._by_phase(position)
    scores = torch.einsum("hpbtd,hpcd->bhtpc", rows, windowed._moved(r, place).unflatten(0, (2, -1)))
    scores = scores.flatten(2, 3)[:, :, :time]  # (batch, heads, time, columns)
    for i in range(time):
        nearest = place.nearest + i % windowed.PHASES
        row = scores[:, :, i].flip(-1)[..., place.columns - 1 - nearest :][..., :num_distances]
        torch.testing.assert_close(row, (position[:, :, i, None] @ r.mT).squeeze(2))
    count = scores.count_nonzero().item()
    assert count == 2 * 2 * time * num_distances


@needs_triton
def test_nothing_of_the_size_of_the_scores_is_kept(small_tiles):  # noqa: ARG001
    given, kept = tensors(40, 90, 90, 16), []
    num_scores = 2 * 40 * 91
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        windowed.attend(*given)
    assert len(kept) == 7
    assert max(t.numel() for t in kept) == given[2].numel() < num_scores


@needs_triton
def test_the_operators_keep_torchs_rules(small_tiles):  # noqa: ARG001
    content, position, k, v, r = tensors(5, 7, 8, 16)
    rows = windowed._by_phase(position)
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    given = (content, rows, k, v, r)
    torch.library.opcheck(windowed._OPERATOR, given, test_utils=tests)
    out, lse = windowed._OPERATOR(*given)
    detached = [t.detach() for t in (torch.randn_like(out), *given, out, lse)]
    torch.library.opcheck(windowed._BACKWARD, detached, test_utils=tests[:2])


@needs_triton
def test_it_compiles_into_one_graph(small_tiles):  # noqa: ARG001
    given = tensors(9, 7, 12, 16)
    y = torch.compile(windowed.attend, backend="aot_eager", fullgraph=True)(*given)
    expected = windowed.attend(*given)
    torch.testing.assert_close(y, expected)
    for one, other in zip(
        torch.autograd.grad(y.sin().sum(), given), torch.autograd.grad(expected.sin().sum(), given), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_it_applies_to_half_precision_in_heads_for_tensor_cores(monkeypatch):
    q = torch.randn(1, 2, 3, 48)
    assert not windowed.applies(q.bfloat16().cpu())
    monkeypatch.setattr(kernels, "usable", lambda _: True)
    assert windowed.applies(q.bfloat16())
    assert windowed.applies(q.half())
    assert not windowed.applies(q)
    assert not windowed.applies(q.bfloat16()[..., :40])
    assert not windowed.applies(q.bfloat16().repeat(1, 1, 1, 6))


def test_asked_for_by_name_it_says_what_it_takes():
    layer, x = RelativeAttention(32, 2, algebra=H, kernel="triton"), torch.randn(1, 3, 32)
    with pytest.raises(ValueError, match=r'kernel="triton" takes float16 .* got torch.float32 on cpu in heads of 16'):
        layer(x, sinusoids(4, 32), x[0, 0], x[0, 0])


@pytest.mark.parametrize("size", range(16, 257, 16))
def test_every_head_has_its_tiles(size):
    relative = pytest.importorskip("algebranets.nn.jit.relative")
    for tiles in (relative.FORWARD, relative.BACKWARD, relative.QUERIES):
        tile = relative.choose(tiles, size)
        assert all(number.bit_count() == 1 for number in tile[:3])
        assert tile.queries % windowed.PHASES == tile.keys % windowed.PHASES == 0
