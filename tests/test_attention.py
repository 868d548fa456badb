"""Attention: over R it is torch's with every mask, heads have whole tuples, and scores are real."""

import copy

import pytest
import torch
from torch import nn

import algebranets as an
from algebranets import M2R, C, H, R
from algebranets.algebra import CATALOGUE

F64 = torch.float64
over_catalogue = pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)


def twins(**options):
    theirs = nn.MultiheadAttention(8, 2, **options, dtype=F64)
    ours = an.nn.MultiheadAttention(8, 2, **options, dtype=F64, algebra=R)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


CAUSAL = nn.Transformer.generate_square_subsequent_mask(4, dtype=F64)
PADDING = torch.tensor([[False, False, False, True], [False] * 4, [False, False, True, True]])
MASKS = {
    "none": {},
    "float": {"attn_mask": CAUSAL},
    "bool": {"attn_mask": CAUSAL.isinf()},
    "per head": {"attn_mask": torch.randn(6, 4, 4, dtype=F64)},
    "padding": {"key_padding_mask": PADDING},
    "both": {"attn_mask": CAUSAL.isinf(), "key_padding_mask": PADDING},
    "causal": {"attn_mask": CAUSAL, "is_causal": True},
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("extra", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 6, "vdim": 4}], ids=str)
def test_over_r_every_mask_and_option_is_torchs(mask, need_weights, extra):
    if "is_causal" in mask and not need_weights and ("add_bias_kv" in extra or "add_zero_attn" in extra):
        pytest.skip("torch drops the mask here and forbids the appended key; with need_weights it does not")
    ours, theirs = twins(**extra)
    q = torch.randn(4, 3, 8, dtype=F64)
    k = torch.randn(4, 3, extra.get("kdim", 8), dtype=F64)
    v = torch.randn(4, 3, extra.get("vdim", 8), dtype=F64)
    for inputs in ((q, k, v), *([(q, q, q)] if not extra.get("kdim") else [])):
        expected = theirs(*inputs, **mask, need_weights=need_weights)
        result = ours(*inputs, **mask, need_weights=need_weights)
        torch.testing.assert_close(result[0], expected[0])
        if need_weights:
            torch.testing.assert_close(result[1], expected[1])
            each = ours(*inputs, **mask, average_attn_weights=False)[1]
            torch.testing.assert_close(each, theirs(*inputs, **mask, average_attn_weights=False)[1])
        else:
            assert result[1] is None


@over_catalogue
def test_a_head_holds_whole_tuples_and_scores_are_real_inner_products(algebra):
    """Written out: project, take each head's tuples, flatten, softmax, and put the tuples back."""
    attention = an.nn.MultiheadAttention(6 * algebra.dim, 3, batch_first=True, algebra=algebra, dtype=F64)
    nn.init.normal_(attention.in_proj_bias)
    x = torch.randn(2, 5, 6 * algebra.dim, dtype=F64)
    q, k, v = (
        an.tuples(an.product.linear(x, w, b, algebra=algebra), algebra, dim=2)
        for w, b in zip(attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3), strict=True)
    )
    heads = []
    for head in range(3):
        qs, ks, vs = (t[..., 2 * head : 2 * head + 2].flatten(2) for t in (q, k, v))
        weights = torch.softmax(qs @ ks.mT / qs.shape[-1] ** 0.5, dim=-1)
        heads.append((weights @ vs).unflatten(2, (algebra.dim, 2)))
    expected = attention.out_proj(an.from_tuples(torch.cat(heads, -1), algebra, dim=2))
    for need_weights in (True, False):
        y, weights = attention(x, x, x, need_weights=need_weights)
        torch.testing.assert_close(y, expected)
    assert attention(x, x, x)[1].shape == (2, 5, 5)


def test_causal_without_a_mask_looks_back_only():
    attention = an.nn.MultiheadAttention(16, 2, batch_first=True, algebra=H)
    x = torch.randn(1, 6, 16, requires_grad=True)
    for need_weights in (True, False):
        y, _ = attention(x, x, x, need_weights=need_weights, is_causal=True)
        (grad,) = torch.autograd.grad(y[0, 2].sum(), x)
        assert (grad[0, :3].abs().sum(1) > 0).all()
        assert (grad[0, 3:] == 0).all()


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("mask", [name for name in MASKS if name != "per head"])
def test_masks_work_under_autocast(mask, need_weights):
    attention = an.nn.MultiheadAttention(16, 2, algebra=M2R)
    x = torch.randn(4, 3, 16)
    masks = {k: m.float() if m is CAUSAL else m for k, m in MASKS[mask].items()}
    exact = attention(x, x, x, **masks, need_weights=need_weights)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = attention(x, x, x, **masks, need_weights=need_weights)[0]
    torch.testing.assert_close(rough.float(), exact, atol=0.05, rtol=0.05)


def test_dropout_acts_in_training_only():
    attention = an.nn.MultiheadAttention(16, 2, dropout=0.5, algebra=M2R)
    x = torch.randn(6, 1, 16)
    for need_weights in (True, False):
        attention.train()
        assert not torch.equal(*(attention(x, x, x, need_weights=need_weights)[0] for _ in range(2)))
        attention.eval()
        assert torch.equal(*(attention(x, x, x, need_weights=need_weights)[0] for _ in range(2)))


@pytest.mark.parametrize("algebra", [R, C, M2R], ids=str)
def test_layers_stack_in_torchs_encoder_and_decoder(algebra):
    encoder_layer = an.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, algebra=algebra)
    decoder_layer = an.nn.TransformerDecoderLayer(32, 2, 64, dropout=0.0, algebra=algebra)
    encoder = nn.TransformerEncoder(encoder_layer, 2, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(decoder_layer, 2)
    src, tgt = torch.randn(5, 3, 32), torch.randn(4, 3, 32)
    padding = torch.tensor([[False] * 4 + [True], [False] * 5, [False] * 5])
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    memory = encoder(src, src_key_padding_mask=padding)
    y = decoder(tgt, memory, tgt_mask=mask, memory_key_padding_mask=padding, tgt_is_causal=True)
    assert y.shape == (4, 3, 32)
    changed = src.clone()
    changed[4, 0] += 1  # a padded position
    torch.testing.assert_close(encoder(changed, src_key_padding_mask=padding)[:4], memory[:4])


def test_over_r_transformer_layers_are_torchs_with_masks():
    options = {"dim_feedforward": 12, "dropout": 0.0, "dtype": F64}
    theirs = nn.TransformerDecoderLayer(8, 2, **options)
    ours = an.nn.TransformerDecoderLayer(8, 2, **options, algebra=R)
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    tgt, memory = torch.randn(4, 3, 8, dtype=F64), torch.randn(5, 3, 8, dtype=F64)
    masks = {"tgt_mask": CAUSAL, "memory_mask": torch.randn(4, 5, dtype=F64), "tgt_key_padding_mask": PADDING}
    torch.testing.assert_close(ours(tgt, memory, **masks), theirs(tgt, memory, **masks))
