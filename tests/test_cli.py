"""The command line, run as a person runs it."""

import json
import os
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

import algebranets
from algebranets.algebra import CATALOGUE
from algebranets.cli import app


def run(*arguments):
    return CliRunner(env={"NO_COLOR": "1"}).invoke(app, list(arguments))


def test_version_is_the_packages():
    assert run("--version").stdout.strip() == f"algebranets {algebranets.__version__}"


def test_algebras_prints_table_1():
    result = run("algebras")
    assert result.exit_code == 0
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.split()}
    for algebra in CATALOGUE.values():
        assert f"{algebra.multiplies} : {algebra.values_loaded}" in rows[algebra.name]
    assert rows["DUAL"].split()[3:5] == ["2", "-"]
    assert "2 copies of 2 x 2" in rows["M2R"]


def test_algebras_fits_a_terminal_of_80_columns():
    result = run("algebras")
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout


def test_algebra_prints_one(tmp_path):
    result = run("algebra", "DUAL")
    assert result.exit_code == 0
    assert "b | b 0" in result.stdout
    assert "1 of them structural zeros" in " ".join(result.stdout.split())
    file = tmp_path / "split.toml"
    file.write_text('table = [["a", "b"], ["b", "a"]]')
    result = run("algebra", str(file))
    assert "split | a b" in result.stdout
    assert "commutative" in result.stdout
    assert run("algebra", "clifford(5,0)").exit_code == 0
    assert "none" in run("algebra", "CROSS").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["algebra", "M2r"], "Did you mean 'M2R'?"),
        (["algebra", "missing.toml"], "cannot be read"),
        (["bench", "layers", "--op", "lstm"], "--op must be one of linear, conv2d, gru"),
        (["bench", "layers", "--dtype", "int8"], "--dtype must be"),
        (["bench", "layers", "--dtype", "float8_e4m3fn"], "--dtype must be"),
        (["bench", "zeros", "--device", "tpu"], "--device must be cpu or cuda"),
        (["bench", "attention"], "torch sees no CUDA device here"),
        (["bench", "layers", "--algebra", "Q"], "unknown algebra 'Q'"),
        (["profile", "resnet"], "unknown model 'resnet'. Did you mean"),
        (["profile", "resnet50", "--algebra", "M4R", "--width", "0.05"], "the nearest width that works is 0.125"),
        (["profile", "transformer_xl", "--algebra", "M3R", "--set", "ff_size=1539"], "nearest that works is 504"),
        (["profile", "transformer_xl", "--set", "num_layers=many"], "num_layers must be int; got 'many'"),
        (["profile", "gru_lm", "--width", "2"], "gru_lm has no option 'width'"),
        (["profile", "gru_lm", "--set", "hidden_size"], "--set takes NAME=VALUE"),
        (["profile", "gru_lm", "--image-size", "8"], "gru_lm takes no image"),
    ],
)
def test_mistakes_are_explained(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    text = " ".join(result.output.replace("│", " ").split())
    assert message in text


def test_bench_prints_ratios_and_writes_rows(tmp_path):
    rows = tmp_path / "deep" / "rows.jsonl"
    arguments = ["--algebra", "M2R", "--algebra", "C", "--width", "32", "--batch", "64", "--rounds", "2"]
    result = run("bench", "layers", *arguments, "--save", str(rows))
    assert result.exit_code == 0, result.output
    written = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [(row["op"], row["algebra"]) for row in written[:2]] == [("linear", "M2R"), ("linear", "C")]
    assert {row["op"] for row in written} == {"linear", "conv2d", "gru"}
    assert all(row["speedup"] > 0 and row["error"] < 1e-4 for row in written)
    assert [path.name for path in rows.parent.iterdir()] == ["rows.jsonl"]
    assert f"{written[0]['speedup']:.2f}x" in result.stdout


def test_profile_prints_stages_and_the_total():
    result = run("profile", "resnet50", "--algebra", "M2R", "--width", "1.376")
    assert result.exit_code == 0, result.output
    with torch.device("meta"):
        cost = algebranets.account(algebranets.models.create("resnet50", algebra="M2R", width=1.376))
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.split()}
    assert {stage.name for stage in cost.stages()} <= set(rows)
    assert f"{cost.parameters / 1e6:.2f} M" in rows["total"]
    assert f"{cost.multiplies / 1e9:.3f} G" in rows["total"]
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_profile_prints_json():
    arguments = ["--algebra", "M2R", "--set", "num_layers=3", "--set", "window=100", "--json"]
    result = run("profile", "transformer_xl", *arguments)
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert sum(row["multiplies"] for row in data["rows"]) == data["multiplies"]
    assert sum(row["name"].endswith("attention") for row in data["rows"]) == 3
    assert data["options"] == {"algebra": "M2R", "num_layers": 3, "window": 100}
    assert data["paper"] < data["multiplies"]


def test_profile_at_another_size_and_depth():
    small, large = (
        json.loads(run("profile", "cifar_resnet", "--image-size", str(size), "--json").stdout) for size in (16, 32)
    )
    assert small["parameters"] == large["parameters"]
    assert 3.9 < large["multiplies"] / small["multiplies"] < 4.1
    assert "stage1.0 " in run("profile", "cifar_resnet", "--depth", "2").stdout


def test_paper_prints_every_table():
    result = run("paper")
    assert result.exit_code == 0, result.output
    for heading in ("Table 1", "Figures 1 and 2", "Table 2", "Table 3", "Table 4", "Table 5", "Table 6"):
        assert f"{heading}: " in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["ResNet-50", "R", "M", "parameters", "25.56", "25.56", "none"] in lines
    assert ["R", "1536", "M", "parameters", "27.8", "26.8", "-3.72", "%", "[2]"] in lines


def test_paper_prints_json():
    tables = json.loads(run("paper", "--json").stdout)
    assert tables[3]["entries"][0] == {
        "row": "R 1024", "quantity": "M parameters", "printed": "12.1", "computed": 12.077312, "note": None,
    }  # fmt: skip


def test_help_answers_at_once_after_torch_has_loaded():
    """What takes time is what must not be imported; seconds are not tested."""
    heavy = (
        "lightning",
        "matplotlib",
        "triton",
        "torchvision",
        "torch._inductor",
        "algebranets.bench",
    )
    code = (
        "import sys, torch, torch.utils.flop_counter; before = set(sys.modules)\n"
        "from typer.testing import CliRunner; from algebranets.cli import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        f"print([m for m in {heavy!r} if m in set(sys.modules) - before])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_command_is_installed():
    command = [os.path.join(os.path.dirname(sys.executable), "algebranets"), "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    for name in ("algebras", "algebra", "profile", "paper", "bench"):
        assert name in result.stdout
