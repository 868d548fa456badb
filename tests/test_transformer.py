"""Stacks of transformer layers: over R they are torch's, and they raise no warnings."""

import copy
import warnings

import pytest
import torch
from torch import nn

import algebranets as an
from algebranets import M2R, C, H, R
from algebranets.nn import init
from algebranets.nn.weights import algebra_weights

SIZES = {"d_model": 8, "nhead": 2, "dim_feedforward": 12, "dropout": 0.0, "dtype": torch.float64}
CAUSAL = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
HIDDEN = CAUSAL.isinf()
MASKS = [
    {},
    {"mask": CAUSAL},
    {"mask": CAUSAL, "is_causal": True},
    {"mask": HIDDEN},
    {"mask": torch.randn(3 * 2, 5, 5, dtype=torch.float64)},
    {"src_key_padding_mask": PADDING},
    {"mask": HIDDEN, "src_key_padding_mask": PADDING},
]
over_layouts = pytest.mark.parametrize("batch_first", [False, True])


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def rows(batch_first, time=5):
    x = torch.randn(3, time, 8, dtype=torch.float64)
    return (x if batch_first else x.transpose(0, 1)).requires_grad_()


def assert_same_calls(ours, theirs, *args, **options):
    """Compare outputs and the gradients of all inputs and parameters."""
    results = []
    for module in (ours, theirs):
        y = module(*args, **options)
        inputs = {**dict(enumerate(args)), **dict(module.named_parameters())}
        grads = torch.autograd.grad((y**2).sum(), list(inputs.values()))
        results.append((y, dict(zip(inputs, grads, strict=True))))
    torch.testing.assert_close(*results)


@over_layouts
@pytest.mark.parametrize("options", MASKS, ids=lambda o: "-".join(o) or "plain")
def test_over_r_an_encoder_is_torchs_under_every_mask(batch_first, options):
    layer = nn.TransformerEncoderLayer(**SIZES, batch_first=batch_first)
    norm = nn.LayerNorm(8, dtype=torch.float64)
    theirs = nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)
    ours = an.nn.TransformerEncoder(
        an.nn.TransformerEncoderLayer(**SIZES, batch_first=batch_first, algebra=R), 2, copy.deepcopy(norm)
    )
    ours.load_state_dict(theirs.state_dict())
    assert_same_calls(ours, theirs, rows(batch_first), **options)


@over_layouts
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("algebra", [R, C, M2R], ids=str)
def test_an_encoder_never_makes_nested_tensors_and_does_not_warn(batch_first, norm_first, algebra):
    """Torch's encoder makes them from padded batches in eval mode, and warns if its layers do not support them."""
    layer = an.nn.TransformerEncoderLayer(**SIZES, batch_first=batch_first, norm_first=norm_first, algebra=algebra)
    encoder = an.nn.TransformerEncoder(layer, 2)
    x = rows(batch_first)
    trained = encoder(x, src_key_padding_mask=PADDING)
    with torch.no_grad():
        evaluated = encoder.eval()(x, src_key_padding_mask=PADDING)
    torch.testing.assert_close(trained, evaluated)
    assert isinstance(encoder, nn.TransformerEncoder)
    with pytest.warns(UserWarning, match="nested_tensor"):
        nn.TransformerEncoder(layer, 2)


def test_an_encoder_takes_torchs_arguments():
    layer = an.nn.TransformerEncoderLayer(8, 2, algebra=H)
    for nested in (True, False):
        encoder = an.nn.TransformerEncoder(layer, 1, None, nested, False)
        assert (encoder.enable_nested_tensor, encoder.use_nested_tensor, encoder.mask_check) == (nested, False, False)
    with pytest.raises(ValueError, match="num_layers must be at least 1; got 0"):
        an.nn.TransformerEncoder(layer, 0)


def test_an_encoder_of_torchs_own_layers_does_not_use_nested_tensors_either():
    layer = nn.TransformerEncoderLayer(**SIZES, batch_first=True)
    encoder = an.nn.TransformerEncoder(layer, 2).eval()
    with torch.no_grad():
        y = encoder(rows(True), src_key_padding_mask=PADDING)
    assert (y[PADDING] != 0).all()  # torch's writes zeros to the padding


@over_layouts
def test_over_r_torchs_decoder_with_our_layers_is_torchs(batch_first):
    theirs = nn.TransformerDecoder(nn.TransformerDecoderLayer(**SIZES, batch_first=batch_first), 2)
    layer = an.nn.TransformerDecoderLayer(**SIZES, batch_first=batch_first, algebra=R)
    ours = an.nn.TransformerDecoder(layer, 2)
    assert type(ours) is nn.TransformerDecoder
    ours.load_state_dict(theirs.state_dict())
    options = {"tgt_mask": CAUSAL, "tgt_is_causal": True, "memory_mask": torch.randn(5, 4, dtype=torch.float64)}
    assert_same_calls(ours, theirs, rows(batch_first), rows(batch_first, time=4), **options)


@over_layouts
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm_first": True, "activation": "gelu", "bias": False},
        {"layer_norm_eps": 0.1, "num_encoder_layers": 1, "num_decoder_layers": 3},
    ],
    ids=str,
)
def test_over_r_a_transformer_is_torchs(batch_first, options):
    options = {"num_encoder_layers": 2, "num_decoder_layers": 2, **SIZES, **options, "batch_first": batch_first}
    with warnings.catch_warnings(action="ignore"):  # torch's own warns of nested tensors
        theirs = nn.Transformer(**options)
    ours = an.nn.Transformer(**options, algebra=R)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    assert (ours.d_model, ours.nhead, ours.batch_first) == (theirs.d_model, theirs.nhead, theirs.batch_first)
    assert isinstance(ours, nn.Transformer)
    src, tgt = rows(batch_first), rows(batch_first, time=4)
    assert_same_calls(ours, theirs, src, tgt)
    causal = ours.generate_square_subsequent_mask(4, dtype=torch.float64)
    masks = {"src_mask": CAUSAL, "tgt_mask": causal, "memory_mask": torch.randn(4, 5, dtype=torch.float64)}
    assert_same_calls(ours, theirs, src, tgt, **masks)
    masks = {
        "src_key_padding_mask": PADDING,
        "memory_key_padding_mask": PADDING,
        "tgt_key_padding_mask": PADDING[:, 1:],
    }
    assert_same_calls(ours, theirs, src, tgt, **masks)


@pytest.mark.parametrize("algebra", [R, H, M2R], ids=str)
def test_every_layer_of_a_transformer_starts_with_glorots_weights_of_its_own(algebra):
    """Torch copies one layer and then draws all weights again, with fans computed from the stored sizes."""
    model = an.nn.Transformer(32, 2, 2, 2, 64, algebra=algebra)
    for stack in (model.encoder, model.decoder):
        first, second = (dict(layer.named_parameters()) for layer in stack.layers)
        assert all(not torch.equal(p, second[name]) for name, p in first.items() if p.dim() > 1)
    checked = 0
    for module in model.modules():
        for weight in algebra_weights(module):
            stored = getattr(module, weight.name)
            bound = (6 / sum(init.fans(stored, algebra, weight.stacks))) ** 0.5
            assert 0.9 * bound < stored.abs().max() <= bound
            checked += 1
    assert checked == 2 * 4 + 2 * 6
    before = copy.deepcopy(model.state_dict())
    model._reset_parameters()
    assert not torch.equal(before["encoder.layers.0.linear1.weight"], model.encoder.layers[0].linear1.weight)
    assert model.encoder.layers[0].linear1.weight.abs().max() <= bound


def test_custom_parts_are_used_as_they_are():
    layer = an.nn.TransformerEncoderLayer(8, 2, 8, algebra=C)
    encoder = an.nn.TransformerEncoder(layer, 1)
    before = copy.deepcopy(encoder.state_dict())
    model = an.nn.Transformer(8, 2, custom_encoder=encoder, num_decoder_layers=1, dim_feedforward=8, algebra=C)
    assert model.encoder is encoder
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert model(torch.randn(5, 2, 8), torch.randn(3, 2, 8)).shape == (3, 2, 8)
    decoder = model.decoder
    assert an.nn.Transformer(8, 2, 1, custom_decoder=decoder, dim_feedforward=8, algebra=C).decoder is decoder


def test_the_weights_of_a_transformer_record_their_algebra():
    make = {"d_model": 8, "nhead": 2, "num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 8}
    saved = an.nn.Transformer(**make, algebra=H).state_dict()
    an.nn.Transformer(**make, algebra=H).load_state_dict(saved)
    with pytest.raises(RuntimeError, match=r"is over diagonal\(4\), but the state dict holds weights over H"):
        an.nn.Transformer(**make, algebra="diagonal(4)").load_state_dict(saved)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Transformer needs an algebra: write Transformer(..., algebra='H')"),
        ({"d_model": 12, "algebra": H}, "d_model=12 cannot be split into"),
        ({"dim_feedforward": 6, "algebra": H}, "dim_feedforward is 6"),
        ({"num_encoder_layers": 0, "algebra": H}, "num_encoder_layers must be at least 1; got 0"),
        ({"num_decoder_layers": 1.5, "algebra": H}, "num_decoder_layers must be a whole number; got 1.5"),
    ],
)
def test_unsound_arguments_of_a_transformer_are_explained(options, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        an.nn.Transformer(**{"d_model": 8, "nhead": 2, "dim_feedforward": 8, **options})
    assert message in str(error.value)
