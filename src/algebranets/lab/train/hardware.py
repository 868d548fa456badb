"""The hardware of a run: devices, processes, threads, precision, and how often it saves and logs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch

from algebranets import checks
from algebranets.lab.train.folder import RunFolder

ACCELERATORS = ("auto", "cpu", "cuda")
STRATEGIES = ("auto", "ddp", "fsdp")
PRECISIONS = ("auto", "32", "bf16", "16")
LOGGERS = ("tensorboard", "csv")
#: The largest number of threads. OpenMP ends the process if it cannot start the threads it is asked for.
MAX_THREADS = 1024


@dataclass(frozen=True)
class Hardware:
    """The devices of a run, and how often it saves and logs. They affect results only by rounding.

    With dropout, the number of processes also changes which numbers are dropped.

    Args:
        accelerator: "cpu", "cuda", or "auto": a GPU if there is one.
        devices: The number of devices on each node. If torchrun starts the processes, its number is used instead.
        nodes: The number of machines. If torchrun starts the processes, its number is used instead.
        strategy: "ddp" or "fsdp"; "auto" is ddp with several processes.
        precision: "32", "bf16" or "16" (the last two are mixed); "auto" is bf16 on a GPU and 32 on a CPU.
        compile: Whether the model is compiled by torch.compile and, on a GPU, recorded as CUDA graphs.
        threads: CPU threads of each process. They decide how sums are split, and so how they are rounded. 0 means the
            number that the run had before or, for a new run, torch's own.
        data: The folder of data sets; "" means ``$ALGEBRANETS_DATA``, or ``./data`` if it is not set.
        checkpoint_minutes: Minutes between two checkpoints.
        checkpoint_steps: If not 0, a checkpoint is also saved after every ``checkpoint_steps`` steps.
        log_steps: Steps between two rows of metrics.
        loggers: Lightning's loggers to use in addition to ``metrics.jsonl``: "tensorboard", "csv".

    >>> Hardware(accelerator="cpu", threads=2).on_gpu
    False
    """

    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1
    strategy: str = "auto"
    precision: str = "auto"
    compile: bool = False
    threads: int = 0
    data: str = ""
    checkpoint_minutes: float = 5.0
    checkpoint_steps: int = 0
    log_steps: int = 50
    loggers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checks.fields(self)
        checks.one_of("accelerator", self.accelerator, ACCELERATORS)
        checks.one_of("strategy", self.strategy, STRATEGIES)
        checks.one_of("precision", self.precision, PRECISIONS)
        for logger in self.loggers:
            checks.one_of("logger", logger, LOGGERS)
        for name in ("devices", "nodes", "log_steps"):
            checks.whole(name, getattr(self, name), least=1)
        checks.between("threads", self.threads, 0, MAX_THREADS)
        checks.between("checkpoint_minutes", self.checkpoint_minutes, 0, math.inf)
        checks.whole("checkpoint_steps", self.checkpoint_steps, least=0)
        if self.accelerator == "cuda" and not torch.cuda.is_available():
            raise ValueError("accelerator 'cuda' needs a CUDA device, and torch sees none here; take cpu or auto.")
        if self.precision == "16" and not self.on_gpu:
            raise ValueError("precision '16' needs a CUDA device, and torch sees none here; take bf16 or 32.")
        if self.strategy == "fsdp" and not self.on_gpu:
            raise ValueError("strategy 'fsdp' shards over CUDA devices, and torch sees none here; take ddp.")

    @property
    def on_gpu(self) -> bool:
        """Whether the run uses CUDA devices."""
        return self.accelerator != "cpu" and torch.cuda.is_available()

    def to_dict(self) -> dict[str, Any]:
        """The hardware as ``environment.json`` stores it."""
        return asdict(self)

    @classmethod
    def of(cls, folder: RunFolder, names: Iterable[str] = (), **given: Any) -> Hardware:
        """The hardware of the last start of the run in this folder, with the fields ``given`` replaced.

        Args:
            folder: The run's folder.
            names: The fields to read from the folder; all fields if empty.
            given: Values that replace those from the folder.
        """
        chosen = cls(**given)  # raises an error if a value is wrong
        saved = folder.environment().get("hardware", {})
        known = set(names) or {field.name for field in fields(cls)}
        try:
            return replace(chosen, **{name: saved[name] for name in known & saved.keys() - given.keys()})
        except ValueError as error:
            raise ValueError(
                f"{folder.path} was trained on other hardware, as its environment.json says: {error} Choose the "
                "hardware with the options, or remove that file."
            ) from None

    @contextmanager
    def fixed_rounding(self) -> Iterator[Hardware]:
        """Fix torch's number of threads, and turn oneDNN on, until the context ends.

        Yields the hardware with that number. Both settings affect rounding on a CPU. On a CPU without bf16, torch turns
        oneDNN off for the whole process at the first bf16 product, so rounding would depend on what ran before.
        """
        if os.environ.get("OMP_DYNAMIC", "").strip().lower() == "true":
            raise ValueError(
                "OMP_DYNAMIC must not be true: OpenMP then takes fewer threads than torch asks for where other "
                "programs run, and torch computes wrong numbers or hangs. Unset it; --threads says how many to take."
            )
        before, had_onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
        # Divide the threads if Lightning starts the processes; torchrun and SLURM have already set each one's.
        processes = 1 if {"OMP_NUM_THREADS", "SLURM_PROCID"} & os.environ.keys() else self.devices
        threads = self.threads or max(1, before // processes)
        torch.set_num_threads(threads)  # also if it is the same number: MKL may use fewer threads until it is set
        torch.backends.mkldnn.enabled = True  # type: ignore[assignment]  # a property of the module
        try:
            yield replace(self, threads=threads)
        finally:
            torch.set_num_threads(before)
            torch.backends.mkldnn.enabled = had_onednn
