"""`convert` on models of torchvision, timm and transformers, and the command ``algebranets convert``."""

import copy

import pytest
import torch
from torch import nn

from algebranets import nn as ann
from algebranets.conversion import convert
from boxes import message_in_box
from test_convert import kept, over

# Models of other libraries --------------------------------------------------------------------------------------------


def test_a_resnet_of_torchvision_becomes_an_algebranet():
    models = pytest.importorskip("torchvision").models
    real = models.resnet18(num_classes=10)
    model = convert(real, "M2R", inputs=torch.randn(1, 3, 32, 32))
    assert type(model) is type(real)
    assert len(model.conversion.converted) == 19
    assert list(kept(model)) == ["conv1", "fc"]
    assert not model.conversion.torn
    model(torch.randn(2, 3, 32, 32)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert model.conversion.parameters[1] == sum(parameter.numel() for parameter in model.parameters())


def test_a_vision_transformer_of_timm_cuts_whole_tuples_into_heads():
    timm = pytest.importorskip("timm")
    real = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=10)
    model = convert(real, "H")
    assert model.conversion.inputs == "(1, 3, 32, 32)"
    assert not model.conversion.torn
    assert model.blocks[0].attn.qkv.out_parts == (64,) * 9
    assert model.blocks[0].attn.proj.in_parts == (64,) * 3
    assert list(kept(model)) == ["patch_embed.proj", "head"]
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    stem = nn.Sequential(nn.Conv2d(3, 8, 3), timm.layers.StdConv2d(8, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3))
    assert "StdConv2d has its own forward" in kept(convert(stem, "H", inputs=torch.randn(1, 3, 16, 16)))["1"]


def test_gpt2_of_transformers_keeps_its_tied_head_its_class_and_its_methods():
    transformers = pytest.importorskip("transformers")
    special = dict.fromkeys(["bos_token_id", "eos_token_id"], 0)
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=48, n_positions=16, **special)
    real = transformers.GPT2LMHeadModel(config).eval()
    model = convert(real, "M2R")
    assert type(model) is type(real)
    assert model.config == real.config
    assert not model.conversion.torn
    rows = {row.name: row for row in model.conversion.rows}
    fused = rows["transformer.h.0.attn.c_attn"]
    assert (fused.before, fused.after, fused.out_parts) == ("Conv1D", "Linear", (16,) * 6)
    assert fused.multiplies == (15 * 32 * 96, 15 * 32 * 96 // 2)
    assert model.lm_head.weight is model.transformer.wte.weight
    assert set(kept(model)) == {"transformer.wte", "transformer.wpe", "lm_head"}
    before = copy.deepcopy(model.state_dict())
    model.init_weights()  # transformers' own initialization
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items() if "c_attn" in name)
    ids = torch.tensor([[1, 2, 3]])
    assert model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=2, do_sample=False).shape == (1, 5)
    model = convert(real, "M2R", keep="none")
    assert kept(model) == {"lm_head": "it shares its weight with transformer.wte"}
    assert model.lm_head.weight is model.transformer.wte.weight
    assert isinstance(model.transformer.wte, ann.Embedding)
    before = model.transformer.wte.weight.clone()
    model.init_weights()
    assert torch.equal(model.transformer.wte.weight, before)


def test_whisper_reads_spectra_and_tokens():
    transformers = pytest.importorskip("transformers")
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 20, "num_mel_bins": 8}
    heads = dict.fromkeys(["encoder_attention_heads", "decoder_attention_heads"], 2)
    lengths = {"max_source_positions": 12, "max_target_positions": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    special = dict.fromkeys(["pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"], 0)
    config = transformers.WhisperConfig(**sizes, **heads, **lengths, **special)
    model = convert(transformers.WhisperForConditionalGeneration(config), "H")
    assert model.conversion.inputs == "input_features=(1, 8, 24), decoder_input_ids=(1, 16)"
    assert "model.encoder.conv2" in over(model)
    assert {"model.encoder.conv1", "proj_out"} <= set(kept(model))


# The command ----------------------------------------------------------------------------------------------------------


def run(*arguments):
    testing, cli = pytest.importorskip("typer.testing"), pytest.importorskip("algebranets.lab.cli")
    return testing.CliRunner(env={"NO_COLOR": "1"}).invoke(cli.app, list(arguments))


def test_the_command_prints_the_report_and_writes_a_folder(tmp_path, monkeypatch):
    pytest.importorskip("torchvision")
    pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(tmp_path)
    call = [
        "convert",
        "torchvision:resnet18",
        "--set",
        "num_classes=10",
        "--shape",
        "1,3,32,32",
        "--map",
        "layer1=real",
    ]
    printed = run(*call, "--algebra", "M2R")
    assert printed.exit_code == 0
    assert "kept by 'layer1'" in printed.output
    assert "resnet18-M2R" in printed.output
    assert sorted(file.name for file in (tmp_path / "resnet18-M2R").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    again = run(*call, "--algebra", "M2R")
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    dry = run(*call, "--algebra", "H", "--dry-run")
    assert dry.exit_code == 0
    assert "over H" in dry.output
    assert not (tmp_path / "resnet18-H").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--algebra or --map must say what the layers become"),
        (["--map", "layer1"], "--map must be NAME=ALGEBRA"),
        (["--algebra", "H", "--shape", "1,x"], "--shape must be positive whole numbers"),
        (["--algebra", "H", "--dry-run", "--out", "x"], "--dry-run writes nothing"),
    ],
)
def test_bad_options_of_the_command_are_explained(options, message, tmp_path, monkeypatch):
    pytest.importorskip("torchvision")
    monkeypatch.chdir(tmp_path)
    result = run("convert", "torchvision:resnet18", *options)
    assert result.exit_code == 2
    assert message in message_in_box(result.stderr)
