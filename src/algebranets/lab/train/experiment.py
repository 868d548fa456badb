"""An experiment, complete: every number that decides what a run computes, as one frozen value.

Recipes return them, ``config.json`` of a run folder holds one, and ``--set optimizer.lr=0.1`` changes one.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from algebranets import algebra as algebras
from algebranets import models
from algebranets.algebra import Algebra
from algebranets.lab.train.checks import at_least_one, between, check_kinds, checked, kinds, one_of
from algebranets.lab.train.results import label
from algebranets.pruning import CRITERIA, SCOPES, UNITS
from algebranets.pruning import SCHEDULES as WAYS

#: What `Schedule.name` may be: a function of the share of training that is done to a share of the learning rate.
SCHEDULES: dict[str, Callable[[Schedule, float], float]] = {
    "constant": lambda _, __: 1.0,
    "steps": lambda s, done: s.factor ** sum(done >= milestone for milestone in s.milestones),
    "linear": lambda s, done: 1 - (1 - s.final) * s.since_warmup(done),
    "cosine": lambda s, done: s.final + (1 - s.final) * (1 + math.cos(math.pi * s.since_warmup(done))) / 2,
}

#: Settings of a run's length, and those that would decide in their place.
_OVERRULED = {"epochs": ("steps", "budget"), "steps": ("budget",), "budget": ("steps",)}

#: Settings that have options of their own on the command line.
OWN = ("recipe", "algebra", "width", "seed")
#: Options of models that the data decides.
OF_DATA = ("model.num_classes", "model.in_channels", "model.vocab_size")

#: The most steps of a run: names of checkpoints have nine digits.
MOST_STEPS = 10**9 - 1
#: The largest learning rate, decay and moment: what optimizers make of them together still fits into float32.
MOST_RATE, MOST_DECAY, MOST_BETA = 1e30, 1e6, 1 - 1e-6

PartT = TypeVar("PartT")


@dataclass(frozen=True)
class Schedule:
    """The learning rate over training: up in a line for the first ``warmup`` share of it, then as the name says."""

    name: str = "constant"
    warmup: float = 0.0
    #: For "steps": the shares of training from which the rate is multiplied by ``factor`` once more.
    milestones: tuple[float, ...] = ()
    factor: float = 0.1
    #: For "linear" and "cosine": the share of the rate that is left at the end.
    final: float = 0.0

    def __post_init__(self) -> None:
        check_kinds(self, "schedule")
        one_of("schedule.name", self.name, SCHEDULES)
        for name in ("warmup", "factor", "final"):
            between(f"schedule.{name}", getattr(self, name), 0, 1)
        for milestone in self.milestones:
            between("schedule.milestones", milestone, 0, 1)

    def share(self, step: int, steps: int) -> float:
        """The share of the learning rate at ``step`` of ``steps``.

        >>> [round(Schedule("linear", warmup=0.2).share(step, 10), 3) for step in (0, 1, 2, 6, 9)]
        [0.5, 1.0, 1.0, 0.5, 0.125]
        """
        warm = (step + 1) / (self.warmup * steps) if self.warmup else 1.0
        return min(1.0, warm) * SCHEDULES[self.name](self, step / steps)

    def since_warmup(self, done: float) -> float:
        """The share of what comes behind the warm-up that is done."""
        return max(0.0, done - self.warmup) / max(1 - self.warmup, 1e-9)


@dataclass(frozen=True)
class Optimizer:
    """SGD, Adam or AdamW; ``weight_decay`` is L2 for the first two, and never touches norms and biases."""

    lr: float
    name: str = "sgd"
    momentum: float = 0.9
    nesterov: bool = False
    betas: tuple[float, ...] = (0.9, 0.999)
    weight_decay: float = 0.0
    #: Gradients of a larger norm are scaled down to this one; 0 leaves them alone.
    clip: float = 0.0

    def __post_init__(self) -> None:
        check_kinds(self, "optimizer")
        one_of("optimizer.name", self.name, ("sgd", "adam", "adamw"))
        for name, most in (("lr", MOST_RATE), ("momentum", 1), ("weight_decay", MOST_DECAY), ("clip", MOST_RATE)):
            between(f"optimizer.{name}", getattr(self, name), 0, most)
        if len(self.betas) != 2 or not all(0 <= beta <= MOST_BETA for beta in self.betas):
            raise ValueError(f"optimizer.betas must be two numbers between 0 and {MOST_BETA}; got {self.betas}.")


@dataclass(frozen=True)
class Images:
    """A set of images by its name (see `algebranets.lab.data`) and how batches are made of it."""

    name: str
    batch_size: int
    #: The side of training images: random crops of tensors, random resized crops of image files; 0 takes them whole.
    crop: int = 0
    padding: int = 0
    flip: bool = True
    workers: int = 8
    eval_batch_size: int = 1000

    def __post_init__(self) -> None:
        check_kinds(self, "data")
        at_least_one("data", batch_size=self.batch_size, eval_batch_size=self.eval_batch_size)
        between("data.workers", self.workers, 0, 1024)


@dataclass(frozen=True)
class Texts:
    """A text by its name or file: rows of ``length`` characters; the state is carried from batch to batch."""

    name: str
    batch_size: int
    length: int
    eval_batch_size: int = 1
    eval_length: int = 512
    #: How far a Transformer-XL looks back in evaluation; 0 is the model's own window.
    eval_window: int = 0
    #: Batches after which training drops the state, as where a pass begins: 0 for never.
    fresh_every: int = 0

    def __post_init__(self) -> None:
        check_kinds(self, "data")
        sizes = {name: getattr(self, name) for name in ("batch_size", "length", "eval_batch_size", "eval_length")}
        at_least_one("data", **sizes)
        if self.eval_window < 0:
            raise ValueError(
                f"data.eval_window must be a number of characters, or 0 for the model's own; got {self.eval_window}."
            )
        if self.fresh_every < 0:
            raise ValueError(f"data.fresh_every must be a number of batches, or 0 for never; got {self.fresh_every}.")


@dataclass(frozen=True)
class Pruning:
    """What `algebranets.pruning.Pruner` is told; a ``sparsity`` of 0 prunes nothing."""

    sparsity: float = 0.0
    begin: float = 0.2
    end: float = 0.8
    every: int = 100
    schedule: str = "cubic"
    criterion: str = "norm"
    unit: str = "tuple"
    scope: str = "layer"
    regrow: bool = False
    #: A pattern of the weights' paths, such as ``stage2.*``; empty for the paper's rule.
    layers: str = ""

    def __post_init__(self) -> None:
        check_kinds(self, "pruning")
        between("pruning.sparsity", self.sparsity, 0, 1)
        for name, known in (("schedule", WAYS), ("criterion", CRITERIA), ("unit", UNITS), ("scope", SCOPES)):
            one_of(f"pruning.{name}", getattr(self, name), known)


@dataclass(frozen=True)
class Experiment:
    """What is trained, on what and how; what it runs on is no part of it."""

    recipe: str
    #: A name; of an algebra that comes from a file, the algebra itself, as the file may change.
    algebra: str | Algebra
    model: Mapping[str, Any]
    data: Images | Texts
    optimizer: Optimizer
    schedule: Schedule = field(default_factory=Schedule)
    width: float = 1.0
    seed: int = 0
    #: Passes over the data; ``steps``, if not 0, is how many batches are trained on instead.
    epochs: float = 0.0
    steps: int = 0
    #: Seconds the run may take; if not 0, ``steps`` is what fits in, which is measured when it begins.
    budget: float = 0.0
    label_smoothing: float = 0.0
    pruning: Pruning = field(default_factory=Pruning)
    #: How often the model is evaluated, the end included.
    evaluations: int = 20
    #: The run is judged by its best evaluation in this last share of training; 0 is the end alone.
    judged_over: float = 0.0
    #: What is not the recipe's own: the settings that `changed` changed.
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_kinds(self)
        algebra = algebras.get(self.algebra)  # says what is wrong with it
        if isinstance(self.algebra, str) and Path(self.algebra).is_file():
            object.__setattr__(self, "algebra", algebra)
        at_least_one("", evaluations=self.evaluations)
        between("label_smoothing", self.label_smoothing, 0, 1)
        between("judged_over", self.judged_over, 0, 1)
        lengths = (self.epochs, self.steps, self.budget)
        if min(lengths) < 0 or not 0 < sum(lengths) < math.inf:
            raise ValueError(
                f"epochs, steps or budget must be positive and finite; got epochs={self.epochs}, steps={self.steps} "
                f"and budget={self.budget}."
            )
        between("steps", self.steps, 0, MOST_STEPS)
        object.__setattr__(self, "model", _complete(self.model))
        if isinstance(self.data, Texts) and self.data.eval_window and "window" not in self.model:
            raise ValueError(f"data.eval_window must be left away: a {self.model['name']} has no window.")

    @property
    def metric(self) -> str:
        """What the run is judged by: a key of `results.METRICS`."""
        return "accuracy" if isinstance(self.data, Images) else "bpc"

    @property
    def name(self) -> str:
        """Of its folder beside others of its recipe: ``M2R-x0.5-norm-whitening-seed0``."""
        algebra = self.algebra if isinstance(self.algebra, str) else self.algebra.name
        words = label(algebra, self.width, self.changes)
        return re.sub(r"[^\w.()]+", "-", words).strip("-") + f"-seed{self.seed}"

    def build(self) -> nn.Module:
        """The model, with the weights this experiment starts from."""
        return models.create(self.model["name"], algebra=algebras.get(self.algebra), **self.options())

    def options(self) -> dict[str, Any]:
        """What the model is built with, besides its algebra."""
        given = {name: value for name, value in self.model.items() if name != "name"}
        return {**given, "width": self.width} if "width" in _parameters(self.model["name"]) else given

    def changed(self, settings: Mapping[str, Any]) -> Experiment:
        """With other values at dotted names, as in ``{"optimizer.lr": 0.1, "model.norm": "whitening"}``."""
        experiment = self
        # The model first, as the other settings may be options of it.
        for name, value in sorted(settings.items(), key=lambda setting: setting[0] != "model.name"):
            known = dict(experiment.settings())
            if name in OF_DATA:
                raise ValueError(f"{name} cannot be set: the data decides it. Leave it away, or set data.name.")
            if name not in known or name in OWN:
                raise ValueError(_unknown(name, [key for key in known if key not in OWN + OF_DATA]))
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
                part = value = checked(name, value, kinds(Experiment)[first])
            new: dict[str, Any] = {first: part}
            new |= {key: 0 for key in _OVERRULED.get(name, ()) if key not in settings}
            if value != known[name]:
                experiment = replace(experiment, **new, changes={**experiment.changes, name: value})
        return experiment

    def settings(self) -> Iterator[tuple[str, Any]]:
        """Every setting by its dotted name."""
        for name, value in ((f.name, getattr(self, f.name)) for f in fields(self) if f.name != "changes"):
            if isinstance(value, Mapping):
                yield from ((f"{name}.{key}", inner) for key, inner in value.items())
            elif is_dataclass(value) and name not in OWN:
                yield from ((f"{name}.{f.name}", getattr(value, f.name)) for f in fields(value))
            else:
                yield name, value

    def to_dict(self) -> dict[str, Any]:
        """As ``config.json`` holds it: the algebra is its name, or its table where it came from a file."""
        saved = {name: asdict(part) for name, part in self._parts().items()}
        saved |= {"model": dict(self.model), "changes": dict(self.changes)}
        if isinstance(self.algebra, Algebra):
            saved["algebra"] = self.algebra.to_dict()
        return {f.name: saved.get(f.name, getattr(self, f.name)) for f in fields(self)}

    def _parts(self) -> dict[str, Images | Texts | Optimizer | Schedule | Pruning]:
        return {"data": self.data, "optimizer": self.optimizer, "schedule": self.schedule, "pruning": self.pruning}

    @classmethod
    def from_dict(cls, saved: Any) -> Experiment:
        """The experiment that `to_dict` wrote; settings that are missing get their defaults."""
        if not isinstance(saved, Mapping):
            raise ValueError(f"an experiment must be settings by name; got {saved!r:.80}.")
        found: dict[str, Any] = dict(saved)
        kinds = {"data": Images, "optimizer": Optimizer, "schedule": Schedule, "pruning": Pruning}
        if isinstance(found.get("data"), Mapping) and "length" in found["data"]:
            kinds["data"] = Texts
        for name, kind in kinds.items():
            if name in found:
                found[name] = _made(kind, found[name], name)
        if not isinstance(found.get("algebra", ""), str):
            found["algebra"] = Algebra.from_table(found["algebra"])
        return _made(cls, found, "the experiment")


def _made(kind: type[PartT], settings: Any, name: str) -> PartT:
    """The dataclass of these settings, which must be all that have no default, and no others."""
    if not isinstance(settings, Mapping):
        raise ValueError(f"{name} must be settings by name; got {settings!r:.80}.")
    known = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(kind)}  # type: ignore[arg-type]
    wrong = sorted(map(str, settings.keys() - known.keys()))
    missing = [key for key, is_needed in known.items() if is_needed and key not in settings]
    if wrong or missing:
        raise ValueError(
            f"{name} must have the settings {', '.join(known)}; {', '.join(wrong or missing)} "
            f"{'must not be there' if wrong else 'must not be missing'}."
        )
    return kind(**settings)


def _complete(model: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of the model, so that each can be seen and set; the algebra and the width are the experiment's."""
    name = model.get("name")
    known = _parameters(name)
    return {"name": name, **{key: known[key].default for key in known if key not in OWN}, **model}


def _parameters(name: object) -> Mapping[str, inspect.Parameter]:
    """What the model of this name takes; an error if there is no such model."""
    if not isinstance(name, str) or name not in models.MODELS:
        raise ValueError(_no_model(name))
    return inspect.signature(models.MODELS[name]).parameters


def _no_model(name: object) -> str:
    near = get_close_matches(str(name), models.MODELS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"model.name must be one of {', '.join(models.MODELS)}; got {name!r:.80}.{hint}"


def _unknown(name: str, known: list[str]) -> str:
    last = {key.rpartition(".")[2]: key for key in known}
    near = get_close_matches(name, known, n=1) or [last[m] for m in get_close_matches(name, last, n=1)]
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"there is no setting {name!r}.{hint} There are {', '.join(known)}."
