"""The command that trains many runs of one recipe."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from algebranets.lab.cli import training
from algebranets.lab.cli.terminal import console, new_table, read_settings, say, split_names

if TYPE_CHECKING:
    from algebranets.lab.recipes.sweep import Job


def sweep(
    recipe: Annotated[str, typer.Argument(help="As listed by `algebranets recipes`.")],
    algebras: Annotated[str, typer.Option(help="With commas between.")] = "R,C,H,M2R",
    widths: Annotated[str, typer.Option(help="Width multipliers, with commas between.")] = "1",
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="How many: 0, 1, ...")] = 1,
    options: training.Settings = None,
    each: Annotated[
        list[str] | None,
        typer.Option(help="Every one of several values, as in pruning.sparsity=0.5,0.9; give it several times."),
    ] = None,
    budget: training.Budget = "",
    out: Annotated[Path, typer.Option(help="The folder of the runs' folders.")] = Path("runs"),
    jobs: Annotated[int, typer.Option(min=1, help="How many runs side by side.")] = 1,
    accelerator: training.Accelerator = "auto",
    precision: training.Precision = "auto",
    compile: training.Compile = False,
    threads: training.Threads = 0,
    data: training.Data = "",
    checkpoint_minutes: training.Minutes = 5.0,
) -> None:
    """Train every algebra, width, value of --each and seed; what is done is skipped, what was stopped goes on."""
    from algebranets.lab.recipes import sweep as sweeping

    settings, data = training.read_data(read_settings(options or []), data)
    settings |= training.read_budget(budget)
    flags = ["--compile"] if compile else []
    for name, value, usual in (
        ("--accelerator", accelerator, "auto"),
        ("--precision", precision, "auto"),
        ("--threads", str(threads), "0"),
        ("--data", data, ""),
        ("--checkpoint-minutes", f"{checkpoint_minutes:g}", "5"),
    ):
        flags += [name, value] if value != usual else []
    todo = sweeping.jobs(
        recipe,
        split_names(algebras),
        [_number(width) for width in widths.split(",")],
        range(seeds),
        settings,
        out,
        flags,
        _several(each or []),
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: runs stop behind checkpoints
    try:
        with Live(_table(recipe, todo), console=console, refresh_per_second=2) as live:
            for _ in sweeping.run_all(todo, jobs):
                live.update(_table(recipe, todo))
            live.update(_table(recipe, todo))
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on with it.")
        raise typer.Exit(130) from None
    if not console.is_terminal:
        console.line()  # `Live` ends its last table without
    for job in todo:
        if job.failed:
            say(f"{job.experiment.name}: {job.last_words}", "failed", "red")
            say(f"All it printed is in {job.output}.")
    if any(job.result is not None for job in todo):
        say(f"Make tables and figures of it by `algebranets report {shlex.quote(str(out / recipe))}`.")
    raise typer.Exit(2 if any(job.failed for job in todo) else 0)


def _several(options: list[str]) -> dict[str, list[Any]]:
    """Settings and their values: what `read_settings` makes of each of them."""
    found = {}
    for option in options:
        name, is_there, values = option.partition("=")
        if not is_there:
            raise ValueError(f"--each takes a setting and its values, as in pruning.sparsity=0.5,0.9; got {option!r}.")
        found[name] = [read_settings([f"{name}={value}"])[name] for value in split_names(values)]
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--widths takes numbers with commas between; got {text!r}.") from None


def _table(recipe: str, todo: Iterable[Job]) -> Table:
    table = new_table(f"sweep of {recipe}")
    for heading in ("run", "state", "", "seconds"):
        table.add_column(heading, justify="right" if heading == "seconds" else "left")
    for job in todo:
        if job.result is not None:
            outcome = f"{job.result.metric} {job.result.value:.4g}"
            table.add_row(job.experiment.name, "done", outcome, f"{job.result.seconds:.0f}")
        elif job.process is not None:
            last = max(job.folder.rows(), key=lambda row: row["step"], default=None)
            step, seconds = ("", "") if last is None else (f"step {last['step']}", f"{last['seconds']:.0f}")
            table.add_row(job.experiment.name, "running", step, seconds)
        else:
            table.add_row(job.experiment.name, "failed" if job.failed else "waiting", "", "")
    return table
