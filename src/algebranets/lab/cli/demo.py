"""The command ``demo``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from algebranets.lab.cli import training
from algebranets.lab.cli.terminal import console, new_table, read_settings, say, show

if TYPE_CHECKING:
    from algebranets.lab.report.study import Study
    from algebranets.lab.train import Experiment, Result

RECIPE = "char-lm-small"
#: The networks by algebra and width. The narrow real network has as many parameters as those over H and M2(R).
NETWORKS = (("R", 1.0), ("R", 0.67), ("C", 1.0), ("H", 1.0), ("M2R", 1.0))
#: What to do after the demo, and the command for it.
NEXT_STEPS = (
    ("Convert a timm model", "algebranets convert timm:resnet18 --algebra M2R"),
    ("Train on your own text", "algebranets train char-lm --algebra M2R --data my.txt"),
    ("Read the guide", "{documentation}"),
)


def demo(
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Number of seeds, and so of runs of each network.")] = 4,
    out: Annotated[Path, typer.Option(help="The folder of the runs and the report.")] = Path("runs/demo"),
    options: training.Settings = None,
) -> None:
    """Train small language models over R, C, H and M2(R) on Python's language reference, and compare them.

    It takes about two minutes on two CPU cores. The text comes with Python.

    Each network is trained with several seeds, to compare differences with the spread over seeds.
    """
    from algebranets.lab import recipes
    from algebranets.lab.report import page, summary
    from algebranets.lab.report.study import studies
    from algebranets.lab.train import Stopped

    settings = read_settings(options or [])
    networks = [
        [recipes.create(RECIPE, algebra, width, seed, settings) for seed in range(seeds)] for algebra, width in NETWORKS
    ]
    times = "once" if seeds == 1 else f"{seeds} times"
    console.print(
        "A small GRU over R, C, H and M2(R) learns to predict the next character of Python's language reference. Each "
        f"network is trained {times} and judged by text that it was not trained on."
    )
    training.show_warnings()
    try:
        results = _train(networks, out)
    except Stopped:
        console.print("stopped; the same command continues it.")
        raise typer.Exit(130) from None
    (study,) = studies(results)
    _show_table(study)
    console.print(summary.headline(study))
    console.print()
    say(f"The report: {page.write(results, out)}")
    console.print("\nWhat to do next:")
    for aim, command in NEXT_STEPS:
        say(f"  {aim + ':':<24}{command.format(documentation=page.documentation_site() or 'docs/start.md')}")


def _train(networks: list[list[Experiment]], out: Path) -> list[Result]:
    """Train every network with every seed, with one progress bar per network."""
    from statistics import fmean

    from algebranets.lab.cli.progress import Bar, new_progress
    from algebranets.lab.train import Hardware, run
    from algebranets.lab.train.results import label

    results: list[Result] = []
    names = [label(str(runs[0].algebra), runs[0].width, {}) for runs in networks]
    with new_progress() as progress:
        bars = [Bar(progress, name) for name in names]
        for name, runs, bar in zip(names, networks, bars, strict=True):
            for experiment in runs:
                progress.update(bar.bar, description=f"{name}, seed {experiment.seed}")
                hardware = Hardware(accelerator="cpu", log_steps=10)
                result = run(experiment, out / RECIPE / experiment.name, hardware, [bar])
                assert result is not None  # it is None only in further processes
                bar.finish(result)
                results.append(result)
            mean = fmean(result.value for result in results[-len(runs) :])
            progress.update(bar.bar, description=name, status=f"{results[-1].metric} {mean:.3f}")
    return results


def _show_table(study: Study) -> None:
    """Print one row per network: its costs, its quality, and how it differs from the real network of full width."""
    from algebranets.lab.report.claim import judgement
    from algebranets.lab.report.numbers import NONE, amount, difference, share
    from algebranets.lab.report.parts import mean_and_deviation

    values = "One seed" if len(study.groups[0].results) == 1 else "Mean ± standard deviation over seeds"
    table = new_table(f"{values}, on held-out text (lower is better)")
    table.add_column("network")
    for heading in ("parameters", "multiply-adds", "bits per\ncharacter", "difference\nto R", "\nsignificant"):
        table.add_column(heading, justify="right", no_wrap=True)
    (real,) = (group for group in study.groups if group.is_real and group.first.width == 1)
    words = {True: "yes", False: "no", None: "not known"}
    for group in study.groups:
        costs = [(group.first.parameters, real.first.parameters), (group.first.multiplies, real.first.multiplies)]
        compared = judgement(study, group, real)
        table.add_row(
            study.name(group),
            *(f"{amount(cost)} ({share(cost, of_real)})" for cost, of_real in costs),
            mean_and_deviation(group, with_seeds=False),
            NONE if group is real else difference(compared["away"], study.metric),
            NONE if group is real else words[compared["is_significant"]],
        )
    show(table)
