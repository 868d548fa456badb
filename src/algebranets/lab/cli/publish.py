"""The command ``publish``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from algebranets.lab.cli.terminal import say, short

if TYPE_CHECKING:
    from algebranets.conversion.card import Costs
    from algebranets.lab.train.results import Result


def publish(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    folder: Annotated[Path, typer.Argument(help="The folder to write.")],
    push: Annotated[
        str, typer.Option(metavar="REPOSITORY", help="Also upload the folder to this repository of the hub.")
    ] = "",
    license: Annotated[
        str | None, typer.Option(help="License for the model card, such as apache-2.0. By default it names none.")
    ] = None,
) -> None:
    """Write the model of a finished run as a Hugging Face folder: config, weights and model card."""
    from dataclasses import asdict

    from algebranets.conversion import PretrainedModel
    from algebranets.lab.train import RunFolder
    from algebranets.models.weights import describe, load

    model, (_, described), result = load(run), describe(run), RunFolder(run).finished()
    if result is None:
        raise ValueError(f"{run} must be the folder of a finished run, with a result.json in it.")
    options = {"algebra": described["algebra"], **described["options"]}
    pretrained = PretrainedModel.wrap(model, f"algebranets:{described['model']}", options)
    card = {"result": asdict(result), "costs": costs_of(result), "license": license, "repository": push or folder.name}
    pretrained.save_pretrained(folder, model_card_kwargs=card)
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    say(f"{result.recipe} {result.label}: {short(size)}B in {folder}.")
    if push:
        try:
            address = pretrained.push_to_hub(push, model_card_kwargs=card)
        except Exception as error:  # from the network, from the hub, or about the name of the repository
            raise ValueError(f"{folder} is written, but it could not be uploaded to {push}: {error}") from error
        say(f"Uploaded: {address}")


def costs_of(result: Result) -> Costs:
    """The counts in the result, and those of the real network if they can be counted for the same input."""
    from dataclasses import replace

    from algebranets.conversion.card import Costs
    from algebranets.lab import recipes
    from algebranets.lab.data import DATASETS
    from algebranets.lab.train import Experiment

    per = "image" if result.metric == "accuracy" else "token"
    costs = Costs(result.parameters, result.multiplies, per=per, nonzero=result.nonzero)
    experiment = Experiment.from_dict(result.experiment)
    if experiment.data.name not in DATASETS or recipes.cost(experiment).multiplies != result.multiplies:
        return costs
    real = recipes.cost(replace(experiment, algebra="R"))
    return replace(costs, real_parameters=real.parameters, real_multiplies=real.multiplies)
