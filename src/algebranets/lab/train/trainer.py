"""Creates Lightning's Trainer for a run, and prepares the model for it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, Strategy
from torch import nn

from algebranets.lab.train.checkpoint_files import read_checkpoint, save_checkpoint
from algebranets.lab.train.compiling import blocks, compile_model
from algebranets.lab.train.folder import RunFolder
from algebranets.lab.train.hardware import Hardware
from algebranets.lab.train.processes import synchronize

#: Lightning's names for the values of `Hardware.precision`.
LIGHTNING_PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def make_trainer(
    hardware: Hardware,
    folder: RunFolder,
    model: nn.Module,
    *,
    evaluate_every: int = 1,
    clip: float = 0.0,
    loggers: Iterable[Logger] = (),
    callbacks: Iterable[Callback] = (),
) -> pl.Trainer:
    """Create a Trainer for one long pass over the training batches.

    Args:
        hardware: The hardware to train on.
        folder: The run's folder; Lightning's own loggers write there.
        model: The model, whose blocks FSDP shards.
        evaluate_every: Steps between two evaluations.
        clip: The norm to which gradients are clipped; 0 means no clipping.
        loggers: Loggers in addition to those of ``hardware``.
        callbacks: Lightning callbacks, called in this order.
    """
    # If torchrun has started the processes, its numbers of devices and nodes apply.
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", hardware.devices))
    nodes = int(os.environ.get("WORLD_SIZE", 0)) // devices if "LOCAL_WORLD_SIZE" in os.environ else hardware.nodes
    precision = hardware.precision if hardware.precision != "auto" else ("bf16" if hardware.on_gpu else "32")
    return pl.Trainer(
        accelerator="cuda" if hardware.on_gpu else "cpu",
        devices=devices,
        num_nodes=nodes,
        strategy=_strategy(hardware, model, devices * nodes),
        precision=LIGHTNING_PRECISIONS[precision],  # type: ignore[arg-type]
        benchmark=hardware.on_gpu,
        sync_batchnorm=hardware.on_gpu and devices * nodes > 1,
        max_epochs=1,
        val_check_interval=evaluate_every,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        gradient_clip_val=clip or None,
        plugins=[AtomicCheckpointIO()],
        logger=[*loggers, *_lightning_loggers(hardware, folder)],
        callbacks=[*([FixedThreads(hardware.threads)] if hardware.threads else []), *callbacks],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=folder.path,
    )


def prepare(model: nn.Module, hardware: Hardware, images: bool, num_processes: int) -> None:
    """Prepare a model for its hardware, in place: memory format, batch norm over all processes, compilation.

    Args:
        model: The model.
        hardware: The hardware to train on.
        images: Whether the model's inputs are images; otherwise they are text.
        num_processes: The number of processes that train the model together.
    """
    if num_processes > 1 and not hardware.on_gpu:
        synchronize(model)  # on GPUs, Lightning's `sync_batchnorm` does this
    if hardware.on_gpu and images:
        model.to(memory_format=torch.channels_last)  # the format of its images
    if hardware.compile:
        compile_model(model, whole=images and hardware.strategy != "fsdp")


def _strategy(hardware: Hardware, model: nn.Module, num_processes: int) -> Strategy | str:
    if hardware.strategy == "fsdp":
        return FSDPStrategy(auto_wrap_policy={type(block) for block in blocks(model)}, state_dict_type="full")
    if hardware.strategy == "ddp" or num_processes > 1:
        return DDPStrategy(gradient_as_bucket_view=True)  # avoids a copy of the gradients
    return "auto"


def _lightning_loggers(hardware: Hardware, folder: RunFolder) -> Iterator[Logger]:
    kinds = {"tensorboard": TensorBoardLogger, "csv": CSVLogger}
    return (kinds[name](str(folder.path), name=name, version="") for name in hardware.loggers)


class FixedThreads(Callback):
    """Sets the number of threads again, because Lightning changes it when it launches several processes."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def setup(self, trainer: pl.Trainer, task: pl.LightningModule, stage: str) -> None:
        torch.set_num_threads(self.threads)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints whole or not at all, and reads them without running code in the files."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        save_checkpoint(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, map_location: Any = "cpu", weights_only: bool | None = True) -> dict[str, Any]:
        return read_checkpoint(Path(path), map_location)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt. Lightning would end the process, and ignore Ctrl-C from then on."""
    is_main = threading.current_thread() is threading.main_thread()  # only there may handlers be set
    before = signal.getsignal(signal.SIGINT) if is_main else None
    try:
        yield
    except SystemExit as error:
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        if is_main:
            signal.signal(signal.SIGINT, before)
        raise KeyboardInterrupt from None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Lightning, except for errors, and torch's warnings about compiling."""
    talkers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [talker.level for talker in talkers]
    for talker in talkers:
        talker.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning|torch\._inductor")
            # From `sum_over_ranks`. The replacement that torch recommends is private.
            warnings.filterwarnings("ignore", message=r"torch\.distributed\.nn\.functional\.all_reduce is deprecated")
            # From `capture`, which records on its own stream. Gradients wait for that stream, as they should.
            warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream does not match")
            yield
    finally:
        for talker, level in zip(talkers, levels, strict=True):
            talker.setLevel(level)
