"""Experiments to run folders: what is trained, on what and how, and what came out.

>>> import tempfile
>>> from pathlib import Path
>>> from algebranets import recipes, train
>>> experiment = recipes.create("digits", algebra="M2R", settings={"steps": 2})
>>> result = train.run(experiment, Path(tempfile.mkdtemp()) / "run")
>>> result.metric, result.steps, result.changes
('accuracy', 2, {'steps': 2})

`run`, `resume`, `evaluate` and what they need of Lightning are imported when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from algebranets.train.experiment import Experiment, Images, Optimizer, Pruning, Schedule, Texts
from algebranets.train.folder import RunFolder
from algebranets.train.results import METRICS, Result

if TYPE_CHECKING:
    from algebranets.train.callbacks import Prune, Stopped
    from algebranets.train.evaluation import evaluate
    from algebranets.train.hardware import Hardware
    from algebranets.train.running import resume, run
    from algebranets.train.tasks import Classification, Language
    from algebranets.train.weights import load

__all__ = [
    "METRICS",
    "Classification",
    "Experiment",
    "Hardware",
    "Images",
    "Language",
    "Optimizer",
    "Prune",
    "Pruning",
    "Result",
    "RunFolder",
    "Schedule",
    "Stopped",
    "Texts",
    "evaluate",
    "load",
    "resume",
    "run",
]

_LATER = {
    "Classification": "tasks",
    "Hardware": "hardware",
    "Language": "tasks",
    "Prune": "callbacks",
    "Stopped": "callbacks",
    "evaluate": "evaluation",
    "load": "weights",
    "resume": "running",
    "run": "running",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"algebranets.train.{_LATER[name]}"), name)
