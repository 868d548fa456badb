"""A model is written to a file that gives the same numbers, holds compact weights and runs without algebranets."""

import sys

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import algebranets as an
from algebranets import nn as ann
from algebranets.algebra import M2R, C, H
from algebranets.conversion import export, fold, to_real
from algebranets.conversion.running import Call, largest_error
from algebranets.lab.cli import app
from alone import run_alone
from boxes import message_in_box


def mlp(algebra, size=64):
    over = an.over(algebra)
    first, last = over.Linear(3 * algebra.dim, size), over.Linear(size, 4 * algebra.dim)
    return nn.Sequential(over.Lift(3), first, nn.ReLU(), last, over.TupleNorm(dim=-1))


def num_bytes(model):
    return sum(tensor.numel() * tensor.itemsize for tensor in model.state_dict().values())


RUN_PT2 = """
program, (x, expected) = torch.export.load(sys.argv[1]), torch.load(sys.argv[2])
with torch.no_grad():
    assert (program.module()(x) - expected).abs().max() < 1e-5
assert "algebranets" not in sys.modules
print("equal")
"""

RUN_AOTI = """
from torch import _inductor
package, (x, expected) = _inductor.aoti_load_package(sys.argv[1]), torch.load(sys.argv[2])
with torch.no_grad():
    assert (package(x) - expected).abs().max() < 1e-5
assert "algebranets" not in sys.modules
print("equal")
"""


@pytest.mark.parametrize("algebra", [M2R, H], ids=str)
def test_a_pt2_file_is_compact_and_runs_without_algebranets_for_any_batch(algebra, tmp_path):
    model, x = mlp(algebra, size=512).double(), torch.randn(5, 3, dtype=torch.float64)
    artifact = export(model, tmp_path / "deep" / "model.pt2", x)
    assert artifact.format == "pt2"
    assert artifact.dynamic
    assert artifact.largest_error < 1e-12
    assert artifact.num_bytes == artifact.path.stat().st_size < num_bytes(model) + 100_000
    loaded = torch.export.load(artifact.path).module()
    for batch in (1, 9):
        y = torch.randn(batch, 3, dtype=torch.float64)
        assert largest_error(loaded(y), Call((y,)).run(model)) < 1e-12
    assert not any("algebranets" in str(node.target) for node in loaded.graph.nodes)
    assert [file.name for file in artifact.path.parent.iterdir()] == ["model.pt2"]
    if algebra is H:
        torch.save((x, Call((x,)).run(model)), tmp_path / "expected.pt")
        assert run_alone(RUN_PT2, artifact.path, tmp_path / "expected.pt") == "equal\n"


def test_the_file_of_the_plain_model_is_larger_by_the_dimension_of_the_algebra(tmp_path):
    model, x = nn.Sequential(*(ann.Linear(256, 256, algebra=H) for _ in range(2))), torch.randn(5, 256)
    compact = export(model, tmp_path / "compact.pt2", x).num_bytes
    real = export(to_real(model, x), tmp_path / "real.pt2", x).num_bytes
    assert real - compact > 0.8 * (num_bytes(to_real(model, x)) - num_bytes(model))


@pytest.mark.parametrize(
    ("name", "options", "suffix"),
    [
        ("cifar_resnet", {"width": 0.25, "num_blocks": 1}, ".pt2"),
        pytest.param("cifar_resnet", {"width": 0.25, "num_blocks": 1}, ".onnx", marks=pytest.mark.slow),
    ],
)
def test_our_image_networks_are_exported_folded(name, options, suffix, tmp_path):
    model = an.models.create(name, algebra=M2R, **options)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.running_mean)
    x = torch.randn(2, 3, 32, 32)
    folded = fold(model, x)
    artifact = export(folded, tmp_path / f"model{suffix}", x)
    assert artifact.dynamic
    assert artifact.largest_error < 1e-4
    if suffix == ".pt2":
        y = torch.randn(3, 3, 32, 32)
        assert largest_error(torch.export.load(artifact.path).module()(y), Call((y,)).run(model)) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("name", "suffix"), [("gru_lm", ".onnx"), ("transformer_xl", ".pt2")])
def test_our_language_models_are_exported(name, suffix, tmp_path):
    options = (
        {"hidden_size": 16, "num_readouts": 1} if name == "gru_lm" else {"d_model": 16, "num_heads": 2, "window": 8}
    )
    options |= {} if name == "gru_lm" else {"num_layers": 1, "ff_size": 16}
    model = an.models.create(name, algebra=C, **options)
    artifact = export(model, tmp_path / f"model{suffix}", torch.randint(256, (2, 5)))
    assert artifact.dynamic
    assert artifact.largest_error < 1e-5


def test_an_onnx_file_is_compact_and_takes_any_batch(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = nn.Sequential(ann.Conv2d(8, 256, 3, algebra=H), nn.ReLU(), ann.Conv2d(256, 128, 3, algebra=H))
    artifact = export(model, tmp_path / "model.onnx", torch.randn(1, 8, 6, 6))
    assert artifact.format == "onnx"
    assert artifact.largest_error < 1e-5
    assert artifact.num_bytes < 0.5 * num_bytes(to_real(model, torch.randn(1, 8, 6, 6)))
    session = onnxruntime.InferenceSession(str(artifact.path))
    x = torch.randn(3, 8, 6, 6)
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert largest_error(torch.from_numpy(y), Call((x,)).run(model)) < 1e-5
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.slow
def test_an_aotinductor_package_runs_without_algebranets_for_any_batch(tmp_path):
    model, x = mlp(M2R), torch.randn(5, 3)
    with torch._inductor.config.patch({"aot_inductor.precompile_headers": False}):  # for one file it takes longer
        artifact = export(model, tmp_path / "model.pt2", x, format="aoti")
    assert artifact.format == "aoti"
    assert artifact.largest_error < 1e-5
    y = torch.randn(7, 3)
    torch.save((y, Call((y,)).run(model)), tmp_path / "expected.pt")
    assert run_alone(RUN_AOTI, artifact.path, tmp_path / "expected.pt") == "equal\n"


class Named(nn.Module):
    """A model with a nested argument, an argument by name, and a mapping as output."""

    def __init__(self):
        super().__init__()
        self.layer = ann.Linear(8, 8, algebra=H)

    def forward(self, pair, *, scale=None):
        first, second = pair
        y = self.layer(first) + second
        return {"y": y if scale is None else y * scale, "parts": (first, [second])}


def test_nested_inputs_and_outputs_are_exported(tmp_path):
    pair = (torch.randn(3, 8), torch.randn(3, 8))
    artifact = export(Named(), tmp_path / "model.pt2", pair, kwargs={"scale": torch.randn(8)})
    assert artifact.largest_error < 1e-6


def test_a_file_that_differs_too_much_is_not_written_and_the_old_one_stays(tmp_path):
    class Changing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = ann.Linear(8, 8, algebra=H)

        def forward(self, x):
            return self.layer(x) + torch.rand_like(x)

    file = tmp_path / "model.pt2"
    with pytest.raises(ValueError, match=r"differs from the model by .* so .*model.pt2 was not written"):
        export(Changing(), file, torch.randn(3, 8))
    assert list(tmp_path.iterdir()) == []
    file.write_text("old")
    with pytest.raises(ValueError, match="was not written"):
        export(Changing(), file, torch.randn(3, 8), tolerance=1e-9)
    assert file.read_text() == "old"
    assert export(Changing(), file, torch.randn(3, 8), tolerance=10).largest_error > 0


def test_errors_say_what_must_hold(tmp_path, monkeypatch):
    layer, x = ann.Linear(8, 8, algebra=H), torch.randn(1, 8)
    with pytest.raises(ValueError, match=r"must end in \.pt2 or \.onnx; got .*model\.pth"):
        export(layer, tmp_path / "model.pth", x)
    with pytest.raises(ValueError, match=r"'aoti' must end in \.pt2"):
        export(layer, tmp_path / "model.onnx", x, format="aoti")
    with pytest.raises(ValueError, match="format must be one of pt2, onnx, aoti; got 'tflite'"):
        export(layer, tmp_path / "model.pt2", x, format="tflite")
    with pytest.raises(ValueError, match="tolerance must be a positive number"):
        export(layer, tmp_path / "model.pt2", x, tolerance=0)

    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(
        ValueError, match=r"Branching cannot be exported by .*: the model's code depends on the values of a tensor"
    ):
        export(Branching(), tmp_path / "model.pt2", x)

    def no_compiler(*_, **__):
        raise RuntimeError("No working C++ compiler found")

    monkeypatch.setattr("torch._inductor.aoti_compile_and_package", no_compiler)
    with pytest.raises(ValueError, match=r"No working C.. compiler found.*It needs a C.. compiler, such as g"):
        export(layer, tmp_path / "model.pt2", x, format="aoti")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ValueError, match="needs onnx, which is not installed"):
        export(layer, tmp_path / "model.onnx", x)
    assert list(tmp_path.iterdir()) == []


# The command ----------------------------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner(env={"NO_COLOR": "1"}).invoke(app, list(map(str, arguments)))


def test_the_command_exports_a_run_folded_and_real(tmp_path):
    options = {"width": 0.25, "num_blocks": 1}
    model = an.models.create("cifar_resnet", algebra=M2R, **options)
    weights, file = tmp_path / "weights.safetensors", tmp_path / "model.pt2"
    an.models.publish(model, "cifar_resnet", M2R, options, weights)
    result = run("export", weights, file, "--fold", "--real", "--shape", "2,3,16,16")
    assert result.exit_code == 0, result.output
    assert "B in " in result.output
    assert "Largest error" in result.output
    assert "any batch size" in result.output
    x = torch.randn(3, 3, 16, 16)
    assert largest_error(torch.export.load(file).module()(x), Call((x,)).run(model)) < 1e-4


def test_the_command_exports_a_hugging_face_folder(tmp_path):
    pytest.importorskip("huggingface_hub")
    from algebranets.conversion import PretrainedModel

    wrapped = PretrainedModel.wrap(nn.Sequential(ann.Linear(8, 8, algebra=H)))
    assert type(to_real(wrapped, torch.randn(1, 8))) is nn.Sequential
    model = PretrainedModel("algebranets:gru_lm", {"algebra": "H", "hidden_size": 16, "num_readouts": 1})
    model.save_pretrained(tmp_path / "folder")
    result = run("export", tmp_path / "folder", tmp_path / "model.pt2")
    assert result.exit_code == 0, result.output
    tokens = torch.randint(256, (3, 16))
    assert largest_error(torch.export.load(tmp_path / "model.pt2").module()(tokens), model(tokens)) < 1e-5


def test_the_command_explains_mistakes(tmp_path):
    (tmp_path / "folder.onnx").mkdir()
    options = {"hidden_size": 16, "num_readouts": 1}
    an.models.publish(
        an.models.create("gru_lm", algebra="M2R", **options), "gru_lm", M2R, options, tmp_path / "w.safetensors"
    )
    for arguments, message in (
        ((tmp_path / "none", tmp_path / "model.onnx"), "does not exist"),
        ((tmp_path / "w.safetensors", tmp_path / "model.txt"), "must end in .pt2 or .onnx"),
        ((tmp_path / "w.safetensors", tmp_path / "folder.onnx"), "Is a directory"),
        ((tmp_path / "w.safetensors", tmp_path / "model.pt2", "--fold"), "has no batch norm"),
        (
            (tmp_path / "w.safetensors", tmp_path / "model.pt2", "--shape", "a"),
            "--shape must be positive whole numbers",
        ),
    ):
        result = run("export", *arguments)
        assert result.exit_code == 2, result.output
        assert message in message_in_box(result.stderr)


class WithACount(nn.Linear):
    def forward(self, x):
        return super().forward(x), 3


def test_a_model_that_onnx_cannot_hold_is_an_error_in_one_line(tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(ValueError, match="All outputs must be tensors") as caught:
        export(WithACount(8, 8), tmp_path / "model.onnx", torch.randn(2, 8))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
