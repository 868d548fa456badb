"""Layers of complextorch, SpeechBrain and cliffordlayers become layers of ours with the same outputs and gradients.

The tests of a library run if it is installed (``pip install -e '.[dev,peers]'``) and are skipped otherwise.
"""

import re
from contextlib import nullcontext
from importlib import import_module
from itertools import product as pairs
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import algebranets as an
from algebranets.conversion import apply_plan, convert, convert_, peers, to_real
from algebranets.conversion.peers import from_cliffordlayers, from_complextorch, from_speechbrain, signature_algebra
from algebranets.nn.conv import Conv
from peer_packages import installed, speechbrain_importable

F64, C128 = torch.float64, torch.complex128


def assert_same(theirs, ours, *inputs):
    """Check that two modules give the same outputs and the same gradients of their inputs, to 1e-10."""
    results = []
    for module in (theirs, ours):
        leaves = [x.clone().requires_grad_() for x in inputs]
        y = module(*leaves)
        y = y[0] if isinstance(y, tuple) else y
        torch.manual_seed(0)
        gradients = torch.autograd.grad(y, leaves, torch.randn(y.shape, dtype=y.dtype))
        results.append((y, *gradients))
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def randomized(module):
    """Give every parameter normal random numbers, because some libraries start with zeros or unset memory."""
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def only_layer(wrapper):
    (layer,) = [module for module in wrapper.modules() if isinstance(module, an.nn.Layer)]
    return layer


# complextorch ---------------------------------------------------------------------------------------------------------

COMPLEX_CASES = [
    ("Linear", (3, 5), {}, (7, 3)),
    ("Linear", (3, 5), {"bias": False}, (2, 4, 3)),
    ("Conv1d", (3, 5, 3), {"stride": 2, "padding": 1}, (2, 3, 9)),
    ("Conv1d", (4, 6, 3), {"groups": 2, "dilation": 2, "bias": False}, (2, 4, 9)),
    ("Conv2d", (3, 5, (3, 1)), {"padding": (2, 0), "padding_mode": "reflect"}, (2, 3, 7, 5)),
    ("Conv2d", (3, 3, 3), {"groups": 3, "padding": "same"}, (2, 3, 7, 5)),
    ("Conv2d", (3, 5, 3), {}, (3, 7, 5)),
    ("Conv3d", (3, 2, 2), {"padding": 1, "padding_mode": "circular"}, (2, 3, 4, 3, 5)),
    ("ConvTranspose1d", (3, 5, 3), {"stride": 2, "output_padding": 1}, (2, 3, 6)),
    ("ConvTranspose2d", (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2, "bias": False}, (2, 4, 3, 5)),
    ("ConvTranspose3d", (3, 2, 2), {"dilation": 2}, (2, 3, 3, 4, 2)),
]
over_complex_cases = pytest.mark.parametrize(("name", "sizes", "options", "shape"), COMPLEX_CASES, ids=str)


@over_complex_cases
def test_a_torch_layer_with_complex_weights_becomes_a_layer_over_c(name, sizes, options, shape):
    theirs = getattr(nn, name)(*sizes, **options, dtype=C128)
    ours = peers.find(theirs)(theirs)
    assert only_layer(ours).algebra is an.C
    assert_same(theirs, ours, torch.randn(shape, dtype=C128))


@over_complex_cases
def test_a_layer_of_complextorch_becomes_a_layer_over_c(name, sizes, options, shape):
    theirs = getattr(installed("complextorch").nn, name)(*sizes, **options, dtype=C128)
    assert_same(theirs, peers.find(theirs)(theirs), torch.randn(shape, dtype=C128))


@over_complex_cases
def test_a_layer_of_complextorch_gauss_becomes_a_layer_over_c(name, sizes, options, shape):
    gauss = installed("complextorch").nn.gauss
    theirs = randomized(getattr(gauss, name)(*sizes, **options).double())
    if "padding_mode" in options:
        with pytest.raises(ValueError, match="pads one of its three products with zeros"):
            from_complextorch(theirs)
        return
    ours, x = from_complextorch(theirs), torch.randn(shape, dtype=C128)
    if name == "Conv2d" and len(shape) == 3:  # without a batch axis, theirs adds the bias along the wrong axis
        torch.testing.assert_close(ours(x), theirs(x[None])[0])
    else:
        assert_same(theirs, ours, x)


@pytest.mark.parametrize("conjugate", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_a_bilinear_form_of_complextorch_becomes_one_over_c(conjugate, bias):
    theirs = installed("complextorch").nn.Bilinear(3, 2, 5, bias=bias, conjugate=conjugate, dtype=C128)
    x, y = torch.randn(4, 7, 3, dtype=C128), torch.randn(4, 7, 2, dtype=C128)
    assert_same(theirs, from_complextorch(theirs), x, y)


def test_layers_of_complextorch_without_a_counterpart_say_why():
    cv = installed("complextorch").nn
    for layer, reason in [
        (cv.masked.LinearMasked(3, 2), "mask at every call"),
        (cv.relevance.LinearVD(3, 2), "random noise"),
        (cv.wFMConv2d(3, 2, (3, 3)), "magnitudes and phases"),
        (cv.Linear(3, 2, dtype=torch.float32), "is real"),
    ]:
        with pytest.raises(ValueError, match=reason):
            peers.find(layer)(layer)


def test_a_complex_shell_refuses_real_tensors_and_works_under_autocast():
    wrapper = from_complextorch(nn.Linear(3, 2, dtype=torch.cfloat))
    with pytest.raises(ValueError, match=r"takes complex tensors; got torch\.float32"):
        wrapper(torch.randn(7, 3))
    with torch.autocast("cpu", torch.bfloat16):
        assert wrapper(torch.randn(7, 3, dtype=torch.cfloat)).dtype == torch.cfloat


# SpeechBrain ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def speechbrain():
    """Return a function that finds SpeechBrain's layer types by name, and returns all names for None."""
    folders = {"quaternion_networks.q_": ("linear", "CNN", "RNN", "normalization", "pooling"),
               "complex_networks.c_": ("linear", "CNN", "RNN", "normalization")}  # fmt: skip
    with speechbrain_importable():
        paths = [f"speechbrain.nnet.{folder}{file}" for folder, files in folders.items() for file in files]
        modules = [import_module(path) for path in paths]

    def find(name):
        if name is None:
            return public_modules(modules)
        return next(vars(module)[name] for module in modules if name in vars(module))

    return find


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"autograd": False}], ids=str)
@pytest.mark.parametrize(("name", "dim"), [("QLinear", 4), ("CLinear", 2)])
@pytest.mark.parametrize("shape", [(7,), (2, 3)], ids=str)
def test_a_linear_layer_of_speechbrain_becomes_ours(name, dim, shape, options, speechbrain):
    if name == "CLinear" and "autograd" in options:
        pytest.skip("CLinear has no option autograd")
    x = torch.randn(*shape, 5 * dim, dtype=F64)
    theirs = randomized(speechbrain(name)(3, x.shape, **options).double())
    ours = peers.find(theirs)(theirs)
    assert type(ours) is an.nn.Linear
    assert ours.algebra is (an.H if dim == 4 else an.C)
    assert_same(theirs, ours, x)


@pytest.mark.parametrize("options", [
    {"padding": "valid", "stride": 2},
    {"padding": "same", "padding_mode": "constant", "bias": False},
    {"padding": "same", "dilation": 2},
    {"padding": "same", "stride": 2, "dilation": 2, "padding_mode": "circular"},
    {"padding": "causal", "dilation": 2, "stride": 2},
], ids=str)  # fmt: skip
@pytest.mark.parametrize(("name", "dim"), [("QConv1d", 4), ("CConv1d", 2), ("QConv2d", 4), ("CConv2d", 2)])
def test_a_convolution_of_speechbrain_becomes_ours(name, dim, options, speechbrain):
    shape, kernel = ((2, 9, 2 * dim), 3) if name.endswith("1d") else ((2, 9, 11, 2 * dim), (3, 5))
    theirs = speechbrain(name)(3, kernel, shape, **options)
    if not options.get("bias", True) and name == "QConv1d":
        theirs.bias = theirs.bias.double()  # a tensor that module.double() does not reach
    theirs = randomized(theirs.double())
    if "causal" in options.values() and name.endswith("2d"):
        with pytest.raises(ValueError, match="padding='causal', with which its forward fails"):
            from_speechbrain(theirs)
        return
    assert_same(theirs, peers.find(theirs)(theirs), torch.randn(shape, dtype=F64))


@pytest.mark.parametrize("options", [
    {"swap": True},
    {"stride": (2, 1), "dilation": (1, 2)},
    {"stride": (1, 2), "dilation": (2, 1)},
    {"stride": (1, 2), "dilation": (2, 1), "swap": True, "padding": "valid"},
], ids=str)  # fmt: skip
def test_a_quaternion_convolution_with_different_axes_becomes_ours(options, speechbrain):
    theirs = randomized(speechbrain("QConv2d")(3, (3, 5), (2, 9, 11, 8), **options).double())
    assert_same(theirs, from_speechbrain(theirs), torch.randn(2, 9, 11, 8, dtype=F64))


def test_options_of_speechbrain_that_are_no_product_are_refused(speechbrain):
    linear, conv1d, conv2d = speechbrain("QLinear"), speechbrain("QConv1d"), speechbrain("QConv2d")
    frozen = linear(3, (2, 8))
    frozen.bias.requires_grad_(False)
    mixed = linear(3, (2, 8))
    mixed.r_weight.requires_grad_(False)
    for layer, reason in [
        (linear(3, (2, 8), spinor=True), "spinor=True: it rotates its input"),
        (linear(3, (2, 8), max_norm=1.0), "max_norm=1.0: it rescales its weights at every call"),
        (conv1d(4, 3, (2, 9, 8), groups=2), "separate the components of a quaternion"),
        (conv2d(4, 3, (2, 9, 9, 8), skip_transpose=True), "returns None"),
        (frozen, "does not add it"),
        (mixed, "some components of the weight have requires_grad=True"),
    ]:
        with pytest.raises(ValueError, match=re.escape(reason)):
            peers.find(layer)(layer)


def test_a_layer_of_speechbrain_converts_after_its_last_renormalization(speechbrain):
    x = torch.randn(5, 8, dtype=F64)
    theirs = randomized(speechbrain("QLinear")(3, x.shape, max_norm=0.5).double())
    expected = theirs(x)
    theirs.max_norm = None
    torch.testing.assert_close(from_speechbrain(theirs)(x), expected, rtol=1e-10, atol=1e-10)


# cliffordlayers -------------------------------------------------------------------------------------------------------

#: Every signature that cliffordlayers takes, of up to 3 generators.
SIGNATURES = [g for n in (1, 2, 3) for g in pairs((1, -1, 0), repeat=n) if any(g)]


@pytest.mark.parametrize("g", SIGNATURES, ids=str)
def test_cliffordlayers_multiplies_by_the_table_of_the_signature_algebra(g):
    installed("cliffordlayers")
    kernels = import_module("cliffordlayers.cliffordkernels")
    algebra = signature_algebra(g)
    kernel = getattr(kernels, f"get_{len(g)}d_clifford_kernel")
    for i, unit in enumerate(torch.eye(algebra.dim)):
        _, matrix = kernel(unit.view(-1, 1, 1), torch.tensor(g, dtype=torch.float32))
        expected = torch.zeros(algebra.dim, algebra.dim)
        for left, j, k, c in algebra.terms:
            if left == i:
                expected[k, j] = c
        assert torch.equal(matrix, expected)


@pytest.mark.parametrize("g", SIGNATURES, ids=str)
def test_a_linear_layer_of_cliffordlayers_becomes_ours(g):
    installed("cliffordlayers")
    module = import_module("cliffordlayers.nn.modules.cliffordlinear")
    theirs = module.CliffordLinear(g, 2, 3).double()
    ours = peers.find(theirs)(theirs)
    assert only_layer(ours).algebra == signature_algebra(g)
    assert_same(theirs, ours, torch.randn(5, 2, 2 ** len(g), dtype=F64))


@pytest.mark.parametrize("options", [
    {"stride": 2, "padding": 1},
    {"dilation": 2, "bias": False},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("g", [(-1,), (1,), (-1, -1), (0, 1), (1, 1, 1), (-1, 0, 1)], ids=str)
def test_a_convolution_of_cliffordlayers_becomes_ours(g, options):
    installed("cliffordlayers")
    module = import_module("cliffordlayers.nn.modules.cliffordconv")
    theirs = getattr(module, f"CliffordConv{len(g)}d")(g, 2, 3, 3, **options).double()
    assert_same(theirs, from_cliffordlayers(theirs), torch.randn(2, 2, *(6, 5, 5)[: len(g)], 2 ** len(g), dtype=F64))


def test_a_convolution_of_cliffordlayers_with_padding_in_words_becomes_ours():
    installed("cliffordlayers")
    module = import_module("cliffordlayers.nn.modules.cliffordconv")
    theirs = module.CliffordConv2d((1, 1), 2, 3, (3, 5), padding="same").double()
    assert_same(theirs, from_cliffordlayers(theirs), torch.randn(2, 2, 6, 5, 4, dtype=F64))


@pytest.mark.parametrize(("name", "g", "components"), [
    ("2dEncoder", (1, 1), 3), ("2dDecoder", (-1, 1), 4), ("3dEncoder", (1, 1, 1), 6), ("3dDecoder", (1, -1, 1), 8),
])  # fmt: skip
def test_an_encoder_or_decoder_of_cliffordlayers_becomes_ours(name, g, components):
    installed("cliffordlayers")
    module = import_module("cliffordlayers.models.custom_layers")
    theirs = getattr(module, f"CliffordConv{name}")(g, 2, 3, 1).double()
    assert_same(theirs, peers.find(theirs)(theirs), torch.randn(2, 2, *(3, 5, 4)[: len(g)], components, dtype=F64))


def test_options_of_cliffordlayers_that_are_no_product_are_refused():
    installed("cliffordlayers")
    conv = import_module("cliffordlayers.nn.modules.cliffordconv").CliffordConv2d
    linear = import_module("cliffordlayers.nn.modules.cliffordlinear").CliffordLinear
    spectral = import_module("cliffordlayers.nn.modules.cliffordfourier").CliffordSpectralConv2d
    for layer, reason in [
        (conv((-1, -1), 2, 3, rotation=True), "rotation=True: it rotates its input"),
        (conv((-1, -1), 2, 4, groups=2), "separate the components of a multivector"),
        (linear((1, 0.5), 2, 3), "signature (1.0, 0.5)"),
        (spectral((1, 1), 2, 2, 2, 2), "Fourier coefficients"),
    ]:
        with pytest.raises(ValueError, match=re.escape(reason)):
            peers.find(layer)(layer)


def test_a_shell_for_components_last_refuses_other_shapes():
    wrapper = peers.ComponentsLast(an.nn.Linear(12, 8, algebra=an.H), an.H)
    with pytest.raises(ValueError, match=re.escape("with 4 components; got (7, 3, 3)")):
        wrapper(torch.randn(7, 3, 3))


# What a converted layer keeps -----------------------------------------------------------------------------------------


def test_a_converted_layer_keeps_mode_dtype_and_frozen_parameters():
    theirs = nn.Conv2d(3, 5, 3, dtype=C128).eval()
    theirs.bias.requires_grad_(False)
    ours = from_complextorch(theirs)
    assert not ours.layer.training
    assert ours.layer.weight.requires_grad
    assert not ours.layer.bias.requires_grad
    assert ours.layer.weight.dtype == F64
    assert ours.layer.weight.data_ptr() != theirs.weight.data_ptr()


def test_a_layer_with_hooks_or_parametrizations_is_refused():
    hooked = nn.Linear(3, 2, dtype=C128)
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="has hooks"):
        from_complextorch(hooked)
    inner = nn.Linear(3, 2, dtype=C128)
    nn.utils.parametrizations.weight_norm(inner)
    assert peers.find(inner) is None  # torch gives a parametrized layer a class of its own


def test_real_layers_and_subclasses_are_not_recognized():
    class Mine(nn.Linear):
        pass

    assert peers.find(nn.Linear(3, 2)) is None
    assert peers.find(Mine(3, 2, dtype=C128)) is None
    with pytest.raises(ValueError, match="from_complextorch takes linear layers"):
        from_complextorch(nn.ReLU())
    with pytest.raises(ValueError, match="from_speechbrain takes QLinear"):
        from_speechbrain(nn.ReLU())
    with pytest.raises(ValueError, match="from_cliffordlayers takes linear layers"):
        from_cliffordlayers(nn.ReLU())


# Whole models ---------------------------------------------------------------------------------------------------------


def assert_converts(model, algebra, *inputs, layers):
    """Check that a model computes the same after `convert`, and that it has this many layers over an algebra."""
    ours = convert(model, algebra, inputs=inputs)
    assert sum(isinstance(module, an.nn.Linear | Conv) for module in ours.modules()) == layers
    assert not any(peers.find(module) for module in ours.modules())
    assert_same(model, ours, *inputs)
    before, after = ours.conversion.parameters
    assert before == after
    return ours


def test_a_model_with_complex_layers_of_torch_converts_and_becomes_plain_torch_again():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = nn.Conv2d(3, 4, 3, dtype=C128), nn.Linear(4, 2, dtype=C128)

        def forward(self, x):
            y = self.conv(x)
            return self.fc((y * y.abs()).mean((2, 3)))

    model, x = Net(), torch.randn(2, 3, 5, 7, dtype=C128)
    ours = assert_converts(model, "H", x, layers=2)  # over C, whatever algebra is named for real layers
    assert {row.algebra for row in ours.conversion.converted} == {an.C}
    plain = to_real(ours, x)
    assert not any(type(module).__module__.startswith("algebranets") for module in plain.modules())
    assert_same(model, plain, x)


def test_real_layers_beside_complex_ones_convert_as_in_any_model():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.real = nn.Linear(3, 8, dtype=C128), nn.Linear(8, 8, dtype=F64)
            self.unused, self.head = nn.Linear(8, 8, dtype=C128), nn.Linear(8, 2, dtype=F64)

        def forward(self, x):
            return self.head(self.real(self.first(x).abs()))

    x = torch.randn(5, 3, dtype=C128)
    ours = convert(Net(), {"*": "H"}, inputs=x)
    assert (ours.first.layer.algebra, ours.real.algebra) == (an.C, an.H)
    assert {row.name for row in ours.conversion.kept} == {"unused", "head"}
    kept = convert(Net(), {"first": None, "*": "H"}, inputs=x)
    assert type(kept.first) is nn.Linear
    assert kept.real.algebra is an.H


def test_a_complex_layer_that_shares_its_weight_is_kept():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(3, 3, dtype=C128) for _ in range(3))
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.c(self.b(self.a(x)))

    ours = convert(Net(), "C", inputs=torch.randn(5, 3, dtype=C128))
    assert {row.name: row.reason for row in ours.conversion.kept} == {
        "a": "it shares its weight with b",
        "b": "it shares its weight with a",
    }


def test_a_plan_converts_a_fresh_model_with_complex_layers_in_the_same_way():
    def make():
        return nn.Sequential(nn.Linear(3, 4, dtype=C128), nn.Linear(4, 2, dtype=C128))

    x = torch.randn(5, 3, dtype=C128)
    ours = convert(make(), "C", inputs=x)
    again = apply_plan(make(), ours.conversion.plan())
    again.load_state_dict(ours.state_dict())
    torch.testing.assert_close(again(x), ours(x))


def test_a_model_of_complextorch_converts():
    cv = installed("complextorch").nn
    model = nn.Sequential(
        cv.Conv2d(3, 5, 3), cv.BatchNorm2d(5), cv.CTanh(), cv.gauss.Conv2d(5, 4, 3), cv.AvgPool2d(2), nn.Flatten(),
        cv.Linear(16, 6), cv.Mod(),
    )  # fmt: skip
    for module in model:
        module.to(C128) if isinstance(module, cv.Conv2d | cv.Linear) else module.double()
    assert_converts(model.eval(), "C", torch.randn(2, 3, 8, 8, dtype=C128), layers=3)


@pytest.mark.parametrize(("name", "gates"), [("GRU", 6), ("LSTM", 8)])
def test_the_linear_layers_of_complextorch_s_recurrent_layers_convert(name, gates):
    cv = installed("complextorch").nn
    model = getattr(cv, name)(3, 4, num_layers=2, bidirectional=True)
    for module in model.modules():
        if isinstance(module, cv.Linear):
            module.to(C128)
    assert_converts(model, "C", torch.randn(5, 2, 3, dtype=C128), layers=4 * gates)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}], ids=str)
@pytest.mark.parametrize("name", ["QRNN", "QLSTM", "QLiGRU", "CRNN", "CLSTM", "CLiGRU"])
def test_the_linear_layers_of_speechbrain_s_recurrent_layers_convert(name, options, speechbrain):
    dim = 4 if name.startswith("Q") else 2
    x = torch.randn(2, 5, 3 * dim, dtype=F64)
    model = randomized(speechbrain(name)(4, x.shape, num_layers=2, **options).double()).eval()
    assert_converts(model, "H" if dim == 4 else "C", x, layers=4)


def test_a_model_of_speechbrain_converts(speechbrain):
    shape = (2, 9, 11, 8)
    model = nn.Sequential(
        speechbrain("QConv2d")(3, 3, shape), nn.Tanh(), speechbrain("QPooling2d")("avg", 3, padding=1, stride=1),
        speechbrain("QLinear")(2, 12), speechbrain("QLinear")(2, 8, spinor=True),
    ).double()  # fmt: skip
    ours = convert(model, "H", inputs=torch.randn(shape, dtype=F64))
    assert_same(model, ours, torch.randn(shape, dtype=F64))
    (kept,) = ours.conversion.kept
    assert kept.name == "4"
    assert "spinor=True" in kept.reason


def test_a_trained_model_of_speechbrain_converts_in_place(speechbrain):
    """The statistics of a QBatchNorm keep the graph of the last training step, so the model cannot be copied."""
    x = torch.randn(5, 12, dtype=F64)
    model = nn.Sequential(speechbrain("QLinear")(2, 12), speechbrain("QBatchNorm")(8), speechbrain("QLinear")(1, 8))
    model = model.double()
    model(x).sum().backward()
    expected = model.eval()(x)
    convert_(model, "H", inputs=x)
    assert type(model[0]) is an.nn.Linear
    torch.testing.assert_close(model(x), expected, rtol=1e-10, atol=1e-10)


def test_a_model_of_cliffordlayers_converts():
    installed("cliffordlayers")
    models = import_module("cliffordlayers.models.models_2d")
    make = {"num_blocks": [1, 1], "in_channels": 2, "out_channels": 1, "hidden_channels": 4, "rotation": False}
    model = models.CliffordNet2d(
        (1, -1), models.CliffordBasicBlock2d, **make, activation=F.gelu, norm=True, num_groups=2
    ).double()
    x = torch.randn(2, 2, 5, 7, 3, dtype=F64)
    ours = assert_converts(model.eval(), "clifford(1,1)", x, layers=6)
    assert {row.algebra for row in ours.conversion.converted} == {signature_algebra((1, -1))}


# What the pages say ---------------------------------------------------------------------------------------------------

DOCS = Path(__file__).parents[1] / "docs" / "coming_from"


def page(package):
    return (DOCS / f"{package}.md").read_text()


@pytest.mark.parametrize("package", ["complextorch", "cliffordlayers", "speechbrain"])
def test_the_code_of_the_page_runs(package, capsys):
    blocks = [block for block in re.findall(r"```python\n(.*?)```", page(package), re.S) if not block.startswith(">>>")]
    assert len(blocks) >= 2
    names = {}
    with speechbrain_importable() if package == "speechbrain" else nullcontext():
        installed(package)
        for block in blocks:
            exec(compile(block, f"{package}.md", "exec"), names)
    assert " over " in capsys.readouterr().out  # the printed report


def assert_named(package, names):
    missing = [name for name in names if f"`{name}`" not in page(package)]
    assert not missing


def test_the_page_names_every_module_of_complextorch():
    cv = installed("complextorch").nn
    found = [getattr(cv, name) for name in cv.__all__]
    assert_named(
        "complextorch", {cls.__name__ for cls in found if isinstance(cls, type) and issubclass(cls, nn.Module)}
    )


def test_the_page_names_every_module_of_speechbrain(speechbrain):
    assert_named("speechbrain", speechbrain(None))


def test_the_page_names_every_module_of_cliffordlayers():
    installed("cliffordlayers")
    files = ["cliffordlinear", "cliffordconv", "cliffordfourier", "batchnorm", "groupnorm"]
    paths = [f"nn.modules.{file}" for file in files] + [
        f"models.{file}" for file in ("custom_layers", "models_2d", "models_3d")
    ]
    modules = [import_module(f"cliffordlayers.{path}") for path in paths]
    assert_named("cliffordlayers", public_modules(modules))


def public_modules(modules):
    """The names of the public torch modules that are defined in Python modules."""
    return {
        name
        for module in modules
        for name, cls in vars(module).items()
        if isinstance(cls, type) and issubclass(cls, nn.Module) and cls.__module__ == module.__name__ and name[0] != "_"
    }


def test_complextorch_s_layers_of_single_numbers_are_torch_s_on_planar_tensors():
    cv = installed("complextorch").nn
    x = torch.randn(2, 3, 6, 4, dtype=C128)
    planar = torch.cat([x.real, x.imag], 1)
    naive = randomized(cv.NaiveBatchNorm2d(3).double())
    torch_norm = nn.BatchNorm2d(6, dtype=F64)
    torch_norm.weight.data, torch_norm.bias.data = (
        torch.cat([getattr(naive.bn_r, name), getattr(naive.bn_i, name)]).detach() for name in ("weight", "bias")
    )
    for theirs, ours in [
        (cv.CReLU(), nn.ReLU()), (cv.CTanh(), nn.Tanh()), (cv.CSigmoid(), nn.Sigmoid()), (cv.CELU(), nn.ELU()),
        (cv.CCELU(), nn.CELU()), (cv.CGELU(), nn.GELU()), (cv.AvgPool2d(2), nn.AvgPool2d(2)),
        (cv.AdaptiveAvgPool2d(2), nn.AdaptiveAvgPool2d(2)), (cv.Upsample(scale_factor=2), nn.Upsample(scale_factor=2)),
        (cv.Mod(), an.nn.TupleNorm(dim=1, algebra="C")), (naive, torch_norm),
    ]:  # fmt: skip
        expected = theirs(x.clone())
        expected = torch.cat([expected.real, expected.imag], 1) if expected.is_complex() else expected
        torch.testing.assert_close(ours(planar.clone()), expected)


# Formulas, without the packages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("g", SIGNATURES, ids=str)
def test_the_signature_algebra_has_the_generators_squares_on_the_right(g):
    """In the opposite algebra, w . x is x . w: generators have their squares, anticommute, and e1 . e2 is e12."""
    algebra = signature_algebra(g)
    for a in range(len(g)):
        square = algebra.multiply({1 + a: 1}, {1 + a: 1})
        assert square == ({0: g[a]} if g[a] else {})
        for b in range(a + 1, len(g)):
            pair = 1 + len(g) + [(0, 1), (0, 2), (1, 2)].index((a, b))  # e12, e13, e23 follow the generators
            assert algebra.multiply({1 + b: 1}, {1 + a: 1}) == {pair: 1}  # x = e_a, w = e_b
            assert algebra.multiply({1 + a: 1}, {1 + b: 1}) == {pair: -1}
    assert algebra.associative


def test_quaternion_weights_load_by_the_recipe_of_the_page():
    """The Hamilton product w . x, as in Parcollet et al., "Quaternion recurrent neural networks"."""
    w = dict(zip("rijk", torch.randn(4, 5, 3, dtype=F64), strict=True))  # (in, out), as in SpeechBrain
    layer = an.nn.Linear(20, 12, bias=False, dtype=F64, algebra="H")
    layer.weight_tuples = torch.stack([w[c].T for c in "rijk"])
    r, i, j, k = torch.randn(4, 7, 5, dtype=F64)
    expected = [
        r @ w["r"] - i @ w["i"] - j @ w["j"] - k @ w["k"],
        r @ w["i"] + i @ w["r"] - j @ w["k"] + k @ w["j"],
        r @ w["j"] + i @ w["k"] + j @ w["r"] - k @ w["i"],
        r @ w["k"] - i @ w["j"] + j @ w["i"] + k @ w["r"],
    ]
    torch.testing.assert_close(layer(torch.cat([r, i, j, k], -1)), torch.cat(expected, -1))
