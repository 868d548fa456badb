"""The image networks, and tests of every model over every algebra."""

import copy
import math
import subprocess
import sys

import pytest
import torch
import torchvision
from torch import nn

import algebranets as an
from algebranets import M2R, C, H, R
from algebranets.algebra import CATALOGUE, CROSS, Algebra, diagonal, get
from algebranets.lab import recipes
from algebranets.lab.bench.case import fit_width
from algebranets.models.cifar_resnet import Transition
from algebranets.models.kit import Kit
from algebranets.models.resnet import BasicBlock, Bottleneck, ResNet
from conftest import thinned

over_catalogue = pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)
over_models = pytest.mark.parametrize("name", an.models.MODELS)
#: One model for each kind of block. The others have the same blocks in other numbers.
over_kinds = pytest.mark.parametrize("name", [n for n in an.models.MODELS if n not in ("resnet34", "resnet101")])


def small(name, algebra, **options):
    """A small model of each kind, and an input of odd sizes."""
    dim = get(algebra).dim
    image = torch.randn(3, 3, 37, 29)
    text = torch.randint(7, (3, 5))
    sizes, x = {
        "mobilenet_v1": ({"width": 0.5, "num_classes": 3}, image),
        "cifar_resnet": ({"width": 0.5, "num_classes": 3, "num_blocks": 2}, image),
        "transformer_xl": ({"num_layers": 2, "d_model": 6 * dim, "num_heads": 2, "ff_size": 5 * dim, "vocab_size": 7,
                            "window": 3}, text),
        "gru_lm": ({"hidden_size": 3 * dim, "num_readouts": 2, "vocab_size": 7}, text),
    }.get(name, ({"width": 0.125, "num_classes": 3}, image))  # fmt: skip
    return an.models.create(name, algebra=algebra, **{**sizes, **options}), x


def logits_of(result):
    return result[0] if isinstance(result, tuple) else result


def gradients(model):
    return [p.grad for p in model.parameters()]


# Every model over every algebra ---------------------------------------------------------------------------------------


LEARNING = [(name, algebra) for name in an.models.MODELS for algebra in CATALOGUE.values()]


def learns_often(name, algebra):
    """Select every model over M2R and H, which store weights differently, and cheap models over every algebra."""
    return algebra in (M2R, H) or name in ("resnet18", "mobilenet_v1", "gru_lm")


@pytest.mark.parametrize(("name", "algebra"), thinned(LEARNING, learns_often), ids=str)
def test_every_model_over_every_algebra_runs_and_learns(name, algebra):
    model, x = small(name, algebra)
    logits = logits_of(model(x))
    assert logits.shape == ((3, 5, 7) if x.dim() == 2 else (3, 3))
    assert torch.isfinite(logits).all()
    (logits * torch.randn_like(logits)).sum().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key
        assert parameter.grad.any(), key


@pytest.mark.parametrize("algebra", [M2R, H], ids=str)
@over_models
def test_a_state_dict_carries_the_whole_model(name, algebra):
    model, x = small(name, algebra)
    twin, _ = small(name, algebra)
    model(x)  # updates the running statistics
    twin.load_state_dict(model.state_dict())
    model.eval(), twin.eval()
    torch.testing.assert_close(logits_of(twin(x)), logits_of(model(x)), rtol=0, atol=0)


#: Each model over one algebra. The algebras are of each kind: real, folded, not folded, with zeros, of several blocks.
COMPILED_OFTEN = [
    ("resnet18", R), ("resnet50", M2R), ("mobilenet_v1", M2R), ("transformer_xl", H), ("gru_lm", CROSS),
    ("cifar_resnet", diagonal(4)),
]  # fmt: skip
COMPILED = COMPILED_OFTEN + [(n, M2R) for n in ("transformer_xl", "cifar_resnet")]


@pytest.mark.parametrize(("name", "algebra"), thinned(COMPILED, lambda *case: case in COMPILED_OFTEN), ids=str)
def test_every_model_compiles_without_graph_breaks(name, algebra):
    """Tracing takes seconds, so stages have one block."""
    if name.startswith("resnet"):
        block = BasicBlock if name == "resnet18" else Bottleneck
        model, x = ResNet(block, (1, 1, 1, 1), algebra=algebra, width=0.125, num_classes=3), torch.randn(3, 3, 37, 29)
    else:
        model, x = small(name, algebra, **({"num_blocks": 1} if name == "cifar_resnet" else {}))
    assert_compiles(model, x, "aot_eager" if name == "resnet50" else "eager")


def assert_compiles(model, x, backend):
    torch._dynamo.reset()
    twin = copy.deepcopy(model)
    logits, expected = logits_of(torch.compile(model, fullgraph=True, backend=backend)(x)), logits_of(twin(x))
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)
    logits.square().sum().backward()
    expected.square().sum().backward()
    for (key, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, atol=1e-3, rtol=1e-3, msg=lambda m, key=key: f"{key}: {m}")


def test_a_model_over_a_new_algebra_compiles():
    """Properties that an algebra derives at first use must not be derived while a graph is traced."""
    model, x = small("cifar_resnet", Algebra.parse("New | a b\n----+----\na | a b\nb | b -a"), num_blocks=1)
    assert_compiles(model, x, backend="eager")


@pytest.mark.slow
def test_a_model_compiles_in_a_fresh_process():
    """In a fresh process, no other test has made an algebra of the catalogue derive its properties."""
    code = (
        "import torch, algebranets as an\n"
        "model = an.models.create('cifar_resnet', algebra='C', width=0.25, num_blocks=1)\n"
        "torch.compile(model, fullgraph=True, backend='eager')(torch.randn(2, 3, 8, 8))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]


@over_kinds
def test_the_lowerings_of_a_model_agree(name):
    model, x = small(name, "H")
    other, _ = small(name, "H", lowering="reference")
    other.load_state_dict(model.state_dict())
    model.double().eval(), other.double().eval()
    x = x.double() if x.is_floating_point() else x
    torch.testing.assert_close(logits_of(model(x)), logits_of(other(x)))


@over_models
def test_a_model_can_be_built_and_run_without_memory(name):
    with torch.device("meta"):
        model, x = small(name, "M2R")
        assert logits_of(model(x)).is_meta
    assert all(p.is_meta for p in model.parameters())


# Real models are the ordinary networks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", thinned([(f"resnet{n}",) for n in (18, 34, 50, 101)], lambda name: name in ("resnet34", "resnet50"))
)
def test_the_real_resnet_loads_torchvisions_state_dict_and_gives_its_logits(name):
    theirs = getattr(torchvision.models, name)(num_classes=10)
    for module in theirs.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean), nn.init.uniform_(module.running_var, 0.5, 2)
    ours = an.models.create(name, algebra="R", num_classes=10)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 65, 71)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_the_real_mobilenet_is_the_plain_one():
    def conv(inp, out, kernel, stride=1, groups=1):
        return [nn.Conv2d(inp, out, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(out),
                nn.ReLU()]  # fmt: skip

    layers, channels = conv(3, 32, 3, 2), 32
    for out, stride in [
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *[(512, 1)] * 5,
        (1024, 2),
        (1024, 1),
    ]:
        layers += [*conv(channels, channels, 3, stride, channels), *conv(channels, out, 1)]
        channels = out
    plain = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 10))
    ours = an.models.create("mobilenet_v1", algebra="R", num_classes=10)
    plain.load_state_dict(dict(zip(plain.state_dict(), ours.state_dict().values(), strict=True)))
    x = torch.randn(2, 3, 64, 48)
    torch.testing.assert_close(ours(x), plain(x), atol=1e-5, rtol=1e-4)


def test_the_cifar_network_is_the_one_of_gaudet_and_maida():
    model = an.models.create("cifar_resnet", algebra="R")
    assert [len(stage) for stage in (model.stage1, model.stage2, model.stage3)] == [10, 10, 10]
    assert sum(isinstance(block, Transition) for block in model.modules()) == 2
    shapes = []
    for stage in (model.stem, model.stage1, model.stage2, model.stage3):
        stage.register_forward_hook(lambda _m, _x, y: shapes.append(tuple(y.shape[1:])))
    model(torch.randn(1, 3, 32, 32))
    assert shapes == [(32, 32, 32), (32, 32, 32), (64, 16, 16), (128, 8, 8)]


def test_a_transition_puts_tuples_side_by_side():
    block = Transition(Kit(H), 8).eval()
    x = torch.randn(2, 8, 6, 6)
    shortcut, rest = (an.tuples(y, H, 1) for y in (block.shortcut(x), block._residual(x)))
    torch.testing.assert_close(an.tuples(block(x), H, 1), torch.cat([shortcut, rest], dim=2))


# Widths, norms, activations -------------------------------------------------------------------------------------------


@over_catalogue
@pytest.mark.parametrize("width", [0.3, 1.0, 1.376])
def test_widths_are_whole_tuples_by_the_stated_rule(algebra, width):
    kit = Kit(algebra, width)
    for channels in (64, 100, 256):
        assert kit.channels(channels) == algebra.dim * math.floor(width * channels / algebra.dim + 0.5)


def test_half_a_tuple_is_rounded_up_everywhere():
    """Python's `round` would round 2.5 tuples to 2."""
    assert an.product.nearest_multiple(2.5 * 4, 4) == Kit(H).channels(10) == recipes.text.whole(10, "H") == 12
    assert recipes.create("transformer_xl-small", algebra="H", width=0.625).model["num_heads"] == 3  # from 2.5
    assert fit_width(20, H) == 24  # from 2.5 times 8 numbers
    with pytest.raises(ValueError, match="the nearest that works is 24"):
        an.nn.MultiheadAttention(20, 2, algebra=H)  # 2.5 tuples in each of two heads


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenet_v1", "cifar_resnet"])
@pytest.mark.parametrize("algebra", [*CATALOGUE.values(), get("M5R")], ids=str)
def test_a_width_that_leaves_no_tuple_says_which_one_would(name, algebra):
    with pytest.raises(ValueError, match=r"leaves no whole .* the nearest width that works is") as error:
        an.models.create(name, algebra=algebra, width=1e-3)
    nearest = float(str(error.value).rstrip(".").split()[-1])
    an.models.create(name, algebra=algebra, width=nearest)
    with pytest.raises(ValueError, match="leaves no whole"):
        an.models.create(name, algebra=algebra, width=0.99 * nearest)


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenet_v1", "cifar_resnet"])
def test_norms_and_activations_are_what_was_asked_for(name):
    kinds = {type(module) for module in small(name, M2R, norm="whitening", activation="swish")[0].modules()}
    assert an.nn.Whitening2d in kinds
    assert nn.SiLU in kinds
    assert not {nn.BatchNorm2d, nn.ReLU} & kinds - ({nn.ReLU} if name == "cifar_resnet" else set())  # in its Lift
    kinds = {type(module) for module in small(name, M2R)[0].modules()}
    assert nn.BatchNorm2d in kinds
    assert nn.ReLU in kinds
    assert not {an.nn.Whitening2d, nn.SiLU} & kinds


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v1", "cifar_resnet"])
@pytest.mark.parametrize("algebra", [C, M2R, H, get("diagonal(4)")], ids=str)
def test_whitened_networks_learn(name, algebra):
    """A small step against the gradient lowers the loss by about as much as the gradient says."""
    model, x = small(name, algebra, norm="whitening")
    model, x = model.double(), x.double()
    loss = model(x).square().sum()
    loss.backward()
    step = 1e-6 * loss.item() / sum(g.square().sum().item() for g in gradients(model))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= step * parameter.grad
        assert 1 - model(x).square().sum().item() / loss.item() == pytest.approx(1e-6, rel=0.1)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v1", "cifar_resnet"])
def test_channels_last_goes_through(name):
    model, x = small(name, M2R)
    model.eval()
    expected = model(x)
    there = model.to(memory_format=torch.channels_last)(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(there, expected, atol=1e-5, rtol=1e-4)


def test_images_of_other_channels():
    for name in ("resnet18", "mobilenet_v1", "cifar_resnet"):
        model, _ = small(name, M2R, in_channels=1)
        assert model(torch.randn(2, 1, 28, 28)).shape == (2, 3)


# Mistakes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet5", {}, "model must be one of resnet18, .*; got 'resnet5'. Did you mean 'resnet50'"),
        ("resnet50", {"algebra": R, "widht": 2}, "no option 'widht'. Did you mean 'width'"),
        ("resnet50", {"algebra": R, "width": 0}, "width must be a positive number; got 0"),
        ("resnet50", {"algebra": R, "width": "wide"}, "width must be a number; got 'wide'"),
        ("resnet50", {"algebra": R, "width": True}, "width must be a number; got True"),
        ("resnet50", {"algebra": R, "width": -1.0}, "width must be a positive number; got -1.0"),
        ("resnet50", {"algebra": R, "width": math.nan}, "width must be a positive number; got nan"),
        ("resnet50", {"algebra": R, "width": math.inf}, "width must be a positive number; got inf"),
        ("resnet50", {"algebra": R, "num_classes": 0}, "num_classes must be at least 1; got 0"),
        ("resnet18", {"algebra": R, "num_classes": True}, "num_classes must be a whole number; got True"),
        ("resnet18", {"algebra": R, "in_channels": -3}, "in_channels must be at least 1; got -3"),
        *(
            (name, {"algebra": a, "lowering": "fast"}, "lowering must be one of auto, blocks.*; got 'fast'")
            for name in an.models.MODELS
            for a in (R, H)
        ),
        ("resnet18", {"algebra": 5}, "algebra must be of type Algebra or text; got 5"),
        ("resnet18", {}, "resnet18 must have the option 'algebra'; it is missing"),
        ("mobilenet_v1", {"algebra": R, "lift": "ones"}, "lift must be one of learned, zeros, copy"),
        ("mobilenet_v1", {"algebra": R, "init": "he"}, "init must be one of glorot, polar"),
        ("resnet50", {"algebra": R, "norm": "layer"}, "norm must be one of batch, whitening"),
        ("mobilenet_v1", {"algebra": R, "activation": "gelu"}, "activation must be one of relu, swish"),
        ("cifar_resnet", {"algebra": R, "num_blocks": 0}, "num_blocks must be at least 1"),
        ("cifar_resnet", {"algebra": R, "num_blocks": -1}, "num_blocks must be at least 1"),
        ("cifar_resnet", {"algebra": "Q"}, "unknown algebra 'Q'"),
        ("transformer_xl", {"algebra": "M3R", "ff_size": 1539}, "multiple of 36; the nearest that works is 504"),
        ("transformer_xl", {"algebra": "M3R"}, "ff_size is 1536, .* such as 1530 or 1539"),
        ("transformer_xl", {"algebra": R, "window": 0}, "window must be at least 1"),
        (
            "transformer_xl",
            {"algebra": R, "window": 10**18},
            "a window of shape .* more numbers than torch can address",
        ),
        ("transformer_xl", {"algebra": R, "num_layers": 0}, "num_layers must be at least 1"),
        ("transformer_xl", {"algebra": R, "num_heads": 0}, "num_heads must be at least 1"),
        ("transformer_xl", {"algebra": R, "d_model": -4}, "d_model=-4 cannot be split into 4 heads"),
        ("transformer_xl", {"algebra": R, "ff_size": 0}, "ff_size is 0"),
        ("transformer_xl", {"algebra": R, "vocab_size": 0}, "vocab_size must be at least 1"),
        ("transformer_xl", {"algebra": R, "dropout": math.nan}, "dropout must lie between 0 and 1; got nan"),
        ("transformer_xl", {"algebra": R, "dropout": -0.1}, "dropout must lie between 0 and 1; got -0.1"),
        ("transformer_xl", {"algebra": R, "norm_first": 1}, "norm_first must be True or False; got 1"),
        ("transformer_xl", {"algebra": R, "attention_kernel": "flash"}, "kernel must be one of auto, sdpa, triton"),
        ("gru_lm", {"algebra": R, "num_readouts": -1}, "num_readouts must be at least 0; got -1"),
        ("gru_lm", {"algebra": R, "vocab_size": -1}, "vocab_size must be at least 1; got -1"),
        ("gru_lm", {"algebra": R, "hidden_size": 0}, "hidden_size is 0"),
        ("gru_lm", {"algebra": "M3R"}, "hidden_size is 2048, .* such as 2043 or 2052"),
        ("gru_lm", {"algebra": "H", "width": 1.0}, "no option 'width'"),
    ],
)
def test_mistakes_are_explained(name, options, message):
    with pytest.raises(ValueError, match=message):
        an.models.create(name, **options)


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenet_v1", "cifar_resnet"])
@pytest.mark.parametrize("algebra", [R, H, M2R], ids=str)
def test_widths_beyond_what_torch_can_address_are_explained(name, algebra):
    """Widths that torch can address run on the meta device, which needs no memory."""
    with torch.device("meta"):
        model = an.models.create(name, algebra=algebra, width=1e5)
        assert model(*model.example_inputs()).shape == (1, model.fc.out_features // algebra.dim)
        for width in (1e8, 1e300, 1e308):
            with pytest.raises(ValueError, match="more numbers than torch can address"):
                an.models.create(name, algebra=algebra, width=width)


def test_sizes_of_language_models_beyond_what_torch_can_address_are_explained():
    for name, option in (("gru_lm", "hidden_size"), ("transformer_xl", "d_model"), ("transformer_xl", "vocab_size")):
        with torch.device("meta"), pytest.raises(ValueError, match="more numbers than torch can address"):
            an.models.create(name, algebra=M2R, **{option: 2**52})


def test_a_language_model_may_have_no_readouts():
    model, tokens = small("gru_lm", M2R, num_readouts=0)
    assert logits_of(model(tokens)).shape == (3, 5, 7)


def test_images_that_do_not_fit_are_explained():
    model, _ = small("resnet18", M2R)
    with pytest.raises(ValueError, match=r"must be \(batch, 3, height, width\); got shape \(2, 1, 8, 8\)"):
        model(torch.randn(2, 1, 8, 8))
    with pytest.raises(ValueError, match="image_size must be at least 1; got 0"):
        model.example_inputs(image_size=0)
    with pytest.raises(ValueError, match=r"an image of shape .* holds more numbers than torch can address"):
        model.example_inputs(image_size=2**31)
