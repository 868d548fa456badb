"""The end of a run: writes its weights and its result."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

from torch import nn

from algebranets import algebra as algebras
from algebranets.accounting import account
from algebranets.lab.train.checkpoint_files import foreign_checkpoint, read_checkpoint
from algebranets.lab.train.experiment import Experiment
from algebranets.lab.train.folder import FACTS_OF_FIRST_START, RunFolder
from algebranets.lab.train.plan import ImagePlan, TextPlan
from algebranets.lab.train.results import METRICS, Result
from algebranets.models import publish

log = logging.getLogger("algebranets")


def finish(plan: ImagePlan | TextPlan, folder: RunFolder, is_trained: bool) -> Result:
    """Publish the weights of the last checkpoint and write the result.

    Args:
        plan: The plan of the run.
        folder: The run's folder.
        is_trained: Whether steps were trained just now. If not, a result that is already in the folder is kept.
    """
    model, experiment = _trained_model(plan, folder), plan.experiment
    algebra = algebras.get(experiment.algebra)
    publish(model, experiment.model["name"], algebra, plan.fitted.options(), folder.weights)
    if not is_trained and folder.result.exists():
        return Result.load(folder.result)
    curve = _curve(folder.rows(), experiment.metric)
    cost = account(model, *plan.example_inputs(model))
    where = folder.environment()
    result = Result(
        recipe=experiment.recipe,
        algebra=algebra.name,
        width=experiment.width,
        seed=experiment.seed,
        changes=dict(experiment.changes),
        metric=experiment.metric,
        value=final_value(experiment, curve),
        parameters=cost.parameters,
        statistics=cost.statistics,
        multiplies=cost.multiplies,
        steps=plan.steps,
        seconds=curve[-1]["seconds"],
        curve=curve,
        experiment=experiment.to_dict(),
        environment={key: value for key, value in where.items() if key not in FACTS_OF_FIRST_START},
        command=where["command"],
        nonzero=cost.nonzero,
        multiplies_left=cost.multiplies_left,
    )
    result.save(folder.result)
    log.info("done: %s %.4g", result.metric, result.value)
    return result


def final_value(experiment: Experiment, curve: list[dict[str, float]]) -> float:
    """The best value of the metric in the last share of training, `Experiment.judged_over`."""
    since = (1 - experiment.judged_over) * curve[-1]["step"]
    best = max if METRICS[experiment.metric] else min
    return best(row[experiment.metric] for row in curve if row["step"] >= since)


def _trained_model(plan: ImagePlan | TextPlan, folder: RunFolder) -> nn.Module:
    """The model with the weights of the last checkpoint; pruned weights are plain zeros, without masks."""
    model = plan.build()
    pruner = plan.pruner(model)
    last = folder.checkpoint(plan.steps)
    saved = read_checkpoint(last)["state_dict"]
    try:
        model.load_state_dict(
            {name.removeprefix("model."): v for name, v in saved.items() if name.startswith("model.")}
        )
    except (RuntimeError, AttributeError, TypeError) as error:
        raise foreign_checkpoint(last, error) from None
    if pruner is not None:
        pruner.finish()
    return model


def _curve(rows: Iterable[dict[str, float]], metric: str) -> list[dict[str, float]]:
    """The rows of evaluations, each with the last training loss that was logged before it."""
    curve, train_loss = [], math.nan
    for row in rows:
        train_loss = row.get("train_loss", train_loss)
        if metric in row:
            curve.append({"train_loss": train_loss, **row})
    return curve
