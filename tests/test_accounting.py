"""Cost accounting: counts are compared with torch's FLOP counter and with counts by hand."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

import algebranets as an
import zoo
from algebranets import DUAL, M2R, C, H, R, account, product
from algebranets.accounting import Product, Work, work
from algebranets.algebra import CATALOGUE, direct_sum
from algebranets.nn.norm import AddNorm
from algebranets.ops.counter import attention, attention_backward
from algebranets.ops.window_attention import window_attention
from conftest import ALGEBRAS, needs_triton, thinned
from test_models import small

over_models = pytest.mark.parametrize("name", [n for n in an.models.MODELS if n not in ("resnet34", "resnet101")])
#: Whitening has its own test, because it also factors small matrices, once a call for any batch size.
over_layers = pytest.mark.parametrize(
    "example", [e for e in zoo.LAYERS if "Whitening" not in e.name], ids=lambda e: e.label
)


def counted(model, *inputs):
    """Return the multiply-adds in evaluation by torch's counter, which counts two operations for each."""
    model.eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*inputs)
    return counter.get_total_flops() / 2


def dense(algebra):
    """Return the multiplies of one product in the blocks lowering, including structural zeros."""
    return sum(block.num_copies * block.size**2 for block in algebra.blocks)


# torch's counter ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algebra", thinned([(R,), (M2R,), (H,), (DUAL,)], lambda algebra: algebra in (M2R, DUAL)), ids=str
)
@over_models
def test_a_models_account_is_what_torchs_counter_sees_of_the_reference(name, algebra):
    """`test_a_linear_layer_over_every_algebra_by_hand` covers all algebras."""
    model, x = small(name, algebra, lowering="reference")
    assert account(model, x).multiplies == counted(model, x)


def test_torchs_counter_sees_attention_over_a_window():
    """The forward has three products, of keys, distances and values. The backward has eight, two for the scores."""
    q, k = (torch.empty(2, time, 3 * 16, device="meta", requires_grad=True) for time in (10, 14))
    r = torch.empty(5, 3 * 16, device="meta", requires_grad=True)
    one = 2 * 2 * 3 * 10 * 5 * 16
    with FlopCounterMode(display=False) as counter:
        y = window_attention((q, q), k, k, r, 3, dim=4)
    assert counter.get_total_flops() == 3 * one
    with counter:  # starts a new count
        y.sum().backward()
    assert counter.get_total_flops() == 8 * one


@pytest.mark.parametrize("algebra", thinned(((a,) for a in CATALOGUE.values()), (C, H, M2R).__contains__), ids=str)
@over_models
def test_a_models_account_is_what_torchs_counter_sees_of_blocks(name, algebra):
    if dense(algebra) != algebra.multiplies:
        pytest.skip("blocks multiply the table's structural zeros as well: the next test")
    model, x = small(name, algebra)
    extra = 0
    if name == "gru_lm" and algebra.blocks[0].num_copies > 1:  # biases of copies enter as eight more input features
        extra = (
            x.numel() * sum(b.num_copies * 3 * b.size for b in algebra.blocks) * (model.hidden_size // algebra.dim) * 8
        )
    assert account(model, x).multiplies + extra == counted(model, x)


@pytest.mark.parametrize("algebra", [a for a in ALGEBRAS if dense(a) != a.multiplies], ids=str)
def test_blocks_multiply_structural_zeros_and_the_account_does_not(algebra):
    layer, x = an.nn.Linear(3 * algebra.dim, 5 * algebra.dim, algebra=algebra), torch.randn(7, 3 * algebra.dim)
    assert counted(layer, x) == 7 * 3 * 5 * dense(algebra)
    assert account(layer, x).multiplies == 7 * 3 * 5 * algebra.multiplies


@over_layers
@pytest.mark.parametrize("algebra", [M2R, H, DUAL], ids=str)
def test_a_layers_account_is_what_torchs_counter_sees_of_the_reference(example, algebra):
    layer, inputs = example.make(algebra), example.feed(algebra)
    for module in layer.modules():
        if hasattr(module, "lowering"):
            module.lowering = "reference"
    cost = account(layer, *inputs)
    assert cost.multiplies == counted(layer, *inputs)
    assert cost.parameters == sum(p.numel() for p in layer.parameters())
    assert not cost.unknown


@pytest.mark.parametrize("example", zoo.TWINS, ids=lambda e: e.label)
def test_torchs_own_layers_are_counted_as_torch_counts_them(example):
    layer, inputs = example.make_real(), example.feed(R)
    cost = account(layer, *inputs)
    assert cost.multiplies == counted(layer, *inputs)
    assert not cost.unknown
    assert cost == account(layer, *inputs)  # counting changed nothing


def test_attentions_formulas_are_torchs():
    q, k, v, grad = (2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4), (2, 3, 5, 4)
    assert attention(q, k, v) == sdpa_flop_count(q, k, v)
    assert attention_backward(grad, q, k, v) == sdpa_backward_flop_count(grad, q, k, v)


def test_the_operator_in_compiled_graphs_has_a_formula():
    layer, x = an.nn.GRU(8, 12, recurrent_bias=False, algebra=C), torch.randn(5, 2, 8)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        torch.ops.algebranets.torch_rnn(
            "GRU", x, [torch.zeros(1, 2, 12)], [torch.randn(36, 8), torch.randn(36, 12)], False, None
        )
    assert counter.get_total_flops() == 2 * account(layer, x).multiplies


def test_fused_recurrent_kernels_have_a_formula():
    formulas = torch.utils.flop_counter.flop_registry
    weights = [(12, 5), (12, 4), (12,), (12,)]
    for name in ("_cudnn_rnn", "_cudnn_rnn_backward"):
        flops = formulas[getattr(torch.ops.aten, name)](
            torch.empty(7, 3, 5), [torch.empty(w) for w in weights], out_val=0
        )
        assert flops == 2 * 21 * 12 * (5 + 4) * (2 if "backward" in name else 1)
    for name in ("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward"):
        flops = formulas[getattr(torch.ops.aten, name)](torch.empty(7, 3, 5), *map(torch.empty, weights), out_val=0)
        assert flops == 2 * 21 * 12 * (5 + 4) * (2 if "backward" in name else 1)


@pytest.fixture
def kernels(monkeypatch):
    """Let kernels run on a CPU, in triton's interpreter."""
    pytest.importorskip("triton")
    monkeypatch.setattr("algebranets.ops.device.is_usable", lambda _: True)
    return monkeypatch


def launched(run):
    """Return the operations that torch's counter sees, of our operators that have a formula and of torch's."""
    with FlopCounterMode(display=False) as counter:
        run()
    counts = {str(op): flops for op, flops in counter.get_flop_counts().get("Global", {}).items()}
    ours = {op.removeprefix("algebranets."): flops for op, flops in counts.items() if op.startswith("algebranets.")}
    return ours, {op: flops for op, flops in counts.items() if not op.startswith("algebranets.")}


@pytest.mark.parametrize("algebra", [M2R, H, DUAL, direct_sum(C, M2R)], ids=str)
@pytest.mark.usefixtures("kernels")
def test_decoding_kernels_multiply_what_the_table_says(algebra):
    layer, x = an.nn.Linear(3 * algebra.dim, 2 * algebra.dim, algebra=algebra), torch.randn(2, 3 * algebra.dim)
    cell = an.nn.GRU(3 * algebra.dim, 2 * algebra.dim, algebra=algebra)
    with torch.no_grad():
        assert launched(lambda: layer(x)) == ({"decode_linear": 2 * 2 * 3 * 2 * algebra.multiplies}, {})
        assert launched(lambda: cell(x[None])) == ({"decode_step": 2 * 2 * 3 * (3 + 2) * 2 * algebra.multiplies}, {})


def test_a_scan_multiplies_by_the_recurrent_weight_in_each_step_and_row():
    def meta(*shape):
        return torch.empty(shape, device="meta")

    def both():
        states, kept = torch.ops.algebranets.gru_scan(
            meta(7, 6, 12), meta(6, 4), meta(12, 4), meta(4, 2, 4), False, True
        )
        torch.ops.algebranets.gru_scan_backward(meta(7, 6, 4), None, states, kept, meta(12, 4), False)

    assert launched(both) == ({"gru_scan": 2 * 7 * 6 * 12 * 4, "gru_scan_backward": 2 * 7 * 6 * 12 * 4}, {})


@needs_triton
@pytest.mark.parametrize("algebra", [R, M2R, H], ids=str)
@pytest.mark.usefixtures("kernels")
def test_depthwise_kernels_multiply_as_torch_counts_the_same_convolution(algebra):
    """The forward, the gradient of the input and that of the weight have equally many multiplies."""
    layer = an.nn.Conv2d(3 * algebra.dim, 3 * algebra.dim, (3, 2), stride=(2, 1), padding=1, groups=3, algebra=algebra)
    x = torch.randn(2, 3 * algebra.dim, 5, 4, requires_grad=True)
    once = 2 * account(layer, x).multiplies
    assert once == 2 * 2 * 3 * 5 * 3 * 6 * algebra.multiplies
    ours, torchs = launched(lambda: layer(x).sum().backward())
    assert ours == {"depthwise": 2 * once, "depthwise_sums": once}
    assert not torchs
    if algebra is R:
        twin = nn.Conv2d(3, 3, (3, 2), stride=(2, 1), padding=1, groups=3)
        with torch.no_grad():
            assert sum(launched(lambda: twin(x))[1].values()) == once


def test_attention_in_one_launch_multiplies_as_torchs_operators_do(kernels):
    layer = an.nn.RelativeAttention(12, 2, algebra=C).requires_grad_(False)
    x, u, v = torch.randn(3, 1, 12), torch.randn(12), torch.randn(12)
    cache = layer.cache(torch.randn(3, 2, 12), torch.randn(5, 12))
    with torch.no_grad():
        ours, torchs = launched(lambda: layer(x, None, u, v, cache))
        kernels.setattr("algebranets.ops.device.is_usable", lambda _: False)
        assert not torchs
        assert ours["decode_attention"] == 3 * 2 * 3 * 5 * 12
        assert sum(ours.values()) == sum(launched(lambda: layer(x, None, u, v, cache))[1].values())


@needs_triton
@pytest.mark.usefixtures("kernels")
def test_combinations_count_nothing():
    x, weight = torch.randn(3, 8, requires_grad=True), torch.randn(8, 2, requires_grad=True)
    bias = torch.randn(8, requires_grad=True)
    ours, torchs = launched(lambda: product.linear(x, weight, bias, algebra=H, lowering="bilinear").sum().backward())
    assert not ours
    assert torchs == {"aten.bmm": 3 * 2 * 3 * 2 * 2 * H.bilinear.rank}
    with torch.no_grad():
        assert launched(lambda: AddNorm(8)(x, x)) == ({}, {})


# Rows -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algebra", [R, M2R], ids=str)
@over_models
def test_rows_add_up(name, algebra):
    model, x = small(name, algebra)
    cost = account(model, x)
    assert cost.parameters == cost.nonzero + sum(int((p == 0).sum()) for p in model.parameters())
    assert cost.parameters == sum(p.numel() for p in model.parameters())
    assert cost.statistics == sum(b.numel() for b in model.buffers() if b.is_floating_point())
    for field in ("parameters", "statistics", "nonzero", "multiplies", "multiplies_left", "bytes", "activations"):
        for depth in (1, 2, 9):
            assert sum(getattr(row, field) for row in cost.stages(depth)) == getattr(cost, field)
    assert cost.stages(9) == [row for row in cost.stages(9) if row.name in dict(model.named_modules())]
    assert not cost.unknown


def assert_counted_without_weights(make, x):
    with torch.device("meta"):
        ghost = make()
    real, meta = account(make(), x), account(ghost, x.to("meta"))
    for field in ("parameters", "statistics", "multiplies", "values_loaded", "bytes", "activations"):
        assert getattr(real, field) == getattr(meta, field)


@over_models
def test_counting_needs_no_weights(name):
    assert_counted_without_weights(lambda: small(name, M2R)[0], small(name, M2R)[1])


@pytest.mark.parametrize("kind", ["Linear", "RNN", "LSTM", "GRU"])
def test_large_layers_that_change_the_basis_are_counted_without_weights(kind):
    size = 512
    make = partial(getattr(an.nn, kind), size, size, algebra="clifford(2,0)")
    assert_counted_without_weights(make, torch.randn(3, 2, size))


def test_a_linear_layer_over_every_algebra_by_hand():
    for algebra in ALGEBRAS:
        cost = account(an.nn.Linear(3 * algebra.dim, 5 * algebra.dim, algebra=algebra), torch.randn(2, 3 * algebra.dim))
        assert cost.parameters == 15 * algebra.dim + 5 * algebra.dim
        assert cost.multiplies == 2 * 15 * algebra.stored.multiplies
        assert cost.intensity == algebra.stored.multiplies / algebra.values_loaded
        assert cost.bytes == 4 * cost.parameters
        assert cost.activations == 10 * algebra.dim


def test_whitening_and_lift_are_counted():
    plain, whitened = (account(*small("cifar_resnet", H, norm=norm)) for norm in ("batch", "whitening"))
    norms = [row for row in whitened.rows if row.kind == "Whitening2d"]
    assert all(row.multiplies == 4 * row.activations for row in norms)
    assert whitened.multiplies - plain.multiplies == sum(row.multiplies for row in norms) > 0
    lift = next(stage for stage in plain.stages() if stage.name == "lift")
    assert lift.multiplies == 37 * 29 * 3 * (9 * 3 * 9 + 9 * 9 * 9)


@pytest.mark.parametrize("algebra", [M2R, H, C], ids=str)
def test_whitening_multiplies_as_torchs_counter_sees_it_grow_with_the_batch(algebra):
    layer = an.nn.Whitening2d(3 * algebra.dim, algebra=algebra)
    one, three = (torch.randn(n, 3 * algebra.dim, 4, 5) for n in (1, 3))
    grown = account(layer, three).multiplies - account(layer, one).multiplies
    assert grown == counted(layer, three) - counted(layer, one) > 0


def test_tied_weights_count_once_and_are_read_twice():
    model, _ = small("transformer_xl", M2R)
    rows = {row.name: row for row in account(model).rows}
    assert rows["embedding"].parameters == model.embedding.weight.numel()
    assert rows["readout"].parameters == 0
    assert rows["readout"].bytes == 4 * model.embedding.weight.numel()
    assert rows["embedding"].bytes == 4 * model.d_model  # one row


def test_bytes_are_those_of_the_precision():
    layer, x = an.nn.Linear(8, 8, algebra=H), torch.randn(1, 8)
    assert account(layer, x).bytes == 2 * account(layer.bfloat16(), x.bfloat16()).bytes


# Pruning --------------------------------------------------------------------------------------------------------------


def test_a_zero_tuple_skips_its_multiplies_and_a_zero_component_does_not():
    layer = an.nn.Linear(16, 12, bias=False, algebra=M2R)
    tuples = layer.weight_tuples.clone()  # (4, 3, 4)
    tuples[:, 0] = 0
    tuples[1, 1:] = 0
    layer.weight_tuples = tuples
    cost = account(layer, torch.randn(5, 16))
    assert cost.multiplies == 5 * 12 * 8
    assert cost.multiplies_left == 5 * 8 * 8
    assert cost.nonzero == 8 * 3


@pytest.mark.parametrize("how", ["parametrize", "prune"])
def test_masks_are_seen(how):
    class Mask(nn.Module):
        def forward(self, weight):
            return weight * (torch.arange(len(weight)) < 2)[:, None]

    layer = an.nn.Linear(4, 3, algebra=R)
    if how == "parametrize":
        parametrize.register_parametrization(layer, "weight", Mask())
    else:
        prune.custom_from_mask(layer, "weight", (torch.arange(3) < 2)[:, None].expand(3, 4))
    nn.init.ones_(layer.bias)
    cost = account(nn.Sequential(layer), torch.randn(1, 4))
    assert [row.name for row in cost.rows] == ["0"]
    assert cost.parameters == 15
    assert cost.nonzero == 8 + 3
    assert cost.multiplies_left == 8


# Side effects, inputs and formulas ------------------------------------------------------------------------------------


def test_counting_leaves_the_model_as_it_was():
    model, x = small("resnet18", C)
    model.layer1.eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    account(model, x)
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks for m in model.modules())


def test_a_failing_model_is_left_as_it_was_too():
    model = nn.Sequential(nn.Linear(3, 3)).train()
    with pytest.raises(RuntimeError):
        account(model, torch.randn(1, 4))
    assert model[0].training
    assert not model[0]._forward_hooks


def test_what_has_no_formula_is_named():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = nn.Parameter(torch.ones(3, 3))

        def forward(self, x):
            return x @ self.matrix

    model = nn.Sequential(nn.Linear(3, 3), Odd())
    assert account(model, torch.randn(1, 3)).unknown == ("1",)
    assert "not counted: 1" in str(account(model, torch.randn(1, 3)))

    @work.register
    def _(module: Odd, _inputs, output) -> Work:
        return Work((Product(module.matrix[None], len(output)),))

    assert account(model, torch.randn(2, 3)).multiplies == 2 * 18
    assert not account(model, torch.randn(2, 3)).unknown


def test_layers_that_are_not_called_are_listed_as_unknown():
    class Direct(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.direct = (an.nn.Linear(8, 8, algebra=an.H) for _ in range(2))

        def forward(self, x):
            return self.direct.forward(self.used(x))

    cost = account(Direct(), torch.randn(1, 8))
    assert cost.unknown == ("direct",)
    assert cost.multiplies == 64
    assert not account(an.nn.MultiheadAttention(8, 2, algebra=an.H), *torch.randn(3, 1, 8)).unknown


def test_a_layer_used_twice_multiplies_twice():
    layer = nn.Linear(3, 3)
    cost = account(nn.Sequential(layer, nn.ReLU(), layer), torch.randn(1, 3))
    assert (cost.parameters, cost.multiplies) == (12, 18)


def test_inputs_are_needed_or_known():
    with pytest.raises(ValueError, match=r"Linear has no example_inputs\(\): pass inputs"):
        account(nn.Linear(3, 3))
    assert account(small("gru_lm", R)[0]).activations > 0


def test_keyword_arguments_are_seen():
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = an.nn.MultiheadAttention(8, 2, algebra=H)

        def forward(self, x):
            return self.attention(value=x, key=x, query=x)[0]

    assert account(Decoder(), torch.randn(5, 2, 8)).multiplies == 10 * (4 * 2 * 2 * 16) + 2 * 5 * 5 * 2 * 8
