"""The commands ``train`` and ``eval``."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from algebranets.lab.cli import completion
from algebranets.lab.cli.terminal import console, new_table, read_duration, read_settings, say, short, show

if TYPE_CHECKING:
    from algebranets.lab.train import Experiment, Hardware, Result

Algebra = Annotated[
    str,
    typer.Option(
        help="Name of an algebra, a constructor such as 'clifford(2,0)', or a file.",
        autocompletion=completion.algebras,
    ),
]
Width = Annotated[float, typer.Option(help="Width multiplier.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting, as in optimizer.lr=0.1; can be repeated.")
]
Budget = Annotated[
    str,
    typer.Option(
        help="Train for about this time, such as 25m or 1h30m. The number of steps is chosen by timing a few, and may "
        "change once."
    ),
]
Accelerator = Annotated[str, typer.Option(help="cpu, cuda, or auto, which uses a GPU if there is one.")]
Devices = Annotated[int, typer.Option(help="Number of devices per node. Under torchrun, torchrun sets it.")]
Nodes = Annotated[int, typer.Option(help="Number of nodes under SLURM. Under torchrun, torchrun sets it.")]
Strategy = Annotated[str, typer.Option(help="ddp, fsdp, or auto, which uses ddp for several devices.")]
Precision = Annotated[str, typer.Option(help="32, bf16 or 16 (mixed precision), or auto: bf16 on a GPU, else 32.")]
Compile = Annotated[
    bool,
    typer.Option(
        "--compile",
        help="Compile the model with torch.compile; on a GPU, also capture CUDA graphs.",
    ),
]
Threads = Annotated[
    int,
    typer.Option(help="CPU threads per process. 0: a resumed run keeps its number, a new one uses torch's default."),
]
Data = Annotated[
    str,
    typer.Option(help="The folder of data sets (by default ALGEBRANETS_DATA or ./data), or a text file of your own."),
]
Minutes = Annotated[float, typer.Option(help="Minutes between checkpoints.")]
LogSteps = Annotated[int, typer.Option(help="Steps between rows of metrics.jsonl.")]
Loggers = Annotated[
    list[str] | None,
    typer.Option("--logger", help="tensorboard or csv, in addition to metrics.jsonl; can be repeated."),
]


def train(
    context: typer.Context,
    recipe: Annotated[
        str, typer.Argument(help="A name that `algebranets recipes` lists.", autocompletion=completion.recipes)
    ] = "",
    algebra: Algebra = "R",
    width: Width = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of weights, batches and dropout.")] = 0,
    options: Settings = None,
    budget: Budget = "",
    out: Annotated[Path | None, typer.Option(help="The run's folder (by default runs/RECIPE/NAME).")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    nodes: Nodes = 1,
    strategy: Strategy = "auto",
    precision: Precision = "auto",
    compile: Compile = False,
    threads: Threads = 0,
    data: Data = "",
    checkpoint_minutes: Minutes = 5.0,
    checkpoint_steps: Annotated[int, typer.Option(help="Steps between additional checkpoints; 0 for none.")] = 0,
    log_steps: LogSteps = 50,
    loggers: Loggers = None,
) -> None:
    """Train a recipe, or continue a run that was stopped or killed."""
    from algebranets.lab import recipes
    from algebranets.lab.train import Hardware, RunFolder

    settings, data = read_data(read_settings(options or []), data)
    if (resume is None) == (not recipe):
        raise ValueError("give either a recipe to train, or --resume with the folder of a run.")
    on: dict[str, Any] = {
        "accelerator": accelerator,
        "devices": devices,
        "nodes": nodes,
        "strategy": strategy,
        "precision": precision,
        "compile": compile,
        "threads": threads,
        "data": data,
        "checkpoint_minutes": checkpoint_minutes,
        "checkpoint_steps": checkpoint_steps,
        "log_steps": log_steps,
        "loggers": tuple(loggers or ()),
    }
    if resume is not None:
        own = [f"--{name}" for name in ("algebra", "width", "seed", "budget", "out") if _is_given(context, name)]
        own += ["--set"] if settings else []
        if own:
            raise ValueError(f"a resumed run keeps its settings: leave out {', '.join(own)}, or start a new run.")
        experiment = RunFolder(resume).experiment()
        run_with_bar(experiment, resume, _saved_hardware(context, resume, on))
        return
    experiment = recipes.create(recipe, algebra, width, seed, settings | read_budget(budget))
    run_with_bar(experiment, out or Path("runs") / recipe / experiment.name, Hardware(**on))


def read_budget(budget: str) -> dict[str, object]:
    """Read ``--budget`` as a setting; empty if it is not given."""
    return {"budget": read_duration(budget)} if budget else {}


def read_data(settings: dict[str, object], data: str) -> tuple[dict[str, object], str]:
    """Read ``--data``, and return the settings and the folder of data sets.

    If ``--data`` is a file, it is a text to train on and becomes a setting.
    """
    path = Path(os.path.expanduser(data))
    if path.is_file():
        return {**settings, "data.name": str(path.resolve())}, ""
    if not path.is_dir():
        raise ValueError(f"--data must be a folder of data sets or a text to train on; got {data}.")
    return settings, data


def _saved_hardware(context: typer.Context, run: Path, options: Mapping[str, object]) -> Hardware:
    """The hardware options that a run was started with, overridden by those on the command line."""
    from algebranets.lab.train import Hardware, RunFolder

    given = {name: value for name, value in options.items() if _is_given(context, name)}
    return Hardware.of(RunFolder(run), options, **given)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def run_with_bar(experiment: Experiment, folder: Path, hardware: Hardware) -> None:
    """Train with a progress bar, then print the result and its folder."""
    from lightning.pytorch.utilities import rank_zero_only

    from algebranets.algebra import get as get_algebra
    from algebranets.lab.cli.progress import Bar, new_progress
    from algebranets.lab.train import RunFolder, Stopped, run

    first = getattr(rank_zero_only, "rank", 0) in (0, None)
    show_warnings()
    progress = new_progress()
    is_timed = experiment.budget and not RunFolder(folder).holds(experiment)
    status = "timing a few steps" if is_timed else "starting"
    bar = Bar(progress, get_algebra(experiment.algebra).name, status)
    resume = f"  algebranets train --resume {shlex.quote(str(folder))}"
    try:
        with progress if first else nullcontext():
            result = run(experiment, folder, hardware, [bar] if first else [])
            if result is not None:
                bar.finish(result)
    except Stopped as stopped:
        say(f"{stopped} Continue with")
        say(resume)
        raise typer.Exit(130) from None
    except KeyboardInterrupt:  # before training began, or a second one
        is_recorded = RunFolder(folder).config.exists()
        say("stopped. Continue with" if is_recorded else "stopped before training began; nothing was written.")
        if is_recorded:
            say(resume)
        raise typer.Exit(130) from None
    if result is not None:
        print_result(result, folder)


def print_result(result: Result, folder: Path) -> None:
    """Print the result on one line, and its folder on the next."""
    console.print(
        f"{result.recipe} {result.label}: {result.metric} {result.value:.4g}, {short(result.parameters)} parameters, "
        f"{short(result.multiplies)} multiply-adds, {result.seconds:.0f} s"
    )
    say(f"in {folder}")


def evaluate(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="The folder of a finished run, or a folder of runs to list.")],
    accelerator: Accelerator = "auto",
    precision: Precision = "auto",
    data: Annotated[str, typer.Option(help="The folder of data sets, or a file to measure a language model on.")] = "",
    split: Annotated[str, typer.Option(help="The split of the run's own text: train, valid or test.")] = "valid",
    options: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting for this measurement, as in data.eval_window=4608."),
    ] = None,
) -> None:
    """Evaluate the weights of a finished run, and print the recorded result next to the new one.

    Options that are not given have the values that were used in training. For a folder that contains runs, list them.
    """
    from algebranets.lab.cli.progress import EvaluationBar, new_progress
    from algebranets.lab.cli.runs import list_runs
    from algebranets.lab.train import RunFolder
    from algebranets.lab.train import evaluate as measure

    path, settings = Path(os.path.expanduser(data)), read_settings(options or [])
    text = path if path.is_file() else None
    if text is None and not path.is_dir():
        raise ValueError(f"--data must be a folder of data sets or a file to measure; got {data}.")
    if text is not None and _is_given(context, "split"):
        raise ValueError("give either --split, for a part of the run's own text, or --data with a file, not both.")
    on = {"accelerator": accelerator, "precision": precision, "data": "" if text else data, "threads": 0}
    if not RunFolder(run).config.exists():
        list_runs(run)
        return
    hardware = _saved_hardware(context, run, on)
    with new_progress(is_kept=False) as progress:
        bar = EvaluationBar(progress, "eval")
        measured = measure(run, hardware, text=text, split=split, settings=settings, callbacks=[bar])
    result = RunFolder(run).finished()
    is_same = text is None and split == "valid" and not settings
    recorded = result.curve[-1] if result is not None and is_same else {}
    what = f" on {text}" if text else f" on its {split} text" if split != "valid" else ""
    say(f"{run}{what}")
    table = new_table("")
    for heading in ("", "now", "when trained") if recorded else ("", "now"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, value in measured.items():
        then = f"{recorded[name]:.4f}" if name in recorded else ""
        table.add_row(name, f"{value:,}" if isinstance(value, int) else f"{value:.4f}", *([then] if recorded else []))
    show(table)


def show_warnings() -> None:
    """Print warnings on the terminal too, not only in the run's log."""
    log = logging.getLogger("algebranets")
    if not any(isinstance(handler, _Warnings) for handler in log.handlers):
        log.addHandler(_Warnings(logging.WARNING))


class _Warnings(logging.Handler):
    """Prints each message on one line."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage(), record.levelname.lower(), "yellow")
