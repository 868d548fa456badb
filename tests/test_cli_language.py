"""The commands `generate` and `eval` for finished language models."""

import json
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from algebranets import models
from algebranets.lab import train
from algebranets.lab.cli import app, writing
from algebranets.lab.data import corpora
from algebranets.models.language import Decoder

PROSE = "Ünder the ocean, the quick brown fox jumps over the lazy dog. "
TEXT = {
    "data.batch_size": 4,
    "data.length": 16,
    "data.eval_batch_size": 4,
    "data.eval_length": 8,
    "data.eval_window": 0,
}
GRU = {**TEXT, "steps": 8, "model.hidden_size": 16, "model.num_readouts": 1}
XL = {**TEXT, "steps": 8, "model.num_layers": 1, "model.d_model": 16, "model.num_heads": 2, "model.ff_size": 16}
XL["model.window"] = 8
IMAGES = {"steps": 1, "data.batch_size": 20}


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"})


def text(result):
    return " ".join(result.output.replace("│", " ").split())


def column(result):
    """Return the newly measured values that `eval` prints."""
    lines = (line.split() for line in result.output.splitlines())
    return {line[0]: line[1] for line in lines if line[:1] and line[0] in ("loss", "bpc", "characters")}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a folder with finished runs, named after their models, and the text that two of them were trained on."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "my.txt").write_text("".join(f"{number} {PROSE}" for number in range(50)))
    recipes = [("char-lm", "C", "gru_lm", GRU), ("transformer_xl", "H", "transformer_xl", XL)]
    for recipe, algebra, model, settings in [*recipes, ("digits", "C", "cifar_resnet", IMAGES)]:
        changes = [f"--set={name}={value}" for name, value in {**settings, "evaluations": 1}.items()]
        own = ["--width", "0.125"] if recipe == "digits" else ["--data", folder / "my.txt"]
        out = ["--out", folder / model, "--accelerator", "cpu"]
        result = run("train", recipe, "--algebra", algebra, *changes, *own, *out)
        assert result.exit_code == 0, result.output
    return folder


over_models = pytest.mark.parametrize("name", ["gru_lm", "transformer_xl"])


# generate ------------------------------------------------------------------------------------------------------------


@over_models
@pytest.mark.parametrize("where", ["", "weights.safetensors"])
def test_generate_prints_the_prompt_the_text_and_a_newline(runs, name, where):
    result = run("generate", runs / name / where, "--prompt", "Ünder [b]", "--length", 40, "--seed", 3)
    written = "".join(models.generate(models.load(runs / name), "Ünder [b]", 40, seed=3))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout_bytes == f"Ünder [b]{written}\n".encode()


def test_generate_begins_a_line_where_there_is_no_prompt(runs):
    options = {"temperature": 0.5, "top_k": 20, "top_p": 0.9}
    given = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    result = run("generate", runs / "gru_lm", "--length", 60, "--seed", 0, *given)
    written = "".join(models.generate(models.load(runs / "gru_lm"), "\n", 60, seed=0, **options))
    assert result.stdout_bytes == f"\n{written}\n".encode()


@pytest.mark.parametrize(
    ("name", "precision", "dtype"), [("gru_lm", "bf16", torch.bfloat16), ("transformer_xl", "16", torch.float16)]
)
def test_generate_converts_the_weights(runs, name, precision, dtype):
    arguments = ["--prompt", "the", "--length", 20, "--seed", 1, "--precision", precision, "--accelerator", "cpu"]
    written = "".join(models.generate(models.load(runs / name).to(dtype), "the", 20, seed=1))
    assert run("generate", runs / name, *arguments).stdout_bytes == f"the{written}\n".encode()


def test_generate_tells_a_terminal_how_fast_it_was(runs, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    writing.generate(runs / "gru_lm", "the", 20, seed=0)
    assert "20 characters, " in capsys.readouterr().err


def test_ctrl_c_ends_generate_quietly(runs, monkeypatch):
    def interrupted(*_, **__):
        yield "q"
        signal.raise_signal(signal.SIGINT)
        yield "u"

    monkeypatch.setattr(models, "generate", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
    result = run("generate", runs / "gru_lm", "--prompt", "the ")
    signal.signal(signal.SIGINT, before)
    assert (result.exit_code, result.output) == (130, "the q\n")


def test_generate_writes_at_once_and_bears_a_closed_pipe(runs):
    command = [sys.executable, "-m", "algebranets", "generate", str(runs / "gru_lm"), "--length", "1000000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(10).startswith(b"\n")  # long before the text ends
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(10) in (0, 1)


@pytest.mark.gpu
@over_models
def test_generate_on_the_gpu_in_bf16(runs, name, monkeypatch):
    torch.use_deterministic_algorithms(False)
    arguments = ["--prompt", "the quick", "--length", 60, "--seed", 5, "--accelerator", "cuda", "--precision", "bf16"]
    first, again = (run("generate", runs / name, *arguments) for _ in range(2))
    assert (first.exit_code, first.stdout_bytes[:9]) == (0, b"the quick"), first.output
    assert first.stdout_bytes == again.stdout_bytes
    monkeypatch.setattr(Decoder, "_capture", lambda _: None)  # step by step instead of by a graph
    assert run("generate", runs / name, *arguments[:-2]).stdout_bytes == first.stdout_bytes


# eval ----------------------------------------------------------------------------------------------------------------


def bpc(runs, name, content, **options):
    """Return the bits per character by definition, over the whole text as one row."""
    tokens = torch.tensor(list(content))
    return models.bits_per_character(models.load(runs / name), tokens, segment=8, **options)


@over_models
def test_a_file_is_measured_whole_with_its_first_character_as_context(runs, name, tmp_path):
    """The file is not UTF-8. It is too short to be cut into two rows, which would begin without context."""
    content = bytes(range(200, 256)) + (PROSE * 3).encode()
    (tmp_path / "other").write_bytes(content)
    result = run("eval", runs / name, "--data", tmp_path / "other")
    assert result.exit_code == 0, result.output
    assert column(result)["bpc"] == f"{bpc(runs, name, content):.4f}"
    assert column(result)["characters"] == f"{len(content) - 1}"
    assert "when trained" not in result.output


def test_a_longer_file_is_cut_into_rows_of_enough_segments(runs, tmp_path):
    """A row has at least 16 segments of 8 characters, so there are two rows here and not four as in the run."""
    content = (PROSE * 5).encode()[: 2 * 16 * 8 + 1]
    (tmp_path / "other").write_bytes(content)
    measured = train.evaluate(runs / "gru_lm", text=tmp_path / "other")
    halves = [bpc(runs, "gru_lm", half) for half in (content[:129], content[128:])]
    assert measured["bpc"] == pytest.approx(sum(halves) / 2, rel=1e-5)
    assert measured["characters"] == 256
    (tmp_path / "other").write_bytes(content[:-1])
    assert train.evaluate(runs / "gru_lm", text=tmp_path / "other")["bpc"] == pytest.approx(
        bpc(runs, "gru_lm", content[:-1]), rel=1e-5
    )


def test_its_own_text_is_measured_as_when_it_was_trained(runs):
    result = run("eval", runs / "gru_lm")
    recorded = train.RunFolder(runs / "gru_lm").finished()
    row = next(line.split() for line in result.output.splitlines() if line.split()[:1] == ["bpc"])
    assert row[1:] == [f"{recorded.value:.4f}"] * 2
    assert column(result)["characters"] == f"{len(corpora.text_file(runs / 'my.txt').valid) - 1}"


def test_its_test_text_is_another(runs):
    result = run("eval", runs / "gru_lm", "--split", "test", "--set", "data.eval_batch_size=1")
    test = bytes(corpora.text_file(runs / "my.txt").test)
    assert column(result)["bpc"] == f"{bpc(runs, 'gru_lm', test):.4f}"
    assert column(result)["bpc"] != column(run("eval", runs / "gru_lm", "--set", "data.eval_batch_size=1"))["bpc"]
    assert "on its test text" in result.output
    assert "when trained" not in result.output


def test_a_wider_window_measures_otherwise(runs):
    valid = bytes(corpora.text_file(runs / "my.txt").valid)
    for window in (4, 24):
        settings = ["--set", f"data.eval_window={window}", "--set", "data.eval_batch_size=1"]
        result = run("eval", runs / "transformer_xl", *settings)
        assert column(result)["bpc"] == f"{bpc(runs, 'transformer_xl', valid, window=window):.4f}"
        assert "when trained" not in result.output


def test_a_file_is_measured_where_the_runs_own_text_is_gone(runs, tmp_path):
    shutil.copytree(runs / "gru_lm", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["data"]["name"] = "gone.txt"
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert "got 'gone.txt'" in text(run("eval", tmp_path / "run"))
    (tmp_path / "other").write_text(PROSE)
    there, here = (run("eval", path, "--data", tmp_path / "other") for path in (runs / "gru_lm", tmp_path / "run"))
    assert column(here) == column(there) != {}


# mistakes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "nowhere"], "nowhere does not exist"),
        (["eval", "nowhere"], "nowhere is not the folder of a run"),
        (["generate", "."], ". is not the folder of a run"),
        (["generate", "my.txt"], "my.txt is not a file of algebranets' weights"),
        (["generate", "cifar_resnet"], "cifar_resnet holds a cifar_resnet, which is not a language model"),
        (["eval", "cifar_resnet", "--data", "my.txt"], "cifar_resnet holds a cifar_resnet, which classifies images"),
        (["eval", "cifar_resnet", "--split", "test"], "give a run of a language model"),
        (["eval", "cifar_resnet", "--set", "data.eval_length=8"], "a finished run must be one of data.eval_batch_size"),
        (["eval", "gru_lm", "--set", "optimizer.lr=1"], "data.eval_window; got 'optimizer.lr'"),
        (["eval", "gru_lm", "--set", "data.eval_window=8"], "a gru_lm has no window"),
        (["eval", "gru_lm", "--set", "data.eval_length=0"], "data.eval_length must be at least 1; got 0"),
        (["eval", "transformer_xl", "--set", "data.eval_window=-1"], "data.eval_window must be a number of characters"),
        (["eval", "gru_lm", "--split", "tset"], "split must be one of train, valid, test; got 'tset'"),
        (["eval", "gru_lm", "--split", "test", "--data", "my.txt"], "give either --split"),
        (["eval", "gru_lm", "--data", "mistyped.txt"], "or a file to measure; got mistyped.txt"),
        (["eval", "gru_lm", "--data", "empty.txt"], "empty.txt is empty"),
        (["eval", "gru_lm", "--data", "one.txt"], "one.txt must hold at least 2 characters"),
        (["generate", "gru_lm", "--prompt", ""], "--prompt must have at least one character"),
        (["generate", "gru_lm", "--length", "0"], "--length"),
        (["generate", "gru_lm", "--temperature", "-1"], "temperature must be a number from 0 on; got -1"),
        (["generate", "gru_lm", "--temperature", "nan"], "temperature must be a number from 0 on; got nan"),
        (["generate", "gru_lm", "--top-k", "0"], "--top-k"),
        (["generate", "gru_lm", "--top-p", "2"], "top_p must lie between 0 and 1; got 2.0"),
        (["generate", "gru_lm", "--seed", str(2**70)], "--seed"),
        (["generate", "gru_lm", "--accelerator", "tpu"], "accelerator must be one of auto, cpu, cuda; got 'tpu'"),
        (["generate", "gru_lm", "--precision", "8"], "precision must be one of auto, 32, bf16, 16; got '8'"),
        (["generate", "gru_lm", "--accelerator", "cuda"], "needs a CUDA device, and torch sees none here"),
        (["eval", "gru_lm", "--accelerator", "cuda"], "needs a CUDA device, and torch sees none here"),
    ],
)
def test_mistakes_are_explained(runs, arguments, message, monkeypatch):
    (runs / "empty.txt").write_text("")
    (runs / "one.txt").write_text("1")
    monkeypatch.chdir(runs)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in text(result)


def cut(weights):
    weights.write_bytes(weights.read_bytes()[:-100])


def replaced(weights, metadata=None, tensors=None):
    save_file(tensors or load_file(weights), weights, metadata)


def described(weights, **changes):
    """Return the file's metadata with a changed description of the model."""
    from safetensors import safe_open

    with safe_open(weights, "pt") as opened:
        said = json.loads(opened.metadata()["algebranets"])
    return {"algebranets": json.dumps({key: value for key, value in {**said, **changes}.items() if value is not None})}


DAMAGES = {
    "cut off": (cut, "incomplete metadata"),
    "empty": (lambda file: file.write_bytes(b""), "header"),
    "no safetensors": (lambda file: file.write_text("hello " * 100), "header"),
    "another's": (lambda file: replaced(file), "there is no 'algebranets' in it"),
    "no JSON": (lambda file: replaced(file, {"algebranets": "{"}), "line 1 column 2"),
    "no description": (lambda file: replaced(file, {"algebranets": "[1]"}), "its description is [1]"),
    "no algebra": (lambda file: replaced(file, described(file, algebra=None)), "there is no 'algebra' in it"),
    "wrong algebra": (lambda file: replaced(file, described(file, algebra={"table": 3})), "table"),
    "wrong options": (lambda file: replaced(file, described(file, options=[3])), "mapping"),
    "other sizes": (
        lambda file: replaced(file, described(file, options={"hidden_size": 32, "num_readouts": 1})),
        "size mismatch",
    ),
    "other tensors": (lambda file: replaced(file, described(file), {"a": torch.zeros(1)}), "Missing key(s)"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", ["generate", "eval"])
def test_damaged_weights_are_named_and_so_is_what_is_wrong(runs, tmp_path, damage, command):
    shutil.copytree(runs / "gru_lm", tmp_path / "run")
    spoil, reason = DAMAGES[damage]
    spoil(tmp_path / "run" / "weights.safetensors")
    result = run(command, tmp_path / "run")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not a file of algebranets' weights, or it is damaged" in text(result)
    assert reason in text(result)
    with pytest.raises(ValueError, match=r"weights\.safetensors is not a file of") as caught:
        models.load(tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) - len(str(tmp_path)) < 500


def test_weights_of_a_model_that_there_is_not(runs, tmp_path):
    shutil.copytree(runs / "gru_lm", tmp_path / "run")
    weights = tmp_path / "run" / "weights.safetensors"
    replaced(weights, described(weights, model="gpt"))
    assert "got 'gpt'" in text(run("generate", tmp_path / "run"))
    assert "of a gru_lm, but" in text(run("eval", tmp_path / "run"))


@pytest.mark.parametrize("command", ["generate", "eval"])
def test_a_run_that_is_not_finished_says_how_to_go_on(runs, tmp_path, command):
    (tmp_path / "run").mkdir()
    shutil.copy(runs / "gru_lm" / "config.json", tmp_path / "run")
    result = run(command, tmp_path / "run")
    assert result.exit_code == 2
    assert "run is not finished: continue it with `algebranets train --resume" in text(result)
