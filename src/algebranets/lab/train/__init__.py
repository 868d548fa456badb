"""Training: `run` trains an `Experiment` in a folder and writes its `Result` there.

>>> import tempfile
>>> from pathlib import Path
>>> from algebranets.lab import recipes, train
>>> experiment = recipes.create("digits", algebra="M2R", settings={"steps": 2})
>>> result = train.run(experiment, Path(tempfile.mkdtemp()) / "run")
>>> result.metric, result.steps, result.changes
('accuracy', 2, {'steps': 2})

Lightning is imported when `run`, `resume`, `evaluate` or another name that needs it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from algebranets.lab.train.experiment import Experiment
from algebranets.lab.train.folder import RunFolder
from algebranets.lab.train.hardware import Hardware
from algebranets.lab.train.results import METRICS, Result
from algebranets.lab.train.settings import Images, Optimizer, Pruning, Schedule, Texts

if TYPE_CHECKING:
    from algebranets.lab.train.callbacks import Prune
    from algebranets.lab.train.checkpoints import Stopped
    from algebranets.lab.train.evaluation import evaluate
    from algebranets.lab.train.running import resume, run
    from algebranets.lab.train.tasks import Classification, Language

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
    "resume",
    "run",
]

#: The names that need Lightning, each with the module that defines it.
_LATER = {
    "Classification": "tasks",
    "Language": "tasks",
    "Prune": "callbacks",
    "Stopped": "checkpoints",
    "evaluate": "evaluation",
    "resume": "running",
    "run": "running",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"algebranets.lab.train.{_LATER[name]}"), name)
