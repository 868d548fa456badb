"""int8 weights: rounding, products, the conversion of models, and files."""

import copy
import pickle
import re

import pytest
import torch
from safetensors.torch import load_file, save_model
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.flop_counter import FlopCounterMode

import algebranets as an
from algebranets import nn
from algebranets.models import load, publish
from algebranets.ops import decode_linear as decode_module
from algebranets.ops.decode_linear import decode_linear
from algebranets.ops.table import encode_algebra
from algebranets.product import linear, num_tuples, stored_tuples, weight_from_tuples, weight_shape, weight_tuples
from algebranets.product.quantized import dequantize, quantize
from algebranets.product.quantized import linear as quantized_linear
from conftest import ALGEBRAS, KINDS, needs_triton, over_kinds, thinned

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

#: Matrix algebras, whose weights are stored as matrices, R, and algebras whose weights are stored by components.
MAIN = [an.R, an.C, an.H, an.M2R, an.M2C]
over_main = pytest.mark.parametrize("algebra", MAIN, ids=str)


def stored_weight(algebra, num_out, num_in, dtype=torch.float64):
    """Return a Gaussian weight whose output tuples differ in size."""
    tuples = torch.randn(algebra.dim, num_out, num_in, dtype=torch.float64)
    tuples *= torch.logspace(-2, 2, num_out, dtype=torch.float64)[:, None]
    return weight_from_tuples(tuples, algebra).to(DEVICE, dtype)


def operands(algebra, batch=(3,), num_out=5, num_in=13, dtype=torch.float64):
    """Return an input, an int8 weight and a bias."""
    w = quantize(stored_weight(algebra, num_out, num_in), algebra)
    x, bias = torch.randn(*batch, algebra.dim * num_in), torch.randn(algebra.dim * num_out)
    return x.to(DEVICE, dtype), w, bias.to(DEVICE, dtype)


# Rounding -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_number_is_off_by_at_most_half_a_step(algebra, dtype):
    weight = stored_weight(algebra, 5, 9, dtype=dtype)
    w = quantize(weight, algebra)
    assert w.numbers.dtype == torch.int8
    assert w.numbers.shape == weight.shape
    assert (w.scale.dtype, w.scale.shape) == (torch.float32, (5,))
    error = stored_tuples(dequantize(w, torch.float64) - weight.double(), algebra).abs().amax((0, 2))
    largest = stored_tuples(weight.double(), algebra).abs().amax((0, 2))
    assert (error <= 0.5001 * w.scale).all()
    torch.testing.assert_close(w.scale.double() * 127, largest, rtol=1e-6, atol=0)


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_a_scale_belongs_to_one_output_tuple(algebra):
    """A factor on the tuples of one output changes that output's scale and nothing else."""
    weight = stored_weight(algebra, 5, 9)
    before = quantize(weight, algebra)
    factor = torch.tensor([1, 1, 4, 1, 1], dtype=torch.float64, device=DEVICE)
    after = quantize(weight_from_tuples(weight_tuples(weight, algebra) * factor[:, None], algebra), algebra)
    torch.testing.assert_close(after.scale, before.scale * factor.float())
    assert (after.numbers.int() - before.numbers.int()).abs().max() <= 1  # a change of basis rounds
    if algebra.stored is algebra:
        assert torch.equal(after.numbers, before.numbers)


def test_the_rounding_by_hand():
    """Two real outputs: steps of 2 and of 1/127; an output of zeros has no step."""
    w = quantize(torch.tensor([[254.0, -3.1, 0.9], [1.0, 0.5, -1.0], [0.0, 0.0, 0.0]]), an.R)
    assert w.numbers.tolist() == [[127, -2, 0], [127, 64, -127], [0, 0, 0]]
    torch.testing.assert_close(w.scale, torch.tensor([2, 1 / 127, 1]))


@over_main
@pytest.mark.parametrize("width", [256, 4096])
def test_outputs_of_gaussian_weights_are_off_by_less_than_one_percent(algebra, width):
    weight = torch.randn(weight_shape(algebra, 32, width // algebra.dim))
    x = torch.randn(16, width)
    exact = linear(x, weight, algebra=algebra)
    error = quantized_linear(x, quantize(weight, algebra)) - exact
    assert 0.004 < error.norm() / exact.norm() < 0.01


# The product ----------------------------------------------------------------------------------------------------------


@over_kinds
def test_the_product_is_that_of_the_dequantized_weight(algebra):
    x, w, bias = operands(algebra)
    expected = linear(x, dequantize(w, torch.float64), bias, algebra=algebra, lowering="reference", activation="tanh")
    for lowering in ("auto", "blocks", "bilinear", "reference"):
        torch.testing.assert_close(quantized_linear(x, w, bias, lowering=lowering, activation="tanh"), expected)


@pytest.fixture(params=["fma", "dot"])
def version(request, monkeypatch):
    """Force the use of one of the two kernels."""
    from algebranets.ops.decode_linear import launch

    def dot(plan, num_rows, _itemsize, stacks=1):
        return launch.dot_tile(plan, num_rows, stacks, inp=16, splits=2)

    monkeypatch.setattr(launch, *(("DOT_FROM", float("inf")) if request.param == "fma" else ("int8_tile", dot)))


KERNELS = [(algebra, batch) for algebra in MAIN for batch in ((), (1,), (2, 3))]


@needs_triton
@pytest.mark.parametrize(
    ("algebra", "batch"), thinned(KERNELS, lambda algebra, batch: batch == (1,) or algebra in (an.H, an.M2R)), ids=str
)
def test_both_kernels_compute_the_product(algebra, batch, version):  # noqa: ARG001, a fixture that changes the choice
    x, w, bias = operands(algebra, batch)
    for given in (bias, None):
        expected = linear(x, dequantize(w, torch.float64), given, algebra=algebra, lowering="reference")
        torch.testing.assert_close(decode_linear(x, w.numbers, given, algebra, scale=w.scale), expected)


@needs_triton
@pytest.mark.parametrize("algebra", thinned(((a,) for a in ALGEBRAS), KINDS.__contains__), ids=str)
def test_a_kernel_takes_every_algebra(algebra):
    x, w, bias = operands(algebra, (2,), num_out=3, num_in=7)
    expected = linear(x, dequantize(w, torch.float64), bias, algebra=algebra, lowering="reference", activation="silu")
    found = decode_linear(x, w.numbers, bias, algebra, activation="silu", scale=w.scale)
    torch.testing.assert_close(found, expected)


@needs_triton
@pytest.mark.parametrize(("num_in", "num_out"), [(16, 8), (65, 9), (600, 40)])
@pytest.mark.parametrize("algebra", [an.R, an.M2R, an.C], ids=str)
def test_sizes_that_fill_tiles_and_sizes_that_do_not(algebra, num_in, num_out, version):  # noqa: ARG001, a fixture that changes the choice
    x, w, bias = operands(algebra, (1,), num_out, num_in)
    expected = linear(x, dequantize(w, torch.float64), bias, algebra=algebra, lowering="reference")
    torch.testing.assert_close(decode_linear(x, w.numbers, bias, algebra, scale=w.scale), expected)


@needs_triton
@pytest.mark.parametrize(("num_out", "most_registers"), [(32, 128), (5, 128), (3, None)])
def test_one_row_by_the_tiles_of_large_layers(num_out, most_registers, monkeypatch):
    from algebranets.ops.decode_linear import launch

    monkeypatch.setattr(launch, "PROGRAMS", 1)  # the number that counts as enough
    x, w, bias = operands(an.M2R, (1,), num_out, 600)
    (plan,) = launch.plans(an.M2R, 600, num_out)
    tile = launch.int8_tile(plan, plan.num_copies, 8)
    assert tile.most_registers == most_registers
    assert tile.inp < 600  # so that it loops
    expected = linear(x, dequantize(w, torch.float64), bias, algebra=an.M2R, lowering="reference")
    torch.testing.assert_close(decode_linear(x, w.numbers, bias, an.M2R, scale=w.scale), expected)


@needs_triton
def test_every_stack_has_its_scales(version):  # noqa: ARG001, a fixture that changes the choice
    parts = [operands(an.M2R, (2,)) for _ in range(3)]
    x = parts[0][0]
    numbers, scale, bias = (torch.cat(t) for t in zip(*((w.numbers, w.scale, b) for _, w, b in parts), strict=True))
    expected = torch.cat([linear(x, dequantize(w, torch.float64), b, algebra=an.M2R) for _, w, b in parts], 1)
    torch.testing.assert_close(decode_linear(x, numbers, bias, an.M2R, 3, scale=scale), expected)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("algebra", [an.R, an.M2R, an.H], ids=str)
def test_sums_are_at_least_float32(algebra, dtype, monkeypatch):
    from algebranets.ops.decode_linear import launch

    if DEVICE == "cpu":
        monkeypatch.setattr(launch, "DOT_FROM", float("inf"))  # the interpreter has no dot of bfloat16
    x, w, bias = operands(algebra, (2,), num_in=300, dtype=dtype)
    exact = linear(x.double(), dequantize(w, torch.float64), bias.double(), algebra=algebra, lowering="reference")
    y = decode_linear(x, w.numbers, bias, algebra, scale=w.scale)
    assert y.dtype == dtype
    assert (y.double() - exact).norm() / exact.norm() < 4 * torch.finfo(dtype).eps


@needs_triton
def test_few_rows_on_a_gpu_are_read_as_int8(monkeypatch):
    x, w, bias = operands(an.H, (2,), dtype=torch.float32)
    monkeypatch.setattr("algebranets.ops.device._has_device", lambda _: True)
    monkeypatch.setattr("algebranets.product.quantized.dequantize", None)  # a call would be an error
    expected = linear(x, dequantize(w, torch.float32), bias, algebra=an.H, lowering="reference")
    torch.testing.assert_close(quantized_linear(x, w, bias), expected)
    for args, options in [
        ((x.repeat(17, 1), w, bias), {}),
        ((x.double(), w, bias.double()), {}),
        ((x, w, bias.double()), {}),
        ((x, w, bias), {"lowering": "blocks"}),
        ((x.clone().requires_grad_(), w, bias), {}),
    ]:
        with pytest.raises(TypeError, match="not callable"):
            quantized_linear(*args, **options)


@needs_triton
def test_a_change_of_basis_that_is_no_part_of_the_kernel_reads_int8(monkeypatch):
    algebra = an.algebra.get("clifford(1,3)")
    x, w, bias = operands(algebra, (2,), num_out=3, num_in=2, dtype=torch.float32)
    expected = linear(x, dequantize(w, torch.float32), bias, algebra=algebra, lowering="reference", activation="relu")
    monkeypatch.setattr("algebranets.ops.device._has_device", lambda _: True)
    monkeypatch.setattr("algebranets.product.quantized.dequantize", None)
    found = quantized_linear(x, w, bias, lowering="kernels", activation="relu")
    assert (found - expected).norm() < 1e-6 * expected.norm()


@needs_triton
@pytest.mark.parametrize("algebra", [an.R, an.M2R], ids=str)
def test_over_r_and_matrices_few_rows_are_read_as_int8(algebra, monkeypatch):
    monkeypatch.setattr("algebranets.ops.device._has_device", lambda _: True)
    monkeypatch.setattr("algebranets.product.quantized.dequantize", None)
    for rows, reads in ((1, True), (2, True), (5, False)):
        x, w, bias = operands(algebra, (rows,), dtype=torch.float32)
        if reads:
            quantized_linear(x, w, bias)
        else:
            with pytest.raises(TypeError, match="not callable"):
                quantized_linear(x, w, bias)


def test_a_weight_and_its_scale_come_together():
    x, w, _ = operands(an.H)
    with pytest.raises(ValueError, match="must be of int8 numbers with a scale, or of floating-point numbers"):
        decode_linear(x, w.numbers, None, an.H)
    with pytest.raises(ValueError, match=r"torch.float64 and a scale"):
        decode_linear(x, dequantize(w, torch.float64), None, an.H, scale=w.scale)


@needs_triton
def test_the_operator_keeps_torchs_rules():
    x, w, bias = operands(an.C)
    args = (x, w.numbers, bias, encode_algebra(an.C), 1, "relu", False, w.scale)
    torch.library.opcheck(decode_module._decode_linear, args, test_utils=("test_schema", "test_faketensor"))


@needs_triton
def test_a_layer_compiles_into_one_graph_and_its_flops_are_counted(monkeypatch):
    monkeypatch.setattr("algebranets.ops.device._has_device", lambda _: True)
    layer = an.quantize(nn.Linear(12, 8, algebra=an.H)).to(DEVICE)
    x = torch.randn(2, 12, device=DEVICE)
    with torch.no_grad():
        expected = layer(x, "relu")
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, "relu"), expected)
        with FlopCounterMode(display=False) as counter:
            layer(x)
    assert counter.get_total_flops() == 2 * 2 * 3 * 2 * an.H.multiplies


# Layers and models ----------------------------------------------------------------------------------------------------


def model_of(algebra, **options):
    return nn.Sequential(
        nn.Linear(24, 48, algebra=algebra, **options),
        nn.ReLU(),
        nn.Linear(48, 16, bias=False, algebra=algebra, **options),
    )


@over_main
def test_every_linear_layer_is_quantized(algebra):
    model = model_of(algebra).eval()
    small = an.quantize(model, "int8")
    assert [type(layer).__name__ for layer in small] == ["QuantizedLinear", "ReLU", "QuantizedLinear"]
    assert [type(layer).__name__ for layer in model] == ["Linear", "ReLU", "Linear"]
    assert not any(p.requires_grad for p in small.parameters())
    assert not small.training
    assert not small[0].training
    report = small.quantization
    assert (report.kind, report.quantized, report.kept) == ("int8", ("0", "2"), ())
    assert report.bytes_before == sum(p.nbytes for p in model.parameters())
    numbers = sum(p.numel() for p in model.parameters()) - 48
    assert report.bytes_after == numbers + 4 * 48 + 4 * (48 + 16) // algebra.dim
    x = torch.randn(5, 24)
    torch.testing.assert_close(small(x), model(x), atol=0.03, rtol=0)


def test_the_report_names_what_is_not_quantized():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(7, 16, algebra="H")
            self.attention = nn.MultiheadAttention(16, 2, algebra="H")
            self.norm = nn.LayerNorm(16)
            self.normed = weight_norm(nn.Conv1d(16, 16, 1, algebra="H"))
            self.head = torch.nn.Linear(16, 3)

    small = an.quantize(Net())
    assert small.quantization.quantized == ("attention.out_proj",)
    kept = [("embedding", "Embedding"), ("attention", "MultiheadAttention"), ("head", "Linear")]
    assert [pair for pair in small.quantization.kept if pair[0] != "normed"] == kept
    assert str(small.quantization).splitlines()[1] == "quantized: attention.out_proj"
    assert "attention (MultiheadAttention), normed (" in str(small.quantization)
    assert small.quantization.kept[0][1] == "Embedding"
    q = torch.randn(3, 2, 16)
    small.attention(q, q, q)  # it calls the quantized projection


@pytest.mark.parametrize("name", ["gru_lm", "transformer_xl"])
def test_language_models_run(name):
    sizes = {"num_layers": 2, "d_model": 32, "num_heads": 2, "ff_size": 64, "window": 8}
    options = {"hidden_size": 32} if name == "gru_lm" else sizes
    model = an.models.create(name, algebra="M2R", **options).eval()
    small = an.quantize(model)
    with torch.no_grad():
        results = [m(*m.example_inputs()) for m in (model, small)]
    one, other = (r[0] if isinstance(r, tuple) else r for r in results)
    assert 0 < (one - other).norm() / one.norm() < 0.05


def test_a_layer_that_is_used_twice_stays_one_and_its_weight_may_be_parametrized():
    layer = nn.Linear(8, 8, algebra=an.C)
    small = an.quantize(nn.Sequential(layer, nn.Tanh(), layer))
    assert small[0] is small[2]
    assert small.quantization.quantized == ("0",)
    normed = weight_norm(layer)
    made = an.quantize(normed)
    torch.testing.assert_close(made.dequantized(), normed.weight, atol=0.01, rtol=0)
    assert type(made) is nn.QuantizedLinear


def test_a_layer_with_its_own_forward_stays():
    class Shifted(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 1

    with pytest.raises(ValueError, match=r"only algebranets.nn.Linear can. It has Shifted."):
        an.quantize(Shifted(8, 8, algebra=an.C))


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: model_of(an.C), "int4", "kind must be one of int8; got 'int4'"),
        (lambda: nn.ReLU(), "int8", "ReLU has no layer that can be quantized: .* It has no weights"),
        (lambda: torch.nn.Linear(4, 4), "int8", "Linear has no layer that can be quantized"),
        (lambda: an.quantize(model_of(an.C)), "int8", "Sequential is quantized already"),
        (lambda: nn.LazyLinear(8, algebra=an.C), "int8", "the layer has no weights yet: call the model once"),
    ],
)
def test_what_cannot_be_quantized_is_explained(make, kind, message):
    with pytest.raises(ValueError, match=message):
        an.quantize(make(), kind)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_a_weight_that_is_not_finite_is_refused(number):
    model = model_of(an.H, dtype=torch.float64)
    with torch.no_grad():
        model[2].weight[1, 3] = number
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"2 cannot be quantized: a weight must be finite .* output tuple 1 of"):
        an.quantize(model)
    torch.testing.assert_close(model.state_dict(), before, equal_nan=True)


def test_a_wrong_input_is_explained():
    layer = an.quantize(nn.Linear(8, 8, algebra=an.H))
    with pytest.raises(ValueError, match=re.escape("must hold 8 features (2 H tuples); got shape (3, 12)")):
        layer(torch.randn(3, 12))


@over_main
def test_gradients_of_the_input_are_those_of_the_dequantized_weight(algebra):
    layer = an.quantize(nn.Linear(24, 16, algebra=algebra)).double()
    dense = nn.Linear(24, 16, algebra=algebra, dtype=torch.float64)
    dense.load_state_dict({**dense.state_dict(), "weight": layer.dequantized(torch.float64), "bias": layer.bias})
    x = torch.randn(3, 24, dtype=torch.float64, requires_grad=True)
    (found,), (expected,) = (torch.autograd.grad(m(x).square().sum(), x) for m in (layer, dense))
    torch.testing.assert_close(found, expected)
    for parameter in layer.parameters():
        assert not parameter.requires_grad


def test_the_lowering_stays():
    layer = an.quantize(nn.Linear(8, 8, algebra=an.H, lowering="kernels"))
    with pytest.raises(ValueError, match="lowering 'kernels' needs triton and a CUDA device"):
        layer.cpu()(torch.randn(2, 8))


# Casts, copies and files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cast", [lambda m: m.to(torch.bfloat16), lambda m: m.half(), lambda m: m.double()])
def test_casts_leave_the_weight_and_its_scales(cast):
    layer = an.quantize(nn.Linear(16, 16, algebra=an.M2R))
    before = copy.deepcopy(layer)
    cast(layer)
    assert torch.equal(layer.weight, before.weight)
    assert layer.weight.dtype == torch.int8
    assert layer.scale.dtype == torch.float32
    assert torch.equal(layer.scale, before.scale)
    dtype = layer.bias.dtype
    assert dtype != torch.float32
    y = layer(torch.ones(2, 16, dtype=dtype))
    assert y.dtype == dtype
    expected = before(torch.ones(2, 16)).to(dtype)
    torch.testing.assert_close(y, expected, atol=0.05, rtol=0)


def test_autocast_gives_its_precision():
    layer = an.quantize(nn.Linear(16, 16, algebra=an.M2R))
    x = torch.randn(3, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), layer(x), atol=0.05, rtol=0.02)


@over_main
def test_copies_pickles_and_state_dicts_compute_the_same(algebra, tmp_path):
    model = model_of(algebra)
    small, x = an.quantize(model), torch.randn(2, 24)
    expected = small(x)
    loaded = an.quantize(model_of(algebra))
    assert not torch.equal(loaded(x), expected)
    loaded.load_state_dict(small.state_dict(), strict=True)
    save_model(small, str(tmp_path / "weights.safetensors"))
    from_file = an.quantize(model_of(algebra))
    from_file.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    torch.save(small.state_dict(), tmp_path / "weights.pt")
    from_torch = an.quantize(model_of(algebra))
    from_torch.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True), assign=True)
    for made in (copy.deepcopy(small), pickle.loads(pickle.dumps(small)), loaded, from_file, from_torch):
        assert torch.equal(made(x), expected)
        assert made[0].weight.dtype == torch.int8
    assert str(pickle.loads(pickle.dumps(small)).quantization) == str(small.quantization)


def test_a_state_dict_of_other_weights_is_refused():
    small = an.quantize(nn.Linear(8, 8, algebra=an.H))
    before = small.weight.clone()
    with pytest.raises(RuntimeError, match="weights over M2R"):
        small.load_state_dict(
            an.quantize(nn.Linear(8, 8, algebra=an.C).requires_grad_(False)).state_dict()
            | {"algebra_id": nn.Linear(8, 8, algebra=an.M2R).state_dict()["algebra_id"]}
        )
    dense = nn.Linear(8, 8, algebra=an.H).state_dict()
    with pytest.raises(ValueError, match=r"the weight of this layer must be int8 numbers.* got torch.float32"):
        small.load_state_dict(dense | {"scale": small.scale})
    assert torch.equal(small.weight, before)


def test_a_model_is_made_on_the_meta_device():
    small = an.quantize(model_of(an.M2R).to("meta"))
    assert small(torch.randn(3, 24, device="meta")).shape == (3, 16)
    small.to_empty(device="cpu")
    state = an.quantize(model_of(an.M2R)).state_dict()
    small.load_state_dict(state)
    assert torch.equal(small[0].weight, state["0.weight"])


def test_published_weights_may_be_quantized(tmp_path):
    options = {"hidden_size": 16}
    model = an.models.create("gru_lm", algebra="H", **options).eval()
    small = an.quantize(model)
    publish(small, "gru_lm", an.H, options, tmp_path / "weights.safetensors")
    loaded = load(tmp_path / "weights.safetensors")
    inputs = model.example_inputs()
    assert loaded.quantization.quantized == small.quantization.quantized
    with torch.no_grad():
        assert torch.equal(loaded(*inputs)[0], small(*inputs)[0])


@over_main
def test_an_account_counts_one_byte_a_number(algebra):
    dense = nn.Linear(24, 16, algebra=algebra)
    layer, x = an.quantize(dense), torch.randn(5, 24)
    cost, before = an.account(layer, x), an.account(dense, x)
    num_out, num_in = num_tuples(dense.weight, algebra)
    assert cost.bytes == algebra.dim * num_out * num_in + 4 * num_out + 4 * 16
    assert cost.multiplies == before.multiplies
    assert cost.unknown == ()


def test_the_plain_torch_model_has_the_dequantized_weight():
    small, x = an.quantize(model_of(an.M2R)), torch.randn(3, 24)
    plain = an.to_real(small, x)
    assert [type(layer) for layer in plain] == [torch.nn.Linear, torch.nn.ReLU, torch.nn.Linear]
    torch.testing.assert_close(plain(x), small(x))


# On a GPU -------------------------------------------------------------------------------------------------------------

ON_GPU = [
    *((algebra, rows, torch.bfloat16) for algebra in (*MAIN, an.M4R) for rows in (1, 32)),
    *((algebra, 1, dtype) for algebra in (an.M2R, an.H) for dtype in (torch.float16, torch.float32)),
    (an.M2R, 200, torch.bfloat16),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("algebra", "rows", "dtype"), ON_GPU, ids=str)
def test_a_gpu_computes_the_dequantized_product(algebra, rows, dtype):
    layer = an.quantize(nn.Linear(2000, 1040, algebra=algebra)).cuda().to(dtype)
    x = torch.randn(rows, 2000, device="cuda", dtype=dtype)
    options = {"algebra": algebra, "lowering": "reference"}
    expected = linear(x.double(), layer.dequantized(torch.float64), layer.bias.double(), **options)
    with torch.no_grad():
        for _ in range(3):  # from the second call on, weights are read before the input is ready
            error = (layer(x).double() - expected).norm() / expected.norm()
            assert error < 4 * torch.finfo(dtype).eps


@pytest.mark.gpu
def test_a_compiled_layer_decodes_on_a_gpu():
    layer = an.quantize(nn.Linear(256, 128, algebra=an.M2R)).cuda().bfloat16()
    x = torch.randn(1, 256, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(layer, fullgraph=True)(x), layer(x))
