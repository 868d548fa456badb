"""Runs whose machine becomes slower or faster than at the start: they change their number of steps once.

The clock is simulated: every training step and evaluation takes the time that the test says.
"""

import json
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import lightning.pytorch as pl
import pytest
import torch
from safetensors.torch import load_file

from algebranets.lab import train
from algebranets.lab.train import RunFolder, budget, checkpoints, journal, replan, running
from algebranets.lab.train.length import Length
from test_budget import HARDWARE, within

#: The times that are measured at the start. With them, `EXPERIMENT` has 44 steps.
TIMED = budget.Seconds(step=1.0, evaluation=1.0, checkpoint=0.0, spent=0.0)
EXPERIMENT = within(50.0, evaluations=4, **{"schedule.name": "linear", "schedule.warmup": 0.1})
STEPS = 44


class Clock(pl.Callback):
    """A clock that training moves on; also the callback that does it.

    Args:
        slower: The factor of the time of a step and of an evaluation, for each step.
    """

    def __init__(self, slower):
        self.now, self.slower, self.checkpoint = 1000.0, slower, 0.0
        #: Whether steps only start, as on a GPU. They take their time when something waits for the device.
        self.is_asynchronous, self.started = False, 0.0

    def monotonic(self):
        return self.now

    def synchronized(self, *_):
        self.now, self.started = self.now + self.started, 0.0
        return self.now

    def on_train_batch_start(self, trainer, *_):
        self.started += TIMED.step * self.slower(trainer.global_step)
        if not self.is_asynchronous:
            self.synchronized()

    def on_save_checkpoint(self, *_):
        self.now = self.synchronized() + self.checkpoint

    def on_validation_start(self, *_):
        self.synchronized()

    def on_validation_end(self, trainer, *_):
        self.now += TIMED.evaluation * self.slower(trainer.global_step)


@pytest.fixture
def clock(monkeypatch):
    """A clock by which each step takes as long as at the start; set its ``slower`` to change that."""
    clock = Clock(lambda _: 1.0)
    for module in (budget, running, journal, checkpoints):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
    monkeypatch.setattr(replan, "synchronized_time", clock.synchronized)
    monkeypatch.setattr(budget, "_time_trial", lambda *_: TIMED)
    monkeypatch.setattr(replan, "WARMUP_STEPS", 2)
    monkeypatch.setattr(replan, "MIN_TIMED_STEPS", 3)
    return clock


def trained(path, clock, experiment=EXPERIMENT, **hardware):
    """Train or resume, and return the result and the seconds that this process took."""
    begun = clock.now
    result = train.run(experiment, path, replace(HARDWARE, **hardware), [clock])
    return result, clock.now - begun


def test_a_run_at_its_planned_speed_keeps_its_steps(tmp_path, clock):
    result, seconds = trained(tmp_path, clock)
    assert (result.steps, result.experiment["replanned_at"]) == (STEPS, 0)
    assert seconds == STEPS + 4 * TIMED.evaluation
    assert "budget" not in (tmp_path / "log.txt").read_text()


def test_steps_that_a_gpu_has_only_started_are_timed_to_their_end(tmp_path, clock):
    """Here only evaluations and checkpoints wait for the device."""
    clock.is_asynchronous = True
    result, _ = trained(tmp_path, clock, log_steps=1000)
    assert (result.steps, result.experiment["replanned_at"]) == (STEPS, 0)
    clock.slower = lambda _: 2.0
    result, seconds = trained(tmp_path / "slower", clock, log_steps=1000)
    assert result.experiment["replanned_at"] == 11
    assert 45 < seconds <= 50


@pytest.mark.parametrize("slower", [0.01, 0.0])
def test_an_implausible_speed_changes_nothing_and_is_reported_once(tmp_path, clock, slower):
    clock.slower = lambda _: slower
    result, _ = trained(tmp_path, clock)
    assert (result.steps, result.experiment["replanned_at"]) == (STEPS, 0)
    said = (tmp_path / "log.txt").read_text()
    assert said.count(f"steps take {slower:.2f} times as long as at the start, which is implausible") == 1


def test_the_time_of_checkpoints_is_counted_once(tmp_path, clock, monkeypatch):
    """A checkpoint takes as long as a step, and there is one every two steps, before and while the run is timed."""
    clock.checkpoint = 1.0
    monkeypatch.setattr(budget, "_time_trial", lambda *_: TIMED._replace(checkpoint=1.0))
    result, seconds = trained(tmp_path, clock, checkpoint_steps=2)
    assert result.steps == int((48 - 4 * 2) / 1.5)
    assert 43 < seconds <= 50
    assert "re-planned" not in (tmp_path / "log.txt").read_text()


@pytest.mark.parametrize(
    ("slower", "at"),
    [(lambda _: 2.0, 11), (lambda _: 0.5, 11), (lambda step: 1.0 if step < 11 else 1.6, 22)],
    ids=["slower", "faster", "slower later"],
)
def test_a_run_changes_its_steps_once_and_ends_within_its_budget(tmp_path, clock, slower, at):
    """It says so. The learning rate has no jump, and its decay ends with the run."""
    clock.slower = slower
    result, seconds = trained(tmp_path, clock)
    assert 45 < seconds <= 50
    assert (result.experiment["replanned_at"], result.experiment["replanned_from"]) == (at, STEPS)
    said = (tmp_path / "log.txt").read_text()
    assert said.count(f"re-planned at step {at}, from {STEPS} steps to {result.steps}, to keep the budget of 50s") == 1
    assert "missed" not in said
    rates = [row["lr"] for row in RunFolder(tmp_path).rows() if "lr" in row]
    assert len(rates) == result.steps
    jump = max(abs(a - b) for a, b in pairwise(rates[4:]))
    assert jump < max(rates) * 3 / min(result.steps, STEPS)
    assert rates[-1] < max(rates) * 3 / min(result.steps, STEPS)


def test_a_run_that_misses_its_budget_says_by_how_much(tmp_path, clock):
    """It becomes slower after the last check."""
    clock.slower = lambda step: 1.0 if step < 35 else 4.0
    result, seconds = trained(tmp_path, clock)
    assert (result.steps, result.experiment["replanned_at"]) == (STEPS, 0)
    said = (tmp_path / "log.txt").read_text()
    assert seconds == 35 + 3 + 4 * (STEPS - 35 + 1)
    assert "the budget was missed: the run took 1m18s, 28s (56 %) more than its budget of 50s." in said


def test_a_run_keeps_some_steps_to_decay_even_when_its_time_is_over(tmp_path, clock):
    clock.slower = lambda _: 20.0
    result, _ = trained(tmp_path, clock)
    assert result.steps == 11 + int(replan.MIN_STEPS_LEFT * (STEPS - 11))
    assert "the budget was missed" in (tmp_path / "log.txt").read_text()


def test_a_run_that_prunes_keeps_its_steps_and_says_why_once(tmp_path, clock):
    clock.slower = lambda _: 2.0
    pruned = within(50.0, evaluations=4, **{"pruning.sparsity": 0.5, "pruning.every": 1})
    assert trained(tmp_path, clock, pruned)[0].steps == STEPS
    assert (tmp_path / "log.txt").read_text().count("It keeps its number of steps, because it prunes.") == 1


def test_a_run_that_was_replanned_is_evaluated_on_a_file(tmp_path, clock):
    clock.slower = lambda _: 2.0
    assert trained(tmp_path / "run", clock)[0].experiment["replanned_at"]
    (tmp_path / "other.txt").write_text("the quick brown fox " * 20)
    assert train.evaluate(tmp_path / "run", text=tmp_path / "other.txt")["characters"] == 399


def test_the_facts_of_the_first_start_are_kept(tmp_path, clock, monkeypatch):
    """They are the command and the measured times; those of another run in the folder are not kept."""
    environment = tmp_path / "environment.json"
    environment.write_text(json.dumps({"command": "another", "timed": TIMED._replace(step=9.0)._asdict()}))
    for arguments, end in ((["algebranets", "first"], KillAt(12)), (["algebranets", "second"], KillAt(1000))):
        monkeypatch.setattr("sys.argv", arguments)
        with suppress(Killed):
            train.run(EXPERIMENT, tmp_path, replace(HARDWARE, checkpoint_steps=2), [clock, end])
        saved = json.loads(environment.read_text())
        assert (saved["command"], saved["timed"]) == ("algebranets first", TIMED._asdict())
    result = RunFolder(tmp_path).finished()
    assert result.command == "algebranets first"
    assert not {"command", "timed"} & result.environment.keys()


class Killed(Exception):  # noqa: N818 - not an error
    """Simulates SIGKILL."""


class KillAt(pl.Callback):
    """Ends the process at one step, without a checkpoint."""

    def __init__(self, step):
        self.step = step

    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step == self.step:
            raise Killed


def curve(path):
    """All metrics of a run, except for those that depend on the clock."""
    clocked = ("seconds", "characters_per_second")
    return [{key: value for key, value in row.items() if key not in clocked} for row in RunFolder(path).rows()]


@pytest.fixture
def uninterrupted(tmp_path, clock):
    """A folder of a run that was re-planned at step 11 and never killed."""
    clock.slower = lambda _: 2.0
    trained(tmp_path / "whole", clock)
    return tmp_path / "whole"


def assert_same(killed, whole):
    assert RunFolder(killed).experiment() == RunFolder(whole).experiment()
    assert curve(killed) == curve(whole)
    theirs, ours = (load_file(path / "weights.safetensors") for path in (whole, killed))
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


@pytest.mark.parametrize(("kill", "every"), [(12, 7), (16, 7), (13, 11)], ids=["right after", "later", "from the step"])
def test_a_run_killed_after_the_change_resumes_exactly(tmp_path, clock, uninterrupted, kill, every):
    """The last checkpoint is from before the change, from after it, or from its step."""
    with pytest.raises(Killed):
        train.run(EXPERIMENT, tmp_path / "run", replace(HARDWARE, checkpoint_steps=every), [clock, KillAt(kill)])
    clock.slower = lambda _: 1.0  # the change is recorded, so a faster machine makes no difference
    trained(tmp_path / "run", clock)
    assert_same(tmp_path / "run", uninterrupted)


def test_a_run_killed_while_it_changes_its_steps_loses_nothing(tmp_path, clock, uninterrupted, monkeypatch):
    """Killed right after the change is written, it does the same. Killed before, it changes its steps later."""
    write = RunFolder.write_experiment

    def killed_after(folder, experiment):
        write(folder, experiment)
        if experiment.replanned_at:
            raise Killed

    def killed_before(folder, experiment):
        if experiment.replanned_at:
            raise Killed
        write(folder, experiment)

    for name, killed in (("after", killed_after), ("before", killed_before)):
        monkeypatch.setattr(RunFolder, "write_experiment", killed)
        with pytest.raises(Killed):
            trained(tmp_path / name, clock, checkpoint_steps=5)
        assert [path.name for path in RunFolder(tmp_path / name).checkpoints()][-1] == "step-000000010.ckpt"
    monkeypatch.setattr(RunFolder, "write_experiment", write)
    trained(tmp_path / "after", clock)
    assert_same(tmp_path / "after", uninterrupted)
    result, _ = trained(tmp_path / "before", clock)
    assert result.experiment["replanned_at"] == 10 + replan.WARMUP_STEPS + replan.MIN_TIMED_STEPS
    assert result.seconds <= 50


def test_a_run_without_the_times_of_its_start_keeps_its_steps(tmp_path, clock):
    """Older versions did not record them, and environment.json may be removed."""
    with pytest.raises(Killed):
        train.run(EXPERIMENT, tmp_path, replace(HARDWARE, checkpoint_steps=2), [clock, KillAt(3)])
    file = tmp_path / "environment.json"
    saved = json.loads(file.read_text())
    assert saved["timed"] == {**TIMED._asdict(), "spent": 0.0}
    file.write_text(json.dumps({**saved, "timed": {"step": "slow"}}))
    with pytest.raises(ValueError, match=r"environment\.json: timed"):
        trained(tmp_path, clock)
    file.unlink()
    clock.slower = lambda _: 2.0
    assert trained(tmp_path, clock)[0].steps == STEPS
    assert "the budget was missed" in (tmp_path / "log.txt").read_text()


def test_the_rest_of_a_schedule_is_spread_over_the_steps_that_are_left():
    for steps in (21, 30, 1000):
        length = Length(steps, replanned_at=20, replanned_from=100)
        places = [length.scheduled(step) for step in range(steps + 1)]
        assert places[:21] == list(range(21))
        assert places[-1] == pytest.approx(100)
        assert places == sorted(places)


@pytest.mark.parametrize("evaluations", [1, 3, 50])
@pytest.mark.parametrize("left", [1.0, 50.0, 1000.0])
def test_a_new_plan_fills_the_time_that_is_left(left, evaluations):
    speed = replan.Speed(step=0.5, evaluation=3.0)
    steps = replan.steps_within(left, speed, steps=200, done=40, evaluations=evaluations)
    least = 40 + int(replan.MIN_STEPS_LEFT * 160)
    assert steps >= least
    assert steps == least or speed.of_rest(Length(steps), 40, evaluations) <= left
    assert speed.of_rest(Length(steps + 30), 40, evaluations) > left


def test_the_change_cannot_be_set_by_hand():
    with pytest.raises(ValueError, match="replanned_at cannot be set: a run with a budget decides it"):
        within(100.0, replanned_at=3)
    with pytest.raises(ValueError, match="replanned_at must be a step before the end of both plans"):
        replace(EXPERIMENT, steps=5, replanned_at=7, replanned_from=9)
