"""Pretrained folders: a saved model loads unchanged, and a damaged folder is refused."""

import copy
import itertools
import json
import pickle
import pkgutil
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch
from torch import nn

from algebranets import models
from algebranets.algebra import M2R, Algebra, C, cyclic
from algebranets.conversion import convert, create, fold

hub = pytest.importorskip("huggingface_hub")

from algebranets.conversion import PretrainedModel, pretrained  # noqa: E402

GPT2 = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 16, "bos_token_id": 0, "eos_token_id": 0}
GRU = {"algebra": "H", "hidden_size": 8, "vocab_size": 12}


class Net(nn.Module):
    """A hand-written model with torch.cat in it."""

    def __init__(self, size=8):
        super().__init__()
        self.first, self.left, self.right = nn.Linear(3, size), nn.Linear(size, size), nn.Linear(size, 2 * size)
        self.mix, self.last = nn.Linear(3 * size, size), nn.Linear(size, 5)

    def forward(self, x):
        x = self.first(x).relu()
        return self.last(self.mix(torch.cat([self.left(x), self.right(x)], -1)).relu())


def randomize(model):
    """Give every parameter and running statistic new values, so that none is what a fresh model has."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())):
            tensor.copy_(torch.rand_like(tensor))
    return model


def same_weights(first, second):
    """Whether two safetensors files hold the same tensors. The order of their metadata may differ."""
    first, second = safetensors.torch.load(first), safetensors.torch.load(second)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture
def gru(tmp_path):
    model = PretrainedModel("algebranets:gru_lm", GRU)
    model.save_pretrained(tmp_path / "gru")
    return model, tmp_path / "gru"


# What is saved comes back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_a_model_of_ours_comes_back_with_its_values_and_precision(dtype, tmp_path):
    own = Algebra.from_table([["a", "b"], ["b", "-a"]], name="mine")
    options = {"algebra": own, "num_blocks": 1, "width": 0.25}
    trained = randomize(models.create("cifar_resnet", **options)).to(dtype).eval()
    PretrainedModel.wrap(trained, "algebranets:cifar_resnet", options).save_pretrained(tmp_path)
    loaded = PretrainedModel.from_pretrained(tmp_path)
    x = torch.randn(2, 3, 8, 8, dtype=dtype)
    assert torch.equal(loaded(x), trained(x))
    assert loaded.algebra == own
    assert not loaded.training


@pytest.mark.parametrize("algebra", [C, M2R], ids=str)
def test_a_converted_timm_model_comes_back(algebra, tmp_path):
    pytest.importorskip("timm")
    options = {"num_classes": 3}
    x = torch.randn(2, 3, 32, 32)
    trained = randomize(convert(create("timm:test_resnet", **options), algebra, inputs=x)).eval()
    PretrainedModel.wrap(trained, "timm:test_resnet", options).save_pretrained(tmp_path)
    loaded = PretrainedModel.from_pretrained(tmp_path)
    assert type(loaded.model) is type(trained)
    assert torch.equal(loaded(x), trained(x))
    assert sum(p.numel() for p in loaded.parameters()) == trained.conversion.parameters[1]


def test_a_converted_transformers_model_comes_back_with_tied_weights_and_its_methods(tmp_path):
    pytest.importorskip("transformers")
    x = torch.randint(16, (2, 5))
    trained = randomize(convert(create("transformers:GPT2LMHeadModel", **GPT2), "H", inputs={"input_ids": x})).eval()
    PretrainedModel.wrap(trained, "transformers:GPT2LMHeadModel", GPT2).save_pretrained(tmp_path)
    loaded = PretrainedModel.from_pretrained(tmp_path)
    assert loaded.model.lm_head.weight is loaded.model.transformer.wte.weight
    assert torch.equal(loaded(input_ids=x).logits, trained(input_ids=x).logits)
    assert loaded.config.n_embd == 8
    words = loaded.generate(x, max_new_tokens=2, do_sample=False)
    assert torch.equal(words, trained.generate(x, max_new_tokens=2, do_sample=False))


def test_a_model_of_ones_own_class_comes_back_with_the_help_of_the_real_model(tmp_path):
    torch.manual_seed(0)
    x = torch.randn(4, 3)
    trained = randomize(convert(Net(), {"mix": "H", "*": "C"}, inputs=x)).eval()
    PretrainedModel.wrap(trained).save_pretrained(tmp_path)
    real = Net()
    before = copy.deepcopy(real.state_dict())
    loaded = PretrainedModel.from_pretrained(tmp_path, model=real)
    assert torch.equal(loaded(x), trained(x))
    assert loaded.model.mix.in_parts == (8, 16)
    assert all(torch.equal(before[name], tensor) for name, tensor in real.state_dict().items())  # not changed
    with pytest.raises(ValueError, match=r"it holds a Net, .* pass the real model, as in .*model=Net\(\.\.\.\)"):
        PretrainedModel.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="cannot be loaded: "):
        PretrainedModel.from_pretrained(tmp_path, model=Net(16))


def test_lifts_and_tuple_norms_come_back(tmp_path):
    x = torch.randn(4, 3)
    trained = randomize(convert(Net(), "M2R", lift="learned", head="tuple_norm", inputs=x)).eval()
    PretrainedModel.wrap(trained).save_pretrained(tmp_path)
    assert torch.equal(PretrainedModel.from_pretrained(tmp_path, model=Net())(x), trained(x))


def test_a_loaded_model_can_be_saved_again(tmp_path):
    trained = convert(Net(), "H", inputs=torch.randn(4, 3))
    PretrainedModel.wrap(trained).save_pretrained(tmp_path / "a")
    PretrainedModel.from_pretrained(tmp_path / "a", model=Net()).save_pretrained(tmp_path / "b")
    assert (tmp_path / "a/config.json").read_text() == (tmp_path / "b/config.json").read_text()
    assert same_weights(*((tmp_path / name / "model.safetensors").read_bytes() for name in "ab"))


def test_the_weights_have_the_names_of_the_model_itself(gru):
    model, folder = gru
    fresh = models.create("gru_lm", **GRU)
    fresh.load_state_dict(safetensors.torch.load_file(folder / "model.safetensors"))
    assert torch.equal(fresh.head.weight, model.model.head.weight)


def test_each_table_of_an_algebra_is_written_once(tmp_path):
    other = Algebra.from_table([["a", "b"], ["b", "a"]], name="C")  # another algebra of the same name
    model = convert(Net(), {"mix": other, "*": "C"}, inputs=torch.randn(4, 3))
    PretrainedModel.wrap(model).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert sorted(config["algebras"]) == ["C", "C (2)"]
    loaded = PretrainedModel.from_pretrained(tmp_path, model=Net()).model
    assert (loaded.mix.algebra, loaded.left.algebra) == (other, C)


# What cannot come back is refused when it is saved --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algebra": "H", "hidden_size": 16, "vocab_size": 12}, "has 'embedding"),
        ({"algebra": "C", "hidden_size": 8, "vocab_size": 12}, "Give the options that the model was made with"),
    ],
)
def test_wrap_refuses_options_that_do_not_make_the_model(options, message):
    with pytest.raises(ValueError, match=f"the model must be the one that algebranets:gru_lm makes.*{message}"):
        PretrainedModel.wrap(models.create("gru_lm", **GRU), "algebranets:gru_lm", options)


def test_wrap_leaves_the_random_numbers_alone():
    model = models.create("gru_lm", **GRU)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    PretrainedModel.wrap(model, "algebranets:gru_lm", GRU)
    assert torch.equal(torch.rand(2), expected)


def test_a_config_is_made_from_the_model_and_never_given(gru):
    with pytest.raises(ValueError, match="config must be left out"):
        gru[0].save_pretrained(gru[1], config={"source": "timm:resnet18"})
    with pytest.raises(ValueError, match="must have a source"):
        PretrainedModel()


# A damaged folder is refused ------------------------------------------------------------------------------------------


def edit(folder, **entries):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **entries}))


def cut(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


def drop(folder, entry):
    config = json.loads((folder / "config.json").read_text())
    del config[entry]
    (folder / "config.json").write_text(json.dumps(config))


def foreign_weights(folder):
    safetensors.torch.save_file({"a": torch.ones(2)}, folder / "model.safetensors")


DAMAGE = {
    "no config": (lambda f: (f / "config.json").unlink(), "it has no config.json"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "it has no model.safetensors"),
    "no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json is no JSON"),
    "a list": (lambda f: (f / "config.json").write_text("[]"), "is not of algebranets"),
    "another library": (lambda f: (f / "config.json").write_text('{"model_type": "gpt2"}'), "is not of algebranets"),
    "a later format": (lambda f: edit(f, format=2), "its format is 2, and this version of algebranets reads 1"),
    "no plan": (lambda f: drop(f, "plan"), "there is no 'plan' in it"),
    "a wrong type": (lambda f: edit(f, options=3), "'options' in its config.json is 3"),
    "other options": (lambda f: edit(f, options={**GRU, "algebra": "C"}), "are of two different models"),
    "other code": (lambda f: edit(f, source="os:system"), "library must be one of"),
    "cut weights": (cut, "cannot be loaded: "),
    "foreign weights": (foreign_weights, "there is no 'algebranets' in it"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_refused_in_one_line(damage, gru):
    do, message = DAMAGE[damage]
    do(gru[1])
    with pytest.raises(ValueError, match=f"^{re.escape(str(gru[1]))} cannot be loaded: ") as caught:
        PretrainedModel.from_pretrained(gru[1])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", ["missing", "more", "other algebra"])
def test_weights_that_do_not_fit_exactly_are_refused(change, gru):
    model, folder = gru
    if change == "missing":
        del model.model.head._parameters["weight"]
    elif change == "more":
        model.model.more = nn.Linear(2, 2)
    else:  # weights of the same shape over another algebra
        twin = replace(cyclic(4), name="twin")
        model.model = models.create("gru_lm", **{**GRU, "algebra": twin})
    pretrained.save_weights(model.model, folder / "model.safetensors", model._hub_mixin_config)
    wanted = {"missing": "Missing key", "more": "Unexpected key", "other algebra": "over twin"}[change]
    with pytest.raises(ValueError, match=f"cannot be loaded: .*{wanted}"):
        PretrainedModel.from_pretrained(folder)


def test_a_pickle_is_never_loaded(gru):
    model, folder = gru
    (folder / "model.safetensors").unlink()
    torch.save(model.model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"it has no model\.safetensors"):
        PretrainedModel.from_pretrained(folder)


# A save that fails or is killed ---------------------------------------------------------------------------------------


def contents(folder):
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_save_that_fails_leaves_everything_as_it_was(gru, monkeypatch):
    model, folder = gru
    (folder / "note.txt").write_text("mine")
    before = contents(folder.parent)
    randomize(model)

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PretrainedModel, "generate_model_card", fail)  # after the weights are written
    with pytest.raises(OSError, match="No space left"):
        model.save_pretrained(folder, model_card_kwargs={})
    with pytest.raises(OSError, match="No space left"):
        model.save_pretrained(folder.parent / "new")
    assert contents(folder.parent) == before


class Killed(BaseException):
    """Stands for the end of the process: after it, nothing is removed."""


def kill_at_call(patch, name, number):
    """Let call ``number`` of a function, counted from 0, end the process."""
    path = f"algebranets.conversion.pretrained.{name}"
    original, calls = pkgutil.resolve_name(path), itertools.count()

    def call(*args, **options):
        if next(calls) == number:
            patch.setattr("shutil.rmtree", lambda *_, **__: None)
            raise Killed
        return original(*args, **options)

    patch.setattr(path, call)


@pytest.mark.parametrize(
    ("name", "number", "is_new"),
    [("save_model", 0, False), ("os.fsync", 1, False), ("Path.replace", 1, False), ("Path.replace", 2, False),
     ("shutil.rmtree", 1, True)],
)  # fmt: skip
def test_a_save_that_is_killed_loses_nothing(name, number, is_new, gru, monkeypatch):
    model, folder = gru
    old = copy.deepcopy(model.model.head.weight)
    randomize(model)
    with monkeypatch.context() as patch:
        kill_at_call(patch, name, number)
        with pytest.raises(Killed):
            model.save_pretrained(folder)
    assert list(folder.parent.glob("*.partial"))
    assert torch.equal(PretrainedModel.from_pretrained(folder).head.weight, model.model.head.weight if is_new else old)
    model.save_pretrained(folder)
    assert torch.equal(PretrainedModel.from_pretrained(folder).head.weight, model.model.head.weight)


def test_a_new_save_keeps_other_files_and_a_card_that_a_person_wrote(gru):
    model, folder = gru
    (folder / "README.md").write_text("my own card")
    (folder / "tokenizer.json").write_text("{}")
    randomize(model)
    model.save_pretrained(folder)
    assert (folder / "README.md").read_text() == "my own card"
    assert (folder / "tokenizer.json").read_text() == "{}"
    assert torch.equal(PretrainedModel.from_pretrained(folder).head.weight, model.model.head.weight)
    model.save_pretrained(folder, model_card_kwargs={"license": "mit"})
    assert "license: mit" in (folder / "README.md").read_text()
    assert not list(folder.parent.glob("*.partial"))


def test_a_full_disk_is_an_error_that_names_the_file(gru, monkeypatch):
    def fail(*_, **__):
        raise safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("algebranets.conversion.pretrained.save_model", fail)
    with pytest.raises(OSError, match=r"No space left on device: .*model\.safetensors"):
        gru[0].save_pretrained(gru[1])


def test_a_copy_is_whole():
    model = PretrainedModel("algebranets:gru_lm", GRU)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin._hub_mixin_config == model._hub_mixin_config
        assert torch.equal(twin.head.weight, model.head.weight)
        assert twin.model is not model.model
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        model.nothing  # noqa: B018


def test_a_config_of_something_else_is_not_overwritten(gru, tmp_path):
    for name, text in (("run", '{"recipe": "digits"}'), ("list", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
        before = contents(tmp_path / name)
        with pytest.raises(ValueError, match=r"has a config\.json of something else.* choose another folder"):
            gru[0].save_pretrained(tmp_path / name)
        assert contents(tmp_path / name) == before


def test_a_file_in_place_of_the_folder_is_an_error(gru, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file is a file: give a folder"):
        gru[0].save_pretrained(tmp_path / "file")


# The hub --------------------------------------------------------------------------------------------------------------


def test_push_to_hub_would_upload_the_folder_with_its_card(gru, monkeypatch):
    uploads = {}

    def upload_folder(_, *, repo_id, folder_path, **options):
        uploads.update(repo_id=repo_id, files=contents(Path(folder_path)), repo_type=options["repo_type"])
        return "address of the commit"

    monkeypatch.setattr(hub.HfApi, "create_repo", lambda _, repo_id, **__: SimpleNamespace(repo_id=f"me/{repo_id}"))
    monkeypatch.setattr(hub.HfApi, "upload_folder", upload_folder)
    model, folder = gru
    assert model.push_to_hub("my-gru", model_card_kwargs={"license": "mit"}) == "address of the commit"
    assert (uploads["repo_id"], uploads["repo_type"]) == ("me/my-gru", "model")
    assert sorted(map(str, uploads["files"])) == ["README.md", "config.json", "model.safetensors"]
    assert uploads["files"][Path("config.json")] == (folder / "config.json").read_bytes()
    assert same_weights(uploads["files"][Path("model.safetensors")], (folder / "model.safetensors").read_bytes())
    assert b"license: mit" in uploads["files"][Path("README.md")]
    uploads.clear()
    model.save_pretrained(folder, push_to_hub=True, repo_id="other")
    assert uploads["repo_id"] == "me/other"


def test_a_repository_is_downloaded_without_anything_but_our_three_files(gru, monkeypatch):
    model, folder = gru
    asked = {}

    def snapshot_download(repo_id, **options):
        asked.update(repo_id=repo_id, **options)
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    loaded = PretrainedModel.from_pretrained("me/my-gru", revision="v1")
    assert torch.equal(loaded.head.weight, model.model.head.weight)
    assert (asked["repo_id"], asked["revision"]) == ("me/my-gru", "v1")
    assert asked["allow_patterns"] == ["config.json", "model.safetensors", "README.md"]


def test_a_misspelled_argument_is_refused_also_for_a_folder(gru):
    with pytest.raises(TypeError, match="revison"):
        PretrainedModel.from_pretrained(gru[1], revison="v1")


def test_a_name_that_is_neither_folder_nor_repository_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="is not a folder here, and it cannot be loaded from the hub"):
        PretrainedModel.from_pretrained(tmp_path / "a/b/c")


def test_optional_libraries_are_imported_on_demand_and_the_error_says_what_to_install():
    code = """
import sys, algebranets, algebranets.conversion
print({"huggingface_hub", "timm", "torchvision", "transformers"} & set(sys.modules))
sys.modules["huggingface_hub"] = None  # as if it were not installed
from algebranets.conversion import PretrainedModel
for use in (lambda: PretrainedModel("algebranets:gru_lm"), lambda: PretrainedModel.from_pretrained("x")):
    try:
        use()
    except ValueError as error:
        print(error)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    wanted = "PretrainedModel needs huggingface_hub, which is not installed: run `pip install huggingface_hub`.\n"
    assert process.stdout == "set()\n" + 2 * wanted, process.stderr


@pytest.mark.parametrize("change", ["folded", "parametrized"])
def test_a_layer_that_was_changed_after_the_conversion_cannot_be_saved(change):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8))
    nn.init.normal_(model[2].weight)
    made = convert(model, "H")
    if change == "folded":
        made = fold(made, torch.randn(3, 8))
    else:
        nn.utils.parametrizations.weight_norm(made[1])
    with pytest.raises(ValueError, match=f"'1' was {change} after the conversion.* save the model before"):
        PretrainedModel.wrap(made)
