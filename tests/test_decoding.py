"""Decoding one token at a time: the operators that do it in one launch, and the decoder that replays them."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import algebranets as an
from algebranets import M2R, M3R, C, H, R, models
from algebranets.models.language import Decoder
from algebranets.nn.norm import AddNorm
from algebranets.nn.relative import RelativeAttention, sinusoids
from algebranets.ops import add_norm, decode_attention, device
from conftest import thinned
from test_models import small

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
over_both = pytest.mark.parametrize("name", ["transformer_xl", "gru_lm"])


@pytest.fixture
def fused(monkeypatch):
    """Use kernels wherever they apply, and split a head into many parts."""
    pytest.importorskip("triton")
    from algebranets.ops.decode_attention import launch

    monkeypatch.setattr(device, "is_usable", lambda _: True)
    monkeypatch.setattr(launch, "TILE", 32)
    return monkeypatch


@pytest.fixture
def arrived(monkeypatch):
    """Use the same counters for every launch, as on a stream of a GPU, and check that they are zero at the end."""
    pytest.importorskip("triton")
    from algebranets.ops.decode_attention import launch

    zeros = torch.zeros(4096, dtype=torch.int32, device=DEVICE)
    monkeypatch.setattr(launch, "counters", lambda _device, count: zeros[:count])
    yield zeros
    assert not zeros.any()


def attention_and_caches(algebra, batch, past, slots, heads=2, each=3, dtype=torch.float64, lowering="auto"):
    """Return a layer, its biases, and two equal caches with ``past`` positions."""
    embed = heads * each * algebra.dim
    layer = RelativeAttention(embed, heads, algebra=algebra, device=DEVICE, dtype=dtype, lowering=lowering)
    u, v = torch.randn(2, embed, device=DEVICE, dtype=dtype)
    memory = torch.randn(batch, past, embed, device=DEVICE, dtype=dtype)
    with torch.no_grad():
        cache = layer.cache(memory, sinusoids(slots, embed, DEVICE))
    return layer, u, v, cache, copy.deepcopy(cache)


def steps(layer, u, v, cache, xs):
    with torch.no_grad():
        return torch.cat([layer(x[:, None], None, u, v, cache) for x in xs], dim=1)


RINGS = [(R, 1, 0, 7), (R, 3, 6, 7), (M2R, 1, 2, 5), (M2R, 3, 0, 9), (M3R, 1, 1, 3), (H, 1, 12, 13), (C, 2, 0, 2)]


@pytest.mark.parametrize(
    ("algebra", "batch", "past", "slots", "dtype"),
    thinned(
        ((*ring, torch.float32 if n % 2 else torch.float64) for n, ring in enumerate(RINGS)),
        lambda *case: case[:-1] in RINGS[1:2] + RINGS[3:5] + RINGS[6:],
    ),
    ids=str,
)
@pytest.mark.usefixtures("arrived")
def test_one_launch_attends_as_torchs_operators_do(algebra, batch, past, slots, dtype, fused):
    """Compare outputs and caches after several steps, from an empty, a partly filled or a full ring on."""
    # The interpreter is slow, so projections are kernels only over C.
    lowering = "auto" if algebra is C else "blocks"
    layer, u, v, cache, other = attention_and_caches(algebra, batch, past, slots, dtype=dtype, lowering=lowering)
    xs = torch.randn(min(slots, 5) + 2, batch, layer.embed_dim, device=DEVICE, dtype=dtype)
    result = steps(layer, u, v, cache, xs)
    fused.setattr(device, "is_usable", lambda _: False)
    torch.testing.assert_close(result, steps(layer, u, v, other, xs))
    for name in ("keys", "values", "position"):
        torch.testing.assert_close(getattr(cache, name), getattr(other, name))


def test_a_head_may_be_one_part_or_as_many_as_it_has_slots(fused):
    from algebranets.ops.decode_attention import launch

    layer, u, v, cache, _ = attention_and_caches(M2R, 2, 4, 6, each=1)
    xs = torch.randn(3, 2, layer.embed_dim, device=DEVICE, dtype=torch.float64)
    results = []
    for tile, programs in ((1, 1024), (8, 1024), (8192, 1024), (8, 1), (8, 8)):
        fused.setattr(launch, "TILE", tile), fused.setattr(launch, "MAX_PROGRAMS", programs)
        results.append(steps(layer, u, v, copy.deepcopy(cache), xs))
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])


def test_an_empty_batch_moves_the_position(fused):
    layer, u, v, cache, other = attention_and_caches(M2R, 0, 2, 4)
    xs = torch.randn(3, 0, layer.embed_dim, device=DEVICE, dtype=torch.float64)
    assert steps(layer, u, v, cache, xs).shape == (0, 3, layer.embed_dim)
    fused.setattr(device, "is_usable", lambda _: False)
    steps(layer, u, v, other, xs)
    assert cache.position == other.position


def test_large_scores_stay_finite(fused):
    layer, u, v, cache, other = attention_and_caches(R, 1, 5, 7, dtype=torch.float32)
    xs = torch.randn(3, 1, layer.embed_dim, device=DEVICE) * 1e4
    result = steps(layer, u, v, cache, xs)
    assert result.isfinite().all()
    fused.setattr(device, "is_usable", lambda _: False)
    torch.testing.assert_close(result, steps(layer, u, v, other, xs))


@pytest.mark.usefixtures("fused")
def test_torch_knows_what_the_operators_write_and_return():
    layer, u, v, cache, _ = attention_and_caches(M2R, 2, 3, 5)
    token = torch.randn(3, 2, 1, layer.embed_dim, device=DEVICE, dtype=torch.float64)
    state = (cache.keys, cache.values, cache.distances, cache.position)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(decode_attention._decode_attention, (*token, u, v, *state, 4), test_utils=checks)
    norm = AddNorm(layer.embed_dim).to(token).requires_grad_(False)
    torch.library.opcheck(add_norm._add_norm, (*token[:2], norm.weight, norm.bias, 1e-5), test_utils=checks)


@pytest.mark.parametrize("shape", [(1, 1, 12), (3, 5), (2, 3, 33), (1,), (0, 4)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.usefixtures("fused")
def test_the_norm_of_a_sum_is_torchs(shape, dtype):
    norm = AddNorm(shape[-1]).to(DEVICE, dtype)
    nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    x, y = torch.randn(2, *shape, device=DEVICE, dtype=dtype) * 3 + 5
    expected = x + y, F.layer_norm(x + y, shape[-1:], norm.weight, norm.bias)
    with torch.no_grad():
        torch.testing.assert_close(norm(x, y), expected)
        torch.testing.assert_close(norm(x.mT.contiguous().mT, y) if x.dim() > 1 else norm(x, y), expected)
        norm.weight.data, norm.bias.data = (t.repeat_interleave(2)[::2] for t in (norm.weight, norm.bias))
        torch.testing.assert_close(norm(x, y), expected)  # with weights that are not contiguous
    assert norm(x, y)[1].requires_grad  # with gradients, it uses torch's operators


@pytest.mark.parametrize(
    ("algebra", "norm_first"),
    thinned([(R, False), (M2R, False), (M2R, True), (H, False)], lambda algebra, _: algebra in (R, M2R)),
    ids=str,
)
@pytest.mark.usefixtures("fused")
def test_one_launch_a_layer_gives_what_the_whole_text_gives(algebra, norm_first):
    model = small("transformer_xl", algebra, window=4, norm_first=norm_first)[0].eval().double().to(DEVICE)
    nn.init.normal_(model.u), nn.init.normal_(model.v)
    tokens = torch.randint(7, (1, 8), device=DEVICE)
    with torch.no_grad():
        whole, _ = model(tokens)
        cache = model.cache(model(tokens[:, :2])[1])
        parts = [model(token, cache)[0] for token in tokens[:, 2:].split(1, dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole[:, 2:])


def test_what_is_recorded_goes_through_torchs_operators(fused):
    fused.setattr("algebranets.nn.relative.decode_attention", None)
    layer, u, v, cache, _ = attention_and_caches(M2R, 1, 3, 5)
    layer(torch.randn(1, 1, layer.embed_dim, device=DEVICE, dtype=torch.float64), None, u, v, cache).sum().backward()
    assert layer.q_proj.weight.grad.abs().max() > 0


# The decoder ----------------------------------------------------------------------------------------------------------


def plainly(model, tokens, count, temperature, top_k, top_p, seed):
    """Sample as `sample` does, in a loop over torch.multinomial."""
    generator = torch.Generator(tokens.device).manual_seed(seed)
    logits, state = model(tokens)
    state, drawn = model.cache(state), []
    for _ in range(count):
        scores, order = (logits[:, -1].float() / temperature).sort(dim=-1, descending=True)
        scores[:, top_k:] = -math.inf
        chances = scores.softmax(-1)
        chances = chances.masked_fill(chances.cumsum(-1) - chances >= top_p, 0)
        drawn.append(order.gather(1, torch.multinomial(chances, 1, generator=generator))[:, 0])
        logits, state = model(drawn[-1][:, None], state)
    return torch.stack(drawn)


@over_both
@pytest.mark.parametrize("options", [(1.0, 7, 1.0), (0.7, 5, 0.9)], ids=str)
def test_sampling_is_a_loop_over_the_model(name, options):
    model = small(name, M2R)[0].eval()
    tokens = torch.randint(7, (3, 4))
    temperature, top_k, top_p = options
    with torch.no_grad():
        expected = plainly(model, tokens, 9, temperature, top_k, top_p, seed=3)
    drawn = models.sample(model, tokens, 9, temperature=temperature, top_k=top_k, top_p=top_p, seed=3)
    assert torch.equal(torch.stack(list(drawn)), expected)


@over_both
def test_tokens_that_were_yielded_stay(name):
    model = small(name, C)[0]
    stream = models.sample(model, torch.randint(7, (2, 3)), 6, seed=0)
    first = next(stream)
    kept = first.clone()
    list(stream)
    assert torch.equal(first, kept)


@over_both
def test_a_decoder_writes_into_its_own_tensors(name):
    model = small(name, H)[0].eval()
    prompt = torch.randint(7, (2, 3))
    decoder = Decoder(model, prompt)
    where = decoder.token.data_ptr()
    drawn = [decoder.token.clone(), *(decoder().clone() for _ in range(4))]
    assert decoder.token.data_ptr() == where
    assert not decoder.token.requires_grad
    assert torch.equal(torch.stack(drawn), torch.stack(list(models.sample(model, prompt, 5, temperature=0))))


# On a GPU -------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@over_both
@pytest.mark.parametrize("algebra", [R, M2R, H], ids=str)
@pytest.mark.parametrize("options", [{"temperature": 0}, {}, {"top_k": 20, "top_p": 0.9}], ids=str)
def test_captured_sampling_is_sampling(name, algebra, options, monkeypatch):
    torch.use_deterministic_algorithms(True, warn_only=True)  # cumsum only warns
    sizes = {"d_model": 64, "ff_size": 128, "window": 9} if name == "transformer_xl" else {"hidden_size": 64}
    model = models.create(name, algebra=algebra, **sizes, **({"num_layers": 2} if "window" in sizes else {})).cuda()
    tokens = torch.randint(256, (3, 5))
    captured = torch.stack(list(models.sample(model, tokens, 30, seed=1, **options)))
    monkeypatch.setattr(Decoder, "_capture", lambda _: None)
    assert torch.equal(captured, torch.stack(list(models.sample(model, tokens, 30, seed=1, **options))))


@pytest.mark.gpu
@over_both
def test_a_captured_step_runs_no_python(name):
    model = small(name, M2R)[0].cuda()
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    list(models.sample(model, torch.randint(7, (1, 4)), 20, seed=0))
    assert len(calls) == 3  # the prompt, the first step, and its capture


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [1, 4, 32])
@pytest.mark.parametrize(("batch", "slots"), [(1, 513), (3, 100), (40, 257)])
@pytest.mark.usefixtures("arrived")
def test_attention_in_bfloat16_is_that_of_its_numbers(heads, batch, slots, monkeypatch):
    """At these sizes, many programs run at once and combine their results. Ten steps are each exact up to rounding."""
    layer, u, v, cache, _ = attention_and_caches(M2R, batch, slots - 5, slots, heads, 32, torch.bfloat16)
    exact = copy.deepcopy(layer).double()
    other = type(cache)(cache.keys.double(), cache.values.double(), cache.distances.double(), cache.position.clone())
    xs = torch.randn(10, batch, layer.embed_dim, device="cuda", dtype=torch.bfloat16)
    result = steps(layer, u, v, cache, xs)
    monkeypatch.setattr(device, "is_usable", lambda _: False)
    expected = steps(exact, u.double(), v.double(), other, xs.double())
    torch.testing.assert_close(result.double(), expected, atol=0.03 * expected.abs().max().item(), rtol=0.05)
    assert int(cache.position) == slots + 5


@pytest.mark.gpu
def test_decoding_compiles_whole():
    torch._dynamo.reset()
    model = an.models.create("transformer_xl", algebra=M2R, num_layers=2, d_model=64, ff_size=128, window=9)
    model.cuda().eval()
    tokens = torch.randint(256, (2, 6), device="cuda")
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        whole, _ = model(tokens)
        cache = model.cache(batch_size=2)
        for i in range(6):
            logits, _ = compiled(tokens[:, i : i + 1], cache)
            torch.testing.assert_close(logits[:, 0], whole[:, i], atol=1e-4, rtol=1e-4)
