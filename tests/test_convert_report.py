"""`convert`: initial weights, the first and last layers, example inputs, the report and its plan."""

import copy
import json
import pickle

import pytest
import torch
from torch import nn

import algebranets as an
from algebranets import nn as ann
from algebranets.conversion import Conversion, apply_plan, convert, convert_
from algebranets.conversion.initial import take_over
from algebranets.conversion.inputs import example_inputs
from algebranets.conversion.layers import Spec, build
from conftest import KINDS
from test_convert import Net, Tied, kept, over

# Weights --------------------------------------------------------------------------------------------------------------


WIDE = [
    *((an.H, name) for name in ("Conv2d", "grouped Conv2d", "depthwise Conv2d", "ConvTranspose2d")),
    *((algebra, "Linear") for algebra in KINDS if algebra.dim > 1),
    (an.M2R, "depthwise Conv2d"),
    (an.M2R, "ConvTranspose2d"),
]


@pytest.mark.parametrize(("algebra", "name"), WIDE, ids=str)
def test_outputs_keep_their_variance(algebra, name):
    kind, size = name.split()[-1], 32 * algebra.dim
    if kind == "Linear":
        old, x = nn.Linear(size, 4 * size, bias=False), torch.randn(512, size)
    else:
        groups = {"grouped Conv2d": 2, "depthwise Conv2d": size}.get(name, 1)
        old, x = getattr(nn, kind)(size, 2 * size, 3, bias=False, groups=groups), torch.randn(8, size, 8, 8)
    new = build(old, Spec(algebra))
    take_over(old, new, Spec(algebra), "scale")
    with torch.no_grad():
        ratio = new(x).var() / old(x).var()
    assert 0.9 < ratio < 1.1


def test_each_gate_and_each_projection_keeps_its_own_scale():
    old = nn.MultiheadAttention(256, 2)
    with torch.no_grad():
        old.in_proj_weight[:256].mul_(3)
    new = build(old, Spec(an.M2R))
    take_over(old, new, Spec(an.M2R), "scale")
    q, k, _ = new.in_proj_weight.chunk(3)
    assert (q.std() / k.std()).item() == pytest.approx(3, rel=0.05)
    ratio = new.out_proj.weight.std() / old.out_proj.weight.std()
    assert ratio.item() == pytest.approx(2**0.5, rel=0.05)  # M2R sums half as many products


def test_a_layer_of_zeros_stays_zero_except_before_a_tuple_norm():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    for layer in (model[1], model[2]):
        nn.init.zeros_(layer.weight)
    assert not convert(model, "H")[1].weight.any()
    assert convert(model, "H", init="glorot")[1].weight.any()
    made = convert(model, "H", head="tuple_norm")
    assert made[2].layer.weight.any()
    assert not made[1].weight.any()


def test_glorot_gives_the_weights_of_a_new_layer():
    old = nn.Linear(256, 256)
    nn.init.normal_(old.weight, std=3)
    model = nn.Sequential(nn.Linear(8, 256), old, nn.Linear(256, 8))
    assert convert(model, "H", init="glorot")[1].weight.std().item() == pytest.approx(1 / 16, rel=0.05)
    assert convert(model, "H")[1].weight.std().item() == pytest.approx(3, rel=0.05)
    with pytest.raises(ValueError, match=r"init must be one of scale, glorot; got 'he'"):
        convert(model, "H", init="he")


def test_a_bias_moves_with_the_channels_of_a_layer_that_writes_parts():
    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.qk, self.head = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(8, 8)

        def forward(self, x):
            q, k = self.qk(self.stem(x)).chunk(2, -1)
            return self.head(q * k)

    real = Cut()
    model = convert(real, "C")
    assert model.qk.out_parts == (8, 8)
    with torch.no_grad():
        model.qk.weight.zero_()
    x = torch.randn(2, 8)
    assert torch.equal(model.qk(x), real.qk.bias.expand(2, 16))  # on the model's own axis, the bias is what it was


# Boundaries -----------------------------------------------------------------------------------------------------------


def test_a_lift_and_a_tuple_norm_make_the_network_of_the_paper():
    convs = [nn.Conv2d(3, 8, 3, stride=2, bias=False), nn.ReLU(), nn.Conv2d(8, 8, 3)]
    model = nn.Sequential(*convs, nn.Flatten(), nn.Linear(72, 5))
    made = convert(model, "H", lift="learned", head="tuple_norm", inputs=torch.randn(1, 3, 11, 11))
    assert type(made[0].lift) is ann.Lift2d
    assert made[0].layer.in_channels == 12
    assert made[4].layer.out_features == 20
    assert type(made[4].norm) is ann.TupleNorm
    x = torch.randn(2, 3, 11, 11)
    assert made(x).shape == (2, 5)
    assert (made(x) >= 0).all()
    assert not made.conversion.kept
    assert "learned Lift in front" in str(made.conversion)
    assert "TupleNorm after it" in str(made.conversion)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lift": "learned", "keep": "first"}, "leave 'first' out of keep"),
        ({"head": "tuple_norm", "keep": "first,last"}, "leave 'last' out of keep"),
        ({"lift": "learn"}, "lift must be one of learned, zeros, copy; got 'learn'. Did you mean 'learned'"),
        ({"head": "norm"}, "head must be one of real, tuple_norm"),
    ],
)
def test_boundaries_that_contradict_each_other_are_an_error(options, message):
    with pytest.raises(ValueError, match=message):
        convert(Net(), "H", **options)


def test_a_lift_that_no_layer_can_have_is_an_error():
    with pytest.raises(ValueError, match=r"lift='zeros' has no first layer to stand in front of .*tokens: it needs no"):
        convert(Tied(), "H", lift="zeros")


def test_a_first_layer_that_needs_a_lift_says_so():
    assert "lift='learned' puts a Lift in front of it" in kept(convert(Net(1), "H", keep="last"))["stem"]


# Inputs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(3, 8), (1, 3)),
        (nn.Conv1d(3, 8, 1), (1, 3, 224)),
        (nn.Conv2d(3, 8, 1), (1, 3, 224, 224)),
        (nn.Conv3d(3, 8, 1), (1, 3, 16, 16, 16)),
        (nn.Embedding(100, 8), (1, 16)),
        (nn.Embedding(5, 8), (1, 5)),
        (nn.GRU(3, 8, batch_first=True), (1, 16, 3)),
        (nn.LSTM(3, 8), (16, 1, 3)),
    ],
)
def test_inputs_are_guessed_from_the_first_layer(layer, shape):
    (x,), named = example_inputs(layer.double())
    assert x.shape == shape
    assert not named
    assert x.dtype in (torch.float64, torch.int64)


def test_a_guess_that_fails_says_to_pass_inputs():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(72, 5))
    with pytest.raises(ValueError, match=r"does not run on a guessed input, \(1, 3, 224, 224\) .*: pass an example"):
        convert(model, "H")
    with pytest.raises(ValueError, match=r"inputs must be a tensor, a tuple of arguments or a dict"):
        convert(model, "H", inputs=[3])


def test_inputs_may_be_given_by_name_and_guessing_leaves_the_random_numbers_alone():
    conv = nn.Conv2d(3, 8, 3)
    state = torch.get_rng_state()
    example_inputs(conv)
    assert torch.equal(torch.get_rng_state(), state)
    assert convert(Net(1), "H", inputs={"x": torch.randn(4, 3)}).conversion.inputs == "x=(4, 3)"


# The report -----------------------------------------------------------------------------------------------------------


def test_convert_and_a_dry_run_leave_the_model_as_it_was():
    model = Net().train()
    before = copy.deepcopy(model.state_dict())
    report = convert(model, "H", dry_run=True)
    convert(model, "H")
    assert isinstance(report, Conversion)
    assert not over(model)
    assert not hasattr(model, "conversion")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_in_place_conversion_returns_the_model_itself():
    model = Net(1)
    assert convert_(model, "H") is model
    assert list(over(model))
    with pytest.raises(ValueError, match=r"the model is already converted"):
        convert_(model, "H")
    with pytest.raises(ValueError, match=r"the model is itself a Linear, .* use convert"):
        convert_(nn.Linear(8, 8), "H")
    assert isinstance(convert(nn.Linear(8, 8), "H", keep="none"), ann.Linear)


def test_the_report_counts_parameters_and_multiplies_of_each_layer_and_of_the_model():
    model = convert(Net(1), "M2R", inputs=torch.randn(2, 3))
    rows = {row.name: row for row in model.conversion.rows}
    assert rows["block1.0"].parameters == (600, 168)
    assert rows["block1.0"].multiplies == (1152, 576)
    assert rows["stem"].parameters == (96, 96)
    assert rows["stem"].multiplies == (144, 144)
    real = sum(p.numel() for p in Net(1).parameters())
    assert model.conversion.parameters == (real, sum(p.numel() for p in model.parameters()))
    assert model.conversion.multiplies == (144 + 5 * 1152 + 240, 144 + 5 * 576 + 240)
    assert an.account(model, x=torch.randn(2, 3)).multiplies == model.conversion.multiplies[1]


def test_the_report_is_a_table_of_80_columns_that_names_every_layer():
    model = convert(Net(), {"block1": an.algebra.clifford(2, 0), "*": "H"}, inputs=torch.randn(2, 3))
    text = str(model.conversion)
    assert max(map(len, text.splitlines())) <= 80
    assert "layers.[0-10] (x11)" in text
    assert "block2.[0,2] (x2)" in text
    assert "clifford(2,0,0)" in text
    assert "Kept real (2):\n  stem (Linear, 96 parameters): no layer comes before it (keep)" in text
    assert "total" in text
    assert "Torn" not in text


def test_operations_that_take_tuples_apart_are_in_the_report():
    class Mixes(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Linear(8, 8) for _ in range(4))

        def forward(self, x):
            return self.d(self.c(self.b(self.a(x)).flip(-1)))

    report = convert(Mixes(), "H").conversion
    assert report.torn
    assert "Torn" in str(report)
    assert "test_convert_report.py:" in str(report)
    assert max(map(len, str(report).splitlines())) <= 80


def test_a_model_that_uses_the_name_of_the_report_is_an_error():
    model = Net(1)
    model.conversion = nn.Identity()
    with pytest.raises(ValueError, match="has an attribute 'conversion'"):
        convert(model, "H")


def test_example_inputs_may_need_gradients_and_may_be_changed_by_the_model():
    class Changes(nn.Sequential):
        def forward(self, x):
            return super().forward(x.mul_(2))

    x = nn.Linear(3, 8)(torch.ones(1, 3))
    model = convert(Changes(*(nn.Linear(8, 8) for _ in range(3))), "H", inputs=x.detach())
    assert list(over(model)) == ["1"]
    before = x.detach().clone()
    convert(Changes(*(nn.Linear(8, 8) for _ in range(3))), "H", inputs=x)
    assert torch.equal(x, before)


def test_matrices_that_no_layer_multiplies_are_named_as_not_counted():
    class Mixed(Net):
        def __init__(self):
            super().__init__(1)
            self.matrix = nn.Parameter(torch.eye(24))

        def forward(self, x):
            return self.head(self.layers[0](self.block1(self.stem(x))) @ self.matrix)

    report = convert(Mixed(), "H").conversion
    assert report.uncounted == ("Mixed", "block2.0", "block2.2")
    text = " ".join(str(report).split())
    assert "which stay real, and whose multiply-adds are not counted: Mixed, block2.0, block2.2." in text


def test_a_model_without_data_is_converted_on_the_meta_device():
    model = convert(Net(1).to("meta"), "H")
    assert all(parameter.is_meta for parameter in model.parameters())
    assert model.conversion.parameters == convert(Net(1), "H").conversion.parameters


def test_the_report_survives_copies_and_pickles():
    model = convert(Net(1), "H")
    again = pickle.loads(pickle.dumps(copy.deepcopy(model.conversion)))
    assert again == model.conversion
    assert str(again) == str(model.conversion)


def test_a_plan_rebuilds_the_same_model_without_running_it():
    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.fused, self.norm = nn.Conv1d(3, 8, 1), nn.Conv1d(8, 16, 1), nn.GroupNorm(2, 16)
            self.join, self.head = nn.Conv1d(16, 8, 1), nn.Linear(8, 5)
            self.runs = 0

        def forward(self, x):
            self.runs += 1
            a, b = self.norm(self.fused(self.stem(x))).chunk(2, 1)
            return self.head(self.join(torch.cat([b, a * b], 1)).mean(-1))

    options = {"lift": "learned", "head": "tuple_norm", "inputs": torch.randn(1, 3, 7)}
    model = convert(Split(), "C", **options)
    plan = json.loads(json.dumps(model.conversion.plan()))
    again = apply_plan(Split(), plan)
    assert again.runs == 0
    assert model.join.in_parts == again.join.in_parts == (8, 8)
    assert list(again.state_dict()) == list(model.state_dict())
    again.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 7)
    assert torch.equal(again(x), model(x))


def test_a_model_that_a_plan_converted_has_a_report_with_the_same_plan_and_sizes():
    model = convert(Net(1), "M2R")
    again = apply_plan(Net(1), model.conversion.plan())
    assert again.conversion.plan() == model.conversion.plan()
    assert again.conversion.parameters == model.conversion.parameters
    assert [row.parameters for row in again.conversion.rows] == [row.parameters for row in model.conversion.rows]
    assert again.conversion.multiplies is None
    assert "Net over M2R, converted by a plan" in str(again.conversion)
    with pytest.raises(ValueError, match="already converted"):
        convert(again, "M2R")


def test_a_plan_that_does_not_fit_is_an_error():
    plan = convert(Net(1), "H").conversion.plan()
    with pytest.raises(ValueError, match=r"the plan converts 'block1.0', which is not such a layer of Linear"):
        apply_plan(nn.Linear(8, 8), plan)
    other = Net(1)
    other.layers[0] = nn.Linear(6, 24)
    with pytest.raises(ValueError, match=r"does not fit 'layers.0' of Net: in_features=6"):
        apply_plan(other, plan)
    for broken in ({"stem": {}}, {"stem": {**plan["layers.0"], "in_parts": "8"}}, [1]):
        with pytest.raises(ValueError, match=r"plan"):
            apply_plan(Net(1), broken)
