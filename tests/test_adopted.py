"""Models of torchvision, timm and transformers become AlgebraNets that keep tuples whole.

The models come from `tools/adopted.py`. `tools/conversions.py` checks them at full size.
"""

import copy
import dataclasses
import json
import runpy
import subprocess
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from sitegen.conversions import CHECKS, tables
from torch import nn as tnn
from torch.overrides import TorchFunctionMode

import algebranets as an
from algebranets.algebra import M2R, C, H
from algebranets.conversion import convert, to_real
from algebranets.conversion.parts import to_planar
from alone import run_alone
from conftest import thinned
from laws import assert_exact, times
from test_swap import SOURCES, source

ROOT = Path(__file__).parent.parent
MODELS = runpy.run_path(str(ROOT / "tools" / "adopted.py"))["MODELS"]
ALGEBRAS = (C, H, M2R)
#: Tuples whose multiplication on the right preserves inner products, and so the scores of attention.
UNITS = {C: (0.6, 0.8), H: (0.1, -0.5, 0.7, 0.5), M2R: (0.6, -0.8, 0.8, 0.6)}
#: An upper bound of relative errors by rounding. Llama computes its norms in float32.
ROUNDING = 1e-6

ROTATION = {name: ALGEBRAS[number % 3] for number, name in enumerate(MODELS)}
#: Each model over one algebra.
over_rotation = pytest.mark.parametrize(("name", "algebra"), list(ROTATION.items()), ids=str)
#: Each model over one algebra. The other algebras are slow tests.
over_models = pytest.mark.parametrize(
    ("name", "algebra"),
    thinned(
        ((name, algebra) for name in MODELS for algebra in ALGEBRAS), lambda name, algebra: ROTATION[name] is algebra
    ),
    ids=str,
)


def real_model(name):
    """A small real model in float64, and its inputs."""
    pytest.importorskip(MODELS[name].library)
    torch.manual_seed(0)
    model = MODELS[name].make_small().double().eval()
    inputs = {key: x.double() if x.is_floating_point() else x for key, x in MODELS[name].small_inputs().items()}
    return model, inputs


@cache
def converted(name, algebra):
    """A converted model and its inputs. Tests that change the model copy it first."""
    model, inputs = real_model(name)
    return convert(model, algebra, inputs=inputs), inputs


def result(output):
    return output if isinstance(output, torch.Tensor) else output.logits


@over_rotation
def test_the_model_converts_and_its_code_tears_no_tuple_apart(name, algebra):
    report = converted(name, algebra)[0].conversion
    assert [str(torn) for torn in report.torn] == []
    assert all(row.algebra is algebra for row in report.converted)
    assert all(row.reason for row in report.kept)
    before, after = (sum(row.parameters[i] for row in report.converted) for i in (0, 1))
    assert after < before


@over_rotation
def test_the_converted_model_runs_and_every_parameter_has_a_gradient(name, algebra):
    model, inputs = converted(name, algebra)
    real, _ = real_model(name)
    assert type(model) is type(real)
    model.zero_grad()
    y = result(model(**inputs))
    assert y.shape == result(real(**inputs)).shape
    (y * torch.randn_like(y)).sum().backward()
    trained = {path: p for path, p in model.named_parameters() if p.requires_grad}
    assert [path for path, p in trained.items() if p.grad is None or not p.grad.isfinite().all()] == []
    assert [path for path, p in trained.items() if not p.grad.any()] == []


@over_rotation
def test_the_model_made_real_computes_the_same(name, algebra):
    model, inputs = converted(name, algebra)
    real = to_real(model)
    assert not [path for path, module in real.named_modules() if type(module).__module__.startswith("algebranets")]
    with torch.no_grad():
        assert_exact(result(real(**inputs)), result(model(**inputs)))


RUN_ALONE = """
for path in sys.argv[1:]:
    model, inputs, expected = torch.load(path, weights_only=False)
    output = model(**inputs)
    torch.testing.assert_close(output if isinstance(output, torch.Tensor) else output.logits, expected)
assert "algebranets" not in sys.modules
print("all equal")
"""


def test_a_process_without_algebranets_runs_the_models_made_real(tmp_path):
    for name in ("densenet121", "GPT-2"):
        model, inputs = converted(name, ROTATION[name])
        with torch.no_grad():
            torch.save((to_real(model), inputs, result(model(**inputs))), tmp_path / f"{name}.pt")
    assert run_alone(RUN_ALONE, *sorted(tmp_path.iterdir())) == "all equal\n"


# The law --------------------------------------------------------------------------------------------------------------


class Linearized(TorchFunctionMode):
    """Activations and norms are the identity, gates are 1, and maxima are averages.

    What remains commutes with multiplication on the right, if tuples stay whole.
    """

    IDENTITIES = ("relu", "relu_", "relu6", "hardtanh", "gelu", "tanh", "layer_norm")
    ONES = ("silu", "sigmoid")

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = func.__name__, kwargs or {}
        if name in self.IDENTITIES:
            return args[0]
        if name in self.ONES:
            return torch.ones_like(args[0])
        if name.startswith("max_pool2d"):
            known = {key: kwargs[key] for key in ("stride", "padding", "ceil_mode") if key in kwargs}
            return torch.nn.functional.avg_pool2d(*args[:4], **known)
        return func(*args, **kwargs)


def without_offsets(model):
    """Set to zero what is added to activations, and give all channels of a rotary embedding one frequency.

    GPT-2's GELU, which consists of many operations, becomes the identity.
    """
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child).__name__ == "NewGELUActivation":
                setattr(module, name, tnn.Identity())
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if path.endswith(("bias", "cls_token", "pos_embed", "embed_positions.weight")):
                parameter.zero_()
        for path, buffer in model.named_buffers():
            if path.endswith("inv_freq"):
                buffer.fill_(0.3)
    return model


def channel_axis(layer):
    return 1 if "Conv" in type(layer).__name__ else -1


def outputs(model, inputs, algebra, q=None):
    """The outputs of all layers over the algebra, planar, with their channel axes, in the linear part of the network.

    With ``q``, the outputs of the first real layer and of all embeddings are multiplied by it on the right.
    """
    model = without_offsets(model)
    modules = dict(model.named_modules())
    first = model.conversion.kept[0].name
    sources = [m for path, m in modules.items() if path == first or isinstance(m, tnn.Embedding | an.nn.Embedding)]
    layers = {row.name: modules[row.name] for row in model.conversion.converted if modules[row.name] not in sources}
    found = {}

    def multiply(module, _, output):
        return output if q is None else times(output, q, algebra, channel_axis(module))

    def record(path, module, _, output):
        axis, output = channel_axis(module), output[0] if isinstance(output, tuple) else output
        found.setdefault(path, (to_planar(output, getattr(module, "out_parts", None), axis, algebra), axis))

    for module in sources:
        module.register_forward_hook(multiply)
    for path, module in layers.items():
        module.register_forward_hook(partial(record, path))
    with torch.no_grad(), Linearized():
        model(**inputs)
    assert found.keys() == layers.keys()
    return found


def law_errors(model, inputs, algebra):
    """For each layer over the algebra, the relative difference of f(x . q) and f(x) . q.

    x are the outputs of the first real layer and of all embeddings, and f is the linear part of the network from there
    to the output of the layer.
    """
    q = torch.tensor(UNITS[algebra], dtype=torch.float64)
    multiplied = outputs(model, inputs, algebra, q)
    errors = {}
    for path, (y, axis) in outputs(model, inputs, algebra).items():
        then = times(y, q, algebra, axis)
        errors[path] = ((multiplied[path][0] - then).norm() / then.norm()).item()
    return errors


@over_models
def test_every_converted_layer_commutes_with_multiplication_on_the_right(name, algebra):
    errors = law_errors(*converted(name, algebra), algebra)
    assert {path: error for path, error in errors.items() if not error < ROUNDING} == {}


def without_parts(model):
    """Let every layer read and write one planar axis, as a replacement of layers alone would."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if hasattr(module, "in_parts"):
            module.in_parts = module.out_parts = None
    return model


@pytest.mark.parametrize("name", ["densenet121", "vit_tiny_patch16_224", "GPT-2", "Llama"])
def test_without_parts_the_models_code_would_take_tuples_apart(name):
    model, inputs = converted(name, ROTATION[name])
    assert max(law_errors(without_parts(model), inputs, ROTATION[name]).values()) > 1000 * ROUNDING


# Hand-written networks ------------------------------------------------------------------------------------------------


class Between(tnn.Module):
    """A network between a first and a last layer that stay real, after a layer that does not."""

    def __init__(self, network, channels, layer):
        super().__init__()
        self.first, self.second = layer(3, 8), layer(8, channels)
        self.network, self.last = network, tnn.LazyLinear(5)

    def forward(self, x):
        y = self.network(self.second(self.first(x)))
        return self.last(y.flatten(1))


@cache
def converted_source(name, algebra):
    """A hand-written network of tests/torch_sources, converted, and its input."""
    module, is_images = source(name), name != "swiglu"
    torch.manual_seed(0)
    batch, *shape = module.example().movedim(1 if is_images else -1, 0).shape[1:]
    channels = module.example().shape[1 if is_images else -1]
    x = torch.randn(batch, 3, *shape) if is_images else torch.randn(batch, *shape, 3)
    model = Between(module.make(), channels, partial(tnn.Conv2d, kernel_size=1) if is_images else tnn.Linear).eval()
    model(x)  # the last layer gets its size
    return convert(model.double(), algebra, inputs=x.double()), {"x": x.double()}


@pytest.mark.parametrize(
    ("name", "algebra"),
    thinned(
        ((name, algebra) for name in sorted({*SOURCES} - {"densenet121"}) for algebra in ALGEBRAS),
        lambda _, algebra: algebra is H,
    ),
    ids=str,
)
def test_hand_written_networks_commute_with_multiplication_on_the_right(name, algebra):
    model, inputs = converted_source(name, algebra)
    assert [str(torn) for torn in model.conversion.torn] == []
    assert {path: error for path, error in law_errors(model, inputs, algebra).items() if not error < ROUNDING} == {}


@pytest.mark.parametrize("name", sorted({*SOURCES} - {"densenet121"}))
def test_without_parts_hand_written_networks_would_take_tuples_apart(name):
    model, inputs = converted_source(name, H)
    assert max(law_errors(without_parts(model), inputs, H).values()) > 1000 * ROUNDING


# Compiling, exporting, and the page of the docs -----------------------------------------------------------------------


@pytest.fixture
def conversions(monkeypatch):
    """The names of tools/conversions.py."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    return runpy.run_path(str(ROOT / "tools" / "conversions.py"))


def float32(name):
    """A converted model in float32, its inputs and its output. The model is a copy."""
    model, inputs = converted(name, ROTATION[name])
    model = copy.deepcopy(model).float()
    inputs = {key: x.float() if x.is_floating_point() else x for key, x in inputs.items()}
    with torch.no_grad():
        return model, inputs, result(model(**inputs))


def test_the_converted_model_is_exported_by_torch(conversions):
    assert conversions["exported"](*float32("densenet121")) < 1e-5


@pytest.mark.parametrize(  # docs/results/conversions.md has all models
    "name", thinned([("vit_tiny_patch16_224",), ("GPT-2",)], lambda name: name.startswith("vit"))
)
def test_onnxruntime_computes_the_same(conversions, name):
    for library in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(library)
    assert conversions["through_onnx"](*float32(name)) < 1e-5


def test_the_converted_model_is_traced_as_one_graph():
    model, inputs, expected = float32("Llama")
    output = result(torch.compile(model, fullgraph=True, backend="eager")(**inputs))
    torch.testing.assert_close(output, expected)


@pytest.fixture
def rows(conversions):
    """The rows of the page."""
    if not conversions["ROWS"].is_file():
        pytest.skip("there are no rows: run python tools/conversions.py")
    return conversions["ordered"](conversions["read"](conversions["ROWS"]))


def test_every_model_passes_every_check_that_the_real_model_passes(rows):
    found = {(row["model"], row["algebra"]): row for row in rows}
    assert found.keys() == {(name, algebra) for name in MODELS for algebra in ("R", "C", "H", "M2R")}
    for (name, algebra), row in found.items():
        assert "refused" not in row, (name, algebra)
        passed = [check for check in CHECKS if "error" in found[name, "R"].get(check, {})]
        assert [check for check in passed if "error" not in row[check]] == [], (name, algebra)
        assert algebra == "R" or (row["torn"] == [] and "error" in row["to_real"]), (name, algebra)


def test_a_stopped_run_goes_on_with_the_rows_that_are_missing(conversions, monkeypatch, tmp_path, capsys):
    computed, out = [], tmp_path / "rows.jsonl"

    def run(command, **_):
        model, algebra = command[-3], command[-1]
        computed.append(algebra)
        row = json.dumps({"model": model, "algebra": algebra, "seconds": 1.0})
        return SimpleNamespace(returncode=int(algebra == "H"), stdout=f"{row}\n", stderr="killed")

    monkeypatch.setattr(subprocess, "run", run)
    options = SimpleNamespace(models=["BERT"], algebras=["C"], jobs=2, out=out)
    assert conversions["compute_missing"](options)
    assert sorted(computed) == ["C", "R"]
    options.algebras = ["C", "H", "M2R"]
    assert not conversions["compute_missing"](options)
    assert sorted(computed) == ["C", "H", "M2R", "R"]
    assert sorted(row["algebra"] for row in conversions["read"](out)) == ["C", "M2R", "R"]
    assert "BERT over H: exit code 1\nkilled" in capsys.readouterr().out


def test_a_check_that_fails_does_not_end_the_others(conversions, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no compiler")

    for place, name in ((torch, "compile"), (torch.onnx, "export"), (torch.export, "export")):
        monkeypatch.setattr(place, name, broken)
    small = MODELS["resnet18"]
    adopted = dataclasses.replace(
        small, make=small.make_small, inputs=small.small_inputs, check_inputs=small.small_inputs
    )
    real, row = (conversions["compute"](adopted, algebra) for algebra in ("R", "H"))
    for name in ("compile", "export"):
        assert real[name]["failure"] == row[name]["failure"] == "RuntimeError: no compiler"
    assert row["onnx"]["failure"]  # the same, or that onnxruntime is not installed
    assert row["backward"]["error"] == 0
    assert row["to_real"]["error"] < 1e-5
    assert (row["converted"], list(row["kept"]), row["torn"]) == (11, ["conv1", "fc"], [])
    assert row["parameters"] < real["parameters"] / 3
    assert row["multiplies"] == real["multiplies"]
    assert len(conversions["problems"](row)) == 3


def test_a_failed_check_is_shown_with_its_error():
    counts = {"parameters": 4_000_000, "multiplies": 2_000_000_000}
    versions = {"machine": "x86_64", "versions": {"torch": "2.15"}}
    passed = {check: {"error": 0.0} for check in ("backward", "compile", "export")}
    real = {"model": "resnet18", "algebra": "R", **counts, **passed, **versions, "onnx": {"error": 2e-6}}
    made = {"converted": 19, "kept": {"conv1": "it is first", "fc": "it is last"}, "torn": ["view: line 3"]}
    ours = real | made | {"algebra": "H", "parameters": 1_000_000, "onnx": {"failure": "ValueError: no such operator"}}
    ours["to_real"] = {"error": 3e-7}
    refused = {"model": "GPT-2", "algebra": "H", "refused": "ValueError: too small", **versions}
    parts = dict(tables([real, ours, refused]))
    assert "1 of 2 conversions succeeded, 0 of them without torn tuples" in parts["summary"]
    assert "ONNX: passed by 0 of 1 converted models and 1 of 1 real models." in parts["summary"]
    assert "| resnet18 | R | | | | 4.00 M | 2.00 G | yes | | exact | exact | 2e-06 |" in parts["table"]
    assert "| | H | 19 | 2 | 1 | 1.00 M (25%) | 2.00 G | yes | 3e-07 | exact | exact | **failed** |" in parts["table"]
    assert parts["problems"].splitlines() == [
        "- resnet18 over H: torn tuples: view: line 3",
        "- resnet18 over H: onnx failed: ValueError: no such operator",
        "- GPT-2 over H was refused: ValueError: too small",
    ]
    assert parts["kept"].splitlines() == [
        "- resnet18 over H: `conv1`: it is first",
        "- resnet18 over H: `fc`: it is last",
    ]
