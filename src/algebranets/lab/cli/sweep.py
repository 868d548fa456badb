"""The command ``sweep``."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from algebranets.lab.cli import completion, training
from algebranets.lab.cli.terminal import console, read_settings, say, show, split_names, table_of_names

if TYPE_CHECKING:
    from algebranets.lab.recipes.sweep import Job


def sweep(
    recipe: Annotated[
        str, typer.Argument(help="A name that `algebranets recipes` lists.", autocompletion=completion.recipes)
    ],
    algebras: Annotated[
        str, typer.Option(help="Algebras, separated by commas.", autocompletion=completion.algebra_lists)
    ] = "R,C,H,M2R",
    widths: Annotated[str, typer.Option(help="Width multipliers, separated by commas.")] = "1",
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Number of seeds; they are 0, 1, ...")] = 1,
    options: training.Settings = None,
    each: Annotated[
        list[str] | None,
        typer.Option(help="Try each of several values of a setting, as in optimizer.lr=0.1,0.2; can be repeated."),
    ] = None,
    budget: training.Budget = "",
    out: Annotated[Path, typer.Option(help="The folder in which the run folders are created.")] = Path("runs"),
    jobs: Annotated[int, typer.Option(min=1, help="Number of runs at the same time.")] = 1,
    accelerator: training.Accelerator = "auto",
    precision: training.Precision = "auto",
    compile: training.Compile = False,
    threads: training.Threads = 0,
    data: training.Data = "",
    checkpoint_minutes: training.Minutes = 5.0,
) -> None:
    """Train every combination of algebra, width, value of --each and seed.

    Finished runs are skipped, and stopped ones are continued.
    """
    from algebranets.lab.recipes import sweep as sweeping

    settings, data = training.read_data(read_settings(options or []), data)
    settings |= training.read_budget(budget)
    flags = _changed_flags(
        {
            "--accelerator": (accelerator, "auto"),
            "--precision": (precision, "auto"),
            "--threads": (str(threads), "0"),
            "--data": (data, ""),
            "--checkpoint-minutes": (f"{checkpoint_minutes:g}", "5"),
        }
    )
    flags += ["--compile"] if compile else []
    numbers = [_number(width) for width in widths.split(",")]
    several = _several(each or [])
    todo = sweeping.jobs(recipe, split_names(algebras), numbers, range(seeds), settings, out, flags, several)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: runs write a checkpoint and stop
    try:
        _run(recipe, todo, jobs)
    except KeyboardInterrupt:
        console.print("stopped; the same command continues it.")
        raise typer.Exit(130) from None
    _say_what_failed(todo)
    if any(job.result is not None for job in todo):
        say(f"Make tables and figures with `algebranets report {shlex.quote(str(out / recipe))}`.")
    raise typer.Exit(2 if any(job.failed for job in todo) else 0)


def _run(recipe: str, todo: list[Job], at_once: int) -> None:
    """Run all jobs, and show their states: on a terminal all the time, and everywhere when they have ended."""
    from algebranets.lab.recipes import sweep as sweeping

    live = Live(get_renderable=lambda: _table(recipe, todo), console=console, auto_refresh=False, transient=True)
    try:
        with live, closing(sweeping.run_all(todo, at_once)) as ticks:
            for _ in ticks:
                live.refresh()
    finally:
        show(_table(recipe, todo))


def _say_what_failed(jobs: list[Job]) -> None:
    for job in jobs:
        if job.failed:
            say(f"{job.experiment.name}: {job.last_words}", "failed", "red")
            say(f"Its full output is in {job.output}.")


def _changed_flags(options: dict[str, tuple[str, str]]) -> list[str]:
    """The command-line flags for the options whose value is not the default; each is given as (value, default)."""
    return [word for name, (value, default) in options.items() if value != default for word in (name, value)]


def _several(options: list[str]) -> dict[str, list[Any]]:
    """Read ``--each``: settings, and the values to try for each setting."""
    found = {}
    for option in options:
        name, is_there, values = option.partition("=")
        if not is_there:
            raise ValueError(f"--each must be a setting and values, as in pruning.sparsity=0.5,0.9; got {option!r}.")
        found[name] = [read_settings([f"{name}={value}"])[name] for value in split_names(values)]
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--widths must be numbers, separated by commas; got {text!r}.") from None


def _table(recipe: str, todo: Iterable[Job]) -> Table:
    rows = [(job.experiment.name, *_state(job)) for job in todo]
    return table_of_names(f"sweep of {recipe}", ("run", "state", "", "seconds"), rows, numbers=["seconds"])


def _state(job: Job) -> tuple[str, str, str]:
    """The state of a job, how far it is or what came out, and the seconds that it took so far."""
    if job.result is not None:
        return "done", f"{job.result.metric} {job.result.value:.4g}", f"{job.result.seconds:.0f}"
    last = _last_row(job)
    step, seconds = ("", "") if last is None else (f"step {last['step']:,}", f"{last['seconds']:.0f}")
    if job.process is None:
        return "failed" if job.failed else "waiting" if last is None else "stopped", step, seconds
    evaluated = job.folder.evaluated()
    if evaluated is None:
        return "running", step, seconds
    batches = f"{evaluated.done:,} of {evaluated.batches:,} batches, {evaluated.seconds_left:.0f} s left"
    return "evaluating", f"{step}\n{batches}".strip(), seconds


def _last_row(job: Job) -> dict[str, float] | None:
    """The last row of metrics; None if there is none. The job itself reports a damaged file."""
    try:
        return max(job.folder.rows(), key=lambda row: row["step"], default=None)
    except (OSError, ValueError):
        return None
