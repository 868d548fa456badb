"""The model card only says what was measured, and `publish` writes a folder with a card from a run."""

import json
import re
from dataclasses import asdict, replace

import pytest
import torch
from typer.testing import CliRunner

import runs
from algebranets import models
from algebranets.conversion import convert
from algebranets.lab.cli import app
from boxes import message_in_box

hub = pytest.importorskip("huggingface_hub")

from algebranets.conversion import PretrainedModel  # noqa: E402
from algebranets.conversion.card import Costs, model_card  # noqa: E402


@pytest.fixture
def gru():
    return PretrainedModel("algebranets:gru_lm", {"algebra": "H", "hidden_size": 8, "vocab_size": 12})


# The card -------------------------------------------------------------------------------------------------------------


def numbers(text):
    return set(re.findall(r"\d[\d,]*\.?\d*", text))


def card_of(result, costs=None, **options):
    config = {"source": "algebranets:cifar_resnet", "options": {}, "plan": None, "class": "CifarResNet"}
    return model_card(config, ["M2R"], costs or Costs(result.parameters), result=asdict(result), **options)


def test_the_card_says_what_was_measured_and_the_hub_can_read_it():
    result = replace(runs.result(94.316, "M2R", seed=2), experiment={"data": {"name": "cifar10"}, "judged_over": 0.1})
    card = card_of(result, license="apache-2.0", repository="me/net")
    read = hub.ModelCard(str(card))
    (measured,) = read.data.eval_results
    assert (measured.metric_type, measured.metric_value, measured.dataset_name) == ("accuracy", 94.32, "cifar10")
    assert (read.data.library_name, read.data.license, read.data.model_name) == (
        "algebranets", "apache-2.0", "cifar_resnet over M2R",
    )  # fmt: skip
    for words in (
        'PretrainedModel.from_pretrained("me/net")',
        "| top-1 accuracy | 94.32 % | `cifar10`, held out from training | the best evaluation in the last 10 % of",
        "| seed | `2` |",
        "| commit | `abc1234` |",
        "Other seeds than 2: the value is that of a single run.",
        "The size of the real network.",
    ):
        assert words in read.text
    dirty = card_of(replace(result, environment={"commit": "abc1234-dirty"}))
    assert "| commit | `abc1234`, with uncommitted changes |" in dirty.text


def test_the_card_names_the_hubs_mixin_if_it_loads_the_model():
    result = runs.result(94.316, "M2R")
    assert "pytorch_model_hub_mixin" in card_of(result).data.tags
    assert card_of(result, loading="an.models.load(file)").data.tags == ["algebranets", "M2R"]


def test_the_card_holds_no_number_that_is_not_in_its_data():
    result = replace(
        runs.result(1.3174, "M2R", recipe="char-lm", metric="bpc", seed=7), experiment={"data": {"name": "enwik8"}}
    )
    card = card_of(result, Costs(result.parameters, 98765, 4000000, 123456, "token", 999))
    header, text = str(card).split("---\n", 2)[1:]
    shares = {"25.0", "80.0"}  # of the parameters and the multiply-adds
    counts = {"1,000,000", "4,000,000", "98,765", "123,456", "999"}
    given = counts | {"1.317", "7", "50", "100", "1", "2.11", "1234", "8", "2020"}
    found = numbers(re.sub(r"M2R", "", text))
    assert found <= given | shares
    assert counts | shares <= found
    assert "value: 1.317" in header


def test_a_card_without_a_result_says_so_and_a_license_is_never_made_up():
    config = {"source": None, "options": {}, "plan": {"a": {}}, "class": "Net"}
    card = model_card(config, ["H", "C"], Costs(100))
    assert "The quality of the model was not measured." in card.text
    assert "model=Net(...)" in card.text
    assert "the algebras `H`, `C`" in card.text
    assert not {"license", "model-index"} & set(card.data.to_dict())


def test_a_diverged_run_has_no_value_in_its_card():
    card = card_of(replace(runs.result(90.0), value=float("nan"), experiment={"data": {"name": "cifar10"}}))
    assert "is not a finite number: training diverged" in card.text
    assert "model-index" not in card.data.to_dict()


def test_a_result_of_other_training_needs_a_metric_and_a_value(gru):
    card = gru.generate_model_card(result={"metric": "perplexity", "value": 12.5, "data_set": "mine"})
    assert "| perplexity | 12.5000 | `mine` |" in card.text
    with pytest.raises(ValueError, match="must have 'value'; it has 'metric'"):
        gru.generate_model_card(result={"metric": "perplexity"})


def test_the_card_of_a_real_network_does_not_compare_it_with_itself():
    config = {"source": "algebranets:cifar_resnet", "options": {}, "plan": None, "class": "CifarResNet"}
    result = asdict(runs.result(94.0))
    card = model_card(config, [], Costs(100, 10, 100, 10), result=result)
    assert "real network" not in card.text
    assert "| parameters | 100 |" in card.text
    assert "the real network" in model_card(config, ["H"], Costs(100, 10, 100, 10), result=result).text


def test_a_result_of_another_model_is_refused(gru):
    with pytest.raises(
        ValueError, match="the result must be of this model: it is of a model with 4,000,000 parameters"
    ):
        gru.generate_model_card(result=asdict(runs.result(94.0)))


def test_the_card_of_a_converted_model_has_its_report():
    layers = [torch.nn.Linear(8, 8) for _ in range(3)]
    model = convert(torch.nn.Sequential(*layers), "H")
    card = PretrainedModel.wrap(model).generate_model_card()
    before, after = model.conversion.parameters
    assert f"| parameters | {after:,} | {before:,} | {100 * after / before:.1f} % |" in card.text
    assert str(model.conversion) in card.text


# The command ----------------------------------------------------------------------------------------------------------


def command(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("publish") / "run"
    tiny = ["--set", "steps=2", "--set", "evaluations=1", "--set", "data.batch_size=20"]
    result = command("train", "digits", "--algebra", "M2R", "--width", 0.25, *tiny, "--out", folder)
    assert result.exit_code == 0, result.output
    return folder


def test_publish_writes_a_folder_that_computes_what_the_run_does(finished, tmp_path):
    result = command("publish", finished, tmp_path / "made", "--license", "mit")
    assert result.exit_code == 0, result.output
    loaded, x = PretrainedModel.from_pretrained(tmp_path / "made"), torch.randn(2, 1, 8, 8)
    assert torch.equal(loaded(x), models.load(finished)(x))
    card = hub.ModelCard.load(tmp_path / "made/README.md")
    recorded = json.loads((finished / "result.json").read_text())
    assert card.data.eval_results[0].metric_value == round(recorded["value"], 2)
    assert card.data.license == "mit"
    assert f"| {recorded['parameters']:,} | 7,842 |" in card.text  # the real network's come from counting it
    assert f"multiply-adds for one image | {recorded['multiplies']:,} |" in card.text
    assert f"```bash\n{recorded['command']}\n```" in card.text


def test_publish_pushes_what_it_wrote_or_says_that_it_could_not(finished, tmp_path, monkeypatch):
    pushed = {}
    monkeypatch.setattr(
        PretrainedModel, "push_to_hub", lambda _, repo, **options: pushed.update(options) or f"at {repo}"
    )
    result = command("publish", finished, tmp_path / "made", "--push", "me/net")
    assert "Uploaded: at me/net" in result.output
    assert pushed["model_card_kwargs"]["repository"] == "me/net"

    def fail(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr(PretrainedModel, "push_to_hub", fail)
    result = command("publish", finished, tmp_path / "other", "--push", "me/net")
    assert result.exit_code == 2
    assert "is written, but it could not be uploaded to me/net: no network" in message_in_box(result.stderr)
    assert (tmp_path / "other/README.md").exists()


def test_publish_refuses_what_is_not_a_finished_run(finished, tmp_path):
    for run, message in (
        (tmp_path / "nothing", "does not exist"),
        (finished / "weights.safetensors", "must be the folder of a finished run"),
    ):
        result = command("publish", run, tmp_path / "made")
        assert result.exit_code == 2
        assert message in message_in_box(result.stderr)
        assert not (tmp_path / "made").exists()


def test_publish_does_not_overwrite_the_run(finished):
    before = {file: file.read_bytes() for file in finished.iterdir() if file.is_file()}
    result = command("publish", finished, finished)
    assert result.exit_code == 2
    assert "choose another folder" in message_in_box(result.stderr)
    assert {file: file.read_bytes() for file in finished.iterdir() if file.is_file()} == before
