"""An experiment: all settings that decide what a run computes, in one frozen dataclass.

Recipes return an experiment, a run's ``config.json`` stores it, and ``--set optimizer.lr=0.1`` changes it.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from algebranets import algebra as algebras
from algebranets import checks, models
from algebranets.algebra import Algebra
from algebranets.lab.train.results import label
from algebranets.lab.train.settings import Images, Optimizer, Pruning, Schedule, Texts

#: The settings of a run's length. When one is set, those listed with it become 0, so that it alone decides.
_OVERRULED = {"epochs": ("steps", "budget"), "steps": ("budget",), "budget": ("steps",)}
#: Settings that have their own options on the command line, so ``--set`` does not take them.
OWN_OPTIONS = ("recipe", "algebra", "width", "seed")
#: Model options that are determined by the data.
DECIDED_BY_DATA = ("model.num_classes", "model.in_channels", "model.vocab_size")
#: Settings that a run with a budget decides while it trains.
DECIDED_BY_BUDGET = ("replanned_at", "replanned_from")
#: The largest number of steps in a run: names of checkpoints have nine digits.
MAX_STEPS = 10**9 - 1


@dataclass(frozen=True)
class Experiment:
    """A complete training setup: the model, the data and all settings. Devices are in `Hardware`.

    Args:
        recipe: The name of its recipe.
        algebra: The name of an algebra, or the path of a table file. A common name such as "quaternions" is replaced
            by the algebra's own name, and a path by the `Algebra`, because the file may change.
        model: The model's ``name`` (a key of `algebranets.models.MODELS`) and its constructor's options.
        data: The data set, and how batches are made from it.
        optimizer: The optimizer.
        schedule: The learning rate over training.
        width: The multiplier of the network's sizes, for models with an option ``width``.
        seed: Decides initial weights, batches and dropout.
        epochs: Passes over the data.
        steps: If not 0, the number of batches to train on, instead of ``epochs``.
        budget: If not 0, the seconds that the run may take. Some steps are timed at the start to determine ``steps``.
        label_smoothing: The share of a label's weight that is spread over all classes.
        pruning: Pruning during training.
        evaluations: The number of evaluations, including the one at the end.
        judged_over: The result is the best evaluation in this last share of training; 0 means the last evaluation only.
        changes: The settings that differ from the recipe's, by dotted name.
        replanned_at: The step at which a run with a budget changed ``steps``; 0 if it did not. A run sets it.
        replanned_from: The number of steps before that change.

    >>> experiment = Experiment("mine", "M2R", {"name": "gru_lm"}, Texts("enwik8", 16, 128), Optimizer(lr=0.1), steps=9)
    >>> experiment.changed({"optimizer.lr": 0.2}).changes
    {'optimizer.lr': 0.2}
    """

    recipe: str
    algebra: str | Algebra
    model: Mapping[str, Any]
    data: Images | Texts
    optimizer: Optimizer
    schedule: Schedule = field(default_factory=Schedule)
    width: float = 1.0
    seed: int = 0
    epochs: float = 0.0
    steps: int = 0
    budget: float = 0.0
    label_smoothing: float = 0.0
    pruning: Pruning = field(default_factory=Pruning)
    evaluations: int = 20
    judged_over: float = 0.0
    changes: Mapping[str, Any] = field(default_factory=dict)
    replanned_at: int = 0
    replanned_from: int = 0

    def __post_init__(self) -> None:
        checks.fields(self)
        algebra = algebras.get(self.algebra)  # raises an error if there is no such algebra
        if isinstance(self.algebra, str):
            object.__setattr__(self, "algebra", algebra if Path(self.algebra).is_file() else algebra.name)
        checks.whole("evaluations", self.evaluations, least=1)
        checks.between("label_smoothing", self.label_smoothing, 0, 1)
        checks.between("judged_over", self.judged_over, 0, 1)
        lengths = (self.epochs, self.steps, self.budget)
        if min(lengths) < 0 or not 0 < sum(lengths) < math.inf:
            raise ValueError(
                f"epochs, steps or budget must be positive and finite; got epochs={self.epochs}, steps={self.steps} "
                f"and budget={self.budget}."
            )
        checks.between("steps", self.steps, 0, MAX_STEPS)
        if self.replanned_at and not 0 < self.replanned_at < min(self.steps, self.replanned_from):
            raise ValueError(
                f"replanned_at must be a step before the end of both plans, replanned_from={self.replanned_from} and "
                f"steps={self.steps}; got {self.replanned_at}."
            )
        object.__setattr__(self, "model", _complete(self.model))
        if isinstance(self.data, Texts) and self.data.eval_window and "window" not in self.model:
            raise ValueError(f"data.eval_window must be left out: a {self.model['name']} has no window.")

    @property
    def metric(self) -> str:
        """The name of the metric of the run's result, a key of `results.METRICS`."""
        return "accuracy" if isinstance(self.data, Images) else "bpc"

    @property
    def name(self) -> str:
        """The run's folder name, unique within its recipe, such as ``M2R-x0.5-norm-whitening-seed0``."""
        algebra = self.algebra if isinstance(self.algebra, str) else self.algebra.name
        words = label(algebra, self.width, self.changes)
        return re.sub(r"[^\w.()]+", "-", words).strip("-") + f"-seed{self.seed}"

    def build(self) -> nn.Module:
        """Build the model, with new weights from torch's global random generator."""
        return models.create(self.model["name"], algebra=algebras.get(self.algebra), **self.options())

    def options(self) -> dict[str, Any]:
        """The options of the model's constructor, except for the algebra."""
        given = {name: value for name, value in self.model.items() if name != "name"}
        return {**given, "width": self.width} if "width" in _parameters(self.model["name"]) else given

    def changed(self, settings: Mapping[str, Any]) -> Experiment:
        """A copy with settings changed by dotted name, such as ``{"optimizer.lr": 0.1, "model.norm": "whitening"}``."""
        experiment = self
        # Set the model's name first, because other settings may be options of that model.
        for name, value in sorted(settings.items(), key=lambda setting: setting[0] != "model.name"):
            known = dict(experiment.settings())
            if name in DECIDED_BY_DATA:
                raise ValueError(f"{name} cannot be set: the data decides it. Leave it out, or set data.name.")
            if name in DECIDED_BY_BUDGET:
                raise ValueError(f"{name} cannot be set: a run with a budget decides it. Leave it out, or set budget.")
            if name not in known or name in OWN_OPTIONS:
                hidden = OWN_OPTIONS + DECIDED_BY_DATA + DECIDED_BY_BUDGET
                raise _no_setting(name, [key for key in known if key not in hidden])
            first, _, rest = name.partition(".")
            part = getattr(experiment, first)
            if name == "model.name":
                part = {key: option for key, option in part.items() if key in _parameters(value)} | {"name": value}
            elif isinstance(part, Mapping):  # the model's options, which `models.create` checks
                part = {**part, rest: value}
            elif rest:
                part = replace(part, **{rest: value})
                value = getattr(part, rest)
            else:
                part = value = checks.typed(name, value, checks.parameters(Experiment)[first].annotation)
            overruled = {key: 0 for key in _OVERRULED.get(name, ()) if value and known[key] and key not in settings}
            if value != known[name] or overruled:
                kept = {key: old for key, old in experiment.changes.items() if key not in overruled}
                new: dict[str, Any] = {first: part, **overruled}
                experiment = replace(experiment, **new, changes={**kept, name: value})
        return experiment

    def replanned(self, steps: int, step: int) -> Experiment:
        """A copy in which the number of steps becomes ``steps`` after ``step`` steps."""
        return replace(self, steps=steps, replanned_at=step, replanned_from=self.steps)

    def first_plan(self) -> Experiment:
        """The experiment before its number of steps was changed; the experiment itself if it was not."""
        if not self.replanned_at:
            return self
        return replace(self, steps=self.replanned_from, replanned_at=0, replanned_from=0)

    def settings(self) -> Iterator[tuple[str, Any]]:
        """Yield the dotted name and the value of every setting."""
        for name, value in ((f.name, getattr(self, f.name)) for f in fields(self) if f.name != "changes"):
            if isinstance(value, Mapping):
                yield from ((f"{name}.{key}", inner) for key, inner in value.items())
            elif is_dataclass(value) and name not in OWN_OPTIONS:
                yield from ((f"{name}.{f.name}", getattr(value, f.name)) for f in fields(value))
            else:
                yield name, value

    def to_dict(self) -> dict[str, Any]:
        """The experiment as ``config.json`` stores it; an algebra from a file is stored as its table."""
        parts = {"data": self.data, "optimizer": self.optimizer, "schedule": self.schedule, "pruning": self.pruning}
        saved = {name: asdict(part) for name, part in parts.items()}
        saved |= {"model": dict(self.model), "changes": dict(self.changes)}
        if isinstance(self.algebra, Algebra):
            saved["algebra"] = self.algebra.to_dict()
        return {f.name: saved.get(f.name, getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_dict(cls, saved: Any) -> Experiment:
        """Read an experiment that `to_dict` wrote; missing settings get their defaults."""
        if not isinstance(saved, Mapping):
            raise ValueError(f"an experiment must be settings by name; got {saved!r:.80}.")
        found: dict[str, Any] = dict(saved)
        parts = {"data": Images, "optimizer": Optimizer, "schedule": Schedule, "pruning": Pruning}
        if isinstance(found.get("data"), Mapping) and "length" in found["data"]:
            parts["data"] = Texts
        for name, part in parts.items():
            if name in found:
                found[name] = part(**checks.options(name, found[name], part))
        if not isinstance(found.get("algebra", ""), str):
            found["algebra"] = Algebra.from_table(found["algebra"])
        return cls(**checks.options("an experiment", found, cls))


def _complete(model: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults of all the model's options except algebra and width, so that each can be seen and set."""
    name = model.get("name")
    known = _parameters(name)
    return {"name": name, **{key: known[key].default for key in known if key not in OWN_OPTIONS}, **model}


def _parameters(model: object) -> Mapping[str, inspect.Parameter]:
    """The parameters of a model's constructor."""
    return checks.parameters(models.MODELS[checks.one_of("model.name", model, models.MODELS)])


def _no_setting(name: str, known: list[str]) -> ValueError:
    """The error for an unknown setting. It suggests the closest setting, by the whole name or by its last part."""
    by_last_part = {key.rpartition(".")[2]: key for key in known}
    near = checks.closest(name, known) or by_last_part.get(checks.closest(name, by_last_part))
    hint = f" Did you mean {near!r}?" if near else ""
    return ValueError(f"there is no setting {name!r}.{hint} There are {', '.join(known)}.")
