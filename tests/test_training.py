"""Training runs learn, resume exactly after any stop, and explain damaged files and wrong settings."""

import copy
import csv
import fcntl
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import lightning.pytorch as pl
import pytest
import torch
import torchvision
from lightning.pytorch.callbacks import Callback
from safetensors.torch import load_file, save_file
from torch import nn
from typer.testing import CliRunner

import algebranets
from algebranets import files
from algebranets.algebra import Algebra
from algebranets.lab import data, recipes, train
from algebranets.lab.cli import app
from algebranets.lab.train import (
    Experiment,
    Hardware,
    Optimizer,
    RunFolder,
    Schedule,
    Stopped,
    cuda_graphs,
    environment,
    trainer,
)
from algebranets.lab.train import plan as plans
from algebranets.lab.train.checkpoint_files import digest_of, save_checkpoint
from algebranets.lab.train.compiling import compile_model
from algebranets.lab.train.optimizers import make_optimizer, undecayed
from algebranets.models import load, publish
from boxes import message_in_box, without_spaces
from conftest import thinned

SMALL_TEXT = {
    "data.name": "python-prose", "data.batch_size": 4, "data.length": 16, "data.eval_batch_size": 512,
    "data.eval_length": 16, "evaluations": 3, "steps": 12,
}  # fmt: skip
#: Settings that make each recipe small enough for tests, on built-in data.
SMALL = {
    "digits": {"steps": 12, "evaluations": 3, "data.batch_size": 20},
    "cifar10": {"steps": 2, "data.name": "digits", "data.crop": 6, "data.batch_size": 20, "model.num_blocks": 1},
    "resnet50": {"steps": 2, "data.name": "digits", "data.crop": 8, "data.batch_size": 20},
    "mobilenet_v1": {"steps": 2, "data.name": "digits", "data.crop": 8, "data.batch_size": 20},
    "cifar10-pruned": {
        "steps": 2, "data.name": "digits", "data.crop": 6, "data.batch_size": 20, "model.num_blocks": 1,
        "pruning.every": 1,
    },
    "resnet50-pruned": {
        "steps": 2, "data.name": "digits", "data.crop": 8, "data.batch_size": 20, "pruning.every": 1,
    },
    "transformer_xl": {
        **SMALL_TEXT, "model.num_layers": 2, "model.d_model": 32, "model.num_heads": 2, "model.ff_size": 32,
        "model.window": 16, "data.eval_window": 20, "data.fresh_every": 5,
    },
    "gru": {**SMALL_TEXT, "model.hidden_size": 16, "model.num_readouts": 1},
    "gru-short": {**SMALL_TEXT, "model.hidden_size": 16, "model.num_readouts": 1},
    "char-lm": {**SMALL_TEXT, "model.hidden_size": 16},
    "char-lm-small": {**SMALL_TEXT, "model.hidden_size": 16},
}  # fmt: skip
SMALL |= {f"transformer_xl-{name}": SMALL["transformer_xl"] for name in ("short", "small")}
WIDTHS = {"resnet50": 0.125, "resnet50-pruned": 0.125, "mobilenet_v1": 0.125, "digits": 0.25, "cifar10": 0.25}
WIDTHS["cifar10-pruned"] = WIDTHS["cifar10"]
HARDWARE = Hardware(accelerator="cpu", log_steps=1, checkpoint_steps=3)


def small(recipe: str, algebra: str = "M2R", **settings) -> Experiment:
    if recipe == "pruned":
        return small("digits", algebra, **{"pruning.sparsity": 0.8, "pruning.every": 2, **settings})
    if recipe == "regrown":
        way = {"pruning.schedule": "constant", "pruning.regrow": True, "pruning.criterion": "largest-eigenvalue"}
        return small("pruned", algebra, **way, **{"pruning.scope": "global"}, **settings)
    return recipes.create(recipe, algebra, WIDTHS.get(recipe, 1.0), settings={**SMALL[recipe], **settings})


def rows(folder: Path) -> list[dict]:
    """Return a run's metrics without times."""
    return [{k: v for k, v in row.items() if "second" not in k} for row in RunFolder(folder).rows()]


class Crash(Exception):  # noqa: N818
    """Simulates a kill."""


class CrashAt(Callback):
    """Crash after one step without saving anything, as a kill does."""

    def __init__(self, step):
        self.step = step

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.step:
            raise Crash


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Return uninterrupted runs by recipe. Each is trained once."""
    made = {}

    def get(recipe):
        if recipe not in made:
            made[recipe] = tmp_path_factory.mktemp("unbroken") / recipe
            train.run(small(recipe), made[recipe], HARDWARE)
        return made[recipe]

    return get


def test_a_run_learns(tmp_path):
    """Digits reach 75 % accuracy after four epochs. Text needs fewer than 6 bits per character; a guess needs 8."""
    cpu = Hardware(accelerator="cpu")
    settings = {"epochs": 4, "evaluations": 1}
    images = train.run(recipes.create("digits", "M2R", 0.5, settings=settings), tmp_path / "a", cpu)
    assert images.value > 75
    settings = {"steps": 60, "evaluations": 1, "model.hidden_size": 64, "data.length": 32, "data.eval_batch_size": 512}
    text = train.run(recipes.create("char-lm", "M2R", settings=settings), tmp_path / "b", cpu)
    assert text.value < 6


#: Before any checkpoint, at an evaluation, at a checkpoint without an evaluation, and once for each kind of state.
CRASHES_OFTEN = [("digits", step) for step in (1, 4, 9)]
CRASHES_OFTEN += [("char-lm", 8), ("transformer_xl", 11), ("pruned", 5), ("regrown", 8)]
#: Also between checkpoints and after the last step, and each kind of state at another step.
CRASHES = [*CRASHES_OFTEN, ("digits", 5), ("digits", 12)]
CRASHES += [("char-lm", 5), ("transformer_xl", 8), ("pruned", 11), ("regrown", 5)]


@pytest.mark.parametrize(("recipe", "step"), thinned(CRASHES, lambda *crash: crash in CRASHES_OFTEN))
def test_a_run_that_crashed_anywhere_goes_on_as_if_nothing_had_happened(recipe, step, tmp_path, unbroken):
    """Checkpoints are at steps 3, 4, 6, 8, 9 and 12, evaluations at 4, 8 and 12.

    The recipes have running statistics, carried state and masks to restore.
    """
    with pytest.raises(Crash):
        train.run(small(recipe), tmp_path, HARDWARE, [CrashAt(step)])
    assert not (tmp_path / "result.json").exists()
    result = train.resume(tmp_path)
    assert rows(tmp_path) == rows(unbroken(recipe))
    assert result.value == RunFolder(unbroken(recipe)).finished().value
    mine, theirs = (load_file(folder / "weights.safetensors") for folder in (tmp_path, unbroken(recipe)))
    for name, value in mine.items():
        torch.testing.assert_close(value, theirs[name], rtol=0, atol=0)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "algebranets", *arguments]


def start(*arguments: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)


def wait_for(folder: Path, step: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if any(row["step"] >= step for row in RunFolder(folder).rows()):
            return
        time.sleep(0.01)
    raise AssertionError(f"step {step} was not reached: {process.communicate()[0].decode()[-2000:]}")


@pytest.mark.slow
def test_a_run_killed_again_and_again_computes_the_same(tmp_path, unbroken):
    """Send SIGKILL at some steps, also to the resumed run, then finish the run with the command in this process."""
    arguments = [f"--set={name}={value}" for name, value in SMALL["digits"].items()]
    hardware = ["--accelerator", "cpu", "--log-steps", "1", "--checkpoint-steps", "2"]
    hardware += ["--threads", str(torch.get_num_threads())]  # as many as the run that it is compared with
    begin = ["train", "digits", "--algebra", "M2R", "--width", "0.25", *arguments, "--out", str(tmp_path / "run")]
    for number, step in enumerate((3, 10)):
        process = start(*(begin if number == 0 else ["train", "--resume", str(tmp_path / "run")]), *hardware)
        wait_for(tmp_path / "run", step, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.returncode == -signal.SIGKILL
        assert not (tmp_path / "run" / "result.json").exists()
    finished = CliRunner().invoke(app, ["train", "--resume", str(tmp_path / "run"), *hardware])
    assert finished.exit_code == 0, finished.output[-2000:]
    assert rows(tmp_path / "run") == rows(unbroken("digits"))
    assert "goes on at step" in (tmp_path / "run" / "log.txt").read_text()


@contextmanager
def torch_has(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_a_run_rounds_the_same_whatever_ran_before_it_in_the_process(tmp_path, unbroken):
    """On a CPU without bf16, torch turns oneDNN off for the whole process at the first bf16 product."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        train.run(small("digits"), tmp_path / "run", HARDWARE)
        assert not torch.backends.mkldnn.enabled
    finally:
        torch.backends.mkldnn.enabled = before
    assert rows(tmp_path / "run") == rows(unbroken("digits"))


class Threads(Callback):
    """Records torch's number of threads in training and evaluation."""

    def __init__(self):
        self.seen = set()

    def on_train_batch_start(self, *_):
        self.seen.add(torch.get_num_threads())

    def on_validation_batch_start(self, *_):
        self.seen.add(torch.get_num_threads())


@pytest.mark.parametrize("again", ["resumed", "the same command"])
def test_a_run_goes_on_with_as_many_threads_as_it_began_with(again, tmp_path):
    """The rounding of sums depends on the number of threads among which they are split."""
    with torch_has(3):
        train.run(small("digits"), tmp_path / "unbroken", HARDWARE)
        with pytest.raises(Crash):
            train.run(small("digits"), tmp_path / "run", HARDWARE, [CrashAt(5)])
    threads = Threads()
    with torch_has(1):
        if again == "resumed":
            train.resume(tmp_path / "run", callbacks=[threads])
        else:
            train.run(small("digits"), tmp_path / "run", HARDWARE, [threads])
    assert threads.seen == {3}
    assert rows(tmp_path / "run") == rows(tmp_path / "unbroken")
    assert RunFolder(tmp_path / "run").environment()["hardware"]["threads"] == 3


def test_a_run_takes_as_many_threads_as_it_is_told(tmp_path):
    """The number replaces an earlier one, and applies only during the run."""
    for number in (2, 3):
        threads = Threads()
        with torch_has(1), pytest.raises(Crash):
            train.run(small("digits"), tmp_path, replace(HARDWARE, threads=number), [threads, CrashAt(3 + number)])
        assert threads.seen == {number}


def test_the_threads_of_one_process_are_not_those_of_each_of_two(monkeypatch):
    """Two processes share the threads of one, unless OMP_NUM_THREADS sets the number for each."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with torch_has(4):
        with Hardware(accelerator="cpu", devices=2).fixed_rounding() as hardware:
            assert hardware.threads == torch.get_num_threads() == 2
        monkeypatch.setenv("OMP_NUM_THREADS", "4")
        with Hardware(accelerator="cpu", devices=2).fixed_rounding() as hardware:
            assert hardware.threads == 4


def test_threads_that_come_and_go_are_refused(tmp_path, unbroken, monkeypatch):
    """With OMP_DYNAMIC, beside other programs, torch 2.15 without MKL gives NaN and torch 2.13 with OpenBLAS hangs."""
    folder = unbroken("digits")
    monkeypatch.setenv("OMP_DYNAMIC", " TRUE")
    with pytest.raises(ValueError, match=r"OMP_DYNAMIC must not be true: .* Unset it"):
        train.run(small("digits"), tmp_path / "run", HARDWARE)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="OMP_DYNAMIC must not be true"):
        train.evaluate(folder)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_asked_to_stop_checkpoints_first(number, tmp_path):
    class Ask(Callback):
        def on_train_batch_start(self, trainer, *_):
            if trainer.global_step == 4:
                os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with pytest.raises(Stopped, match=f"stopped by {number.name} at step 5"):
        train.run(small("digits"), tmp_path, Hardware(accelerator="cpu"), [Ask()])
    assert signal.getsignal(number) == before
    assert [path.stem for path in RunFolder(tmp_path).checkpoints()] == ["step-000000004", "step-000000005"]
    assert train.resume(tmp_path).steps == 12


def test_a_stop_does_not_wait_for_an_evaluation(tmp_path, unbroken):
    """The run stops in the first batch of the evaluation. The resumed run makes up for the missed evaluation."""
    seen = []

    class Ask(Callback):
        def on_validation_batch_start(self, trainer, *_):
            if trainer.global_step == 8:
                os.kill(os.getpid(), signal.SIGTERM)
                seen.append(trainer.global_step)

    with pytest.raises(Stopped, match="stopped by SIGTERM at step 8"):
        train.run(small("char-lm"), tmp_path, HARDWARE, [Ask()])
    assert seen == [8]
    train.resume(tmp_path)
    assert rows(tmp_path) == rows(unbroken("char-lm"))


def test_a_stop_while_a_missed_evaluation_is_made_up_for_is_a_stop(tmp_path, unbroken):
    class Ask(Callback):
        def on_validation_batch_start(self, *_):
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    for _ in range(2):  # first in training, then while the missed evaluation is made up for
        with pytest.raises(Stopped, match="stopped by SIGTERM at step 4, after a checkpoint"):
            train.run(small("char-lm"), tmp_path, HARDWARE, [Ask()])
    assert signal.getsignal(signal.SIGTERM) == before
    train.resume(tmp_path)
    assert rows(tmp_path) == rows(unbroken("char-lm"))


def test_what_lies_around_does_not_keep_a_run_from_going_on(tmp_path, unbroken, caplog):
    """The folder has a digest that is not text, half-written files, and a user's own copy of a checkpoint."""
    with pytest.raises(Crash):
        train.run(small("digits"), tmp_path, HARDWARE, [CrashAt(7)])
    _, newer = RunFolder(tmp_path).checkpoints()
    digest_of(newer).write_bytes(b"\xff\xfe" * 32)
    (tmp_path / "checkpoints" / "step-000000007.ckpt.1.partial").write_bytes(b"half")
    (tmp_path / "environment.json.1.partial").write_bytes(b"half")
    mine = tmp_path / "checkpoints" / "step-best.ckpt"
    mine.write_bytes(b"mine")
    train.resume(tmp_path)
    assert f"checkpoint {newer} is broken" in caplog.text
    assert rows(tmp_path) == rows(unbroken("digits"))
    assert mine.exists()
    assert not list(tmp_path.rglob("*.partial"))


def test_a_damaged_file_of_a_run_is_named(tmp_path):
    with pytest.raises(Crash):
        train.run(small("digits"), tmp_path, HARDWARE, [CrashAt(7)])
    metrics = tmp_path / "metrics.jsonl"
    whole = metrics.read_bytes()
    metrics.write_bytes(b"\0" * 50 + b"\n" + whole)
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 1, is no JSON .* Remove it to go on"):
        train.resume(tmp_path)
    metrics.write_bytes(whole)
    (tmp_path / "environment.json").write_text("")
    with pytest.raises(ValueError, match=r"environment\.json is no JSON"):
        train.resume(tmp_path)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"config\.json is no JSON .* must be as `algebranets train` wrote it"):
        train.resume(tmp_path)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """A run that was killed after step 7, with checkpoints of steps 4 and 6."""
    folder = tmp_path_factory.mktemp("crashed") / "run"
    with pytest.raises(Crash):
        train.run(small("digits"), folder, HARDWARE, [CrashAt(7)])
    return folder


def edit(name, *path, to):
    """Return a function that changes one value in a JSON file of a run's folder. ``to="del"`` removes the value."""

    def change(folder):
        saved = json.loads((folder / name).read_text())
        inner = saved
        for key in path[:-1]:
            inner = inner[key]
        if to == "del":
            del inner[path[-1]]
        else:
            inner[path[-1]] = to
        (folder / name).write_text(json.dumps(saved))

    return change


def put(name, text):
    return lambda folder: (folder / name).write_text(text)


NESTED = 100_000 * "[" + 100_000 * "]"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit("config.json", "steps", to=12.0), "config.json is no experiment: steps must be a whole number; got 12.0"),
        (edit("config.json", "steps", to=10**400), "steps must lie between -2^63 and 2^63"),
        (edit("config.json", "steps", to=10**9), "steps must lie between 0 and 999999999"),
        (edit("config.json", "seed", to="one"), "seed must be a whole number"),
        (edit("config.json", "speed", to=1), "an experiment has no option 'speed'. Did you mean 'seed'? It takes"),
        (edit("config.json", "optimizer", to="del"), "must have the option 'optimizer'; it is missing"),
        (edit("config.json", "optimizer", to=[]), "optimizer must be settings by name; got []"),
        (edit("config.json", "optimizer", "name", to="lion"), "optimizer.name must be one of"),
        (edit("config.json", "optimizer", "name", to=[]), "optimizer.name must be text; got []"),
        (edit("config.json", "optimizer", "lr", to=float("inf")), "optimizer.lr must lie between"),
        (edit("config.json", "schedule", "milestones", to=[[]]), "schedule.milestones must be a number; got []"),
        (edit("config.json", "data", to=5), "data must be settings by name; got 5"),
        (edit("config.json", "data", "flip", to=1), "data.flip must be True or False; got 1"),
        (edit("config.json", "model", "name", to=5), "model.name must be one of"),
        (edit("config.json", "model", "name", to="del"), "model.name must be one of"),
        (edit("config.json", "model", to=[]), "model must be settings by name; got []"),
        (edit("config.json", "algebra", to="M2Q"), "unknown algebra"),
        (edit("config.json", "algebra", to=5), "a multiplication table must be text, a list of rows or a dict"),
        (edit("config.json", "algebra", to="del"), "must have the option 'algebra'; it is missing"),
        (edit("config.json", "algebra", to={"components": ["a"], "terms": 3}), "config.json is no experiment: 'terms'"),
        (edit("config.json", "changes", to=[]), "changes must be settings by name; got []"),
        (put("config.json", "[]"), "an experiment must be settings by name; got []"),
        (put("config.json", NESTED), "config.json is no JSON"),
        (
            edit("config.json", "optimizer", "name", to="adam"),
            "step-000000006.ckpt was made with optimizer.name='sgd', ",
        ),
        (edit("config.json", "optimizer", "lr", to=0.06), "made with optimizer.lr=0.05, and"),
        (edit("config.json", "model", "norm", to="whitening"), "step-000000006.ckpt is no checkpoint of this run"),
        (put("environment.json", "[]"), "environment.json must hold facts by name"),
        (put("environment.json", NESTED), "environment.json is no JSON"),
        (edit("environment.json", "hardware", to=[]), "environment.json must hold facts by name"),
        (edit("environment.json", "command", to=None), "environment.json must hold facts by name"),
        (edit("environment.json", "hardware", "threads", to="two"), "threads must be a whole number; got 'two'"),
        (edit("environment.json", "hardware", "loggers", to=5), "loggers must be several words; got 5"),
        (edit("environment.json", "hardware", "checkpoint_minutes", to=float("nan")), "checkpoint_minutes must lie"),
        (
            put("metrics.jsonl", '{"seconds": 1}\n'),
            "metrics.jsonl, line 1, must hold numbers by name, step and seconds",
        ),
        (put("metrics.jsonl", '{"step": "1", "seconds": 1}\n'), "metrics.jsonl, line 1, must hold numbers"),
        (put("metrics.jsonl", '{"step": 1, "seconds": 1, "loss": null}\n'), "metrics.jsonl, line 1, must hold numbers"),
        (put("metrics.jsonl", "[]\n"), "metrics.jsonl, line 1, must hold numbers"),
        (put("metrics.jsonl", NESTED + "\n"), "metrics.jsonl, line 1, is no JSON"),
    ],
)
def test_an_edited_file_of_a_run_is_named_and_what_is_wrong_with_it(change, message, tmp_path, crashed):
    folder = shutil.copytree(crashed, tmp_path / "run")
    change(folder)
    with pytest.raises(ValueError, match=r".*") as error:
        train.resume(folder)
    assert message in str(error.value)
    assert str(folder) in str(error.value)


def test_metrics_without_an_evaluation_are_measured_again(tmp_path, unbroken):
    """A person may have deleted rows of the metrics, or numbers in a row."""
    folder = shutil.copytree(unbroken("digits"), tmp_path / "run")
    whole = rows(folder)
    (folder / "result.json").unlink()
    kept = [{k: v for k, v in row.items() if k != "accuracy"} for row in RunFolder(folder).rows()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    assert train.resume(folder).value == whole[-1]["accuracy"]


@pytest.mark.parametrize(
    "foreign",
    [
        lambda _: [1, 2],
        lambda _: {"weights": torch.ones(3)},
        lambda state: {**state, "state_dict": {}},
        lambda state: {**state, "state_dict": {k: v[..., None] for k, v in state["state_dict"].items()}},
        lambda state: {**state, "optimizer_states": []},
        lambda state: {**state, "optimizer_states": [{"state": {}, "param_groups": []}]},
        lambda state: {**state, "loops": {}},
        lambda state: {**state, "loops": 3},
        lambda state: {**state, "global_step": "six", "loops": None},
        lambda state: {**state, "lr_schedulers": [{"last_epoch": 3}, 4]},
        lambda state: {**state, "lr_schedulers": []},
        lambda state: {**state, "callbacks": 7},
        lambda state: {**state, "pytorch-lightning_version": None},
        lambda state: {**state, "experiment": 5},
        lambda state: {**state, "experiment": "{"},
    ],
)
def test_a_checkpoint_with_foreign_content_is_named(foreign, tmp_path, crashed):
    """The checkpoint is refused for its content, although its digest is right."""
    folder = shutil.copytree(crashed, tmp_path / "run")
    newest = RunFolder(folder).checkpoints()[-1]
    save_checkpoint(foreign(torch.load(newest, weights_only=True)), newest)
    with pytest.raises(ValueError, match=r"is no checkpoint of this run \(.*\)\. Remove it to go on") as error:
        train.resume(folder)
    assert str(newest) in str(error.value)


def test_without_its_newest_checkpoint_a_run_goes_on_from_the_one_before(tmp_path, crashed, unbroken):
    """The run resumes from the older checkpoint after the newest one was refused for its content and removed."""
    folder = shutil.copytree(crashed, tmp_path / "run")
    newest = RunFolder(folder).checkpoints()[-1]
    save_checkpoint({"weights": torch.ones(3)}, newest)
    with pytest.raises(ValueError, match="Remove it to go on"):
        train.resume(folder)
    newest.unlink()
    train.resume(folder)
    assert rows(folder) == rows(unbroken("digits"))


def test_a_last_checkpoint_with_foreign_content_is_named(tmp_path, unbroken):
    folder = shutil.copytree(unbroken("digits"), tmp_path / "run")
    (folder / "weights.safetensors").unlink()
    last = RunFolder(folder).checkpoints()[-1]
    state = torch.load(last, weights_only=True)
    for foreign in ({**state, "state_dict": {}}, {**state, "state_dict": 3}, 3):
        save_checkpoint(foreign, last)
        with pytest.raises(ValueError, match=r"step-000000012\.ckpt is no checkpoint of this run"):
            train.resume(folder)


def test_weights_that_are_missing_are_made_from_the_last_checkpoint(tmp_path, unbroken):
    """The result is not written again, since nothing is trained."""
    folder = shutil.copytree(unbroken("pruned"), tmp_path / "run")
    before, written = (folder / "weights.safetensors").read_bytes(), (folder / "result.json").stat().st_mtime_ns
    (folder / "weights.safetensors").unlink()
    assert RunFolder(folder).finished() is None
    with pytest.raises(ValueError, match="is not finished: continue it with `algebranets train --resume"):
        train.evaluate(folder)
    result = train.resume(folder, callbacks=[CrashAt(12)])
    assert result == RunFolder(folder).finished()
    assert (folder / "weights.safetensors").read_bytes() == before
    assert (folder / "result.json").stat().st_mtime_ns == written
    assert train.evaluate(folder)["accuracy"] == pytest.approx(result.value)


def test_without_weights_and_checkpoints_a_finished_run_cannot_go_on(tmp_path, unbroken):
    """With an earlier checkpoint, it trains from there. Without any, it explains what is missing and does not train."""
    folder = shutil.copytree(unbroken("digits"), tmp_path / "run")
    before = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").unlink()
    RunFolder(folder).checkpoints()[-1].unlink()
    assert train.resume(folder).value == RunFolder(unbroken("digits")).finished().value
    assert (folder / "weights.safetensors").read_bytes() == before
    (folder / "weights.safetensors").unlink()
    for path in RunFolder(folder).checkpoints():
        path.unlink()
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"weights\.safetensors is missing, .* Remove result\.json to train it again"
        ):
            train.resume(folder)
    (folder / "result.json").unlink()
    train.resume(folder)
    assert rows(folder) == rows(unbroken("digits"))


def test_weights_with_a_deeply_nested_description_are_refused(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "weights.safetensors", {"algebranets": NESTED})
    with pytest.raises(ValueError, match=r"weights\.safetensors is not a file of algebranets' weights"):
        load(tmp_path)


def test_files_have_the_mode_that_the_umask_gives(tmp_path):
    """This includes files that a library would make readable for their owner only."""
    before = os.umask(0o027)
    try:
        train.run(small("digits"), tmp_path / "run", HARDWARE)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert "weights.safetensors" in modes
    assert modes == dict.fromkeys(modes, 0o640)


@contextmanager
def small_disk(limit):
    """Limit the size of files to ``limit`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_cannot_be_written_is_named_and_not_left_behind(tmp_path):
    """The error is an OSError with the file's name, whatever the library that writes the file raises."""
    model = small("digits").build()
    for name, write in {
        "step.ckpt": lambda path: save_checkpoint({"state_dict": model.state_dict()}, path),
        "weights.safetensors": lambda path: publish(model, "cifar_resnet", algebranets.M2R, {}, path),
        "config.json": lambda path: files.write(path, 5000 * "x"),
        "metrics.jsonl": lambda path: files.append(path, 5000 * "x"),
    }.items():
        path = tmp_path / name
        with small_disk(1000), pytest.raises(OSError, match="File too large") as error:
            write(path)
        assert error.value.filename == str(path)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_where_the_disk_is_full_there_is_one_message(tmp_path):
    arguments = [f"--set={name}={value}" for name, value in SMALL["digits"].items()]
    line = ["train", "digits", "--width", "0.25", "--accelerator", "cpu", *arguments, "--out", str(tmp_path / "run")]
    with small_disk(20_000):
        done = CliRunner().invoke(app, line)
    assert done.exit_code == 2, done.output
    checkpoint = tmp_path / "run" / "checkpoints" / "step-000000004.ckpt"
    assert without_spaces(message_in_box(done.stderr)) == without_spaces(f"{checkpoint}: File too large.")
    assert "Traceback" not in done.output
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no file that is always full")
def test_a_log_that_cannot_be_written_is_no_second_error(tmp_path, capfd):
    (tmp_path / "log.txt").symlink_to("/dev/full")
    with pytest.raises(ValueError, match="diverged"):
        train.run(small("digits", **{"optimizer.lr": 1e30, "schedule.warmup": 0.0}), tmp_path, HARDWARE)
    assert "Logging error" not in capfd.readouterr().err


def test_a_result_tells_the_command_that_began_the_run(tmp_path, monkeypatch):
    for arguments in (["train", "digits"], ["train", "--resume", "run"]):
        monkeypatch.setattr(sys, "argv", ["algebranets", *arguments])
        if arguments[1] == "digits":
            with pytest.raises(Crash):
                train.run(small("digits"), tmp_path, HARDWARE, [CrashAt(7)])
    assert train.resume(tmp_path).command == "algebranets train digits"


def test_the_commit_is_not_that_of_a_repository_around_an_installed_copy(tmp_path, monkeypatch):
    """The package may be installed in a virtual environment inside another project."""
    for arguments in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "c", "--allow-empty"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    copied = tmp_path / "environment.py"
    copied.write_text("")
    monkeypatch.setattr(environment, "__file__", str(copied))
    assert environment.commit() == "unknown"
    subprocess.run(["git", "-C", str(tmp_path), "add", "environment.py"], check=True)
    assert environment.commit().endswith("-dirty")


def test_a_broken_checkpoint_falls_back_to_the_one_before(tmp_path, unbroken, caplog):
    with pytest.raises(Crash):
        train.run(small("digits"), tmp_path, HARDWARE, [CrashAt(7)])
    older, newer = RunFolder(tmp_path).checkpoints()
    content = bytearray(newer.read_bytes())
    content[len(content) // 2] ^= 1  # one bit, in the middle of some weight
    newer.write_bytes(content)
    train.resume(tmp_path)
    assert f"checkpoint {newer} is broken (its SHA-256 should be" in caplog.text
    assert "goes on at step 4" in (tmp_path / "log.txt").read_text()
    assert rows(tmp_path) == rows(unbroken("digits"))
    assert older.exists() is False  # two newer ones have been made since


@pytest.mark.parametrize("damage", ["truncated", "empty", "no digest"])
def test_without_a_whole_checkpoint_a_run_begins_anew(damage, tmp_path, unbroken, caplog):
    with pytest.raises(Crash):
        train.run(small("digits"), tmp_path, HARDWARE, [CrashAt(3)])
    (only,) = RunFolder(tmp_path).checkpoints()
    if damage == "no digest":
        digest_of(only).unlink()
    else:
        only.write_bytes(only.read_bytes()[:1000] if damage == "truncated" else b"")
    train.resume(tmp_path)
    assert "are damaged; training starts from the beginning" in caplog.text
    assert rows(tmp_path) == rows(unbroken("digits"))


def test_broken_checkpoints_do_not_push_out_the_whole_ones_made_since(tmp_path, caplog):
    """Both checkpoints are broken. The run starts again and stops after its first checkpoint, at an earlier step."""
    with pytest.raises(Crash):
        train.run(small("digits"), tmp_path, HARDWARE, [CrashAt(7)])
    for path in RunFolder(tmp_path).checkpoints():
        path.write_bytes(b"")
    with pytest.raises(Crash):
        train.run(small("digits"), tmp_path, HARDWARE, [CrashAt(3)])
    assert caplog.text.count("is broken") == 2
    train.resume(tmp_path)
    assert "goes on at step 3" in (tmp_path / "log.txt").read_text()


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "executed",))

    with pytest.raises(Crash):
        train.run(small("digits"), tmp_path, HARDWARE, [CrashAt(3)])
    (only,) = RunFolder(tmp_path).checkpoints()
    state = torch.load(only, weights_only=True)
    state["evil"] = Evil()
    save_checkpoint(state, only)
    with pytest.raises(Exception, match=r"(?i)weights.only"):
        train.resume(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_only_the_two_newest_checkpoints_are_kept_and_nothing_half_written(tmp_path):
    train.run(small("digits"), tmp_path, HARDWARE)
    assert [path.stem for path in RunFolder(tmp_path).checkpoints()] == ["step-000000009", "step-000000012"]
    names = sorted(path.name for path in tmp_path.iterdir())
    done = ["metrics.jsonl", "result.json", "weights.safetensors"]
    assert names == [".lock", "checkpoints", "config.json", "environment.json", "log.txt", *done]
    assert not list(tmp_path.rglob("*.partial"))


def test_a_loss_that_is_no_number_stops_the_run_and_is_not_checkpointed(tmp_path):
    experiment = small("digits", **{"optimizer.lr": 1e30, "schedule.warmup": 0.0})
    with pytest.raises(ValueError, match=r"training has diverged and was stopped.*smaller optimizer\.lr"):
        train.run(experiment, tmp_path, HARDWARE)
    assert RunFolder(tmp_path).checkpoints() == []
    assert "diverged" in (tmp_path / "log.txt").read_text()


def test_weights_that_are_no_numbers_are_not_checkpointed(tmp_path):
    class Spoil(Callback):
        def on_before_zero_grad(self, trainer, task, *_):
            if trainer.global_step == 2:
                next(iter(task.parameters())).data.fill_(float("nan"))

    with pytest.raises(ValueError, match="diverged"):
        train.run(small("digits"), tmp_path, replace(HARDWARE, log_steps=1000, checkpoint_steps=2), [Spoil()])
    assert [path.stem for path in RunFolder(tmp_path).checkpoints()] == ["step-000000002"]  # the one before the NaN


def test_a_finished_run_is_not_run_again_and_evaluates_to_what_it_recorded(unbroken):
    folder = unbroken("digits")
    before = (folder / "result.json").stat().st_mtime_ns
    result = train.run(small("digits"), folder, HARDWARE, [CrashAt(1)])
    assert (folder / "result.json").stat().st_mtime_ns == before
    measured = train.evaluate(folder)
    assert measured["accuracy"] == pytest.approx(result.value)
    assert train.evaluate(unbroken("transformer_xl"))["bpc"] == pytest.approx(
        RunFolder(unbroken("transformer_xl")).finished().value
    )


def test_a_folder_holds_one_experiment(unbroken):
    with pytest.raises(ValueError, match="holds another experiment"):
        train.run(small("digits", **{"optimizer.lr": 0.07}), unbroken("digits"), HARDWARE)
    with pytest.raises(ValueError, match="is not the folder of a run"):
        train.resume(unbroken("digits") / "checkpoints")


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    class Second(Callback):
        def on_train_start(self, *_):
            train.run(small("digits"), tmp_path, HARDWARE)

    with pytest.raises(ValueError, match="another process is training in"):
        train.run(small("digits"), tmp_path, HARDWARE, [Second()])


def test_a_process_that_only_looks_does_not_keep_another_from_training(tmp_path, monkeypatch):
    """`is_locked` takes the lock for a moment. A run that starts just then tries again."""
    with (tmp_path / ".lock").open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr(train.folder, "time", SimpleNamespace(sleep=lambda _: fcntl.flock(looking, fcntl.LOCK_UN)))
        with RunFolder(tmp_path).locked():
            assert RunFolder(tmp_path).is_locked()
    assert not RunFolder(tmp_path).is_locked()


def test_an_algebra_from_a_file_goes_with_its_run(tmp_path):
    table = tmp_path / "split.toml"
    table.write_text('table = [["a", "b"], ["b", "a"]]')
    with pytest.raises(Crash):
        train.run(small("digits", str(table)), tmp_path / "run", HARDWARE, [CrashAt(5)])
    table.unlink()
    assert train.resume(tmp_path / "run").algebra == "split"


def test_an_algebra_from_a_file_is_the_one_the_file_held_when_the_run_began(tmp_path):
    table = tmp_path / "pair.toml"
    table.write_text('table = [["a", "b"], ["b", "a"]]')
    experiment = small("digits", str(table), steps=3)
    with pytest.raises(Crash):
        train.run(experiment, tmp_path / "run", HARDWARE, [CrashAt(2)])
    table.write_text('table = [["a", "b"], ["b", "-a"]]')
    train.resume(tmp_path / "run")
    assert load(tmp_path / "run").algebra == experiment.algebra
    assert experiment.algebra.products[1, 1] == {0: 1}
    with pytest.raises(ValueError, match="holds another experiment"):
        train.run(small("digits", str(table), steps=3), tmp_path / "run", HARDWARE)


def test_a_table_that_an_older_run_left_does_not_win(tmp_path):
    """Older versions kept the table in algebra.json. The older run was killed before it wrote its config.json."""
    (tmp_path / "algebra.json").write_text('{"name": "left", "components": ["a"], "table": [["a"]]}')
    train.run(small("digits", "C", steps=1), tmp_path, HARDWARE)
    assert RunFolder(tmp_path).experiment().algebra == "C"
    assert load(tmp_path).algebra == algebranets.C


def test_an_older_run_goes_on_with_the_table_in_its_folder(tmp_path):
    pair = {"name": "pair", "components": ["a", "b"], "table": [["a", "b"], ["b", "a"]]}
    (tmp_path / "pair.json").write_text(json.dumps(pair))
    with pytest.raises(Crash):
        train.run(small("digits", str(tmp_path / "pair.json"), steps=3), tmp_path / "run", HARDWARE, [CrashAt(2)])
    (tmp_path / "pair.json").rename(tmp_path / "run" / "algebra.json")
    edit("config.json", "algebra", to=str(tmp_path / "pair.json"))(tmp_path / "run")
    train.resume(tmp_path / "run")
    assert load(tmp_path / "run").algebra == Algebra.from_table(pair)


@pytest.mark.slow
def test_losses_on_two_processes_are_those_of_one(tmp_path):
    """With --devices 2, each rank has half of each batch, and statistics of batch norm are taken over both ranks.

    After step 9, rounding changes the loss by 1e-4, as another number of threads does. Whitening on two ranks is in
    test_distributed.py.
    """
    settings = {**SMALL["digits"], "model.norm": "batch"}
    folders = [tmp_path / "one", tmp_path / "two"]
    train.run(recipes.create("digits", "C", 0.25, settings=settings), folders[0], replace(HARDWARE, checkpoint_steps=0))
    arguments = ["train", "digits", "--algebra", "C", "--width", "0.25", "--accelerator", "cpu", "--log-steps", "1"]
    arguments += [*(f"--set={name}={value}" for name, value in settings.items()), "--devices", "2"]
    done = subprocess.run(command(*arguments, "--out", str(folders[1])), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for one, two in zip(*map(rows, folders), strict=True):
        if one["step"] <= 8:
            assert one == pytest.approx(two, rel=1e-4, abs=1e-5)
    assert [row["step"] for row in rows(folders[0]) if "loss" in row] == [4, 8, 12]


@pytest.mark.slow
def test_a_text_run_goes_on_with_another_number_of_processes(tmp_path, unbroken):
    """The carried state is saved for all rows of the batch. torchrun starts the two processes."""
    with pytest.raises(Crash):
        train.run(small("char-lm"), tmp_path, HARDWARE, [CrashAt(7)])
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    arguments = ["-m", "algebranets", "train", "--resume", str(tmp_path)]
    done = subprocess.run([*launcher, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for one, two in zip(rows(tmp_path), rows(unbroken("char-lm")), strict=True):
        assert one == pytest.approx(two, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimiser.lr": 0.1}, "there is no setting 'optimiser.lr'. Did you mean 'optimizer.lr'?"),
        ({"lr": 0.1}, "there is no setting 'lr'. Did you mean 'optimizer.lr'?"),
        ({"optimizer.lr": "fast"}, "optimizer.lr must be a number; got 'fast'"),
        ({"optimizer.lr": -1.0}, "optimizer.lr must lie between 0 and 1e+30; got -1.0"),
        ({"optimizer.lr": 1e38}, "optimizer.lr must lie between 0 and 1e+30; got 1e+38"),
        ({"optimizer.lr": math.inf}, "optimizer.lr must lie between 0 and 1e+30; got inf"),
        ({"optimizer.lr": math.nan}, "optimizer.lr must lie between 0 and 1e+30; got nan"),
        ({"optimizer.weight_decay": 1e39}, "optimizer.weight_decay must lie between 0 and 1000000.0; got 1e+39"),
        ({"optimizer.momentum": 1e39}, "optimizer.momentum must lie between 0 and 1; got 1e+39"),
        ({"optimizer.betas": (0.9, 1 - 1e-12)}, "optimizer.betas must be two numbers between 0 and 0.999999"),
        ({"schedule.final": 1e300}, "schedule.final must lie between 0 and 1; got 1e+300"),
        ({"schedule.factor": 1e300}, "schedule.factor must lie between 0 and 1; got 1e+300"),
        ({"schedule.milestones": (0.5, math.nan)}, "schedule.milestones must lie between 0 and 1; got nan"),
        ({"steps": 10**9}, "steps must lie between 0 and 999999999; got 1000000000"),
        ({"evaluations": 2**63}, "evaluations must lie between -2^63 and 2^63"),
        ({"data.workers": 10**6}, "data.workers must lie between 0 and 1024; got 1000000"),
        ({"model.name": 5}, "model.name must be one of resnet18"),
        ({"model.name": []}, "model.name must be one of resnet18"),
        ({"model.name": "cifar_resnets"}, "Did you mean 'cifar_resnet'?"),
        ({"optimizer.nesterov": 1}, "optimizer.nesterov must be True or False; got 1"),
        ({"schedule.milestones": 0.5}, "schedule.milestones must be several numbers, as in (0.5, 0.9); got 0.5"),
        ({"schedule.milestones": ("a",)}, "schedule.milestones must be a number; got 'a'"),
        ({"data.batch_size": 2.5}, "data.batch_size must be a whole number; got 2.5"),
        ({"data.batch_size": 0}, "data.batch_size must be at least 1; got 0"),
        ({"schedule.name": "one-cycle"}, "schedule.name must be one of constant, steps, linear, cosine"),
        ({"optimizer.name": "lion"}, "optimizer.name must be one of sgd, adam, adamw"),
        ({"model.norms": "batch"}, "Did you mean 'model.norm'?"),
        ({"algebra": "C"}, "there is no setting 'algebra'"),
        ({"epochs": 0}, "epochs, steps or budget must be positive"),
        ({"epochs": math.inf}, "epochs, steps or budget must be positive and finite; got epochs=inf"),
        ({"steps": -5}, "epochs, steps or budget must be positive and finite; got epochs=20"),
        ({"label_smoothing": 2}, "label_smoothing must lie between 0 and 1; got 2.0"),
        ({"optimizer.betas": (0.9,)}, "optimizer.betas must be two numbers"),
        ({"model.num_classes": 77}, "model.num_classes cannot be set: the data decides it"),
        ({"evaluations": 0}, "evaluations must be at least 1"),
    ],
)
def test_wrong_settings_are_explained(settings, message):
    with pytest.raises(ValueError, match=r".*") as error:
        recipes.create("digits", settings=settings)
    assert message in str(error.value)


def test_wrong_settings_of_texts_are_explained():
    with pytest.raises(ValueError, match=r"data\.fresh_every must be a number of batches, or 0 for never; got -1"):
        recipes.create("char-lm", settings={"data.fresh_every": -1})
    with pytest.raises(ValueError, match=r"data\.eval_window must be a number of characters, or 0 .*; got -3"):
        recipes.create("transformer_xl-small", settings={"data.eval_window": -3})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data.name": "python-prose"}, "digits trains on images; data.name='python-prose' is <python-prose"),
        ({"data.name": "digit"}, "digits"),
        ({"data.crop": 20}, "crop must lie between 1 and 10"),
        ({"model.norm": "layer"}, "norm must be one of batch, whitening"),
        ({"model.num_blocks": "many"}, "num_blocks must be a whole number; got 'many'"),
        ({"data.batch_size": 2000}, "2000"),
        ({"model.name": "gru_lm"}, "gru_lm has no option 'num_classes'"),
        ({"epochs": 1e30}, "a run must have at most 999,999,999 steps; 1e+30 epochs of 14 batches are more"),
    ],
)
def test_settings_that_do_not_fit_are_explained_before_anything_is_written(settings, message, tmp_path):
    with pytest.raises(ValueError, match=r".*") as error:
        train.run(recipes.create("digits", settings=settings), tmp_path / "run", HARDWARE)
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accelerator": "tpu"}, "accelerator must be one of auto, cpu, cuda; got 'tpu'"),
        ({"strategy": "horovod"}, "strategy must be one of auto, ddp, fsdp"),
        ({"precision": "8"}, "precision must be one of auto, 32, bf16, 16"),
        ({"devices": 0}, "devices must be at least 1; got 0"),
        ({"devices": "two"}, "devices must be a whole number; got 'two'"),
        ({"threads": -1}, "threads must lie between 0 and 1024; got -1"),
        ({"threads": 10**6}, "threads must lie between 0 and 1024; got 1000000"),
        ({"loggers": ("wandb",)}, "logger must be one of tensorboard, csv; got 'wandb'"),
        ({"accelerator": "cpu", "strategy": "fsdp"}, "strategy 'fsdp' shards over CUDA devices"),
        ({"accelerator": "cpu", "precision": "16"}, "precision '16' needs a CUDA device"),
    ],
)
def test_wrong_hardware_is_explained(options, message):
    with pytest.raises(ValueError, match=r".*") as error:
        Hardware(**options)
    assert message in str(error.value)


def test_another_model_keeps_the_options_it_has_in_common(tmp_path):
    """``model.name`` is applied first, so that the other settings may be options of the new model."""
    settings = {"model.activation": "swish", "model.name": "resnet18", "steps": 1, "data.batch_size": 20}
    experiment = recipes.create("digits", "M2R", 0.125, settings=settings)
    assert (experiment.model["name"], experiment.model["activation"]) == ("resnet18", "swish")
    assert "num_blocks" not in experiment.model
    assert train.run(experiment, tmp_path, HARDWARE).steps == 1
    with pytest.raises(ValueError, match=r"there is no setting 'model\.num_blocks'"):
        recipes.create("digits", settings={"model.num_blocks": 2, "model.name": "resnet18"})


def test_the_learning_rate_follows_its_schedule():
    steps = Schedule("steps", milestones=(1 / 3, 2 / 3))
    assert [steps.share(step, 9) for step in (0, 2, 3, 5, 6, 8)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    cosine = Schedule("cosine", final=0.1)
    assert [cosine.share(step, 10) for step in (0, 5, 10)] == pytest.approx([1, 0.55, 0.1])
    warm = Schedule("constant", warmup=0.5)
    assert [warm.share(step, 8) for step in range(6)] == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])


def test_norms_and_biases_are_not_decayed():
    model = small("digits", "H", **{"model.norm": "whitening"}).build()
    kept = set(undecayed(model))
    decayed, plain = make_optimizer(model, Optimizer(lr=0.1, weight_decay=0.01), kept).param_groups
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.01, 0.0)
    convolutions = {id(m.weight) for m in model.modules() if "Conv" in type(m).__name__}
    assert convolutions <= {id(p) for p in decayed["params"]}
    assert len(decayed["params"]) + len(plain["params"]) == len(list(model.parameters()))
    assert all("norm" in name or "bias" in name or "stem.1" in name for name in kept)


def test_loggers_of_lightning_write_beside_ours(tmp_path):
    """A resumed run keeps the lines that its loggers wrote before it stopped."""
    hardware = replace(HARDWARE, loggers=("csv", "tensorboard"))
    with pytest.raises(Crash):
        train.run(small("digits"), tmp_path, hardware, [CrashAt(7)])
    train.resume(tmp_path)
    with (tmp_path / "csv" / "metrics.csv").open() as file:
        steps = [int(row["step"]) for row in csv.DictReader(file) if row["train_loss"]]
    assert steps == list(range(1, 13))
    assert len(list((tmp_path / "tensorboard").glob("events*"))) == 2


def graphs_of_a_norm():
    """Return the number of graphs of a compiled batch norm: 1, or 0 if torch (2.11) does not compile its modules."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    norm = torch.nn.BatchNorm1d(2)
    norm.compile(backend="eager")
    norm(torch.randn(3, 2))
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.slow
def test_deep_models_compile_block_by_block():
    """Twelve blocks in three stages, the first of each stage being different, make six graphs. The rest makes four."""
    of_norm = graphs_of_a_norm()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = small("cifar10", **{"model.num_blocks": 4}).build()
    compiled = copy.deepcopy(model)
    compile_model(compiled, whole=False, backend="eager")
    images = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(compiled(images), model(images))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 6 + 3 + of_norm  # lift, stem, head, and norm


def test_evaluation_on_images_is_not_compiled(tmp_path, monkeypatch):
    """There is one graph, for training images. After the run, torch.compile works as before."""
    torch._dynamo.reset()
    monkeypatch.setattr(trainer, "compile_model", lambda model, whole: compile_model(model, whole, backend="eager"))
    torch._dynamo.utils.counters.clear()
    train.run(small("cifar10"), tmp_path, replace(HARDWARE, compile=True))
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs == 1
    compiled = torch.compile(torch.sin, backend="eager")
    compiled(torch.ones(2))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs + 1


def test_evaluation_on_text_is_compiled_when_the_memory_is_full():
    """The memory of 20 characters is full after three batches of 8. The fifth batch is the first that is compiled."""
    torch._dynamo.reset()
    plan = plans.make(small("transformer_xl", **{"data.eval_length": 8}), "")
    plain = plan.task(plan.build().eval())
    compiled = copy.deepcopy(plain)
    compile_model(compiled.model, whole=False, backend="eager")
    torch._dynamo.utils.counters.clear()
    graphs = []
    for task in (plain, compiled):
        task.on_validation_epoch_start()
        with torch.inference_mode():
            for batch in plan.evaluation("cpu", data.Share()).iterate(0, 8):
                task.validation_step(batch, 0)
                graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs[:12] == [0] * 12
    assert graphs[12] == graphs[-1] > 0
    torch.testing.assert_close(plain.nats.compute(), compiled.nats.compute())


def test_capture_is_given_the_first_batch_once_and_again_when_a_run_goes_on(tmp_path, monkeypatch):
    """The capture itself needs a GPU: see test_gpu.py."""
    seen = []
    monkeypatch.setattr(cuda_graphs, "capture", lambda model, *inputs: seen.append((model.training, *inputs)))
    with pytest.raises(Crash):
        train.run(small("digits"), tmp_path, HARDWARE, [cuda_graphs.Capture(), CrashAt(3)])
    train.resume(tmp_path, HARDWARE, [cuda_graphs.Capture()])
    assert [training for training, _ in seen] == [True, True]
    batches = data.load("digits").training(SMALL["digits"]["data.batch_size"], padding=1, seed=0)
    torch.testing.assert_close(seen[0][1], next(batches.iterate(0, 1))[0])


def test_a_text_is_captured_when_the_memory_is_full(tmp_path, monkeypatch):
    """The window is twice as long as a segment, so the memory is full after two steps and keeps its size then."""
    seen = []
    monkeypatch.setattr(cuda_graphs, "capture", lambda model, *inputs: seen.append((model, *inputs)))
    experiment = small("transformer_xl", **{"model.window": 32, "steps": 3})
    train.run(experiment, tmp_path / "3", HARDWARE, [cuda_graphs.Capture()])
    assert not seen
    train.run(replace(experiment, steps=5), tmp_path / "5", HARDWARE, [cuda_graphs.Capture()])
    ((_, tokens, memory),) = seen
    assert tokens.shape == (4, 16)
    assert {state.shape for state in memory} == {(4, 32, 32)}


def run_out_of_memory(*_):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.50 GiB. GPU 0 has a total capacity of")


def test_where_memory_runs_out_it_is_said_what_to_do(tmp_path, monkeypatch):
    """In training, in evaluation and for a finished run. The log has the whole error, and the run can be resumed."""
    said = r"fit into the GPU's memory, but torch says: CUDA .* allocate 4\.50 GiB\. Use a smaller data\.batch_size"
    for step in ("training_step", "validation_step"):
        with monkeypatch.context() as patch:
            patch.setattr(train.Classification, step, run_out_of_memory)
            with pytest.raises(ValueError, match=said):
                train.run(small("digits"), tmp_path, HARDWARE)
    assert "OutOfMemoryError" in RunFolder(tmp_path).log.read_text()
    assert train.resume(tmp_path, HARDWARE).steps == 12
    monkeypatch.setattr(train.Classification, "validation_step", run_out_of_memory)
    with pytest.raises(ValueError, match=said):
        train.evaluate(tmp_path, HARDWARE)


def test_where_the_computers_memory_runs_out_it_is_said_what_to_do(tmp_path):
    with pytest.raises(ValueError, match=r"must fit into the computer's memory, but torch says: .*Use a smaller data"):
        train.run(small("transformer_xl", **{"model.window": 10**14}), tmp_path, HARDWARE)


def test_a_text_is_not_looked_back_at_further_than_it_goes(tmp_path):
    """An evaluation window longer than the text takes no more memory than the text needs."""
    experiment = small("transformer_xl", **{"data.eval_window": 10**14, "steps": 1})
    assert train.run(experiment, tmp_path, HARDWARE).value < 9


def test_tasks_serve_in_a_trainer_of_ones_own(tmp_path):
    """A task works with torch's DataLoader and Lightning's Trainer."""
    digits = data.load("digits")
    images, labels = next(digits.training(40).iterate(0, 1))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=20)
    task = train.Classification(
        algebranets.models.create("cifar_resnet", algebra="C", in_channels=1, num_blocks=1), 10, Optimizer(lr=0.1), 4
    )
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, default_root_dir=tmp_path)  # fmt: skip
    before = copy.deepcopy(task.model.fc.weight)
    trainer.fit(task, loader, loader)
    assert not torch.equal(before, task.model.fc.weight)
    assert 0 <= task.measured["accuracy"] <= 100


def test_steps_of_images_are_captured_in_one_process_alone():
    """With several processes, batch norms communicate, which cannot be captured."""
    task = train.Classification(nn.Flatten(), 10, Optimizer(lr=0.1), 1)
    for processes, captured in ((1, True), (2, False)):
        task.trainer = SimpleNamespace(world_size=processes)
        assert (task.steady_inputs((torch.zeros(2, 10), torch.zeros(2))) is not None) == captured


def test_epochs_decide_where_they_are_set_and_steps_are_not():
    """This holds for texts too, whose recipes set a number of steps."""
    for settings, steps in (({"epochs": 2}, 2), ({"epochs": 2, "steps": 7}, None), ({}, None)):
        plan = plans.make(recipes.create("char-lm", settings=settings), "")
        assert plan.steps == (steps * plan.per_epoch if steps else settings.get("steps", 2000))


@pytest.mark.parametrize("recipe", ["digits", "char-lm"])
def test_label_smoothing_reaches_the_loss(recipe):
    losses = []
    for smoothing in (0.0, 0.5):
        plan = plans.make(small(recipe, label_smoothing=smoothing), "")
        batch = next(plan.training("cpu", data.Share()).iterate(0, 1))
        losses.append(plan.task(plan.build()).training_step(batch, 0).item())
    assert losses[0] != losses[1]


def test_multiply_adds_are_counted_at_the_side_that_is_evaluated(tmp_path):
    """Images from files are evaluated at the crop. Tensors are cropped in training only."""
    for split in ("train", "val"):
        (tmp_path / split / "a").mkdir(parents=True)
        torchvision.utils.save_image(torch.rand(3, 40, 40), tmp_path / split / "a" / "1.png")
    settings = {"data.name": str(tmp_path), "data.batch_size": 1, "data.workers": 0, "model.num_blocks": 1}
    for crop in (16, 32):
        plan = plans.make(recipes.create("cifar10", settings={**settings, "data.crop": crop}), "")
        batch = next(plan.evaluation("cpu", data.Share()).iterate(0, 1))
        assert plan.example_inputs(plan.build())[0].shape[-2:] == batch[0].shape[-2:] == (crop, crop)
    assert plans.make(small("cifar10"), "").example_inputs(small("cifar10").build())[0].shape[-2:] == (8, 8)


def test_sizes_of_the_data_reach_the_model(tmp_path):
    """The network has ten classes and one input channel, although the recipe is for ImageNet."""
    train.run(small("resnet50", steps=1), tmp_path, HARDWARE)
    weights = load_file(tmp_path / "weights.safetensors")
    assert weights["fc.bias"].numel() == 10 * 4
    assert data.load("digits").channels == 1
