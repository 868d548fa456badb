"""Recipes: every one is complete and trains, and every data set is used by one."""

import gzip
import json

import pytest
import torch
from safetensors.torch import load_file

from algebranets import account
from algebranets.lab import data, recipes, train
from algebranets.lab.data import cifar, corpora, idx
from algebranets.lab.train import Experiment, Hardware
from algebranets.lab.train import plan as plans
from test_data import save
from test_data_files import cifar_files, idx_files
from test_training import SMALL, SMALL_TEXT, WIDTHS

TEXT = {name: value for name, value in SMALL_TEXT.items() if name != "data.name"}
#: Small settings of the recipes whose data sets are written as small files for these tests.
ON_FILES = {
    "cifar100": {"steps": 2, "data.batch_size": 3, "model.num_blocks": 1},
    "mnist": {"steps": 2, "data.batch_size": 3, "model.num_blocks": 1},
    "fashion-mnist": {"steps": 2, "data.batch_size": 3, "model.num_blocks": 1},
    "tiny-imagenet-resnet50": {"steps": 2, "data.batch_size": 2, "data.workers": 0},
    "tiny-imagenet-mobilenet": {"steps": 2, "data.batch_size": 2, "data.workers": 0},
    "text8-transformer_xl": {
        **{name: value for name, value in SMALL["transformer_xl"].items() if name != "data.name"}, "steps": 2,
    },
    "wikitext-2-gru": {**TEXT, "model.hidden_size": 16, "model.num_readouts": 1},
}  # fmt: skip


@pytest.fixture(scope="module")
def data_root(tmp_path_factory):
    """Write small data sets in their published formats, and forget the sizes and checksums of the real ones."""
    root = tmp_path_factory.mktemp("data")
    torch.manual_seed(0)
    cifar_files(root / "100", num_classes=100)
    (root / "100" / "py" / "cifar-100-python").rename(root / "cifar-100-python")
    cifar_files(root / "10")
    (root / "10" / "bin" / "cifar-10-batches-bin").rename(root / "cifar-10-batches-bin")
    idx_files(root / "mnist")
    idx_files(root / "fashion-mnist", "{}.gz".format, gzip.compress)
    for part in ("train", "val"):
        for i, wnid in enumerate(["n01", "n02"]):
            save(root / "tiny-imagenet-200" / part / wnid / f"{i}.JPEG", (80 * i,) * 3, size=(64, 64))
    (root / "text8").write_text(" the quick brown fox" * 500)
    (root / "wikitext-2").mkdir()
    for part in ("train", "valid", "test"):
        (root / "wikitext-2" / f"wiki.{part}.tokens").write_text(" = A title = \n A line of <unk> .\n" * 200)
    with pytest.MonkeyPatch.context() as patch:
        for known in (cifar.KNOWN, idx.KNOWN):
            for name in known:
                patch.setitem(known, name, {})
        patch.setattr(corpora, "KNOWN", {})
        yield root


def test_every_data_set_is_used_by_a_recipe():
    assert {recipes.create(name).data.name for name in recipes.RECIPES} == set(data.DATASETS)


@pytest.mark.parametrize("recipe", recipes.RECIPES)
def test_every_recipe_trains_two_steps_at_a_shrunken_size(recipe, tmp_path, data_root):
    """Recipes train on built-in data, or on small files in the published formats."""
    settings = {**(SMALL.get(recipe) or ON_FILES[recipe]), "steps": 2, "evaluations": 1}
    width = WIDTHS.get(recipe, 0.125 if isinstance(recipes.create(recipe).data, train.Images) else 1.0)
    hardware = Hardware(accelerator="cpu", log_steps=1, data=str(data_root))
    result = train.run(recipes.create(recipe, "M2R", width, settings=settings), tmp_path / "run", hardware)
    assert (result.recipe, result.algebra, result.steps) == (recipe, "M2R", 2)
    assert result.value == result.curve[-1][result.metric]  # after so few steps, the result is the last value
    assert [row["step"] for row in result.curve][-1] == 2
    assert result.parameters > 0
    assert result.multiplies > 0
    weights = load_file(tmp_path / "run" / "weights.safetensors")
    assert sum(value.numel() for name, value in weights.items()) >= result.parameters


@pytest.mark.parametrize("recipe", recipes.RECIPES)
def test_every_recipe_is_complete_over_any_algebra(recipe, tmp_path):
    table = tmp_path / "split.toml"
    table.write_text('table = [["a", "b"], ["b", "a"]]')
    for algebra in ("R", "C", "H", "M2R", "M3R", "diagonal(4)", str(table)):
        experiment = recipes.create(recipe, algebra, seed=3)
        assert Experiment.from_dict(json.loads(json.dumps(experiment.to_dict()))) == experiment
        with torch.device("meta"):
            experiment.build()


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion-mnist", "tiny-imagenet", "digits"])
def test_images_have_the_shape_that_is_known_of_their_data_set(name, data_root):
    """The number of classes is checked too, unless the files determine it."""
    dataset, shape = data.load(name, data_root), data.DATASETS[name].images
    assert (dataset.channels, dataset.image_size) == (shape.channels, shape.side)
    assert name == "tiny-imagenet" or dataset.num_classes == shape.num_classes


@pytest.mark.parametrize("recipe", ["cifar10", "cifar100", "mnist", "digits", "char-lm", "wikitext-2-gru"])
def test_costs_without_the_data_are_those_with_it(recipe, data_root):
    experiment = recipes.create(recipe, "M2R")
    plan = plans.make(experiment, str(data_root))
    with torch.device("meta"):
        model = plan.fitted.build()
        assert recipes.cost(experiment) == account(model, *plan.example_inputs(model))


def test_the_papers_imagenet_settings_are_in_the_recipes():
    real, ours = (recipes.create("resnet50", algebra) for algebra in ("R", "M2R"))
    assert real.epochs == 180
    assert [round(180 * m) for m in real.schedule.milestones] == [60, 100, 140, 160]
    assert ours.optimizer.weight_decay / real.optimizer.weight_decay == pytest.approx(0.725)
    mobile = [recipes.create("mobilenet_v1", a).optimizer.weight_decay for a in ("R", "H")]
    assert mobile[1] / mobile[0] == pytest.approx(0.625)
    assert {real.model["activation"], ours.model["activation"]} == {"swish"}


@pytest.mark.parametrize(("name", "own"), [("quaternions", "H"), ("m_2(r)", "M2R"), ("Cl(2, 0)", "clifford(2,0,0)")])
def test_an_experiment_with_a_common_name_of_an_algebra_is_the_same_experiment(name, own):
    ours, expected = recipes.create("digits", name), recipes.create("digits", own)
    assert (ours, ours.name, ours.to_dict()) == (expected, expected.name, expected.to_dict())


def test_a_mistaken_recipe_is_explained():
    with pytest.raises(ValueError, match=r"recipe must be one of resnet50, .*; got 'minst'. Did you mean 'mnist'\?"):
        recipes.create("minst")
    for width in (0, -1, float("inf"), float("nan")):
        for recipe in ("digits", "char-lm", "transformer_xl"):
            with pytest.raises(ValueError, match="width must be a positive number"):
                recipes.create(recipe, width=width)
