"""The commands that train: `train` and `sweep`; and `recipes` and `eval`."""

import errno
import io
import json
import math
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
from rich.console import Console
from typer.testing import CliRunner

import algebranets
from algebranets.lab.cli import app, progress, sweep, terminal
from algebranets.lab.data import idx
from algebranets.lab.recipes import sweep as sweeping
from algebranets.lab.train import RunFolder
from algebranets.lab.train.folder import Evaluated

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
        (["train", "--resume", "nowhere"], "nowhere is not the folder of a run: it does not exist. Give the"),
        (["train", "cifar10", "--data", "."], "cifar10 is not there"),
        (["train", "char-lm", "--data", "mistyped.txt"], "or a text to train on; got mistyped.txt"),
        (["train", "digits", "--width", "-1"], "width must be a positive number"),
        (["train", "digits", "--out", "/dev/null/run"], "Not a directory"),
        (["train", "--resume", "/dev/null"], "is not the folder of a run"),
        (["train", "--resume", "x", "--seed", "7", "--out", "y"], "leave out --seed, --out"),
        (["eval", "nowhere"], "nowhere is not the folder of a run"),
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


def test_a_run_of_other_hardware_says_how_to_choose_this_one(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    folder = shutil.copytree(finished[0], tmp_path / "run")
    (folder / "weights.safetensors").unlink()  # resuming writes it again
    environment = RunFolder(folder).environment()
    environment["hardware"]["accelerator"] = "cuda"
    RunFolder(folder).write_environment(environment)
    result = run("train", "--resume", folder)
    assert result.exit_code == 2
    assert "Choose the hardware with the options, or remove that file." in text(result)
    assert run("train", "--resume", folder, "--accelerator", "cpu").exit_code == 0


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

    def __init__(self, command, stdout, env, **_):
        assert command[:3] == [sys.executable, "-m", "algebranets"]
        result = CliRunner().invoke(app, command[3:], env=env)
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
    """The path in the error is longer than a line of the terminal, and stays whole."""
    data = tmp_path / ("long" * 30)
    data.mkdir()
    result = run("sweep", "cifar10", "--algebras", "R", "--data", data, "--out", tmp_path / "runs")
    assert result.exit_code == 2
    assert "failed: R-seed0: cifar10 is not there" in text(result)
    assert f"or data_batch_1.bin in {data} and" in result.output
    assert f"Its full output is in {tmp_path / 'runs/cifar10/R-seed0/output.txt'}" in text(result)
    assert "algebranets report" not in result.output


def test_the_last_words_of_a_run_are_from_its_last_start(tmp_path, monkeypatch):
    (job,) = sweeping.jobs("digits", ["R"], [1.0], range(1), {"steps": 5}, tmp_path)
    printed = iter([b"an error\n", b""])
    monkeypatch.setattr(sweeping.subprocess, "Popen", lambda *_, stdout, **__: stdout.write(next(printed)))
    job.start()
    assert job.last_words == "an error"
    job.start()
    assert job.last_words == "it printed nothing"


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

    def wait(_):
        (metrics,) = (folder / "metrics.jsonl" for folder in tmp_path.glob("digits/*"))
        metrics.write_text('{"step": 3, "seconds": 7.0}\n')
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(sweeping, "subprocess", SimpleNamespace(Popen=lambda *_, **__: started))
    monkeypatch.setattr(sweeping, "time", SimpleNamespace(sleep=wait))
    with sigterm_restored():
        result = run("sweep", "digits", "--algebras", "R,C", *TINY, "--out", tmp_path)
    assert result.exit_code == 130
    assert "the same command continues it" in result.output
    assert [name for name, *_ in started.method_calls] == ["terminate", "wait"]
    shown = {line.split()[0]: line.split()[1:] for line in result.output.splitlines() if "seed0" in line}
    assert list(shown.values()) == [["stopped", "step", "3", "7"], ["waiting"]]


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_of_a_sweep_cuts_no_name(tmp_path, monkeypatch, columns):
    settings = {"steps": 5, "model.norm": "whitening", "optimizer.lr": 0.00123}
    todo = sweeping.jobs("digits", ["R", "clifford(2,0)"], [1.0, 0.123], range(2), settings, tmp_path)
    todo[0].folder.path.mkdir(parents=True)
    todo[0].process = Mock()
    todo[0].folder.metrics.write_text('{"step": 123456, "seconds": 12.0}\n')
    todo[0].folder.write_evaluated(Evaluated(1000, 4000, 5.0))
    monkeypatch.setattr(terminal, "console", Console(file=io.StringIO(), width=columns))
    terminal.show(sweep._table("digits", todo))
    printed = terminal.console.file.getvalue()
    assert max(map(len, printed.splitlines())) <= columns
    names = "".join(line[: printed.splitlines()[2].index("state")] for line in printed.splitlines()[4:])
    assert "".join(names.split()) == "".join(job.experiment.name for job in todo)
    assert (todo[-1].experiment.name in printed) == (columns == 120)
    assert "1,000 of 4,000 batches, 15 s left" in printed


def test_a_damaged_file_of_a_run_does_not_end_the_display_of_a_sweep(tmp_path):
    (job,) = sweeping.jobs("digits", ["R"], [1.0], range(1), {}, tmp_path)
    job.folder.path.mkdir(parents=True)
    job.folder.metrics.write_text("{\n")
    assert sweep._state(job) == ("waiting", "", "")


@pytest.mark.slow
def test_a_sweep_that_is_stopped_stops_its_runs_after_checkpoints(tmp_path, monkeypatch):
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
    assert path[path.index("train") :] == ["train", "run_with_bar", "run", "train"]  # before it: typer's group


def copied_runs(finished, folder):
    """A folder with two finished runs, an unfinished one and a damaged one, each in the folder of its recipe."""
    for name, value in (("a/R-seed0", 90.0), ("a/R-seed1", 95.5)):
        path = shutil.copytree(finished[0], folder / name)
        result = json.loads((path / "result.json").read_text())
        (path / "result.json").write_text(json.dumps({**result, "value": value}))
    (shutil.copytree(finished[0], folder / "b/stopped") / "result.json").unlink()
    (shutil.copytree(finished[0], folder / "b/damaged") / "result.json").write_text("{")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")  # another program's file
    return folder


@pytest.mark.parametrize("columns", [80, 120])
def test_eval_lists_the_runs_of_a_folder(finished, tmp_path, columns):
    """It marks the best run, says how far the others are, and how to evaluate and continue."""
    runs = copied_runs(finished, tmp_path / "runs")
    result = CliRunner().invoke(app, ["eval", str(runs)], env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in result.output.splitlines() if line.strip()}
    shown = f"{RunFolder(finished[0]).finished().parameters / 1000:#.4g} k"
    assert rows["a/R-seed0"] == f"M2R {shown} 90.00 finished"
    assert rows["a/R-seed1"] == f"M2R {shown} 95.50 finished, best"
    assert rows["b/stopped"] == "M2R stopped, step 4 of 4"
    assert rows["b/damaged"] == "damaged"
    assert rows["run"] == "algebra parameters accuracy state"
    assert f"algebranets eval {runs / 'a/R-seed1'}`" in text(result)
    assert f"algebranets train --resume {runs / 'b/stopped'}`" in text(result)
    assert f"damaged: {runs / 'b/damaged/result.json'}" in text(result)
    table = result.output.partition("run ")[2].partition("Evaluate")[0]
    assert max(map(len, table.partition("damaged:")[0].splitlines())) <= columns


def test_eval_says_which_run_trains_now_and_which_rows_are_damaged(finished, tmp_path):
    for name in ("now", "rows"):
        (shutil.copytree(finished[0], tmp_path / name) / "result.json").unlink()
    damaged = RunFolder(tmp_path / "rows").metrics
    damaged.write_text("{\n")
    with RunFolder(tmp_path / "now").locked():
        result = run("eval", tmp_path)
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in result.output.splitlines() if line.strip()}
    assert rows["now"] == "M2R training, step 4 of 4"
    assert rows["rows"] == "damaged"
    assert f"damaged: {damaged}" in text(result)
    assert "--resume" not in text(result)  # the one trains already, the other cannot


def test_eval_lists_runs_that_cannot_be_read_or_compared(finished, tmp_path):
    """A result of NaN is not the best one."""
    for name, changes in (
        ("a", {"value": math.nan}),
        ("b", {"value": 90.0}),
        ("c", {"value": 80.0}),
        ("d", {"metric": "f1"}),
    ):
        path = shutil.copytree(finished[0], tmp_path / name) / "result.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    config = shutil.copytree(finished[0], tmp_path / "e") / "config.json"
    config.unlink()
    config.mkdir()  # reading it is an error of the operating system
    result = run("eval", tmp_path)
    assert result.exit_code == 0, result.output
    states = {line.split()[0]: line.split()[-1] for line in result.output.splitlines() if line.strip()}
    assert {name: states[name] for name in "abcde"} == {
        "a": "finished", "b": "best", "c": "finished", "d": "damaged", "e": "damaged",
    }  # fmt: skip
    assert f"damaged: the metric in {tmp_path / 'd/result.json'} must be one of accuracy, bpc; got 'f1'" in text(result)
    assert f"damaged: {config}: Is a directory." in text(result)


def test_eval_leaves_out_a_folder_that_may_not_be_read(finished, tmp_path, monkeypatch):
    """Root may read every folder, so the operating system's answer is simulated."""
    closed, stat, iterdir = shutil.copytree(finished[0], tmp_path / "closed"), os.stat, Path.iterdir
    shutil.copytree(finished[0], tmp_path / "open")

    def stat_or_refuse(path, *arguments, **options):
        if not isinstance(path, int) and Path(os.fsdecode(path)).parent == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, *arguments, **options)

    def list_or_refuse(path):
        if path == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return iterdir(path)

    monkeypatch.setattr(os, "stat", stat_or_refuse)
    monkeypatch.setattr(Path, "iterdir", list_or_refuse)
    result = run("eval", tmp_path)
    assert result.exit_code == 0, result.output
    assert f"left out: {closed}: Permission denied." in text(result)
    assert "1 run in" in text(result)


def test_long_names_of_runs_break_between_words(finished, tmp_path):
    name = "demo/clifford(2,0,0)-batch-size-20-evaluations-2-norm-whitening-steps-20-seed0"
    shutil.copytree(finished[0], tmp_path / name)
    result = run("eval", tmp_path)
    table = result.output.rpartition("─")[2].partition("Evaluate")[0]
    lines = [line.split("  ")[0].strip() for line in table.splitlines() if line.strip()]
    assert "".join(lines) == name
    assert len(lines) > 1
    assert max(map(len, table.splitlines())) <= 80
    assert all(line.endswith(("-", "/")) for line in lines[:-1])


def test_a_folder_without_runs_is_an_error(tmp_path):
    for path, why in ((tmp_path, "there are no runs in it"), (tmp_path / "x", "it does not exist")):
        result = run("eval", path)
        assert result.exit_code == 2
        assert "is not the folder of a run" in text(result)
        assert why in text(result)


def test_evaluations_show_their_progress(finished, monkeypatch):
    """In `eval`, in `train` below the bar of the run, and hidden when they are done."""
    seen, update = [], progress.Progress.update

    def recorded(self, bar, **changes):
        update(self, bar, **changes)
        task = self.tasks[bar]
        if task.fields["status"] == "evaluating":
            seen.append((task.completed, task.total, task.visible))

    monkeypatch.setattr(progress.Progress, "update", recorded)
    monkeypatch.setattr(progress, "SHORT_EVALUATION", 0.0)
    assert run("eval", finished[0], "--set", "data.eval_batch_size=90").exit_code == 0
    whole = [(1, 4, True), (2, 4, True), (3, 4, True), (4, 4, True), (4, 4, False)]
    assert seen == whole
    seen.clear()
    settings = [*TINY, "--set", "data.eval_batch_size=90", "--width", 0.125]
    result = run("train", "digits", *settings, "--out", finished[0].parent / "shown")
    assert result.exit_code == 0, result.output
    assert seen == 2 * whole
    assert "evaluating" not in result.output


def test_a_sweep_shows_how_far_an_evaluation_is(tmp_path):
    (job,) = sweeping.jobs("digits", ["R"], [1.0], range(1), {"steps": 5}, tmp_path)
    job.process = Mock()
    job.folder.write_evaluated(Evaluated(10, 40, 5.0))
    cells = [cell for column in sweep._table("digits", [job]).columns for cell in column.cells]
    assert "evaluating" in cells
    assert any("10 of 40 batches, 15 s left" in cell for cell in cells)
    job.folder.write_evaluated(None)
    assert job.folder.evaluated() is None


@pytest.mark.parametrize("when", ["in the evaluation", "before training"])
def test_ctrl_c_leaves_no_bar_and_says_what_to_do(finished, tmp_path, monkeypatch, when):
    """Lightning turns Ctrl-C into exit code 1 where the run does not catch it itself."""
    handler = signal.getsignal(signal.SIGINT)
    hook = "on_validation_start" if when == "in the evaluation" else "on_fit_start"
    monkeypatch.setattr(pl.LightningModule, hook, Mock(side_effect=KeyboardInterrupt))
    if when == "in the evaluation":
        result, said = run("eval", finished[0]), "stopped."
    else:
        result = run("train", "digits", *TINY, "--budget", "60s", "--out", tmp_path / "run")
        said = "stopped before training began; nothing was written."
    assert signal.getsignal(signal.SIGINT) is handler
    assert result.exit_code == 130
    assert text(result) == said
