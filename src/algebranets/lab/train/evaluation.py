"""A finished run's weights, measured anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from algebranets.lab.data import Share, corpora
from algebranets.lab.train import plan as plans
from algebranets.lab.train.experiment import Experiment, Images, Texts
from algebranets.lab.train.folder import RunFolder
from algebranets.lab.train.hardware import Hardware, make_trainer, quiet, within_memory
from algebranets.lab.train.loaders import Whole
from algebranets.lab.train.plan import TextPlan
from algebranets.models.weights import describe, load

#: Where a file is measured, each row of it holds at least so many segments of ``eval_length``.
SEGMENTS = 16
#: What is taken of the hardware that a run was trained on: evaluation has one process, and writes nothing.
EVALUATED_ON = ("accelerator", "precision", "data", "threads")


@quiet()
@within_memory()
def evaluate(
    path: Path,
    hardware: Hardware | None = None,
    *,
    text: Path | None = None,
    split: str = "valid",
    settings: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """A finished run's weights, measured anew: on its own data, or a language model's on all of a file, ``text``.

    ``split`` is the part of its own text. ``settings`` are those of evaluation that the run had otherwise, as in
    ``{"data.eval_window": 4608}``. For a text, ``characters`` is how many were measured.
    """
    folder = RunFolder(path)
    experiment = _evaluated(folder, settings or {})
    if isinstance(experiment.data, Images) and (text is not None or split != "valid"):
        name = experiment.model["name"]
        raise ValueError(f"{path} holds a {name}, which classifies images; give a run of a language model.")
    model = load(path)
    hardware = hardware or Hardware.of(folder, EVALUATED_ON)
    plan = plans.make(experiment, hardware.data) if text is None else _reading(experiment, text)
    if isinstance(plan, TextPlan):
        plan.data = replace(plan.data, valid=plan.data.part(split))
    task = plan.task(model)
    with hardware.fixed_rounding() as hardware:
        trainer = make_trainer(hardware, folder, model, 1, 0.0, [], [])
        device, share = trainer.strategy.root_device, Share(trainer.global_rank, trainer.world_size)
        trainer.validate(task, Whole(plan.evaluation(device, share)), verbose=False)
    return task.measured | ({"characters": len(plan.data.valid) - 1} if isinstance(plan, TextPlan) else {})


def _evaluated(folder: RunFolder, settings: Mapping[str, Any]) -> Experiment:
    """The experiment of a finished run, with other settings of evaluation."""
    experiment = folder.experiment()
    name, published = experiment.model["name"], describe(folder.path)[1].get("model")
    if name != published:
        raise ValueError(f"{folder.config} is of a {name}, but {folder.weights} of a {published}: give a whole run.")
    known = [key for key, _ in experiment.settings() if key.startswith("data.eval_")]
    for key in settings:
        if key not in known:
            raise ValueError(f"of a finished run, only {', '.join(known)} can be set; got {key!r}.")
    return experiment.changed(settings)


def _reading(experiment: Experiment, file: Path) -> TextPlan:
    """The plan to evaluate on all of a file: in fewer rows where it is short, since each begins without context."""
    text, how = corpora.whole_file(file), experiment.data
    assert isinstance(how, Texts)
    rows = min(how.eval_batch_size, max(1, (len(text.valid) - 1) // (SEGMENTS * how.eval_length)))
    untrained = replace(experiment, steps=1)  # whose number would be asked of the file, as epochs are
    return TextPlan(untrained, replace(how, eval_batch_size=rows), text)
