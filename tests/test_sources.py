"""`create` makes models of other libraries by name, and refuses unsafe names and options."""

import re
import sys
from importlib import import_module

import pytest
import torch

from algebranets import models
from algebranets.algebra import Algebra
from algebranets.conversion import create
from algebranets.conversion.sources import plain

GPT2 = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 16, "bos_token_id": 0, "eos_token_id": 0}


def test_a_timm_model_is_the_one_that_timm_makes():
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    made = create("timm:resnet10t", num_classes=3)
    torch.manual_seed(0)
    expected = timm.create_model("resnet10t", num_classes=3)
    assert type(made) is type(expected)
    assert all(
        torch.equal(a, b) for a, b in zip(made.state_dict().values(), expected.state_dict().values(), strict=True)
    )


def test_a_torchvision_model_is_made_without_downloads(monkeypatch):
    torchvision = pytest.importorskip("torchvision")

    def refuse(*_, **__):
        raise AssertionError("torchvision wants to download weights")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", refuse)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", refuse)
    assert create("torchvision:squeezenet1_1", num_classes=3).num_classes == 3
    # A detector, whose backbone torchvision downloads by default.
    made = create("torchvision:ssdlite320_mobilenet_v3_large", num_classes=2)
    assert type(made) is torchvision.models.detection.ssd.SSD


def test_a_transformers_model_is_made_from_the_options_of_its_configuration():
    pytest.importorskip("transformers")
    made = create("transformers:GPT2LMHeadModel", **GPT2)
    assert type(made).__name__ == "GPT2LMHeadModel"
    assert (made.config.n_layer, made.config.n_embd) == (1, 8)


def test_a_model_of_ours_is_made_over_a_name_or_a_table():
    table = Algebra.from_table([["a", "b"], ["b", "-a"]], name="mine")
    made = create("algebranets:gru_lm", algebra=table.to_dict(), hidden_size=8)
    assert isinstance(made, models.GRULanguageModel)
    assert made.algebra == table
    assert create("algebranets:gru_lm", algebra="H", hidden_size=8).algebra.name == "H"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("tim:resnet18", "one of timm, torchvision, transformers, algebranets; got 'tim'. Did you mean 'timm'?"),
        ("os:system", "library must be one of"),
        ("resnet18", "source must be 'LIBRARY:NAME', such as 'timm:resnet18'; got 'resnet18'"),
        (None, "source must be 'LIBRARY:NAME'"),
        ("algebranets:resnet81", "not a model of algebranets. Did you mean 'algebranets:resnet18'?"),
        ("algebranets:resnet18", "must have the option 'algebra'"),
        ("timm:resnet81", "'timm:resnet81' is not a model of timm. Did you mean 'timm:resnet18'?"),
        ("timm:hf-hub:someone/model", "is not a model of timm"),
        ("torchvision:resnet81", "not a model of torchvision. Did you mean 'torchvision:resnet18'?"),
        ("transformers:GPT2LMHeadModl", "not a model of transformers. Did you mean 'transformers:GPT2LMHeadModel'?"),
        ("transformers:AutoModel", "is not a model of transformers"),
        ("transformers:Trainer", "is not a model of transformers"),
        ("transformers:pipeline", "is not a model of transformers"),
    ],
)  # fmt: skip
def test_an_unknown_source_is_refused(source, message):
    library = str(source).partition(":")[0]
    if library in ("timm", "torchvision", "transformers"):
        pytest.importorskip(library)
    with pytest.raises(ValueError, match=re.escape(message)):
        create(source)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("timm:resnet18", {"pretrained": True}, "must not have the option 'pretrained'"),
        ("timm:resnet18", {"checkpoint_path": "x.pth"}, "must not have the option 'checkpoint_path'"),
        ("timm:resnet18", {"num_clases": 3}, "unexpected keyword argument 'num_clases'"),
        ("torchvision:resnet18", {"weights": "DEFAULT"}, "must not have the option 'weights'"),
        ("transformers:GPT2LMHeadModel", {"n_layers": 1}, "has no option 'n_layers'. Did you mean 'n_layer'?"),
        ("transformers:GPT2LMHeadModel", {**GPT2, "n_embd": 9}, "cannot be made with the options"),
        ("transformers:GPT2LMHeadModel", {"auto_map": {"AutoModel": "x.y"}}, "must not have the option 'auto_map'"),
        ("transformers:CLIPModel", {"text_config": {"auto_map": {}}}, "must not have the option 'auto_map'"),
        ("transformers:BertModel", {"attn_implementation": "someone/kernel"}, "nothing on the hub; got 'someone/"),
        ("transformers:TimmBackbone", {"backbone": "hf-hub:someone/model"}, "nothing on the hub; got 'hf-hub:"),
        ("algebranets:gru_lm", {"algebra": "H", "hidden": 8}, "has no option 'hidden'. Did you mean 'hidden_size'?"),
    ],
)  # fmt: skip
def test_an_option_that_downloads_or_is_unknown_is_refused(source, options, message):
    library = source.partition(":")[0]
    if library != "algebranets":
        pytest.importorskip(library)
    with pytest.raises(ValueError, match=re.escape(message)):
        create(source, **options)


@pytest.mark.parametrize("value", [int, {1: 2}, float("nan"), {"deep": [object()]}, b"bytes", torch.ones(1)])
def test_an_option_that_json_cannot_hold_is_refused(value):
    with pytest.raises(ValueError, match=r"option 'algebra'.* must be plain JSON data"):
        create("algebranets:gru_lm", algebra=value)


def test_tuples_become_lists_at_any_depth():
    assert plain("x", {"a": (1, (2.5, None)), "b": True}) == {"a": [1, [2.5, None]], "b": True}


@pytest.mark.parametrize("library", ["timm", "torchvision", "transformers"])
def test_a_missing_library_is_an_error_that_says_what_to_install(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    with pytest.raises(ValueError, match=f"needs {library}, which is not installed: run `pip install {library}`"):
        create(f"{library}:resnet18")


def test_a_library_that_misses_another_one_is_not_said_to_be_missing(monkeypatch):
    def fails(name):
        if name == "timm":
            raise ModuleNotFoundError("No module named 'yaml'", name="yaml")
        return import_module(name)

    monkeypatch.setattr("algebranets.conversion.sources.import_module", fails)
    with pytest.raises(ValueError, match="needs timm, which cannot be imported: No module named 'yaml'"):
        create("timm:resnet18")
