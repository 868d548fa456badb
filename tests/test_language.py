"""The language models: memory, decoding, sampling, measuring."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import algebranets as an
from algebranets import M2R, H, R
from algebranets.algebra import CATALOGUE
from algebranets.models import bits_per_character, generate, sample
from algebranets.models.language import _draw
from algebranets.nn.relative import RelativeAttention, sinusoids
from test_models import small

over_catalogue = pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)
over_both = pytest.mark.parametrize("name", ["transformer_xl", "gru_lm"])


@pytest.fixture(params=["transformer_xl", "gru_lm"])
def model(request):
    return small(request.param, M2R, vocab_size=256)[0].eval()


def transformer(algebra, window=4, num_layers=3, **options):
    model, _ = small("transformer_xl", algebra, window=window, num_layers=num_layers, **options)
    nn.init.normal_(model.u), nn.init.normal_(model.v)
    return model.double()


# Transformer-XL -------------------------------------------------------------------------------------------------------


@over_catalogue
@pytest.mark.parametrize("past", [0, 3, 6])
def test_relative_attention_is_its_definition(algebra, past):
    heads, each, time, window = 2, 3, 5, 6
    layer = RelativeAttention(heads * each * algebra.dim, heads, algebra=algebra).double()
    x, memory = (torch.randn(1, n, heads * each * algebra.dim, dtype=torch.float64) for n in (time, past))
    u, v = torch.randn(2, x.shape[2], dtype=torch.float64)
    positions = sinusoids(window + 1, x.shape[2]).double()

    def head(features, h):
        """The numbers of a head's tuples."""
        return an.tuples(features, algebra)[..., h * each : (h + 1) * each].flatten(-2)

    context = torch.cat([memory, x], dim=1)[0]
    q, k, values, r = layer.q_proj(x[0]), layer.k_proj(context), layer.v_proj(context), layer.r_proj(positions)
    y = torch.zeros(time, heads, each * algebra.dim, dtype=torch.float64)
    for h in range(heads):
        for i in range(time):
            seen = range(max(0, past + i - window), past + i + 1)
            scores = torch.stack([
                head(q[i] + u, h) @ head(k[j], h) + head(q[i] + v, h) @ head(r[past + i - j], h) for j in seen
            ]) / math.sqrt(each * algebra.dim)  # fmt: skip
            y[i, h] = sum(w * head(values[j], h) for w, j in zip(scores.softmax(0), seen, strict=True))
    tuples = y.unflatten(2, (algebra.dim, each)).transpose(1, 2).flatten(2)
    expected = layer.out_proj(an.from_tuples(tuples, algebra))
    torch.testing.assert_close(layer(x, positions, u, v, memory=memory)[0], expected)


@over_catalogue
@pytest.mark.parametrize("cuts", [[1] * 13, [5, 8], [2, 9, 2], [12, 1]], ids=str)
def test_memory_gives_what_recomputing_the_longer_context_gives(algebra, cuts):
    model = transformer(algebra, norm_first=len(cuts) == 2).eval()
    tokens = torch.randint(7, (2, 13))
    whole, _ = model(tokens)
    memory, parts = None, []
    for part in tokens.split(cuts, dim=1):
        logits, memory = model(part, memory)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    assert all(state.shape[1] == 4 for state in memory)


@over_catalogue
@pytest.mark.parametrize(("prompt", "norm_first"), [(0, False), (2, True), (9, False), (9, True)])
def test_one_token_at_a_time_gives_what_the_whole_text_gives(algebra, prompt, norm_first):
    model = transformer(algebra, norm_first=norm_first).eval()
    tokens = torch.randint(7, (2, 13))
    whole, _ = model(tokens)
    parts = [whole[:, :prompt]]
    cache = model.cache(model(tokens[:, :prompt])[1] if prompt else None, batch_size=2)
    for i in range(prompt, 13):
        logits, cache = model(tokens[:, i : i + 1], cache)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole)


def test_a_cache_carries_no_gradients():
    model = transformer(R)
    cache = model.cache()
    for _ in range(3):
        logits, cache = model(torch.zeros(1, 1, dtype=torch.long), cache)
    assert not any(layer.keys.requires_grad or layer.values.requires_grad for layer in cache)
    logits.sum().backward()


def test_a_position_sees_its_window_in_every_layer_and_no_further():
    model = transformer(R, window=4, num_layers=3).eval()
    tokens = torch.randint(7, (1, 30))
    other = tokens.clone()
    other[0, 10] = (other[0, 10] + 1) % 7
    changed = (model(tokens)[0] != model(other)[0]).any(-1)[0]
    assert changed.nonzero().flatten().tolist() == list(range(10, 10 + 3 * 4 + 1))


def test_a_longer_window_looks_further_back(monkeypatch):
    """The model acts like one with the longer window for which all distances beyond the shorter window are equal."""
    model = transformer(M2R, window=4).eval()
    tokens = torch.randint(7, (1, 12))
    far = transformer(M2R, window=9).eval()
    far.load_state_dict(model.state_dict())
    known = sinusoids(5, model.d_model)
    monkeypatch.setattr(far, "_positions", lambda window: torch.cat([known, known[-1:].expand(window - 4, -1)]))
    torch.testing.assert_close(model(tokens, window=9)[0], far(tokens)[0])
    _, memory = model(tokens, window=9)
    torch.testing.assert_close(model(tokens, memory, window=9)[0], far(tokens, far(tokens)[1])[0])
    cache = model.cache(memory, window=9)
    torch.testing.assert_close(model(tokens[:, :1], cache)[0], far(tokens[:, :1], memory)[0])


def test_a_shorter_window_is_that_of_a_model_with_it():
    model, near = transformer(M2R, window=9).eval(), transformer(M2R, window=4).eval()
    near.load_state_dict(model.state_dict())
    tokens = torch.randint(7, (1, 12))
    torch.testing.assert_close(model(tokens, window=4)[0], near(tokens)[0])


def test_norms_come_first_or_last():
    """If the layers add nothing, the output is the readout of the normalized embedding, with norms first or last."""
    for norm_first, count in ((False, 6), (True, 7)):
        model = transformer(M2R, norm_first=norm_first)
        for layer in model.layers:
            layer.attention.out_proj.weight.data.zero_(), layer.linear2.weight.data.zero_()
        assert sum(isinstance(module, nn.LayerNorm) for module in model.modules()) == count
        tokens = torch.randint(7, (2, 5))
        embedded = nn.functional.layer_norm(model.embedding(tokens) * math.sqrt(model.d_model), (model.d_model,))
        torch.testing.assert_close(model(tokens)[0], model.readout(embedded), atol=1e-4, rtol=1e-4)


def test_gradients_stop_at_the_memory():
    model = transformer(R)
    memory = model(torch.randint(7, (2, 6)))[1]
    assert not any(state.requires_grad for state in memory)


def test_nothing_of_the_size_of_the_attention_matrix_is_kept():
    def kept(recompute):
        model = transformer(M2R, window=40, num_layers=2, recompute_attention=recompute)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            logits = model(torch.randint(7, (1, 50)))[0]
        return max(sizes), logits, model

    attention = 2 * 50 * 41
    assert kept(recompute=True)[0] < attention <= kept(recompute=False)[0]


@over_catalogue
def test_recomputing_changes_no_gradient(algebra):
    model, other = transformer(algebra), transformer(algebra, recompute_attention=False)
    other.load_state_dict(model.state_dict())
    tokens = torch.randint(7, (2, 6))
    for m in (model, other):
        m(tokens)[0].square().sum().backward()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


def test_dropout_is_component_wise_and_off_in_evaluation():
    model = transformer(M2R, dropout=0.5)
    assert {type(m) for m in model.modules() if "ropout" in type(m).__name__} == {nn.Dropout}
    tokens = torch.randint(7, (2, 6))
    assert not torch.equal(model(tokens)[0], model(tokens)[0])
    model.eval()
    assert torch.equal(model(tokens)[0], model(tokens)[0])


def test_the_embedding_is_the_readout():
    model = transformer(H)
    assert model.readout.weight is model.embedding.weight
    assert len([p for p in model.parameters() if p.shape == model.embedding.weight.shape]) == 1


def test_what_does_not_fit_is_explained():
    layer = RelativeAttention(8, 2, algebra=R)
    x, u = torch.randn(1, 3, 8), torch.zeros(8)
    with pytest.raises(ValueError, match="memory must hold fewer positions than there are distances, 4; got 4"):
        layer(x, sinusoids(4, 8), u, u, memory=torch.randn(1, 4, 8))
    with pytest.raises(ValueError, match="memory must hold fewer positions"):
        layer.cache(torch.randn(1, 4, 8), sinusoids(4, 8))
    with pytest.raises(ValueError, match="window must be at least 1; got 0"):
        transformer(R)(torch.zeros(1, 3, dtype=torch.long), window=0)
    with pytest.raises(ValueError, match="positions must be given"):
        layer(x, None, u, u)
    model = transformer(R, window=4)
    with pytest.raises(ValueError, match="the cache was made for window=4; got window=9"):
        model(torch.zeros(1, 1, dtype=torch.long), model.cache(), window=9)
    with pytest.raises(ValueError, match="kernel must be one of auto, sdpa, triton; got 'flash'"):
        RelativeAttention(8, 2, algebra=R, kernel="flash")
    with pytest.raises(ValueError, match="with a cache, x must hold one position; got 3"):
        layer(x, sinusoids(4, 8), u, u, memory=layer.cache(x[:, :0], sinusoids(4, 8)))
    with pytest.raises(
        ValueError, match="3 heads of whole R tuples: it must be a multiple of 3; the nearest that works is 9"
    ):
        RelativeAttention(8, 3, algebra=R)


# The GRU --------------------------------------------------------------------------------------------------------------


def test_the_real_gru_model_is_made_of_torchs_layers():
    model, tokens = small("gru_lm", R)
    gru = nn.GRU(3, 3, batch_first=True)
    state = {f"{k}_l0": getattr(model.gru, f"{k}_l0") for k in ("weight_ih", "weight_hh", "bias_ih")}
    gru.load_state_dict({**state, "bias_hh_l0": torch.zeros(9)})
    y = gru(F.embedding(tokens, model.embedding.weight))[0]
    for readout in model.readouts:
        y = F.layer_norm(y + F.linear(y, readout.linear.weight, readout.linear.bias).relu(), (3,))
    torch.testing.assert_close(model(tokens)[0], F.linear(y, model.head.weight, model.head.bias))


@over_catalogue
def test_the_grus_state_carries_everything(algebra):
    model, _ = small("gru_lm", algebra)
    model.double()
    tokens = torch.randint(7, (2, 11))
    whole, last = model(tokens)
    state, parts = None, []
    for part in tokens.split([4, 1, 1, 5], dim=1):
        logits, state = model(part, state)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    torch.testing.assert_close(state, last)


# Sampling -------------------------------------------------------------------------------------------------------------


def greedy(model, tokens, count):
    """Return the most likely continuation, computing the whole text again for each token."""
    with torch.no_grad():
        for _ in range(count):
            tokens = torch.cat([tokens, model(tokens)[0][:, -1:].argmax(-1)], dim=1)
    return tokens[:, -count:]


@pytest.mark.parametrize("options", [{"temperature": 0}, {"top_k": 1}, {"top_p": 1e-6}], ids=str)
def test_the_likeliest_tokens_are_those_of_the_whole_text(model, options):
    model.double()
    tokens = torch.randint(256, (3, 6))
    drawn = torch.stack(list(sample(model, tokens, 8, **options)), dim=1)
    assert torch.equal(drawn, greedy(model, tokens, 8))


def test_a_seed_draws_the_same_text(model):
    texts = ["".join(generate(model, "The", 40, seed=seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_top_k_and_top_p_keep_the_likeliest(model):
    tokens = torch.randint(256, (1, 4))
    probabilities = model(tokens)[0][0, -1].softmax(-1)
    ranked = probabilities.argsort(descending=True)
    drawn = {int(next(sample(model, tokens, 1, top_k=3, temperature=50.0, seed=s))) for s in range(60)}
    assert drawn == set(ranked[:3].tolist())
    mass = probabilities[ranked[:2]].sum().item()
    drawn = {int(next(sample(model, tokens, 1, top_p=mass - 1e-4, seed=s))) for s in range(60)}
    assert drawn == set(ranked[:2].tolist())


def test_temperature_is_that_of_the_softmax(model):
    tokens = torch.randint(256, (1, 1)).expand(2000, 1)
    logits = model(tokens[:1])[0][0, -1]
    temperature = 0.5 * logits.std().item()
    expected, hotter, colder = ((logits / temperature / factor).softmax(-1) for factor in (1, 1.5, 0.67))
    counts = next(sample(model, tokens, 1, temperature=temperature, seed=0)).bincount(minlength=256) / 2000
    error = (counts - expected).abs().sum()
    assert error < (counts - hotter).abs().sum() - 0.1
    assert error < (counts - colder).abs().sum() - 0.1


@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-40, 1e-30])
@pytest.mark.parametrize("options", [{}, {"top_k": 5}, {"top_p": 0.9}, {"top_p": 5e-324}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_lowest_temperatures_take_the_likeliest_token(temperature, options, dtype):
    logits = torch.randn(50, 256).to(dtype) * torch.logspace(-3, 4, 50)[:, None].to(dtype)
    logits[:, 7] = logits.abs().amax(1) * 1.1  # token 7 is the most likely
    drawn = _draw(logits, **{"temperature": temperature, "top_k": None, "top_p": None, **options}, generator=None)
    assert torch.equal(drawn, torch.full((50,), 7))


@pytest.mark.parametrize("temperature", [1e30, 1e300])
def test_the_highest_temperatures_draw_evenly(temperature):
    logits = torch.randn(256).expand(20000, -1)
    counts = _draw(logits, temperature, None, None, torch.Generator().manual_seed(0)).bincount(minlength=256)
    assert (counts / 20000 - 1 / 256).abs().max() < 5 * (1 / 256 / 20000) ** 0.5


def test_text_streams_as_it_is_made(model):
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    stream = generate(model, "x", 50, seed=0)
    assert not calls
    next(stream)
    assert len(calls) < 8  # a character takes at most four bytes


def test_bytes_become_characters():
    class Echo(nn.Module):
        """Generates a given text byte by byte."""

        def __init__(self, text):
            super().__init__()
            self.text, self.at, self.p, self.vocab_size = text, 0, nn.Parameter(torch.zeros(1)), 256

        def forward(self, tokens, state=None):
            logits = F.one_hot(torch.tensor(self.text[self.at]), 256).float().expand(*tokens.shape, 256)
            self.at += 1
            return logits, state

        def cache(self, state):
            return state

    assert list(generate(Echo("Zoë€".encode()), "?", 7, temperature=0)) == ["Z", "o", "ë", "€"]
    assert "".join(generate(Echo(b"a\xffb\xe2\x82"), "?", 5, temperature=0)) == "a\ufffdb\ufffd"


def test_sampling_leaves_the_model_as_it_was(model):
    model.train()
    first = next(model.children())
    first.eval()
    stream = generate(model, "x", 3)
    next(stream)
    stream.close()
    assert model.training
    assert not first.training
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature must be a number from 0 on; got -1.0"),
        ({"temperature": -1e-300}, "temperature must be a number from 0 on; got -1e-300"),
        ({"temperature": math.nan}, "temperature must be a number from 0 on; got nan"),
        ({"temperature": math.inf}, "temperature must be a number from 0 on; got inf"),
        ({"temperature": "cold"}, "temperature must be a number from 0 on; got 'cold'"),
        ({"top_k": 0}, "top_k must be at least 1; got 0"),
        ({"top_k": 2.5}, "top_k must be a whole number; got 2.5"),
        ({"top_p": 1.5}, "top_p must lie between 0 and 1; got 1.5"),
        ({"top_p": 0.0}, "top_p must be above 0, or no candidate is left; got 0"),
        ({"top_p": math.nan}, "top_p must lie between 0 and 1; got nan"),
        ({"num_tokens": 0}, "num_tokens must be at least 1; got 0"),
        ({"num_tokens": 1.5}, "num_tokens must be a whole number; got 1.5"),
        ({"seed": 2**64}, "seed must be a number of 64 bits"),
        ({"seed": 0.5}, "seed must be a whole number; got 0.5"),
        ({"prompt": ""}, "the prompt must hold at least one token"),
    ],
)
def test_mistakes_are_explained(options, message):
    model, _ = small("gru_lm", R, vocab_size=256)
    with pytest.raises(ValueError, match=message):
        next(generate(model, **{"prompt": "x", **options}))


def test_tokens_that_are_none_of_the_models_are_explained():
    model, _ = small("gru_lm", R)
    with pytest.raises(ValueError, match="tokens must lie between 0 and 6; got some from 2 to 7"):
        next(sample(model, torch.tensor([[2, 7]]), 1))
    with pytest.raises(ValueError, match="generate needs a model of bytes, vocab_size=256; got 7"):
        next(generate(model, "x"))


# Measuring ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("segment", [1, 7, 1000])
def test_bits_per_character_do_not_depend_on_how_the_text_is_cut(model, segment):
    model.double()
    text = torch.randint(256, (40,), dtype=torch.uint8)
    logits = model(text[None, :-1].long())[0][0]
    expected = F.cross_entropy(logits, text[1:].long()) / math.log(2)
    assert bits_per_character(model, text, segment) == pytest.approx(expected.item())


def test_bits_per_character_within_another_window():
    model = transformer(M2R, window=11, vocab_size=256).eval()
    near = transformer(M2R, window=3, vocab_size=256).eval()
    near.load_state_dict(model.state_dict())
    text = torch.randint(256, (40,))
    assert bits_per_character(model, text, 5, window=3) == pytest.approx(bits_per_character(near, text, 9))
    with pytest.raises(ValueError, match="at least two tokens"):
        bits_per_character(model, text[:1])
