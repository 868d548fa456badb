"""`convert`: which layers are replaced, what they become, and which stay real."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import algebranets as an
from algebranets import nn as ann
from algebranets.conversion import convert, convert_
from algebranets.conversion.calls import watch_calls
from algebranets.conversion.candidates import candidates
from algebranets.conversion.initial import take_over
from algebranets.conversion.layers import Spec, build
from laws import assert_exact, times


class Net(nn.Module):
    """A stem, two blocks of two linear layers, eleven further layers, and a head."""

    def __init__(self, num_layers=11):
        super().__init__()
        self.stem = nn.Linear(3, 24)
        self.block1 = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24))
        self.block2 = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24))
        self.layers = nn.ModuleList(nn.Linear(24, 24) for _ in range(num_layers))
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        x = self.block2(self.block1(self.stem(x).relu()))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def over(model):
    """The names of the layers over an algebra, and the names of their algebras."""
    return {name: m.algebra.name for name, m in model.named_modules() if isinstance(m, ann.Layer)}


def kept(model):
    return {row.name: row.reason for row in model.conversion.kept}


# Which layers ---------------------------------------------------------------------------------------------------------


def test_by_default_the_first_and_the_last_layer_stay_real():
    model = convert(Net(1), "H")
    assert over(model) == dict.fromkeys(["block1.0", "block1.2", "block2.0", "block2.2", "layers.0"], "H")
    assert kept(model) == {"stem": "no layer comes before it (keep)", "head": "it makes the model's output (keep)"}
    assert model(torch.randn(2, 3)).shape == (2, 5)


@pytest.mark.parametrize(
    ("keep", "converted"),
    [("first", ["1", "2"]), ("last", ["0", "1"]), ("none", ["0", "1", "2"]), ("", ["0", "1", "2"])],
)
def test_keep_says_which_of_the_first_and_last_layers_stay_real(keep, converted):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    assert list(over(convert(model, "H", keep=keep))) == converted


@pytest.mark.parametrize("keep", ["frist", "first,none", "first;last", 3, ["first"]])
def test_a_keep_that_is_not_known_is_an_error(keep):
    with pytest.raises(ValueError, match=r"keep must be"):
        convert(Net(), "H", keep=keep)


def test_first_and_last_are_found_by_calls_and_not_by_order_of_definition():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.middle, self.stem = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return self.head(self.middle(self.stem(x)))

    assert list(over(convert(Backwards(), "H"))) == ["middle"]


def test_all_layers_that_read_only_inputs_are_first_and_the_last_call_that_reaches_the_output_is_last():
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(10, 8), nn.Embedding(16, 8)
            self.a, self.b, self.head, self.side = (nn.Linear(8, 8) for _ in range(4))

        def forward(self, ids):
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
            x = x + self.b(self.a(x).detach().relu_())  # detach and in-place operations do not hide the origin
            with torch.no_grad():
                y = torch.zeros_like(x)
                y[:] = self.head(x)
            self.side(x)  # called last, but does not reach the output
            return {"logits": y, "state": (x,)}

    layers = dict.fromkeys(["tokens", "positions", "a", "b", "head", "side"], True)
    calls = watch_calls(Language(), (torch.zeros(1, 4, dtype=torch.long),), {}, layers)
    assert calls.first == {"tokens", "positions"}
    assert calls.last == "head"


def test_names_match_at_dots():
    model = convert(Net(), {"layers.1": None, "*": "H"})
    assert not isinstance(model.layers[1], ann.Layer)
    assert isinstance(model.layers[10], ann.Linear)


def test_exact_names_come_before_regular_expressions_and_these_before_the_star():
    given = {"*": "C", "re:.*\\.2": "H", "re:block.*": "M2R", "block2": "DUAL", "block2.0": None}
    model = convert(Net(1), given)
    assert over(model) == {"block1.0": "M2R", "block1.2": "H", "block2.2": "DUAL", "layers.0": "C"}
    assert kept(model)["block2.0"] == "kept by 'block2.0'"


def test_layers_that_no_pattern_names_stay_real():
    model = convert(Net(1), {"block1": "H"})
    assert list(over(model)) == ["block1.0", "block1.2"]
    assert kept(model)["layers.0"] == "no pattern names it"


def test_a_layer_that_is_named_exactly_is_not_kept_and_a_module_around_it_is():
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
    assert list(over(convert(model, {"0": "H", "1": "H"}))) == ["0", "1.0"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"block3": "H"}, "the pattern 'block3' matches no layer .* Did you mean 'block"),
        ({"layers.11": "H"}, "the pattern 'layers.11' matches no layer"),
        ({"layer": "H"}, "the pattern 'layer' matches no layer"),
        ({"re:block": "H"}, "the pattern 're:block' matches no layer"),
        ({"re:(": "H"}, "must be 're:' and a regular expression"),
        ({"block1.1": None, "*": "H"}, "'block1.1' is a ReLU, and neither is nor contains a layer"),
        ({"stem": "H", "*": "H"}, "'stem' cannot be converted: in_features=3 is not a multiple of 4"),
        ({"*": "Q"}, "Q"),
        ({"*": 3}, "must be an Algebra, a name such as 'M2R' or, in a mapping, None"),
        ({3: "H"}, "keys must be names"),
        ({}, "is empty"),
        ({"*": None}, "would change nothing. .*kept by '\\*'"),
        ({"block1": "R"}, "a layer over R is the real layer"),
        ("R", "a layer over R is the real layer"),
        (None, "must be an Algebra"),
        ("M3R", "would change nothing. .*in_features=24 is not a multiple of 9"),
    ],
)
def test_a_choice_that_cannot_be_carried_out_is_an_error(given, message):
    with pytest.raises(ValueError, match=message):
        convert(Net(), given)


def test_a_model_without_layers_that_can_be_converted_is_an_error():
    with pytest.raises(ValueError, match=r"The model has no layer that can be converted"):
        convert(nn.Sequential(nn.ReLU()), "H", inputs=torch.ones(1))
    with pytest.raises(ValueError, match=r"must be a torch.nn.Module"):
        convert(torch.relu, "H")


# What layers become ---------------------------------------------------------------------------------------------------

LAYERS = {
    "Linear": (nn.Linear(24, 48), (2, 24)),
    "Linear without bias": (nn.Linear(24, 48, bias=False), (2, 24)),
    "Conv1d": (nn.Conv1d(24, 48, 3, padding="same"), (2, 24, 7)),
    "Conv2d": (nn.Conv2d(24, 48, 3, stride=2, padding=1, padding_mode="reflect"), (2, 24, 7, 7)),
    "Conv3d": (nn.Conv3d(24, 48, 2, dilation=2), (1, 24, 4, 4, 4)),
    "grouped Conv2d": (nn.Conv2d(24, 48, 3, groups=2), (2, 24, 5, 5)),
    "depthwise Conv2d": (nn.Conv2d(24, 48, 3, groups=24), (2, 24, 5, 5)),
    "ConvTranspose1d": (nn.ConvTranspose1d(24, 48, 3, stride=2, output_padding=1), (2, 24, 5)),
    "ConvTranspose2d": (nn.ConvTranspose2d(24, 48, 3, stride=2, groups=2), (2, 24, 5, 5)),
    "ConvTranspose3d": (nn.ConvTranspose3d(24, 48, 2), (1, 24, 3, 3, 3)),
    "RNN": (nn.RNN(24, 48, nonlinearity="relu"), (5, 2, 24)),
    "LSTM": (nn.LSTM(24, 48, 2, batch_first=True, bidirectional=True, proj_size=24), (2, 5, 24)),
    "GRU": (nn.GRU(24, 48, bias=False), (5, 2, 24)),
    "RNNCell": (nn.RNNCell(24, 48, nonlinearity="relu"), (2, 24)),
    "LSTMCell": (nn.LSTMCell(24, 48), (2, 24)),
    "GRUCell": (nn.GRUCell(24, 48), (2, 24)),
    "GroupNorm": (nn.GroupNorm(2, 24), (2, 24, 5)),
}


def outputs(result):
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_becomes_the_layer_of_the_same_name_with_the_same_arguments(name):
    old, shape = LAYERS[name]
    old = copy.deepcopy(old).double().eval().requires_grad_(False)
    spec = Spec(an.M2R)
    new = build(old, spec)
    take_over(old, new, spec, "scale")
    assert type(new) is getattr(ann, type(old).__name__)
    assert not new.training
    x = torch.randn(shape, dtype=torch.float64)
    y, z = outputs(old(x)), outputs(new(x))
    assert y.shape == z.shape
    assert y.dtype == z.dtype
    for key, parameter in new.named_parameters():
        assert parameter.dtype == torch.float64
        assert not parameter.requires_grad
        if "bias" in key:
            assert torch.equal(parameter, old.get_parameter(key))
    assert {key for key, _ in new.named_parameters()} == {key for key, _ in old.named_parameters()}


def test_frozen_layers_stay_real_because_new_weights_would_be_random():
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(5)))
    model[1].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    made = convert(model, "H")
    assert torch.equal(made[1].weight, model[1].weight)
    reason = "its weight is frozen (requires_grad=False), and a new one would stay random"
    assert [row.reason for row in made.conversion.kept if row.name == "1"] == [reason]
    assert list(over(made)) == ["2", "3"]
    with pytest.raises(ValueError, match="would change nothing") as error:
        convert(model.requires_grad_(False), "H")
    assert reason in str(error.value)


def test_bilinear_layers_and_embedding_bags_are_converted():
    bilinear, bag = nn.Bilinear(8, 12, 20), nn.EmbeddingBag(10, 8, mode="max", padding_idx=1)
    new = build(bilinear, Spec(an.H))
    assert new(torch.randn(3, 8), torch.randn(3, 12)).shape == (3, 20)
    same = build(bag, Spec(an.H))
    take_over(bag, same, Spec(an.H), "scale")
    ids = torch.tensor([[1, 2, 3]])
    assert isinstance(same, ann.EmbeddingBag)
    assert torch.equal(same(ids), bag(ids))


def test_an_embedding_keeps_its_table_and_its_options():
    old = nn.Embedding(10, 8, padding_idx=2, max_norm=1.0, scale_grad_by_freq=True)
    model = convert(nn.Sequential(old, nn.Linear(8, 8)), "H", keep="none")
    ids = torch.tensor([1, 2])
    assert isinstance(model[0], ann.Embedding)
    assert torch.equal(model[0](ids), old(ids))
    assert (model[0].padding_idx, model[0].max_norm, model[0].scale_grad_by_freq) == (2, 1.0, True)


@pytest.mark.parametrize("groups", [3, 6])
def test_groups_count_tuples_and_a_convolution_stays_real_if_they_do_not_divide_them(groups):
    convs = [nn.Conv2d(24, 24, 1), nn.Conv2d(24, 24, 3, groups=groups), nn.Conv2d(24, 24, 1), nn.Conv2d(24, 24, 1)]
    model = convert(nn.Sequential(*convs), "H", inputs=torch.randn(1, 24, 5, 5))
    assert isinstance(model[1], ann.Conv2d)
    assert model[1].groups == groups
    odd = nn.Conv2d(24, 24, 3, groups=4)
    model = convert(nn.Sequential(convs[0], odd, *convs[2:]), "H", inputs=torch.randn(1, 24, 5, 5))
    assert type(model[1]) is nn.Conv2d
    assert "groups=4 must divide the tuples" in kept(model)["1"]


def test_a_group_norm_with_several_groups_is_converted_and_one_with_one_group_is_not():
    norms = [nn.GroupNorm(2, 8), nn.GroupNorm(1, 8), nn.GroupNorm(2, 8, affine=False)]
    nn.init.uniform_(norms[0].weight)
    model = convert(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), *norms, nn.Linear(8, 8)), "C")
    assert over(model) == {"1": "C", "2": "C", "4": "C"}
    assert type(model[3]) is nn.GroupNorm
    assert torch.allclose(model[2].weight, norms[0].weight.unflatten(0, (2, 4)).mean(0))
    model = convert(nn.Sequential(nn.GroupNorm(2, 8), *(nn.Linear(8, 8) for _ in range(3)), nn.GroupNorm(2, 8)), "C")
    assert list(over(model)) == ["0", "2", "4"]  # norms are neither first nor last layers


def test_multihead_attention_is_converted_as_a_whole_and_its_output_projection_is_used():
    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.head = nn.Linear(3, 16), nn.Linear(16, 2)
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            x = self.stem(x)
            return self.head(self.attention(x, x, x, need_weights=False)[0])

    model = convert(Attend().eval(), "H", inputs=torch.randn(1, 5, 3))
    assert type(model.attention) is ann.MultiheadAttention
    assert [r.name for r in model.conversion.converted] == ["attention"]
    x = torch.randn(1, 5, 3)
    y = model(x)
    with torch.no_grad():
        model.attention.out_proj.weight.mul_(2)
    assert not torch.allclose(model(x), y)
    with pytest.raises(
        ValueError, match=r"'attention.out_proj' is a part of 'attention', which is converted as a whole"
    ):
        convert(Attend(), {"attention.out_proj": "H"}, inputs=x)


def test_transformer_layers_are_converted_as_a_whole_and_masks_work_in_evaluation_mode():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=False, activation="gelu")
    nn.init.uniform_(layer.norm1.weight)
    model = nn.Sequential(nn.Linear(3, 16), nn.TransformerEncoder(layer, 2), nn.Linear(16, 2)).eval()
    made = convert(model, "H", inputs=torch.randn(1, 5, 3))
    assert all(type(made[1].layers[n]) is ann.TransformerEncoderLayer for n in (0, 1))
    assert torch.equal(made[1].layers[1].norm1.weight, layer.norm1.weight)
    x, mask = torch.randn(2, 5, 16), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad():
        y = made[1](x, src_key_padding_mask=mask)
    assert torch.allclose(y[1, :3], made[1](x[1:, :3])[0], atol=1e-5)
    assert model[1].use_nested_tensor  # the original is unchanged
    double = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    inputs = (torch.randn(2, 5, 16), torch.randn(2, 4, 16))
    made = convert(double, "H", keep="none", inputs=inputs)
    assert type(made.decoder.layers[0]) is ann.TransformerDecoderLayer
    assert made(*inputs).shape == (2, 4, 16)


def test_a_transformer_layer_with_its_own_forward_is_not_replaced_but_its_layers_are():
    class Own(nn.TransformerEncoderLayer):
        def forward(self, src):
            x = src + self.self_attn(src, src, src, need_weights=False)[0]
            return x + self.linear2(self.linear1(x).relu())

    model = nn.Sequential(nn.Linear(3, 16), Own(16, 2, 32, batch_first=True), nn.Linear(16, 2))
    made = convert(model, "H", inputs=torch.randn(1, 5, 3))
    assert type(made[1]) is Own
    assert [row.name for row in made.conversion.converted] == [
        "1.self_attn",
        "1.linear1",
        "1.linear2",
    ]


# What stays real ------------------------------------------------------------------------------------------------------


class Scaled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Tuned(nn.Linear):
    def reset_parameters(self):
        nn.init.normal_(self.weight, std=0.02)
        nn.init.zeros_(self.bias)


def in_the_middle(layer, **options):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), layer, nn.Linear(8, 8))
    return convert(model, "H", **options)


def test_a_subclass_is_converted_only_if_it_has_torchs_forward():
    assert kept(in_the_middle(Scaled(8, 8)))["2"] == "Scaled has its own forward, different from Linear's"
    assert type(in_the_middle(Tuned(8, 8))[2]) is ann.Linear
    patched = nn.Linear(8, 8)
    patched.forward = lambda x: x
    assert "own forward" in kept(in_the_middle(patched))["2"]


def test_layers_that_cannot_be_replaced_stay_real_with_the_reason():
    assert kept(in_the_middle(parametrizations.weight_norm(nn.Linear(8, 8))))["2"] == "it is parametrized"
    hooked = nn.Linear(8, 8)
    hooked.register_forward_hook(lambda *_: None)
    assert kept(in_the_middle(hooked))["2"] == "it has hooks"
    narrow = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 8))
    model = in_the_middle(narrow)
    assert kept(model)["2.0"] == "out_features=6 is not a multiple of 4"
    assert kept(model)["2.1"] == "in_features=6 is not a multiple of 4"
    with pytest.raises(ValueError, match=r"2 is a lazy layer without weights: run the model once"):
        in_the_middle(nn.LazyLinear(8))


def test_a_quantized_weight_stays():
    class Quantized(torch.Tensor):
        pass

    layer = nn.Linear(8, 8)
    layer.weight = nn.Parameter(layer.weight.detach().as_subclass(Quantized))
    assert "not a plain parameter" in candidates(layer)[""].reason


def test_layers_that_are_not_called_or_whose_weight_is_read_stay_real():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.read, self.unused, self.c, self.functional = (nn.Linear(8, 8) for _ in range(6))

        def forward(self, x):
            x = self.b(self.a(x))
            x = nn.functional.linear(x, self.functional.weight, self.functional.bias)
            return self.c(nn.functional.linear(self.read(x), self.read.weight))

    model = convert(Odd(), "H")
    assert list(over(model)) == ["b"]
    assert kept(model)["unused"] == "it was not called"
    assert kept(model)["functional"] == "its weight is read without a call"
    assert kept(model)["read"] == "the model reads its weight without calling it"


def test_a_layer_that_the_code_reaches_in_another_way_is_an_error_and_the_model_stays_as_it_was():
    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(8, 8) for _ in range(3))
            self.hidden = [self.a, self.b, self.c]

        def forward(self, x):
            for layer in self.hidden:
                x = layer(x)
            return x

    model = Listed()
    with pytest.raises(ValueError, match=r"does not call the new layers 'b', because its code reaches the old ones"):
        convert_(model, "H")
    assert not over(model)
    assert not hasattr(model, "conversion")


def test_a_model_that_breaks_with_new_layers_is_an_error_and_stays_as_it_was():
    class Checks(nn.Sequential):
        def forward(self, x):
            assert type(self[1]) is nn.Linear, "only Linear, please"
            return super().forward(x)

    model = Checks(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    with pytest.raises(ValueError, match=r"Checks does not run with layers over an algebra: only Linear, please"):
        convert_(model, "H")
    assert type(model[1]) is nn.Linear


def test_compiled_and_scripted_models_are_refused():
    with pytest.raises(ValueError, match=r"is compiled: convert the model first"):
        convert(torch.compile(Net(), backend="eager"), "H")
    with warnings.catch_warnings(action="ignore"):  # torch.jit is deprecated
        scripted = torch.jit.trace(nn.Linear(8, 8), torch.ones(1, 8))
    with pytest.raises(ValueError, match=r"is a TorchScript module"):
        convert(nn.Sequential(scripted), "H")


# Tied weights ---------------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self, *, tie_head=False):
        super().__init__()
        self.tokens = nn.Embedding(12, 8)
        self.a, self.b, self.c = (nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 12, bias=False)
        self.b.weight = self.a.weight
        self.c.bias = self.a.bias
        if tie_head:
            self.head.weight = self.tokens.weight

    def forward(self, ids):
        return self.head(self.c(self.b(self.a(self.tokens(ids)))))


def test_layers_that_share_a_weight_share_the_new_one():
    model = convert(Tied(), "H")
    assert list(over(model)) == ["a", "b", "c"]
    assert model.a.weight is model.b.weight
    assert model.a.weight is not model.c.weight
    assert model.a.bias is model.c.bias


@pytest.mark.parametrize("given", [{"a": None, "*": "H"}, {"a": "C", "*": "H"}])
def test_a_layer_that_shares_its_weight_with_another_kind_of_layer_stays_real(given):
    if given["a"]:
        with pytest.raises(ValueError, match=r"'a' cannot be converted: it shares its weight with b"):
            convert(Tied(), given)
    else:
        model = convert(Tied(), given)
        assert list(over(model)) == ["c"]
        assert kept(model)["b"] == "it shares its weight with a"


def test_a_head_that_shares_its_table_with_an_embedding_stays_real_and_shares_it_still():
    model = convert(Tied(tie_head=True), "H", keep="none")
    assert kept(model) == {"head": "it shares its weight with tokens"}
    assert isinstance(model.tokens, ann.Embedding)
    assert model.head.weight is model.tokens.weight


def test_a_layer_whose_bias_another_module_shares_does_not_write_parts():
    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.fused, self.other, self.head = (nn.Linear(8, 8) for _ in range(4))
            self.fused.bias = self.other.bias

        def forward(self, x):
            a, b = self.fused(self.other(self.stem(x))).chunk(2, -1)
            return self.head(torch.cat([a * b, a], -1))

    model = convert(Cut(), "C")
    assert kept(model)["fused"] == "it shares its bias with other and must write its channels in parts"
    assert model.fused.bias is model.other.bias


def test_a_module_with_two_names_is_converted_once():
    shared = nn.Linear(8, 8)
    model = nn.Sequential(nn.Linear(8, 8), shared, nn.ReLU(), shared, nn.Linear(8, 8))
    made = convert(model, "H")
    assert made[1] is made[3]
    assert isinstance(made[1], ann.Linear)
    assert len(made.conversion.converted) == 1


def test_the_second_name_of_a_module_is_an_error_that_gives_the_first():
    model = Net()
    model.again = model.block1
    with pytest.raises(ValueError, match=r"'again\.0' is the same module as 'block1\.0': use this name"):
        convert(model, {"again.0": "H"})


def test_inputs_that_the_model_does_not_take_are_an_error_with_the_reason():
    with pytest.raises(ValueError, match=r"Net does not run on the input \(2, 4\) \(.*\): pass inputs"):
        convert(Net(), "H", inputs=torch.randn(2, 4))


def test_a_layer_with_hooks_on_its_state_dict_stays_real():
    model = Net()
    model.layers[3].register_state_dict_post_hook(lambda *_: None)
    assert kept(convert(model, "H"))["layers.3"] == "it has hooks"


class Counting(Net):
    """A model that counts its calls in a buffer and in an attribute, and keeps its last input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.calls = 0

    def forward(self, x):
        self.count, self.calls, self.last = self.count + 1, self.calls + 1, x
        return super().forward(x)


@pytest.mark.parametrize("change", [convert, convert_, lambda *given: an.to_real(convert(*given))])
def test_runs_on_example_inputs_leave_a_models_state_as_it_was(change):
    model = Counting()
    made = change(model, "H")
    for one in (model, made):
        assert (one.count.item(), one.calls, hasattr(one, "last")) == (0, 0, False)


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Conv2d(24, size, 1, bias=False) for size in (8, 16, 8))
        self.norm = nn.GroupNorm(2, 24)

    def forward(self, x):
        return self.c(self.norm(torch.cat([self.a(x), self.b(x)], 1)))


def test_a_group_norm_between_parts_leaves_channels_where_they_are():
    """Then the model commutes with multiplication by quaternions of norm one."""
    torch.manual_seed(0)
    x, q = torch.randn(2, 24, 3, 3).double(), nn.functional.normalize(torch.randn(4).double(), dim=0)
    model = convert(Joined().double(), "H", keep="none", inputs=x)
    assert model.norm.in_parts == model.norm.out_parts == model.c.in_parts == (8, 16)
    assert_exact(model(times(x, q, an.H, 1)), times(model(x), q, an.H, 1))
    assert_exact(an.to_real(model, x)(x), model(x))
