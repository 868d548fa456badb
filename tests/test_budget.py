"""Runs with a time budget: the number of steps is measured once and then kept."""

import math
from dataclasses import replace
from types import SimpleNamespace

import lightning.pytorch as pl
import pytest
import torch

from algebranets.lab import recipes, train
from algebranets.lab.train import Hardware, RunFolder, budget, finishing, running
from algebranets.lab.train.checkpoints import Checkpoints

HARDWARE = Hardware(accelerator="cpu", log_steps=1)
TINY = {
    "model.hidden_size": 16, "data.batch_size": 4, "data.length": 16,
    "data.eval_batch_size": 512, "data.eval_length": 16,
}  # fmt: skip


def within(seconds, **settings):
    return recipes.create("char-lm", "M2R", settings={**TINY, "budget": seconds, **settings})


def timed(monkeypatch, step, evaluation, spent, save=0.0):
    monkeypatch.setattr(budget, "_time_trial", lambda *_: budget.Seconds(step, evaluation, save, spent))


def test_steps_and_evaluations_take_what_is_left(monkeypatch):
    timed(monkeypatch, step=0.1, evaluation=2.0, spent=40.0)
    fitted, _ = budget.fit(within(1500.0, evaluations=12), HARDWARE, 0.0)
    assert fitted.evaluations == 12
    assert fitted.steps * 0.1 + 12 * 2.0 == pytest.approx(budget.PLANNED_SHARE * 1460, abs=0.1)


def test_checkpoints_take_time_too(monkeypatch):
    """There is one checkpoint before each evaluation, and one every five minutes."""
    timed(monkeypatch, step=0.1, evaluation=2.0, spent=0.0, save=1.0)
    fitted, _ = budget.fit(within(1500.0, evaluations=10), HARDWARE, 0.0)
    steps = fitted.steps * (0.1 + 0.1 / 300)
    assert steps + 10 * 3.0 == pytest.approx(budget.PLANNED_SHARE * 1500, abs=0.1)


@pytest.mark.parametrize("often", [{"checkpoint_minutes": 0.0}, {"checkpoint_steps": 1}])
def test_a_checkpoint_after_every_step_is_counted_as_such(monkeypatch, often):
    timed(monkeypatch, step=0.1, evaluation=2.0, spent=0.0, save=0.01)
    fitted, _ = budget.fit(within(100.0, evaluations=1), replace(HARDWARE, **often), 0.0)
    assert fitted.steps * 0.11 == pytest.approx(budget.PLANNED_SHARE * 100 - 2.01, abs=0.11)


def test_a_run_that_was_replanned_is_fitted_as_before_its_change(monkeypatch):
    timed(monkeypatch, step=0.1, evaluation=2.0, spent=0.0)
    fitted, _ = budget.fit(within(100.0), HARDWARE, 0.0)
    again, _ = budget.fit(fitted.replanned(fitted.steps // 2, fitted.steps // 4), HARDWARE, 0.0)
    assert again == fitted


def test_the_clock_waits_for_the_device(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    for device in (torch.device("cpu"), torch.device("cuda:1")):
        budget.synchronized_time(SimpleNamespace(strategy=SimpleNamespace(root_device=device)))
    assert waited == [torch.device("cuda:1")]


def test_evaluations_do_not_eat_up_the_budget(monkeypatch):
    timed(monkeypatch, step=0.1, evaluation=30.0, spent=0.0)
    fitted, _ = budget.fit(within(600.0, evaluations=100), HARDWARE, 0.0)
    assert 1 <= fitted.evaluations * 30 <= budget.EVALUATION_SHARE * 600
    assert fitted.steps * 0.1 > 0.7 * 600


def test_a_budget_without_room_for_a_step_is_refused(monkeypatch):
    timed(monkeypatch, step=2.0, evaluation=30.0, spent=9.0)
    message = r"a budget of 10 s must be long enough for one step: a step takes 2 s, .* Use a larger budget\."
    with pytest.raises(ValueError, match=message):
        budget.fit(within(10.0), HARDWARE, 0.0)


def test_a_run_measures_its_budget_once_and_keeps_its_steps(tmp_path, monkeypatch):
    """Real steps are timed. A stopped run keeps its number of steps, and a finished run is known by its budget."""
    monkeypatch.setattr(budget, "TIMED_STEPS", 3)
    tried, fit = [], budget.fit

    def shortened(*arguments):
        tried.append(arguments)
        fitted, seconds = fit(*arguments)
        return replace(fitted, steps=6, evaluations=2), seconds

    monkeypatch.setattr(running.budget, "fit", shortened)
    stop = StopAt(3)
    with pytest.raises(train.Stopped):
        train.run(within(60.0), tmp_path / "run", HARDWARE, [stop])
    assert RunFolder(tmp_path / "run").experiment().steps == 6
    result = train.run(within(60.0), tmp_path / "run", HARDWARE)
    assert (result.steps, len(result.curve), result.changes["budget"]) == (6, 2, 60.0)
    assert train.run(within(60.0), tmp_path / "run", HARDWARE).seconds == result.seconds
    assert len(tried) == 1
    with pytest.raises(ValueError, match="holds another experiment"):
        train.run(within(61.0), tmp_path / "run", HARDWARE)


def test_the_trial_ends_when_its_share_of_the_budget_is_over(monkeypatch):
    """The trial runs real steps, fewer if they are slow, and estimates an evaluation from a few of its batches."""
    seen = []
    monkeypatch.setattr(budget, "TRIAL_SHARE", 0.0)
    begin = budget.TrainingLoader.__init__
    monkeypatch.setattr(budget.TrainingLoader, "__init__", lambda self, *a: seen.append(self) or begin(self, *a))
    *seconds, spent = budget._time_trial(within(60.0), HARDWARE, 0.0)
    assert seen[0].position == budget.WARMUP_STEPS + 1
    assert all(0 < part < spent for part in seconds)


@pytest.mark.parametrize(
    ("settings", "lengths"),
    [
        ({"budget": 60.0}, (0, 60.0)),
        ({"steps": 5}, (5, 0)),
        ({"budget": 60.0, "steps": 5}, (5, 60.0)),
        ({"budget": 0.0}, (2000, 0)),
        ({}, (2000, 0)),
    ],
)
def test_one_length_of_training_decides(settings, lengths):
    experiment = recipes.create("char-lm", settings=settings)
    assert (experiment.steps, experiment.budget) == lengths


@pytest.mark.parametrize("epochs", [20.0, 7.0])
def test_a_length_set_later_overrules_one_set_before(epochs):
    """The later length may be the recipe's own. The earlier one is no longer listed as a change."""
    experiment = recipes.create("digits", settings={"steps": 5}).changed({"epochs": epochs})
    assert (experiment.epochs, experiment.steps, experiment.changes) == (epochs, 0, {"epochs": epochs})


def test_the_best_of_the_last_share_of_training_counts():
    values = [1.5, 1.2, 1.4, 1.3, 1.6]
    curve = [{"step": 20.0 * n, "bpc": value} for n, value in enumerate(values, 1)]
    for share, value in ((0.0, 1.6), (0.2, 1.3), (0.6, 1.2), (1.0, 1.2)):
        assert finishing.final_value(recipes.create("gru", settings={"judged_over": share}), curve) == value
    assert recipes.create("gru").judged_over == 0.05  # Section 4.4


def test_rows_of_text_hold_bits_per_character_and_the_speed(tmp_path):
    settings = {**TINY, "steps": 3, "evaluations": 1}
    train.run(recipes.create("char-lm", "C", settings=settings), tmp_path, HARDWARE)
    *steps, last = RunFolder(tmp_path).rows()
    for row in steps:
        assert row["train_bpc"] == pytest.approx(row["train_loss"] / math.log(2))
        assert row["characters_per_second"] > 0
    assert last["bpc"] == pytest.approx(last["loss"] / math.log(2))


class StopAt(pl.Callback):
    """Simulates SIGTERM at one step."""

    def __init__(self, step):
        self.step = step

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.step:
            checkpoints = next(c for c in trainer.callbacks if isinstance(c, Checkpoints))
            checkpoints.asked = "SIGTERM"
