"""The examples that train converted models: each runs, its loss falls, and its weights over the algebra learn."""

import copy
import importlib.util
from pathlib import Path

import pytest
import torch

import algebranets as an
from algebranets.conversion import PretrainedModel, convert, create
from algebranets.nn.layer import Layer

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs an example and checks what all of them must do."""

    def run_example(name, *arguments, at_most):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        fresh = []

        def converting(*args, **options):
            model = convert(*args, **options)
            fresh.append(copy.deepcopy(model))
            return model

        monkeypatch.setattr(an, "convert", converting)
        model, before, after = example.train(*arguments)
        assert after < at_most * before
        assert weights_that_moved(fresh[0], model)
        printed = capsys.readouterr().out
        assert str(fresh[0].conversion) in printed
        assert f"{before:.3f} before training, {after:.3f} after" in printed
        return model

    return run_example


def weights_that_moved(fresh, trained):
    """Whether there are weights over the algebra, and all of them changed."""
    old = [module for module in fresh.modules() if isinstance(module, Layer) and module.algebra.dim > 1]
    new = [module for module in trained.modules() if isinstance(module, Layer) and module.algebra.dim > 1]
    pairs = list(zip(old, new, strict=True))
    return pairs and all(not torch.equal(a.weight, b.weight.cpu()) for a, b in pairs)


def test_a_plain_loop_trains_a_converted_model(run):
    model = run("train_loop", 40, 16, at_most=0.6)
    assert model.joined.in_parts == (16, 8)


def test_lightning_trains_a_converted_model(run):
    for library in ("lightning", "timm"):
        pytest.importorskip(library)
    model = run("train_lightning", "test_convnext", 2, 320, at_most=0.8)
    assert model.conversion.torn == ()


def test_transformers_trainer_trains_a_converted_model_which_is_saved_and_loaded(run, tmp_path):
    for library in ("transformers", "accelerate", "huggingface_hub"):
        pytest.importorskip(library)
    model = run("train_trainer", 20, tmp_path, 32, at_most=0.75).eval()
    loaded = PretrainedModel.from_pretrained(tmp_path / "model")
    x = torch.randint(256, (1, 9))
    assert torch.equal(loaded(x).logits, model(x).logits)


@pytest.fixture
def trained(tmp_path):
    """Return functions that make a converted GPT-2 and a Trainer for it."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    options = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 16, "bos_token_id": 0, "eos_token_id": 0}
    rows = torch.randint(16, (24, 6), generator=torch.Generator().manual_seed(0))
    data = [{"input_ids": row, "labels": row} for row in rows]

    def make(algebra="H"):
        torch.manual_seed(0)
        return convert(create("transformers:GPT2LMHeadModel", **options), algebra, inputs={"input_ids": rows[:2]})

    def trainer(model):
        arguments = transformers.TrainingArguments(
            str(tmp_path), max_steps=4, save_steps=2, per_device_train_batch_size=4, report_to="none", use_cpu=True,
            disable_tqdm=True,
        )  # fmt: skip
        return transformers.Trainer(model, arguments, train_dataset=data)

    return make, trainer


def test_a_trainer_resumes_a_converted_model_exactly(trained, tmp_path):
    make, trainer = trained
    whole = make()
    trainer(whole).train()
    resumed = make()
    trainer(resumed).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    expected = whole.state_dict()
    assert all(torch.equal(expected[name], tensor) for name, tensor in resumed.state_dict().items())
    with pytest.raises(RuntimeError, match="over C, but the state dict holds weights over H"):
        trainer(make("C")).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_transformers_own_from_pretrained_refuses_a_converted_model(trained, tmp_path):
    make, trainer = trained
    model = make()
    trainer(model).save_model(str(tmp_path / "saved"))
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        type(model).from_pretrained(tmp_path / "saved")
    # The way that works: convert again, then load the weights.
    from safetensors.torch import load_model

    again = make()
    load_model(again, tmp_path / "saved/model.safetensors")
    x = torch.randint(16, (2, 5))
    assert torch.equal(again.eval()(x).logits, model.eval()(x).logits)


def test_every_example_says_how_to_run_it():
    for file in sorted(EXAMPLES.glob("*.py")):
        assert f"\npython examples/{file.name}" in file.read_text(), file
