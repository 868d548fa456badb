"""The commands that train: recipes, train, eval."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from algebranets.algebra import get as get_algebra
from algebranets.lab.cli.terminal import console, new_table, read_duration, read_settings, say, short, show, split_names

if TYPE_CHECKING:
    from algebranets.lab.train import Experiment, Hardware, Result

Algebra = Annotated[str, typer.Option(help="A name, a constructor or a table file.")]
Width = Annotated[float, typer.Option(help="Width multiplier.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Another setting, as in optimizer.lr=0.1; give it several times.")
]
Budget = Annotated[
    str, typer.Option(help="Train as many steps as fit into this time, as in 25m or 1h30m: a step is timed first.")
]
Accelerator = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")]
Devices = Annotated[int, typer.Option(help="How many on each node; torchrun knows better.")]
Nodes = Annotated[int, typer.Option(help="How many machines, under SLURM; torchrun knows better.")]
Strategy = Annotated[str, typer.Option(help="ddp or fsdp; auto is ddp where there are several devices.")]
Precision = Annotated[str, typer.Option(help="32, bf16 or 16 (mixed); auto is bf16 on a GPU.")]
Compile = Annotated[
    bool,
    typer.Option(
        "--compile", help="torch.compile the model; on a GPU its forward and backward also become CUDA graphs."
    ),
]
Threads = Annotated[
    int, typer.Option(help="On the CPU, of each process; 0 is as before, or as many as there are cores.")
]
Data = Annotated[
    str, typer.Option(help="Where data sets lie (otherwise ALGEBRANETS_DATA or ./data), or your own text.")
]
Minutes = Annotated[float, typer.Option(help="Between checkpoints.")]
LogSteps = Annotated[int, typer.Option(help="Between rows of metrics.")]
Loggers = Annotated[list[str] | None, typer.Option("--logger", help="tensorboard or csv, besides metrics.jsonl.")]


def list_recipes(
    algebras: Annotated[str, typer.Option(help="Whose costs to print, with commas between.")] = "R,M2R",
) -> None:
    """List the experiments that can be trained, with what their models cost."""
    import torch

    from algebranets import account
    from algebranets.lab import data, recipes
    from algebranets.lab.train import Images, plan

    names = split_names(algebras)
    table = new_table("Recipes: parameters, and multiply-adds of one image or token")
    table.add_column("")
    table.add_column("trained on", no_wrap=True)
    for name in names:
        table.add_column(f"{name} para-\nmeters", justify="right", no_wrap=True)
        table.add_column(f"{name} mult.-\nadds", justify="right", no_wrap=True)
    sizes = set()
    for recipe in recipes.RECIPES:
        cells: list[str] = []
        for name in names:
            experiment = recipes.create(recipe, name)
            included = data.DATASETS[experiment.data.name].is_included
            fit = plan.make(experiment, "") if included else None
            with torch.device("meta"):
                model: Any = fit.fitted.build() if fit else experiment.build()
                inputs = fit.example_inputs(model) if fit else model.example_inputs()
                cost = account(model, *inputs)
            cells += [short(cost.parameters), short(cost.multiplies)]
        if isinstance(experiment.data, Images):
            sizes.add(inputs[0].shape[-1])
            length = f"{experiment.epochs:g} epochs"
        else:
            length = f"{experiment.steps:,} steps" if experiment.steps else f"{experiment.budget / 60:g} min"
        table.add_row(recipe, f"{experiment.data.name}\n{length}", *cells)
    show(table)
    *most, last = map(str, sorted(sizes, reverse=True))
    console.print(f"Images are counted at sides of {', '.join(most)} and {last}; tokens with a full window.")
    console.print("`algebranets train RECIPE --algebra M2R` trains one.")


def train(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="As listed by `algebranets recipes`.")] = "",
    algebra: Algebra = "R",
    width: Width = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of weights, batches and dropout.")] = 0,
    options: Settings = None,
    budget: Budget = "",
    out: Annotated[Path | None, typer.Option(help="The run's folder (otherwise runs/RECIPE/NAME).")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    nodes: Nodes = 1,
    strategy: Strategy = "auto",
    precision: Precision = "auto",
    compile: Compile = False,
    threads: Threads = 0,
    data: Data = "",
    checkpoint_minutes: Minutes = 5.0,
    checkpoint_steps: Annotated[int, typer.Option(help="A checkpoint every so many steps besides.")] = 0,
    log_steps: LogSteps = 50,
    loggers: Loggers = None,
) -> None:
    """Train a recipe, or go on with a run that was stopped or killed."""
    from algebranets.lab import recipes
    from algebranets.lab.train import Hardware, RunFolder

    settings, data = read_data(read_settings(options or []), data)
    if (resume is None) == (not recipe):
        raise ValueError("give a recipe to train, or --resume and the folder of a run, and not both.")
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
            raise ValueError(
                f"a run that goes on keeps its settings: leave {', '.join(own)} away, or begin another one."
            )
        experiment = RunFolder(resume).experiment()
        run_with_bar(experiment, resume, _saved_hardware(context, resume, on))
        return
    experiment = recipes.create(recipe, algebra, width, seed, settings | read_budget(budget))
    run_with_bar(experiment, out or Path("runs") / recipe / experiment.name, Hardware(**on))


def read_budget(budget: str) -> dict[str, object]:
    """What ``--budget`` says, as a setting."""
    return {"budget": read_duration(budget)} if budget else {}


def read_data(settings: dict[str, object], data: str) -> tuple[dict[str, object], str]:
    """What ``--data`` says: a file is a text to train on, a setting; a folder is where data sets lie."""
    path = Path(os.path.expanduser(data))
    if path.is_file():
        return {**settings, "data.name": str(path.resolve())}, ""
    if not path.is_dir():
        raise ValueError(f"--data must be the folder of data sets, or a text to train on; {data} is neither.")
    return settings, data


def _saved_hardware(context: typer.Context, run: Path, options: Mapping[str, object]) -> Hardware:
    """What the run in this folder ran on, as far as ``options`` go, but for those that were given now."""
    from algebranets.lab.train import Hardware, RunFolder

    given = {name: value for name, value in options.items() if _is_given(context, name)}
    return Hardware.of(RunFolder(run), options, **given)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def run_with_bar(experiment: Experiment, folder: Path, hardware: Hardware) -> None:
    """Train with a progress bar, and say what came out and where."""
    from lightning.pytorch.utilities import rank_zero_only

    from algebranets.lab.cli.progress import Bar, new_progress
    from algebranets.lab.train import Stopped, run

    first = getattr(rank_zero_only, "rank", 0) in (0, None)
    show_warnings()
    progress = new_progress()
    bar = Bar(progress, get_algebra(experiment.algebra).name)
    try:
        with progress if first else nullcontext():
            result = run(experiment, folder, hardware, [bar] if first else [])
            if result is not None:
                bar.finish(result)
    except Stopped as stopped:
        say(f"{stopped} Go on by `algebranets train --resume {shlex.quote(str(folder))}`.")
        raise typer.Exit(130) from None
    if result is not None:
        print_result(result, folder)


def print_result(result: Result, folder: Path) -> None:
    """One line of what came out, one of where it is."""
    console.print(
        f"{result.recipe} {result.label}: {result.metric} {result.value:.4g}, {short(result.parameters)} parameters, "
        f"{short(result.multiplies)} multiply-adds, {result.seconds:.0f} s"
    )
    say(f"in {folder}")


def evaluate(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    accelerator: Accelerator = "auto",
    precision: Precision = "auto",
    data: Annotated[str, typer.Option(help="Where data sets lie; or any file, to measure a language model on.")] = "",
    split: Annotated[str, typer.Option(help="The part of the run's own text: train, valid or test.")] = "valid",
    options: Annotated[
        list[str] | None, typer.Option("--set", help="Measure otherwise than the run did, as in data.eval_window=4608.")
    ] = None,
) -> None:
    """Evaluate a finished run's weights anew, beside what it recorded; what is not given is as in training."""
    from algebranets.lab.train import RunFolder
    from algebranets.lab.train import evaluate as measure

    path, settings = Path(os.path.expanduser(data)), read_settings(options or [])
    text = path if path.is_file() else None
    if text is None and not path.is_dir():
        raise ValueError(f"--data must be the folder of data sets, or a file to measure; {data} is neither.")
    if text is not None and _is_given(context, "split"):
        raise ValueError("--split is a part of the run's own text, and --data all of a file: give one of them.")
    on = {"accelerator": accelerator, "precision": precision, "data": "" if text else data, "threads": 0}
    hardware = _saved_hardware(context, run, on)
    measured = measure(run, hardware, text=text, split=split, settings=settings)
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
    """What training warns of goes to the terminal as well as to the run's log."""
    log = logging.getLogger("algebranets")
    if not any(isinstance(handler, _Warnings) for handler in log.handlers):
        log.addHandler(_Warnings(logging.WARNING))


class _Warnings(logging.Handler):
    """A line on the terminal for each message."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage(), record.levelname.lower(), "yellow")
