"""Evaluation of a finished run's weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback

from algebranets import checks
from algebranets.lab.data import Share, corpora
from algebranets.lab.train import plan as plans
from algebranets.lab.train.experiment import Experiment
from algebranets.lab.train.folder import RunFolder
from algebranets.lab.train.hardware import Hardware
from algebranets.lab.train.loaders import EvaluationLoader
from algebranets.lab.train.memory import within_memory
from algebranets.lab.train.plan import TextPlan
from algebranets.lab.train.settings import Images, Texts
from algebranets.lab.train.trainer import interruptible, make_trainer, quiet
from algebranets.models.weights import describe, load

#: The least number of segments of ``eval_length`` characters in each row, if a file is evaluated in several rows.
MIN_SEGMENTS = 16
#: The fields of `Hardware` that are taken from the training run. Evaluation uses one process and writes no files.
HARDWARE_FIELDS = ("accelerator", "precision", "data", "threads")


@quiet()
@interruptible()
@within_memory()
def evaluate(
    path: Path,
    hardware: Hardware | None = None,
    *,
    text: Path | None = None,
    split: str = "valid",
    settings: Mapping[str, Any] | None = None,
    weights: Path | None = None,
    callbacks: Iterable[Callback] = (),
) -> dict[str, float]:
    """Evaluate a finished run's weights, on its own data or on a file.

    Args:
        path: The run's folder.
        hardware: The hardware to use; by default that of the run.
        text: A file to evaluate a language model on; the whole file is used.
        split: The part of a language model's own text: "train", "valid" or "test".
        settings: Settings of evaluation that differ from the run's, such as ``{"data.eval_window": 4608}``.
        weights: A file of weights to evaluate instead of the run's own, such as a copy in half precision.
        callbacks: Lightning callbacks, such as a progress bar.

    Returns:
        The metrics by name. For a text also ``characters``, the number of predicted characters.

    >>> evaluate(Path("runs/char-lm/M2R-seed0"), split="test")["bpc"]  # doctest: +SKIP
    """
    folder = RunFolder(path)
    experiment = _evaluated(folder, settings or {})
    if isinstance(experiment.data, Images) and (text is not None or split != "valid"):
        name = experiment.model["name"]
        raise ValueError(f"{path} holds a {name}, which classifies images; give a run of a language model.")
    model = load(weights or path)
    hardware = hardware or Hardware.of(folder, HARDWARE_FIELDS)
    plan = plans.make(experiment, hardware.data) if text is None else _reading(experiment, text)
    if isinstance(plan, TextPlan):
        plan.data = replace(plan.data, valid=plan.data.part(split))
    task = plan.task(model)
    with hardware.fixed_rounding() as hardware:
        trainer = make_trainer(hardware, folder, model, callbacks=callbacks)
        device, share = trainer.strategy.root_device, Share(trainer.global_rank, trainer.world_size)
        trainer.validate(task, EvaluationLoader(plan.evaluation(device, share)), verbose=False)
    return task.measured | ({"characters": len(plan.data.valid) - 1} if isinstance(plan, TextPlan) else {})


def _evaluated(folder: RunFolder, settings: Mapping[str, Any]) -> Experiment:
    """The experiment of a finished run, with its evaluation settings changed by ``settings``."""
    experiment = folder.experiment()
    name, published = experiment.model["name"], describe(folder.path)[1].get("model")
    if name != published:
        raise ValueError(f"{folder.config} is of a {name}, but {folder.weights} of a {published}: give a whole run.")
    known = [key for key, _ in experiment.settings() if key.startswith("data.eval_")]
    for key in settings:
        checks.one_of("a setting of a finished run", key, known)
    return experiment.changed(settings)


def _reading(experiment: Experiment, file: Path) -> TextPlan:
    """The plan to evaluate a whole file. A short file gets fewer rows, because each row starts without context."""
    text, how = corpora.whole_file(file), experiment.data
    assert isinstance(how, Texts)
    rows = min(how.eval_batch_size, max(1, (len(text.valid) - 1) // (MIN_SEGMENTS * how.eval_length)))
    untrained = replace(experiment.first_plan(), steps=1)  # otherwise the number of steps would depend on the file
    return TextPlan(untrained, replace(how, eval_batch_size=rows), text)
