"""The kernels of window_attention compute torch's masked attention, interpreted if there is no GPU."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from algebranets import CROSS, M2R, M3R, M4R, C, H, R
from algebranets.nn.relative import RelativeAttention, _attend_by_sdpa, sinusoids
from algebranets.ops import window_attention
from algebranets.ops.window_attention import scores
from algebranets.product import auto, join_heads, split_heads
from conftest import needs_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS = 2


@pytest.fixture
def small_tiles(monkeypatch):
    """Use tiles of 16 and 32, so that short texts have both whole and partial tiles."""
    from algebranets.ops.window_attention import launch

    for name, queries, keys in (("FWD_TILES", 32, 16), ("BWD_KEYS_TILES", 16, 32), ("BWD_QUERIES_TILES", 16, 16)):
        monkeypatch.setattr(launch, name, {256: launch.Tile(queries, keys, 4, 1)})


def tensors(time, past, window, size, batch=1, dtype=torch.float32):
    """Return queries for content and for position, keys, values, and the vectors of all possible distances."""
    shapes = [(batch, n, HEADS * size) for n in (time, time, past + time, past + time)]
    shapes.append((min(window + 1, past + time), HEADS * size))
    return [torch.randn(shape, device=DEVICE, dtype=dtype).requires_grad_() for shape in shapes]


def attend(algebra):

    def attend(content, position, *others):
        return window_attention.window_attention((content, position), *others, HEADS, dim=algebra.dim)

    return attend


def masked(*given, algebra):
    """Compute window attention by torch's masked attention, in float64."""
    content, position, k, v, r = (split_heads(x.double(), HEADS, algebra=algebra) for x in given)
    return join_heads(_attend_by_sdpa(torch.zeros_like(content), k, v, r, content, position), algebra=algebra)


@needs_triton
@pytest.mark.parametrize(
    ("time", "past", "window", "algebra", "size", "batch"),
    [
        (50, 0, 200, R, 16, 1),  # no memory: the window is the text
        (33, 19, 19, M2R, 16, 2),  # a window shorter than the text, with a full memory
        (33, 13, 60, H, 48, 1),  # a memory shorter than the window; 12 tuples a head
        (48, 64, 64, C, 16, 1),
        (9, 13, 17, R, 48, 1),
        (3, 61, 100, CROSS, 48, 1),
        (16, 90, 90, M2R, 128, 1),
        (5, 9, 11, M3R, 144, 1),
        (1, 0, 1, M4R, 16, 1),
    ],
    ids=str,
)
def test_outputs_and_gradients_are_the_masked_attentions(time, past, window, algebra, size, batch, small_tiles):  # noqa: ARG001
    given = tensors(time, past, window, size, batch)
    y, expected = attend(algebra)(*given), masked(*given, algebra=algebra)
    torch.testing.assert_close(y.double(), expected, atol=1e-5, rtol=1e-5)
    grad = torch.randn_like(y)
    found, wanted = torch.autograd.grad(y, given, grad), torch.autograd.grad(expected, given, grad.double())
    for name, one, other in zip(("content", "position", "k", "v", "r"), found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@needs_triton
def test_features_may_lie_in_any_order(small_tiles):  # noqa: ARG001
    """Rows with gaps between them are read in place. Numbers that are not adjacent are copied."""
    given = [t.detach() for t in tensors(9, 6, 12, 16, batch=2)]
    expected = attend(M2R)(*given)
    wider = [torch.stack([t, t], dim=-2).flatten(-2)[..., : t.shape[-1]] for t in given]
    turned = [t.mT.contiguous().mT for t in given]
    for strided in (wider, turned):
        torch.testing.assert_close(attend(M2R)(*strided), expected)


@needs_triton
@pytest.mark.parametrize(("algebra", "size"), [(R, 16), (M2R, 16), (CROSS, 48)], ids=str)
def test_a_layer_gives_the_same_by_either_kernel(algebra, size, small_tiles, monkeypatch):  # noqa: ARG001
    monkeypatch.setattr(auto, "takes_window_attention", lambda *_: True)
    embed, time, past = 2 * size, 19, 14
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


class Operators(TorchDispatchMode):
    """Records the arguments and results of our operators by name."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.namespace == "algebranets":
            self.calls[func.name()] = args, result
        return result


@needs_triton
@pytest.mark.parametrize("algebra", [R, M2R], ids=str)
def test_the_kernels_take_what_projections_give_and_give_what_they_take(algebra, small_tiles, monkeypatch):  # noqa: ARG001
    """No features are copied, neither in the forward nor in the backward."""
    monkeypatch.setattr(auto, "takes_window_attention", lambda *_: True)
    layer, x = RelativeAttention(32, 2, algebra=algebra, kernel="triton").to(DEVICE), torch.randn(2, 9, 32)
    places = {}

    def note(name, t):
        places[name] = t.data_ptr()
        t.register_hook(lambda grad: places.update({f"grad of {name}": grad.data_ptr()}))

    layer.k_proj.register_forward_hook(lambda _module, _inputs, y: note("k", y))
    layer.v_proj.register_forward_hook(lambda _module, _inputs, y: note("v", y))
    layer.out_proj.register_forward_pre_hook(lambda _module, inputs: note("out", inputs[0]))
    with Operators() as operators:
        y = layer(x.to(DEVICE), sinusoids(12, 32, DEVICE), *torch.randn(2, 32, device=DEVICE))
        y.square().sum().backward()
    (_, _, k, v, _), (out, _) = operators.calls["algebranets::window_attention"]
    (grad, *_), (_, _, grad_k, grad_v, _) = operators.calls["algebranets::window_attention_backward"]
    found = {"k": k, "v": v, "out": out, "grad of k": grad_k, "grad of v": grad_v, "grad of out": grad}
    assert {name: t.data_ptr() for name, t in found.items()} == places


@pytest.mark.parametrize(("time", "past", "num_distances"), [(9, 0, 9), (13, 5, 7), (8, 70, 71), (3, 64, 66)])
def test_every_score_has_one_place_and_aligned_keys_aligned_columns(time, past, num_distances):
    _, position, _, _, r = tensors(time, past, num_distances - 1, 16, batch=2, dtype=torch.float64)
    queries, distances = (split_heads(x, HEADS, algebra=M2R) for x in (position, r))
    rows, vectors = scores.by_phase(position, HEADS, 4), scores.by_head(r, HEADS, 4)
    place = scores.layout(vectors, past)
    assert (place.nearest - past) % scores.PHASES == place.num_columns % scores.COLUMN_UNIT == 0
    moved = scores.moved(vectors, place)
    found = torch.einsum("hpbtd,hpcd->bhtpc", rows, moved.unflatten(0, (HEADS, -1)))
    found = found.flatten(2, 3)[:, :, :time]  # (batch, heads, time, columns)
    for i in range(time):
        nearest = place.nearest + i % scores.PHASES
        row = found[:, :, i].flip(-1)[..., place.num_columns - 1 - nearest :][..., :num_distances]
        torch.testing.assert_close(row, (queries[:, :, i, None] @ distances.mT).squeeze(2))
    count = found.count_nonzero().item()
    assert count == 2 * HEADS * time * num_distances


@needs_triton
def test_nothing_of_the_size_of_the_scores_is_kept(small_tiles):  # noqa: ARG001
    given, kept = tensors(40, 90, 90, 16), []
    num_scores = HEADS * 40 * 91
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        attend(M2R)(*given)
    assert len(kept) == 7
    assert max(t.numel() for t in kept) == given[2].numel() < num_scores


@needs_triton
def test_the_operators_keep_torchs_rules(small_tiles):  # noqa: ARG001
    content, position, k, v, r = tensors(5, 7, 8, 16)
    rows, distances = scores.by_phase(position, HEADS, 4), scores.by_head(r, HEADS, 4)
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    given = (content, rows, k, v, distances)
    torch.library.opcheck(window_attention._window_attention, given, test_utils=tests)
    out, lse = window_attention._window_attention(*given)
    detached = [t.detach() for t in (torch.randn_like(out), *given, out, lse)]
    torch.library.opcheck(window_attention._window_attention_backward, detached, test_utils=tests[:2])


@needs_triton
def test_it_compiles_into_one_graph(small_tiles):  # noqa: ARG001
    given = tensors(9, 7, 12, 16)
    y = torch.compile(attend(M2R), backend="aot_eager", fullgraph=True)(*given)
    expected = attend(M2R)(*given)
    torch.testing.assert_close(y, expected)
    for one, other in zip(
        torch.autograd.grad(y.sin().sum(), given), torch.autograd.grad(expected.sin().sum(), given), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_it_applies_to_half_precision_in_heads_for_tensor_cores(monkeypatch):
    q = torch.randn(1, 3, 96)
    assert not auto.takes_window_attention(q.bfloat16().cpu(), 2)
    monkeypatch.setattr("algebranets.ops.device.is_usable", lambda _: True)
    assert auto.takes_window_attention(q.bfloat16(), 2)
    assert auto.takes_window_attention(q.half(), 2)
    assert not auto.takes_window_attention(q, 2)
    assert not auto.takes_window_attention(q.bfloat16()[..., :80], 2)
    assert not auto.takes_window_attention(q.bfloat16().repeat(1, 1, 6), 2)


def test_asked_for_by_name_it_says_what_it_takes():
    layer, x = RelativeAttention(32, 2, algebra=H, kernel="triton"), torch.randn(1, 3, 32)
    with pytest.raises(ValueError, match=r'kernel="triton" takes float16 .* got torch.float32 on cpu in heads of 16'):
        layer(x, sinusoids(4, 32), x[0, 0], x[0, 0])


@pytest.mark.parametrize("size", range(16, 257, 16))
def test_every_head_has_its_tiles(size):
    launch = pytest.importorskip("algebranets.ops.window_attention.launch")
    for tiles in (launch.FWD_TILES, launch.BWD_KEYS_TILES, launch.BWD_QUERIES_TILES):
        tile = launch.choose(tiles, size)
        assert all(number.bit_count() == 1 for number in tile[:3])
        assert tile.queries % scores.PHASES == tile.keys % scores.PHASES == 0
