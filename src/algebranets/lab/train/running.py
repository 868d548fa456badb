"""`run` trains an experiment in a folder, `resume` continues a run.

Batches, dropout and learning rates depend only on the settings, the seed and the step. So a run that was killed and
resumed computes the same as an uninterrupted run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lightning.pytorch.callbacks import Callback

from algebranets.lab.train import budget
from algebranets.lab.train.experiment import Experiment
from algebranets.lab.train.finishing import finish
from algebranets.lab.train.folder import RunFolder
from algebranets.lab.train.hardware import Hardware
from algebranets.lab.train.memory import within_memory
from algebranets.lab.train.replan import warn_if_missed
from algebranets.lab.train.results import Result
from algebranets.lab.train.session import Session
from algebranets.lab.train.trainer import interruptible, quiet


@quiet()
@interruptible()
@within_memory()
def run(
    experiment: Experiment, path: Path, hardware: Hardware | None = None, callbacks: Iterable[Callback] = ()
) -> Result | None:
    """Train an experiment in a folder, or continue if the folder already has a part of this run.

    Args:
        experiment: The experiment to train, for example from a recipe.
        path: The run's folder. A folder with another experiment is an error.
        hardware: The hardware to train on; by default a GPU if there is one.
        callbacks: Further Lightning callbacks.

    Returns:
        The result in the first process; None in all others.

    Raises:
        Stopped: SIGTERM or Ctrl-C stopped the run, after a checkpoint.

    >>> import tempfile
    >>> from algebranets.lab import recipes
    >>> folder = Path(tempfile.mkdtemp()) / "run"
    >>> run(recipes.create("digits", algebra="M2R", settings={"steps": 1}), folder).metric
    'accuracy'
    """
    begun = time.monotonic()
    hardware, folder = hardware or Hardware(), RunFolder(path)
    done = folder.finished()
    if done is not None and folder.holds(experiment):
        return done
    with _with_threads_of(folder, hardware).fixed_rounding() as hardware:
        timed = None
        if experiment.budget and folder.holds(experiment):
            experiment = folder.experiment()  # a run that has started already has its number of steps
        elif experiment.budget:
            experiment, timed = budget.fit(experiment, hardware, begun)
        session = Session(experiment, folder, hardware, callbacks)
        with session.recorded(timed and timed._replace(spent=time.monotonic() - begun)):
            is_trained = session.train() < session.plan.steps
            if not session.is_first:
                return None
            result = finish(session.plan, folder, is_trained)
            if is_trained:
                warn_if_missed(folder, session.plan, session.journal)
            return result


def resume(path: Path, hardware: Hardware | None = None, callbacks: Iterable[Callback] = ()) -> Result | None:
    """Continue the run in a folder from its newest checkpoint.

    Args:
        path: The run's folder.
        hardware: The hardware to train on; by default the hardware of the last start.
        callbacks: Further Lightning callbacks.

    Returns:
        The result in the first process; None in all others.

    >>> resume(Path("runs/cifar10/M2R-seed0"))  # doctest: +SKIP
    """
    folder = RunFolder(path)
    experiment = folder.experiment()
    return run(experiment, path, hardware or Hardware.of(folder), callbacks)


def _with_threads_of(folder: RunFolder, hardware: Hardware) -> Hardware:
    """Take the number of threads from the earlier run, if it is not given and the number of devices is the same."""
    if hardware.threads:
        return hardware
    before = Hardware.of(folder, ("threads", "devices"))
    return replace(hardware, threads=before.threads if before.devices == hardware.devices else 0)
