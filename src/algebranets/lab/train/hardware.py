"""What a run runs on: devices, processes, precision, compiling; and Lightning's Trainer for it."""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, Strategy
from torch import Tensor, nn
from torch.utils import _pytree

from algebranets.lab.train.checks import at_least_one, between, check_kinds, one_of
from algebranets.lab.train.environment import is_out_of_memory
from algebranets.lab.train.folder import RunFolder, read_checkpoint, save_checkpoint
from algebranets.nn.whitening import sum_over_ranks

#: By our names, Lightning's.
PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}
STRATEGIES = ("auto", "ddp", "fsdp")
LOGGERS = {"tensorboard": TensorBoardLogger, "csv": CSVLogger}
#: OpenMP ends the process where it cannot start as many as it was told.
MOST_THREADS = 1024
#: Of how much inductor makes one kernel: by its own 8 reads and 30 operations whitening takes passes it does not need.
COMPILING = {"realize_acc_reads_threshold": 64, "realize_opcount_threshold": 200}


@dataclass(frozen=True)
class Hardware:
    """What a run runs on, and how often it looks around: nothing here changes what it computes, rounding aside."""

    #: "cpu", "cuda" or "auto", a GPU if there is one.
    accelerator: str = "auto"
    #: On each node; under torchrun, what torchrun says.
    devices: int = 1
    nodes: int = 1
    strategy: str = "auto"
    #: "32", "bf16" or "16" (both mixed), or "auto": bf16 on a GPU.
    precision: str = "auto"
    compile: bool = False
    #: Threads of each process on the CPU, which decide how sums are split and so how they are rounded; 0 is the number
    #: that the run has had so far or, where it begins, what torch has.
    threads: int = 0
    #: Where data sets lie; "" is ``ALGEBRANETS_DATA`` or ./data.
    data: str = ""
    checkpoint_minutes: float = 5.0
    #: A checkpoint every so many steps besides; 0 for none.
    checkpoint_steps: int = 0
    log_steps: int = 50
    #: Keys of `LOGGERS`, besides the run folder's own metrics.
    loggers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_kinds(self)
        for name, value, choices in (
            ("accelerator", self.accelerator, ("auto", "cpu", "cuda")),
            ("strategy", self.strategy, STRATEGIES),
            ("precision", self.precision, ("auto", *PRECISIONS)),
            *(("logger", logger, tuple(LOGGERS)) for logger in self.loggers),
        ):
            one_of(name, value, choices)
        at_least_one("", devices=self.devices, nodes=self.nodes, log_steps=self.log_steps)
        between("threads", self.threads, 0, MOST_THREADS)
        between("checkpoint_minutes", self.checkpoint_minutes, 0, math.inf)
        between("checkpoint_steps", self.checkpoint_steps, 0, math.inf)
        if self.accelerator == "cuda" and not torch.cuda.is_available():
            raise ValueError("accelerator 'cuda' needs a CUDA device, and torch sees none here; take cpu or auto.")
        if self.precision == "16" and not self.on_gpu:
            raise ValueError("precision '16' needs a CUDA device, and torch sees none here; take bf16 or 32.")
        if self.strategy == "fsdp" and not self.on_gpu:
            raise ValueError("strategy 'fsdp' shards over CUDA devices, and torch sees none here; take ddp.")

    @property
    def on_gpu(self) -> bool:
        return self.accelerator != "cpu" and torch.cuda.is_available()

    def to_dict(self) -> dict[str, Any]:
        """As ``environment.json`` holds it."""
        return asdict(self)

    @classmethod
    def of(cls, folder: RunFolder, names: Iterable[str] = (), **given: Any) -> Hardware:
        """What the run in this folder was started on last, but for what is ``given`` now.

        ``names`` are the fields that are taken from there: all of them, if none is named.
        """
        chosen = cls(**given)  # says what is wrong with it
        saved = folder.environment().get("hardware", {})
        known = set(names) or {field.name for field in fields(cls)}
        try:
            return replace(chosen, **{name: saved[name] for name in known & saved.keys() - given.keys()})
        except ValueError as error:
            raise ValueError(
                f"{folder.path} was trained on other hardware, as its environment.json says: {error} Say what to take "
                "now, or remove that file."
            ) from None

    @contextmanager
    def fixed_rounding(self) -> Iterator[Hardware]:
        """This hardware with its number of threads; until the context ends, torch uses that number, and oneDNN.

        Both decide how results are rounded on a CPU. torch turns oneDNN off for the whole process at the first bf16
        product on a CPU without bf16, so what ran before in the process would decide too.
        """
        if os.environ.get("OMP_DYNAMIC", "").strip().lower() == "true":
            raise ValueError(
                "OMP_DYNAMIC must not be true: OpenMP then takes fewer threads than torch asks for where other "
                "programs run, and torch computes wrong numbers or hangs. Unset it; --threads says how many to take."
            )
        before, had_onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
        # Lightning starts the processes of several devices; torchrun and SLURM have given each its threads already.
        processes = 1 if {"OMP_NUM_THREADS", "SLURM_PROCID"} & os.environ.keys() else self.devices
        threads = self.threads or max(1, before // processes)
        torch.set_num_threads(threads)  # even if it is the same: until it is told a number, MKL may take fewer
        torch.backends.mkldnn.enabled = True  # type: ignore[assignment]  # a property of the module
        try:
            yield replace(self, threads=threads)
        finally:
            torch.set_num_threads(before)
            torch.backends.mkldnn.enabled = had_onednn


class FixedThreads(Callback):
    """Sets the number of threads again, as Lightning's launcher of several processes sets another one."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def setup(self, trainer: pl.Trainer, task: pl.LightningModule, stage: str) -> None:
        torch.set_num_threads(self.threads)


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints written whole or not at all, and read without running anything they hold."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        save_checkpoint(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, map_location: Any = "cpu", weights_only: bool | None = True) -> dict[str, Any]:
        return read_checkpoint(Path(path), map_location)


def make_trainer(
    hardware: Hardware,
    folder: RunFolder,
    model: nn.Module,
    evaluate_every: int,
    clip: float,
    loggers: Iterable[Logger],
    callbacks: Iterable[Callback],
) -> pl.Trainer:
    """A Trainer of one long pass over what it is given, evaluating every so many steps."""
    # torchrun has started the processes already: there are as many as it says.
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", hardware.devices))
    nodes = int(os.environ.get("WORLD_SIZE", 0)) // devices if "LOCAL_WORLD_SIZE" in os.environ else hardware.nodes
    precision = hardware.precision if hardware.precision != "auto" else ("bf16" if hardware.on_gpu else "32")
    own: list[Logger] = [LOGGERS[name](str(folder.path), name=name, version="") for name in hardware.loggers]
    return pl.Trainer(
        accelerator="cuda" if hardware.on_gpu else "cpu",
        devices=devices,
        num_nodes=nodes,
        strategy=_strategy(hardware, model, devices * nodes),
        precision=PRECISIONS[precision],  # type: ignore[arg-type]
        benchmark=hardware.on_gpu,
        sync_batchnorm=hardware.on_gpu and devices * nodes > 1,
        max_epochs=1,
        val_check_interval=evaluate_every,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        gradient_clip_val=clip or None,
        plugins=[WholeCheckpoints()],
        logger=[*loggers, *own],
        callbacks=[*([FixedThreads(hardware.threads)] if hardware.threads else []), *callbacks],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=folder.path,
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Lightning says nothing but errors: what it would tell is in the run's folder. Nor does torch of compiling."""
    talkers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [talker.level for talker in talkers]
    for talker in talkers:
        talker.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning|torch\._inductor")
            # Of `sum_over_ranks`: what torch names in its place is private.
            warnings.filterwarnings("ignore", message=r"torch\.distributed\.nn\.functional\.all_reduce is deprecated")
            # `capture` records on a stream of its own, which gradients are then waited for: as it should be.
            warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream does not match")
            yield
    finally:
        for talker, level in zip(talkers, levels, strict=True):
            talker.setLevel(level)


@contextmanager
def within_memory() -> Iterator[None]:
    """Turn an out-of-memory error into one that says which setting to reduce."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        where = "the GPU" if isinstance(error, torch.OutOfMemoryError) else "the computer"
        said = str(error).partition(" GPU ")[0]  # behind it, whose memory is where
        raise ValueError(
            f"a batch must fit into {where}'s memory, but torch says: {said} Take a smaller data.batch_size or, where "
            "it fails in evaluation, data.eval_batch_size."
        ) from error


def prepare(model: nn.Module, hardware: Hardware, images: bool, num_processes: int) -> None:
    """Make a model, of ``images`` or of text, ready for what it runs on, in place."""
    if num_processes > 1 and not hardware.on_gpu:
        synchronise(model)
    if hardware.on_gpu and images:
        model.to(memory_format=torch.channels_last)  # as its images are
    if hardware.compile:
        compile_model(model, whole=images and hardware.strategy != "fsdp")


def synchronise(model: nn.Module) -> None:
    """Batch norms take their statistics over all processes, in place: torch's `SyncBatchNorm` does so on GPUs only."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.forward = partial(_over_processes, module)  # type: ignore[method-assign]


def _over_processes(norm: Any, x: Tensor) -> Tensor:
    if not norm.training:
        return type(norm).forward(norm, x)
    axes, shape = [0, *range(2, x.dim())], (-1, *[1] * (x.dim() - 2))
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    count = sum_over_ranks(wide.new_tensor(x.numel() // x.shape[1]))
    mean = sum_over_ranks(wide.sum(axes)) / count
    centred = wide - mean.view(shape)
    variance = sum_over_ranks(centred.square().sum(axes)) / count
    with torch.no_grad():
        norm.num_batches_tracked += 1
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * count / (count - 1), norm.momentum)
    scale = norm.weight * (variance + norm.eps).rsqrt()
    return (centred * scale.view(shape) + norm.bias.view(shape)).to(x.dtype)


def _strategy(hardware: Hardware, model: nn.Module, num_processes: int) -> Strategy | str:
    if hardware.strategy == "fsdp":
        return FSDPStrategy(auto_wrap_policy={type(block) for block in blocks(model)}, state_dict_type="full")
    if hardware.strategy == "ddp" or num_processes > 1:
        return DDPStrategy(gradient_as_bucket_view=True)  # gradients lie where they are summed
    return "auto"


def blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The parts a deep model repeats: members of its sequences that have parts themselves, outermost first.

    >>> import algebranets as an
    >>> len(list(blocks(an.models.create("cifar_resnet", algebra="H", num_blocks=3))))
    9
    """
    for child in model.children():
        if isinstance(child, nn.Sequential | nn.ModuleList) and any(True for part in child for _ in part.children()):
            yield from (part for part in child if any(True for _ in part.children()))
        else:
            yield from blocks(child)


def compile_model(model: nn.Module, whole: bool, backend: str = "inductor") -> None:
    """torch.compile, in place: the ``whole`` model as one graph, or block by block.

    Equal blocks share one graph, so that deep models start in seconds, and may be sharded. Image networks, whose blocks
    are of many sizes, are faster as a whole; torch 2.11 would not compile MobileNet's blocks, which are of its classes.
    """
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)  # one graph a kind of block
    options = COMPILING if backend == "inductor" else None
    repeated = set() if whole else set(blocks(model))
    for part in [*repeated, *_around(model, repeated)] if repeated else [model]:
        part.compile(dynamic=False, backend=backend, options=options)


def _around(module: nn.Module, repeated: set[nn.Module]) -> Iterator[nn.Module]:
    """The largest parts with weights that hold none of the ``repeated`` ones: what stands before and behind them."""
    for child in module.children():
        if not repeated.isdisjoint(child.modules()):
            yield from _around(child, repeated) if child not in repeated else ()
        elif any(True for _ in child.parameters()):
            yield child


def capture(model: nn.Module, *inputs: Any) -> None:
    """Record training's forward and backward as CUDA graphs, in place: two launches a step instead of thousands.

    ``inputs`` are tensors, or lists of them, whose memory is where later ones are put. Inputs of other shapes, and
    evaluation, run as before.
    """
    kept = [buffer.clone() for buffer in model.buffers()]  # trial runs change them
    before, recorded_shapes = model.forward, shapes(inputs)
    torch.cuda.make_graphed_callables(model.train(), inputs)
    recorded = model.forward
    model._compiled_call_impl = None  # what is recorded takes its place
    for buffer, value in zip(model.buffers(), kept, strict=True):
        buffer.copy_(value)

    def forward(*given: Any, **options: Any) -> Any:
        alike = not options and shapes(given) == recorded_shapes
        return recorded(*given) if alike else before(*given, **options)

    model.forward = forward


def shapes(values: Any) -> list[torch.Size | None]:
    """Of all tensors in lists and tuples of them."""
    return [getattr(value, "shape", None) for value in _pytree.tree_leaves(values)]
