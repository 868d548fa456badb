"""The command ``demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from algebranets.lab.cli import training
from algebranets.lab.cli.terminal import console, new_table, read_settings, say, short, show

ALGEBRAS = ("R", "C", "H", "M2R")


def demo(
    out: Annotated[Path, typer.Option(help="The folder of the runs and the report.")] = Path("runs/demo"),
    options: training.Settings = None,
) -> None:
    """Train a small network over R, C, H and M2(R) on handwritten digits, and compare the four.

    It takes about two minutes on two CPU cores. The data come with scikit-learn.
    """
    from algebranets.lab import recipes
    from algebranets.lab.cli.progress import Bar, new_progress
    from algebranets.lab.report import page
    from algebranets.lab.train import Hardware, Stopped, run

    settings = read_settings(options or [])
    experiments = [recipes.create("digits", name, settings=settings) for name in ALGEBRAS]
    console.print("The same small ResNet over four algebras, trained on 1,437 handwritten digits and tested on 360.")
    training.show_warnings()
    results = []
    try:
        with new_progress() as progress:
            bars = [Bar(progress, name) for name in ALGEBRAS]
            for experiment, bar in zip(experiments, bars, strict=True):
                hardware = Hardware(accelerator="cpu", log_steps=10)
                result = run(experiment, out / experiment.name, hardware, [bar])
                assert result is not None  # it is None only in further processes
                bar.finish(result)
                results.append(result)
    except Stopped:
        console.print("stopped; the same command continues it.")
        raise typer.Exit(130) from None
    table = new_table("The same width over four algebras")
    for heading in ("algebra", "parameters", "multiply-adds", "accuracy", "seconds"):
        table.add_column(heading, justify="left" if heading == "algebra" else "right")
    real = results[0]
    for result in results:
        table.add_row(
            result.algebra,
            f"{short(result.parameters)} ({result.parameters / real.parameters:.0%})",
            f"{short(result.multiplies)} ({result.multiplies / real.multiplies:.0%})",
            f"{result.value:.1f} %",
            f"{result.seconds:.0f}",
        )
    show(table)
    say(f"The report: {page.write(results, out)}")
