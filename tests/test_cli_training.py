"""The commands that train: `train`, `sweep` and `demo`; and `recipes` and `eval`."""

import json
import os
import shlex
import shutil
import signal
import struct
import sys
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import lightning.pytorch as pl
import pytest
import torch
from typer.testing import CliRunner

import algebranets
from algebranets.lab import recipes
from algebranets.lab.cli import app
from algebranets.lab.data import idx
from algebranets.lab.recipes import sweep as sweeping
from algebranets.lab.train import RunFolder

TINY = ["--set", "steps=4", "--set", "evaluations=2", "--set", "data.batch_size=20"]


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"})


def text(result):
    return " ".join(result.output.replace("│", " ").split())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    result = run("train", "digits", "--algebra", "M2R", "--width", 0.25, *TINY, "--out", folder)
    assert result.exit_code == 0, result.output
    return folder, result


def test_train_says_what_came_out_and_where(finished):
    folder, result = finished
    outcome = RunFolder(folder).finished()
    assert f"digits M2R x0.25, batch size 20, evaluations 2, steps 4: accuracy {outcome.value:.4g}" in text(result)
    assert "4/4" in result.output
    assert str(folder) in result.output.replace("\n", "")
    assert "lightning" not in result.output.lower()


def test_eval_measures_what_was_recorded(finished):
    folder, _ = finished
    result = run("eval", folder)
    assert result.exit_code == 0, result.output
    recorded = RunFolder(folder).finished().curve[-1]
    row = next(line for line in result.output.splitlines() if line.split()[:1] == ["accuracy"])
    assert row.split()[1:] == [f"{recorded['accuracy']:.4f}"] * 2


def test_resuming_a_finished_run_says_so_at_once(finished):
    folder, _ = finished
    result = run("train", "--resume", folder)
    assert result.exit_code == 0, result.output
    assert "accuracy" in result.output


def test_recipes_lists_every_one_with_its_costs(monkeypatch):
    cost, counted = recipes.cost, {}

    def recorded_cost(experiment):
        counted[experiment.recipe, str(experiment.algebra)] = account = cost(experiment)
        return account

    monkeypatch.setattr(recipes, "cost", recorded_cost)  # counting takes long, so counts are kept
    result = run("recipes")
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line for line in result.output.splitlines() if line.split()}
    for name in recipes.RECIPES:
        count = counted[name, "M2R"].parameters
        shown = f"{count / 1e6:#.4g} M" if count >= 1e6 else f"{count / 1e3:#.4g} k"
        assert shown in rows[name]
    assert max(map(len, result.output.splitlines())) <= 80
    assert "…" not in result.output
    assert "1.345 M" in rows["digits"]  # at 8 x 8 pixels


def test_a_terminal_that_is_too_narrow_cuts_nothing(monkeypatch):
    """Two recipes are listed, one with the longest name and one with the shortest numbers."""
    few = {name: recipes.RECIPES[name] for name in ("transformer_xl-small", "digits")}
    monkeypatch.setattr(recipes, "RECIPES", few)
    wide, narrow = (
        CliRunner().invoke(app, ["recipes"], env={"COLUMNS": str(columns)}).output.split() for columns in (80, 40)
    )
    assert wide == narrow
    assert {*few} < {*wide}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "give either a recipe to train, or --resume"),
        (["train", "digit"], "got 'digit'. Did you mean 'digits'?"),
        (["train", "digits", "--set", "optimizer.learning=1"], "Did you mean"),
        (["train", "digits", "--set", "optimizer.lr=fast"], "optimizer.lr must be a number; got 'fast'"),
        (["train", "digits", "--algebra", "M2Q"], "Did you mean 'M2R'?"),
        (["train", "digits", "--precision", "8"], "precision must be one of"),
        (["train", "digits", "--strategy", "mpi"], "strategy must be one of"),
        (["train", "--resume", "nowhere"], "nowhere is no run's folder"),
        (["train", "cifar10", "--data", "."], "cifar10 is not there"),
        (["train", "char-lm", "--data", "mistyped.txt"], "or a text to train on; got mistyped.txt"),
        (["train", "digits", "--width", "-1"], "width must be a positive number"),
        (["train", "digits", "--out", "/dev/null/run"], "Not a directory"),
        (["train", "--resume", "/dev/null"], "is no run's folder"),
        (["train", "--resume", "x", "--seed", "7", "--out", "y"], "leave out --seed, --out"),
        (["eval", "nowhere"], "nowhere is no run's folder"),
        (["sweep", "digits", "--widths", "1,big"], "--widths must be numbers"),
        (["sweep", "digits", "--algebras", "R,Q"], "unknown algebra 'Q'"),
        (["sweep", "digits", "--set", "model.lift=zero"], "lift must be one of learned, zeros, copy"),
        (["recipes", "--algebras", "Q"], "unknown algebra 'Q'"),
        (["demo", "--set", "stepps=3"], "Did you mean 'steps'?"),
    ],
)
def test_mistakes_are_explained(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in text(result)
    assert "Traceback" not in result.output
    assert not list(tmp_path.iterdir())


def test_a_run_that_goes_on_has_the_threads_it_began_with_unless_told_otherwise(tmp_path):
    folder = tmp_path / "run"
    begun = run("train", "digits", "--width", 0.125, *TINY, "--threads", 3, "--out", folder)
    assert begun.exit_code == 0, begun.output
    for arguments, threads in (([], 3), (["--threads", 2], 2), ([], 2)):
        (folder / "weights.safetensors").unlink()  # resuming writes it again
        assert run("train", "--resume", folder, *arguments).exit_code == 0
        assert RunFolder(folder).environment()["hardware"]["threads"] == threads
    assert "threads must lie between 0 and 1024" in text(run("train", "digits", "--threads", -1))


def test_eval_and_resume_agree_on_what_is_finished(finished, tmp_path):
    """A run without its weights is not finished. `eval` says how to continue it, and that works."""
    folder = shutil.copytree(finished[0], tmp_path / "run")
    (folder / "weights.safetensors").unlink()
    said = text(run("eval", folder))
    assert "is not finished: continue it with `algebranets train --resume" in said
    assert run("train", "--resume", folder).exit_code == 0
    assert run("eval", folder).exit_code == 0


def test_settings_of_a_run_that_goes_on_cannot_be_changed(finished):
    result = run("train", "--resume", finished[0], "--set", "optimizer.lr=1")
    assert result.exit_code == 2
    assert "keeps its settings" in text(result)


def test_a_text_of_ones_own_is_trained_on(tmp_path):
    file = tmp_path / "my.txt"
    file.write_text("the quick brown fox jumps over the lazy dog. " * 400)
    small = {"steps": 60, "evaluations": 1, "data.batch_size": 4, "data.length": 16, "model.hidden_size": 32}
    settings = [f"--set={name}={value}" for name, value in small.items()]
    result = run("train", "char-lm", "--algebra", "C", "--data", file, *settings, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert RunFolder(tmp_path / "run").experiment().data.name == str(file)
    assert RunFolder(tmp_path / "run").finished().value < 6


def trained_for_sweep(arguments, out):
    """Train a run in this process, which is faster, and move it to where `sweep --out` expects it."""
    assert run("train", *arguments, "--out", out / "elsewhere").exit_code == 0
    done = RunFolder(out / "elsewhere")
    made = out / "char-lm" / done.experiment().name
    made.parent.mkdir()
    return done.path.rename(made)


def test_a_sweep_over_a_text_of_ones_own_knows_what_is_done(tmp_path):
    file = tmp_path / "my.txt"
    file.write_text("the quick brown fox jumps over the lazy dog. " * 400)
    small = {"steps": 2, "evaluations": 1, "data.batch_size": 4, "data.length": 16, "model.hidden_size": 8}
    arguments = ["char-lm", "--data", file, *(f"--set={name}={value}" for name, value in small.items())]
    made = trained_for_sweep(arguments, tmp_path)
    result = run("sweep", *arguments, "--algebras", "R", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert not (made / "output.txt").exists()


@pytest.mark.usefixtures("in_process")
def test_a_sweep_does_not_take_another_experiments_result_for_its_own(tmp_path):
    """Two texts have the same name. Two algebras of the same name are refused before anything runs."""
    small = {"steps": 1, "evaluations": 1, "data.batch_size": 4, "data.length": 16, "model.hidden_size": 8}
    settings = [f"--set={name}={value}" for name, value in small.items()]
    files = [tmp_path / name / "my.txt" for name in ("a", "b")]
    for file, words in zip(files, ("the quick brown fox. ", "THE LAZY DOG. "), strict=True):
        file.parent.mkdir()
        file.write_text(words * 400)
    trained_for_sweep(["char-lm", "--data", files[0], *settings], tmp_path)
    result = run("sweep", "char-lm", "--algebras", "R", "--data", files[1], *settings, "--out", tmp_path)
    assert result.exit_code == 2
    assert "holds another experiment" in text(result)
    tables = [tmp_path / name / "t.toml" for name in ("a", "b")]
    for table, square in zip(tables, ("-a", "0"), strict=True):
        table.write_text(f'table = [["a", "b"], ["b", "{square}"]]')
    result = run("sweep", "digits", "--algebras", f"{tables[0]},{tables[1]}", "--out", tmp_path)
    assert result.exit_code == 2
    assert "two runs would share" in text(result)


def test_eval_finds_the_data_where_training_did(tmp_path, monkeypatch):
    images, labels = torch.randint(256, (40, 28, 28), dtype=torch.uint8), torch.arange(40, dtype=torch.uint8) % 10
    monkeypatch.setitem(idx.KNOWN, "mnist", {})
    (tmp_path / "mnist").mkdir()
    for part in ("train", "t10k"):
        head = struct.pack(">4i", 0x803, 40, 28, 28)
        (tmp_path / "mnist" / f"{part}-images-idx3-ubyte").write_bytes(head + images.numpy().tobytes())
        (tmp_path / "mnist" / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, 40) + bytes(labels))
    settings = [*TINY, "--set", "data.name=mnist", "--width", 0.125]
    result = run("train", "digits", *settings, "--data", tmp_path, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert run("eval", tmp_path / "run").exit_code == 0
    assert "mnist is not there" in text(run("eval", tmp_path / "run", "--data", tmp_path / "run"))


@pytest.mark.slow
def test_sweep_trains_all_side_by_side_and_skips_what_is_done(tmp_path):
    """The width has many digits, and the name of an algebra has a comma."""
    over = ["--algebras", "C, clifford(0,1)", "--widths", "0.12345678"]
    arguments = ["sweep", "digits", *over, *TINY, "--out", tmp_path, "--jobs", 2, "--threads", 1]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    made = sorted(tmp_path.glob("digits/*/result.json"))
    results = [json.loads(path.read_text()) for path in made]
    assert [(row["algebra"], row["width"]) for row in results] == [("C", 0.12345678), ("clifford(0,1,0)", 0.12345678)]
    out = shlex.quote(str(made[0].parent))
    typed = f"algebranets train digits --algebra C --width 0.12345678 --seed 0 --out {out} --threads 1 --set steps=4"
    assert json.loads(made[0].read_text())["command"].startswith(typed)
    assert [row["environment"]["hardware"]["threads"] for row in results] == [1, 1]
    before = [path.stat().st_mtime_ns for path in made]
    (made[0].parent / "output.txt").unlink()
    again = run(*arguments)
    assert again.output.count("done") == 2
    assert [path.stat().st_mtime_ns for path in made] == before
    assert not (made[0].parent / "output.txt").exists()


class InProcess:
    """Replaces ``subprocess.Popen`` and runs a sweep's command in this process, which is faster."""

    def __init__(self, command, stdout, **_):
        assert command[:3] == [sys.executable, "-m", "algebranets"]
        result = run(*command[3:])
        stdout.write(result.output.encode())
        self.code = result.exit_code

    def poll(self):
        return self.code


@pytest.fixture
def in_process(monkeypatch):
    monkeypatch.setattr(sweeping, "subprocess", SimpleNamespace(Popen=InProcess))
    monkeypatch.setattr(sweeping, "time", SimpleNamespace(sleep=lambda _: None))


@pytest.mark.usefixtures("in_process")
def test_a_sweep_takes_every_value_that_each_names(tmp_path):
    each = ["--each", "pruning.sparsity=0.5,0.25", "--each", "pruning.unit=tuple,component"]
    fixed = ["--set", "pruning.every=1", *TINY]
    result = run("sweep", "digits", "--algebras", "M2R", "--widths", 0.125, *each, *fixed, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    made = [json.loads(path.read_text()) for path in tmp_path.glob("digits/*/result.json")]
    found = {(row["experiment"]["pruning"]["sparsity"], row["experiment"]["pruning"]["unit"]) for row in made}
    assert found == {(share, unit) for share in (0.5, 0.25) for unit in ("tuple", "component")}
    assert all(row["nonzero"] < row["parameters"] for row in made)
    assert "there is no setting 'pruning.size'" in text(run("sweep", "digits", "--each", "pruning.size=1,2"))
    assert "--each must be a setting and values" in text(run("sweep", "digits", "--each", "pruning.sparsity"))


@pytest.mark.usefixtures("in_process")
def test_a_sweep_says_why_a_run_failed(tmp_path):
    result = run("sweep", "cifar10", "--algebras", "R", "--data", tmp_path, "--out", tmp_path / "runs")
    assert result.exit_code == 2
    assert "failed: R-seed0: error: cifar10 is not there" in text(result)
    assert f"Its full output is in {tmp_path / 'runs/cifar10/R-seed0/output.txt'}" in text(result)
    assert "algebranets report" not in result.output


@contextmanager
def sigterm_restored():
    """Restore the handler of SIGTERM, since a sweep keeps its own until the process ends."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_sweep_that_is_stopped_stops_its_runs(tmp_path, monkeypatch):
    """The sweep asks each running process to stop, and waits for it."""
    started = Mock(**{"poll.return_value": None})
    monkeypatch.setattr(sweeping, "subprocess", SimpleNamespace(Popen=lambda *_, **__: started))
    monkeypatch.setattr(sweeping, "time", SimpleNamespace(sleep=lambda _: signal.raise_signal(signal.SIGTERM)))
    with sigterm_restored():
        result = run("sweep", "digits", "--algebras", "R,C", *TINY, "--out", tmp_path)
    assert result.exit_code == 130
    assert "the same command continues it" in result.output
    assert [name for name, *_ in started.method_calls] == ["terminate", "wait"]


@pytest.mark.slow
def test_a_sweep_that_is_stopped_stops_its_runs_behind_checkpoints(tmp_path, monkeypatch):
    """The sweep is in this process, its run in another. The sweep gets the signal while it waits for the run."""
    folder = RunFolder(tmp_path / "digits" / "R-steps-100000-seed0")
    deadline = time.monotonic() + 120

    def wait(_):
        if any(row["step"] >= 1 for row in folder.rows()) or time.monotonic() > deadline:
            signal.raise_signal(signal.SIGTERM)
        time.sleep(0.05)

    monkeypatch.setattr(sweeping, "time", SimpleNamespace(sleep=wait))
    with sigterm_restored():
        result = run("sweep", "digits", "--algebras", "R", "--set", "steps=100000", "--out", tmp_path)
    assert result.exit_code == 130
    assert "the same command continues it" in result.output
    assert len(folder.checkpoints()) == 1
    assert "stopped by SIGTERM" in folder.log.read_text()


def test_the_demo_trains_four_networks_and_writes_a_page(tmp_path):
    result = run("demo", "--out", tmp_path, *TINY)
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line for line in result.output.splitlines() if line.split()}
    assert {"R", "C", "H", "M2R"} <= set(rows)
    assert "(100%)" in rows["R"]
    page = tmp_path / "report.html"
    assert str(page) in result.output.replace("\n", "")
    assert page.read_text().startswith("<!doctype html>")
    assert max(map(len, result.output.splitlines()[:-2])) <= 80


def test_a_run_that_diverges_ends_with_one_message(tmp_path):
    settings = ["--set", "optimizer.lr=1e30", "--set", "schedule.warmup=0.0", "--log-steps", "1"]
    result = run("train", "digits", "--width", 0.25, *TINY, *settings, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "training has diverged and was stopped" in text(result)
    assert "Traceback" not in result.output
    assert Path(tmp_path / "run" / "log.txt").exists()
    assert os.path.exists(tmp_path / "run" / "config.json")


def test_from_the_command_to_lightning_are_at_most_five_functions(tmp_path, monkeypatch):
    """docs/contributing/design.md lists these functions."""
    path = []

    def fit(*_, **__):
        source = Path(algebranets.__file__).parent
        path.extend(frame.name for frame in traceback.extract_stack() if Path(frame.filename).is_relative_to(source))
        raise ValueError("far enough")

    monkeypatch.setattr(pl.Trainer, "fit", fit)
    assert "far enough" in text(run("train", "digits", "--accelerator", "cpu", "--out", tmp_path / "run"))
    assert path == ["main", "train", "run_with_bar", "run", "train"]
