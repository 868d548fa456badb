"""Tuple-sparse layers: the format, its products, conversion of models, and files."""

import copy
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_model
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from typer.testing import CliRunner

import algebranets as an
from algebranets import nn
from algebranets.lab.cli import app
from algebranets.models import load, publish
from algebranets.ops.device import is_frozen
from algebranets.ops.sparse_linear import sparse_linear
from algebranets.product import auto, linear, sparse, weight_from_tuples, weight_shape
from algebranets.product.blocks.matrix import matrix as rho
from algebranets.product.compressed import TupleSparse, compress, expand
from algebranets.pruning import Pruner
from boxes import message_in_box
from conftest import ALGEBRAS, needs_triton, over_kinds, random_algebra

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def pruned_weight(algebra, num_out, num_in, sparsity=0.7, dtype=torch.float64):
    """Return a stored weight. About this share of its tuples is zero, and all tuples of one output are."""
    tuples = torch.randn(algebra.dim, num_out, num_in, dtype=dtype)
    tuples *= torch.rand(num_out, num_in) >= sparsity
    tuples[:, num_out // 2] = 0
    return weight_from_tuples(tuples, algebra).to(DEVICE)


def operands(algebra, batch=(3,), num_out=7, num_in=37, dtype=torch.float64):
    """Return a weight, an input and a bias."""
    weight = pruned_weight(algebra, num_out, num_in, dtype=dtype)
    x, bias = torch.randn(*batch, algebra.dim * num_in, dtype=dtype), torch.randn(algebra.dim * num_out, dtype=dtype)
    return weight, x.to(DEVICE), bias.to(DEVICE)


# The format -----------------------------------------------------------------------------------------------------------


def test_the_format_by_hand():
    """Two outputs and three complex inputs. The first output has 1 + 2i at input 1, the second 3 at 0 and 4i at 2."""
    tuples = torch.tensor([[[0, 1, 0], [3, 0, 0]], [[0, 2, 0], [0, 0, 4]]])
    w = compress(weight_from_tuples(tuples, an.C), an.C)
    assert w.starts.tolist() == [0, 1, 3]
    assert w.indices.tolist() == [1, 0, 2]
    assert w.values.tolist() == [[1, 2], [3, 0], [0, 4]]
    assert w.maps.tolist() == [[0b010], [0b101 + (1 << 32)]]
    assert (w.num_out, w.num_in, w.longest, w.sparsity) == (2, 3, 2, 0.5)


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_what_is_compressed_can_be_expanded(algebra):
    weight = pruned_weight(algebra, 5, 9)
    assert torch.equal(expand(compress(weight, algebra)), weight)


def test_indices_take_two_bytes_where_they_suffice():
    for num_in, dtype in ((1 << 15, torch.int16), ((1 << 15) + 1, torch.int32)):
        weight = torch.zeros(1, num_in)
        weight[0, -1] = 1
        w = compress(weight, an.R)
        assert w.indices.dtype == dtype
        assert w.indices.tolist() == [num_in - 1]


# The product ----------------------------------------------------------------------------------------------------------


both_kernels = pytest.mark.parametrize("pick", [True, False], ids=["pick", "fill"])


def by_kernel(x, w, bias, pick, activation=None):
    """Return the product computed by one of the kernels, for any number of rows."""
    weight = (w.starts, w.indices, w.values, w.maps)
    return sparse_linear(x, weight, bias, w.algebra, w.longest, pick, activation)


@needs_triton
@both_kernels
@over_kinds
def test_both_kernels_compute_the_reference_product(algebra, pick):
    algebra = algebra.stored  # kernels know weights as they are stored
    weight, x, bias = operands(algebra)
    w = compress(weight, algebra)
    for rows in (x, x[:1]):
        y = by_kernel(rows, w, bias, pick)
        torch.testing.assert_close(y, linear(rows, weight, bias, algebra=algebra, lowering="reference"))


@needs_triton
@both_kernels
def test_operands_may_have_any_strides(pick):
    weight, x, bias = operands(an.H)
    w = compress(weight, an.H)
    strided = [t.repeat_interleave(2, -1)[..., ::2] for t in (w.starts, w.indices, w.values, w.maps)]
    y = sparse_linear(x, strided, bias.repeat_interleave(2)[::2], an.H, w.longest, pick)
    torch.testing.assert_close(y, linear(x, weight, bias, algebra=an.H, lowering="reference"))


SIZES = [((2, 3), 33, 1), ((), 64, 16), ((0,), 3, 4), ((9,), 300, 20)]
ACTIVATIONS = [None, "relu", "silu", "gelu", "sigmoid", "tanh"]


#: Every activation at one size, and every size with one activation, since the two are independent.
LAUNCHES = [(*SIZES[0], activation) for activation in ACTIVATIONS] + [(*size, "gelu") for size in SIZES[1:]]


@needs_triton
@both_kernels
@pytest.mark.parametrize(("batch", "num_in", "num_out", "activation"), LAUNCHES)
def test_both_kernels_take_every_size(batch, num_in, num_out, activation, pick):
    """Outputs with more tuples than a thread loads at once, fewer outputs than a program has, and an empty batch."""
    weight, x, bias = operands(an.M2R, batch, num_out, num_in, torch.float32)
    w = compress(weight, an.M2R)
    for given in (bias, None):
        y = by_kernel(x, w, given, pick, activation)
        expected = linear(x, weight, given, algebra=an.M2R, lowering="reference", activation=activation)
        torch.testing.assert_close(y, expected, atol=1e-4, rtol=1e-4)


@needs_triton
@both_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("algebra", [an.R, an.C, an.H, an.M3R, an.M2C], ids=str)
def test_both_kernels_pack_numbers_of_every_precision(algebra, dtype, pick):
    """Components are packed into words of two, four and eight bytes."""
    if dtype == torch.bfloat16 and not pick and DEVICE == "cpu":
        pytest.skip("the interpreter has no dot of bfloat16")
    weight, x, bias = operands(algebra, dtype=dtype)
    w = compress(weight, algebra)
    y = by_kernel(x, w, bias, pick)
    assert y.dtype == dtype
    exact = linear(x.double(), weight.double(), bias.double(), algebra=algebra, lowering="reference")
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(y.double(), exact, atol=max(4 * eps, 1e-5), rtol=2 * eps)


@pytest.mark.parametrize(
    ("rows", "dtype", "picks"),
    [(1, torch.bfloat16, True), (8, torch.bfloat16, True), (16, torch.bfloat16, False), (16, torch.float32, True),
     (64, torch.float32, False)],
)  # fmt: skip
def test_tuples_are_picked_where_that_is_faster(rows, dtype, picks):
    """Width 8192 over M2(R), one tuple of ten; tiles are only filled in half precision."""
    x = torch.empty(rows, 8192, dtype=dtype, device="meta")
    starts, values = (torch.empty(shape, device="meta") for shape in ((2049,), (2048 * 2048 // 10, 4)))
    w = TupleSparse(starts, starts, values, starts, 2048, 300, an.M2R)
    assert auto._picks(x, w) == picks


@pytest.mark.parametrize(
    ("rows", "zeros", "algebra", "way"),
    [(1, 0.9, an.M2R, "pick"), (8, 0.9, an.M2R, "pick"), (8, 0.8, an.M2R, "dense"), (64, 0.95, an.M2R, "dense"),
     (8, 0.8, an.H, "dense"), (64, 0.8, an.H, "dense"), (129, 0.8, an.H, "fill")],
)  # fmt: skip
def test_a_dense_weight_that_is_kept_is_used_where_it_is_faster(rows, zeros, algebra, way, monkeypatch):
    """Width 8192. Over H, a dense layer on 129 rows must build a larger matrix in each call."""
    monkeypatch.setattr("algebranets.ops.device.is_usable", lambda _: True)
    x = torch.empty(rows, 8192, dtype=torch.bfloat16, device="meta")
    shape = weight_shape(algebra, 2048, 2048)
    starts, values, dense = (
        torch.empty(size, dtype=torch.bfloat16, device="meta")
        for size in ((2049,), (int(2048 * 2048 * (1 - zeros)), 4), shape)
    )
    w = TupleSparse(starts, starts, values, starts, 2048, 300, algebra)
    assert auto.sparse(x, replace(w, dense=dense)) == way
    assert auto.sparse(x, w) == ("fill" if way == "dense" else way)


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_a_layer_with_its_dense_weight_computes_the_same(algebra):
    weight, x, bias = (t.cpu() for t in operands(algebra, (6,)))
    layer, kept = (an.nn.SparseLinear(compress(weight, algebra), bias, keep) for keep in (False, True))
    torch.testing.assert_close(kept(x), layer(x))
    torch.testing.assert_close(sparse._dense(x, kept._weight_with_dense(), bias, None), layer(x))
    assert kept.state_dict().keys() == layer.state_dict().keys()
    assert torch.equal(kept.dense, expand(layer.weight))
    assert kept.half().dense.dtype == torch.float16


@torch.no_grad()
def test_kernels_read_a_dense_weight_that_is_kept_early():
    layer = small_layer(keep_dense=True)

    def is_read_early():
        return is_frozen(layer._weight_with_dense().dense)

    assert [is_read_early() for _ in range(3)] == [False, True, True]
    layer.values.mul_(2)
    assert [is_read_early() for _ in range(2)] == [False, True]


#: torch multiplies by sparse blocks on a CPU only if it was built with MKL, which it is not on ARM.
needs_mkl = pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="torch was built without MKL")
FORMATS = [
    pytest.param(sparse._through_numbers, id="numbers"),
    pytest.param(sparse._through_blocks, id="blocks", marks=needs_mkl),
]


@pytest.mark.parametrize("way", FORMATS)
@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_torchs_formats_compute_the_reference_product(algebra, way):
    algebra = algebra.stored
    weight, x, _ = (t.cpu() for t in operands(algebra, (6,)))
    y = way(x, compress(weight, algebra))
    torch.testing.assert_close(y, linear(x, weight, algebra=algebra, lowering="reference"))


@pytest.mark.parametrize("rows", [1, 3, 70])
@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_a_cpu_computes_the_reference_product_at_every_number_of_rows(algebra, rows):
    """The layer uses numbers, blocks or a dense matrix, but only those that this build of torch supports."""
    weight, x, bias = (t.cpu() for t in operands(algebra, (1, rows)))
    y = sparse.linear(x, compress(weight, algebra), bias, "relu")
    torch.testing.assert_close(y, linear(x, weight, bias, algebra=algebra, lowering="reference").relu())


def test_blocks_are_asked_for_only_where_torch_multiplies_by_them():
    weight, x, _ = (t.cpu() for t in operands(an.H, (2,)))
    w = compress(weight, an.H)
    try:
        sparse._through_blocks(x, w)
        multiplies = True
    except RuntimeError:
        multiplies = False
    assert multiplies or not auto._has_sparse_formats(x, w.values)


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_the_matrix_of_blocks_is_rho_by_tuples(algebra):
    """Every build of torch can make this matrix and convert it to a dense one, even if it cannot multiply by it."""
    algebra = algebra.stored
    weight, *_ = (t.cpu() for t in operands(algebra))
    for block in algebra.blocks:
        made = sparse._matrix_of_blocks(compress(weight, algebra), block).to_dense()
        laid_out = rho(weight, algebra, block)  # (row of the block, output) by (column of the block, input)
        cells = laid_out.reshape(block.size, 7, block.size, 37).permute(1, 0, 3, 2)
        torch.testing.assert_close(made, cells.reshape(7 * block.size, 37 * block.size))


@pytest.mark.parametrize("way", [*FORMATS, sparse.linear])
def test_a_weight_without_any_tuples_gives_zeros(way):
    w = compress(torch.zeros(8, 2), an.C)
    assert torch.equal(way(torch.randn(3, 4), w), torch.zeros(3, 8))


def small_layer(keep_dense=False):
    return nn.SparseLinear(compress(pruned_weight(an.M2R, 6, 6).cpu(), an.M2R), None, keep_dense)


def write_data(layer):
    layer.values.data.mul_(2)


def write_vector(layer):
    vector_to_parameters(-2 * parameters_to_vector(layer.parameters()), layer.parameters())


def write_in_inference_mode(layer):
    with torch.inference_mode():
        layer.values.mul_(2)


def load_others(layer):
    other = small_layer()
    layer.load_state_dict(other.state_dict())


def assign_others(layer):
    values = torch.ones(len(layer.values), 4)
    layer.load_state_dict({**layer.state_dict(), "values": values}, assign=True)


def replace_values(layer):
    layer.values = torch.nn.Parameter(layer.values.flip(0), requires_grad=False)


CHANGES = [
    write_data, write_vector, write_in_inference_mode, load_others, assign_others, replace_values,
    nn.Module.float, nn.Module.double, copy.deepcopy,
]  # fmt: skip


def changed(layer, change, x):
    """The layer after a change, ``x`` in its dtype, and the output that it must have."""
    made = change(layer)
    layer = made if isinstance(made, nn.SparseLinear) else layer
    x = x.to(layer.values.dtype)
    return layer, x, linear(x, expand(layer.weight), algebra=an.M2R, lowering="reference")


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("way", FORMATS)
def test_torchs_formats_follow_every_change_of_the_values(way, change):
    """A product before the change must not affect later products, neither in inference mode nor without it."""
    layer = small_layer()
    x = torch.randn(2, 24, dtype=torch.float64)
    way(x, layer.weight)
    layer, rows, expected = changed(layer, change, x)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(way(rows, layer.weight), expected)
            torch.testing.assert_close(layer(rows), expected)


@pytest.fixture
def uses_dense(monkeypatch):
    """Let layers multiply by dense weights, and collect those that were kept."""
    kept = []
    monkeypatch.setattr(auto, "sparse", lambda _, w: kept.append(w.dense) or "dense")
    return kept


@pytest.mark.parametrize("change", [c for c in CHANGES if c is not write_data], ids=lambda change: change.__name__)
def test_a_dense_weight_that_is_kept_follows_changes_of_the_values(change, uses_dense):
    layer = small_layer(keep_dense=True)
    x = torch.randn(2, 24, dtype=torch.float64)
    layer(x)
    layer, rows, expected = changed(layer, change, x)
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            torch.testing.assert_close(layer(rows), expected)
    torch.testing.assert_close(layer(rows.requires_grad_()), expected)  # the dense weight is no inference tensor
    assert all(dense is not None for dense in uses_dense)
    assert uses_dense[-1] is uses_dense[-2]  # without a change it is not made again


def test_a_dense_weight_is_not_used_where_it_could_be_wrong(uses_dense):
    layer = small_layer(keep_dense=True)
    x, values = torch.randn(2, 24, dtype=torch.float64), torch.randn_like(layer.values)
    layer(x)
    torch.compile(layer, backend="eager", fullgraph=True)(x)
    torch.jit.trace(layer, x, check_trace=False)  # the check would call the layer itself
    torch.func.jvp(lambda v: torch.func.functional_call(layer, {"values": v}, x), (values,), (values,))
    layer.values.requires_grad_()
    layer(x).sum().backward()
    assert layer.values.grad is not None
    first, *others = uses_dense
    assert first is not None
    assert len(others) >= 3
    assert not any(dense is not None for dense in others)


def test_a_layer_that_was_made_in_inference_mode_computes_there():
    with torch.inference_mode():
        weight, x, bias = (t.cpu() for t in operands(an.H))
        layer = nn.SparseLinear(compress(weight, an.H), bias)
        expected = linear(x, weight, bias, algebra=an.H, lowering="reference")
        torch.testing.assert_close(layer(x), expected)
        torch.testing.assert_close(sparse._through_numbers(x, layer.weight) + bias, expected)


def test_gradients_of_the_input_are_those_of_the_dense_product():
    weight, x, bias = operands(an.H)
    layer = nn.SparseLinear(compress(weight, an.H), bias)
    results = []
    for function in (layer, lambda rows: linear(rows, weight, bias, algebra=an.H)):
        leaf = x.clone().requires_grad_()
        results.append(torch.autograd.grad(function(leaf).square().sum(), leaf)[0])
    torch.testing.assert_close(*results)


def test_a_wrong_input_is_explained():
    layer = nn.SparseLinear(compress(pruned_weight(an.M2R, 6, 6), an.M2R), None)
    with pytest.raises(ValueError, match=r"must hold 24 features \(6 M2R tuples\); got shape \(2, 20\)"):
        layer(torch.randn(2, 20))


# Models ---------------------------------------------------------------------------------------------------------------


def sequential(algebra=an.M2R):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(32, 32, algebra=algebra) for _ in range(3)))


@pytest.mark.parametrize("stride", [1, 2, (1, 2)])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("options", [{}, {"padding": "same"}, {"bias": False}], ids=str)
def test_a_convolution_of_one_place_becomes_sparse(stride, memory_format, options):
    if options.get("padding") and stride != 1:
        options = {"padding": "valid"}
    conv = nn.Conv2d(32, 16, 1, stride=stride, algebra=an.H, dtype=torch.float64, **options)
    Pruner(conv, 0.8, layers="*").finish()
    made = an.sparse(conv)
    assert isinstance(made, nn.SparseConv)
    x = torch.randn(2, 32, 6, 5, dtype=torch.float64).to(memory_format=memory_format)
    y = made(x)
    torch.testing.assert_close(y, conv(x))
    assert y.is_contiguous(memory_format=memory_format)
    torch.testing.assert_close(made(x[0]), conv(x[0]))


@pytest.mark.parametrize(
    "options", [{"kernel_size": 3}, {"kernel_size": 1, "groups": 2}, {"kernel_size": 1, "padding": 1}], ids=str
)
def test_other_convolutions_stay_as_they_are(options):
    model = nn.Sequential(nn.Conv2d(32, 32, algebra=an.H, **options), nn.Conv2d(32, 32, 1, algebra=an.H))
    Pruner(model, 0.8, layers="*").finish()
    assert [type(layer).__name__ for layer in an.sparse(model)] == ["Conv2d", "SparseConv"]
    with pytest.raises(ValueError, match=r"^Conv2d has no layer that can become sparse: only Linear and 1 x 1 conv"):
        an.sparse(model[0])


def test_layers_with_too_few_zeros_stay_as_they_are():
    model = sequential()
    Pruner(model, 0.75, layers="0.*").finish()
    assert [type(layer).__name__ for layer in an.sparse(model)] == ["SparseLinear", "Linear", "Linear"]
    assert isinstance(model[0], nn.Linear)  # only a copy was changed
    with pytest.raises(ValueError, match="at_least must lie between 0 and 1"):
        an.sparse(model, 0)


def test_a_model_in_which_no_layer_becomes_sparse_is_an_error_that_says_how_sparse_it_is():
    model = sequential()
    with pytest.raises(
        ValueError, match=r"no layer of Sequential became sparse: at_least=0.7 .* layer, 0, has 0\. Prune"
    ):
        an.sparse(model)
    Pruner(model, 0.75, layers="1.*").finish()
    with pytest.raises(
        ValueError, match=r"at_least=0.8 .* the sparsest layer, 1, has 0.75\. Prune .*, or lower at_least"
    ):
        an.sparse(model, 0.8)
    with pytest.raises(ValueError, match=r"Linear, has 0.75"):
        an.sparse(model[1], 0.8)
    small = an.sparse(model, 0.75)
    with pytest.raises(ValueError, match="Sequential is sparse already"):
        an.sparse(small)
    for other in (nn.GRU(8, 8, algebra=an.H), torch.nn.Linear(8, 8), nn.Conv2d(8, 8, 3, algebra=an.H)):
        with pytest.raises(ValueError, match="has no layer that can become sparse"):
            an.sparse(other)


def test_a_state_without_sparse_layers_is_an_error():
    model = sequential()
    for state in (model.state_dict(), {}, {"9.values": torch.zeros(3)}):
        with pytest.raises(
            ValueError, match="state must be the state_dict of a sparse copy of Sequential, but it contains no"
        ):
            an.sparse(model, state=state)


def test_masks_count_and_a_layer_that_is_used_twice_stays_one():
    model = sequential()
    model.append(model[0])
    pruner = Pruner(model, 0.9)
    made = an.sparse(model)
    assert made[3] is made[0]
    assert isinstance(made[0], nn.SparseLinear)
    x = torch.randn(2, 32)
    torch.testing.assert_close(made(x), model(x))
    pruner.finish()


@pytest.mark.parametrize("name", ["transformer_xl", "gru_lm", "mobilenet_v1", "resnet50"])
def test_a_sparse_model_computes_what_the_pruned_one_does(name):
    sizes = {
        "transformer_xl": {"num_layers": 2, "d_model": 32, "ff_size": 64, "num_heads": 2, "window": 8},
        "gru_lm": {"hidden_size": 32},
    }.get(name, {"width": 0.125, "num_classes": 10})
    torch.manual_seed(0)
    model = an.models.create(name, algebra="M2R", **sizes).eval()
    Pruner(model, 0.8).finish()
    small = an.sparse(model)
    found = [module for module in small.modules() if isinstance(module, nn.SparseLinear)]
    assert found
    with torch.no_grad():
        outputs = [made(*made.example_inputs()) for made in (small, model)]
    first = [y[0] if isinstance(y, tuple) else y for y in outputs]
    torch.testing.assert_close(*first, atol=1e-4, rtol=1e-4)
    cost, whole = an.account(small), an.account(model)
    assert cost.multiplies_left == whole.multiplies_left
    assert cost.multiplies < whole.multiplies
    assert cost.parameters < whole.parameters
    assert not cost.unknown


def test_an_account_of_a_sparse_layer_is_what_is_left():
    """Only the remaining parameters count. The bytes of indices are counted too."""
    layer = nn.Linear(64, 64, bias=False, algebra=an.M2R)
    Pruner(layer, 0.75, layers="*").finish()
    cost = an.account(an.sparse(layer), torch.zeros(5, 64))
    tuples = 16 * 16 // 4
    assert (cost.parameters, cost.multiplies) == (4 * tuples, 5 * 8 * tuples)
    assert cost.bytes == 4 * (4 * tuples) + 2 * tuples + 4 * 17


def test_a_sparse_model_is_saved_and_loaded(tmp_path):
    model = sequential()
    Pruner(model, 0.9).finish()
    small = an.sparse(model)
    save_model(small, str(tmp_path / "small.safetensors"))
    state = load_file(tmp_path / "small.safetensors")
    other = an.sparse(sequential(), state=state)  # of the same architecture, with any weights
    x = torch.randn(2, 32)
    assert torch.equal(other(x), small(x))
    assert [type(layer) for layer in other] == [type(layer) for layer in small]
    assert other[0].longest == small[0].longest
    assert torch.equal(other[0].maps, small[0].maps)
    with pytest.raises(
        ValueError, match=r"state must be that of a sparse Sequential like this one; it lacks \['0.bias'\]"
    ):
        an.sparse(sequential(), state={key: value for key, value in state.items() if key != "0.bias"})


def first_to(number):
    return lambda t: t.clone().index_fill_(0, torch.tensor([0]), number)


#: Damages to the state of a layer with 64 inputs and outputs over R: the part, the change, and the error's text.
DAMAGES = {
    "an index in foreign memory": ("indices", first_to(20000), r"indices must lie between 0 and 63.* to 20000"),
    "a negative index": ("indices", first_to(-1), "indices must lie between 0 and 63, the last input; got .* from -1"),
    "the last index and one more": ("indices", first_to(64), "indices must lie between 0 and 63, .* to 64"),
    "an index twice": ("indices", lambda t: t[[0, 0, *range(2, len(t))]], "indices must increase"),
    "indices in another order": ("indices", lambda t: t[[1, 0, *range(2, len(t))]], "indices must increase"),
    "too few indices": ("indices", lambda t: t[1:], "values must hold the 1 components of a tuple for each of the"),
    "longer indices": ("indices", lambda t: t.long(), "indices of a weight with 64 inputs must be torch.int16 numbers"),
    "indices that are no list": ("indices", lambda t: t[None], "indices of a weight .* in one axis; got .* shape"),
    "indices that are one number": ("indices", lambda t: t[0], "indices of a weight .* in one axis"),
    "a late start": ("starts", first_to(1), r"starts must begin at 0, never decrease and end at \d+.*; got \[1, "),
    "another end": ("starts", lambda t: t.clamp(max=int(t[-1]) - 1), "starts must begin at 0, never decrease and end"),
    "starts that decrease": ("starts", lambda t: t[[0, 2, 1, *range(3, len(t))]], "starts must begin at 0, never decr"),
    "starts that wrap around": ("starts", lambda t: t.index_fill(0, torch.tensor([1]), -(2**31)), "starts must begin"),
    "too few starts": ("starts", lambda t: t[1:] - t[1], r"starts must have shape \(65,\); got \(64,\)"),
    "starts with fractions": ("starts", lambda t: t.float(), "starts of a weight with 64 inputs must be torch.int32"),
    "values of other tuples": ("values", lambda t: t.repeat(1, 2), "values must hold the 1 components of a tuple"),
    "values that are whole numbers": ("values", lambda t: t.int(), "values must be floating-point numbers"),
}


@pytest.mark.parametrize(("part", "damage", "message"), DAMAGES.values(), ids=list(DAMAGES))
def test_a_damaged_sparse_weight_is_refused_before_anything_is_changed(part, damage, message):
    layer, other = (nn.SparseLinear(compress(pruned_weight(an.R, 64, 64).cpu(), an.R), None) for _ in range(2))
    damaged = {**other.state_dict(), part: damage(other.state_dict()[part])}
    before, x = {name: value.clone() for name, value in layer.state_dict().items()}, torch.randn(2, 64).double()
    expected = layer(x)
    with pytest.raises(ValueError, match=f"the sparse weight of this layer: {message}"):
        layer.load_state_dict(damaged)
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    torch.testing.assert_close(layer(x), expected)
    with pytest.raises(ValueError, match=rf"the sparse weight 0: {message}"):
        an.sparse(
            nn.Sequential(nn.Linear(64, 64, bias=False, algebra=an.R)), state={f"0.{k}": v for k, v in damaged.items()}
        )


def test_a_part_of_a_sparse_weight_must_fit_the_rest():
    layer, other = (nn.SparseLinear(compress(pruned_weight(an.C, 6, 6).cpu(), an.C), None) for _ in range(2))
    with pytest.raises(ValueError, match="the sparse weight of this layer: values must hold"):
        layer.load_state_dict({"values": torch.ones(len(layer.values) + 1, 2)}, strict=False)
    layer.load_state_dict({"values": torch.ones(len(layer.values), 2)}, strict=False)
    assert (layer.values == 1).all()
    for assign in (False, True):
        layer.load_state_dict(other.state_dict(), assign=assign)
        x = torch.randn(3, 12, dtype=torch.float64)
        assert torch.equal(layer(x), other(x))
        assert torch.equal(layer.maps, other.maps)
    empty = copy.deepcopy(layer).to("meta")
    empty.load_state_dict(other.state_dict(), assign=True)
    assert torch.equal(empty(x), other(x))
    assert torch.equal(empty.maps, other.maps)


def test_published_sparse_weights_with_a_foreign_index_are_refused(tmp_path):
    options, file = {"hidden_size": 64, "num_readouts": 1}, tmp_path / "weights.safetensors"
    model = an.models.create("gru_lm", algebra="R", **options)
    Pruner(model, 0.9).finish()
    small = an.sparse(model)
    (layer,) = (module for module in small.modules() if isinstance(module, nn.SparseLinear))
    layer.indices[0] = 20000
    publish(small, "gru_lm", an.R, options, file)
    with pytest.raises(
        ValueError, match=r"not a file of algebranets' weights, or it is damaged.*between 0 and 63.*to 20000"
    ):
        load(file)


def test_published_weights_may_be_sparse(tmp_path):
    options = {"num_layers": 2, "d_model": 32, "ff_size": 64, "num_heads": 2, "window": 8}
    model = an.models.create("transformer_xl", algebra="H", **options).eval()
    Pruner(model, 0.9).finish()
    files = [tmp_path / f"{name}.safetensors" for name in ("dense", "sparse")]
    for made, file in zip((model, an.sparse(model)), files, strict=True):
        publish(made, "transformer_xl", an.H, options, file)
    loaded = [load(file) for file in files]
    assert any(isinstance(module, nn.SparseLinear) for module in loaded[1].modules())
    assert files[1].stat().st_size < 0.8 * files[0].stat().st_size
    prompt = torch.tensor([list(b"Once")])
    with torch.no_grad():
        torch.testing.assert_close(*(made(prompt)[0] for made in loaded), atol=1e-5, rtol=1e-5)
    text = ["".join(an.models.generate(made, "Once", 20, seed=0)) for made in loaded]
    assert text[0] == text[1]


def test_the_command_line_makes_sparse_weights_of_a_pruned_run(tmp_path):
    options = {"hidden_size": 64, "num_readouts": 3}
    model = an.models.create("gru_lm", algebra="M2R", **options)
    for name in ("dense", "pruned"):
        if name == "pruned":
            Pruner(model, 0.9).finish()
        publish(model, "gru_lm", an.M2R, options, tmp_path / f"{name}.safetensors")
    file = tmp_path / "small.safetensors"
    result = CliRunner().invoke(app, ["sparse", str(tmp_path / "pruned.safetensors"), "--out", str(file)])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("3 layers are sparse; 90 % of their tuples are zero. ")
    assert any(isinstance(module, nn.SparseLinear) for module in load(file).modules())
    written = CliRunner().invoke(app, ["generate", str(file), "--prompt", "a", "--length", "5"])
    assert written.exit_code == 0, written.output
    result = CliRunner().invoke(app, ["sparse", str(tmp_path / "dense.safetensors"), "--out", str(file)])
    assert result.exit_code == 2
    text = message_in_box(result.stderr)
    assert "no layer of GRULanguageModel became sparse: at_least=0.7 of a layer's tuples must be zero" in text
    assert "`algebranets train --set pruning.sparsity=0.9` prunes a model." in text


def test_a_sparse_model_moves_casts_copies_compiles_and_exports():
    model = sequential()
    Pruner(model, 0.9).finish()
    small = an.sparse(model)
    x = torch.randn(4, 32)
    half = copy.deepcopy(small).to(torch.bfloat16)
    assert half[0].indices.dtype == torch.int16
    torch.testing.assert_close(half(x.bfloat16()).float(), small(x), atol=0.1, rtol=0.1)
    with torch.no_grad():
        expected = small(x)
        torch.testing.assert_close(torch.compile(small, backend="aot_eager", fullgraph=True)(x), expected)
        torch.testing.assert_close(torch.export.export(small, (x,)).module()(x), expected)
        torch.testing.assert_close(torch.func.vmap(small)(x), expected)


def test_algebras_of_ones_own_are_sparse_too():
    algebra = random_algebra(7, 3)
    layer = nn.Linear(30, 30, algebra=algebra)
    Pruner(layer, 0.8, layers="*").finish()
    x = torch.randn(2, 30)
    torch.testing.assert_close(an.sparse(layer)(x), layer(x), atol=1e-5, rtol=1e-5)
