"""Adds weights of finished runs to the model zoo, and writes its pages.

    python tools/model_zoo.py add runs/cifar10/M2R-seed0 runs/char-lm/M2R-seed0
    python tools/model_zoo.py pages

``add`` writes zoo/RECIPE-NAME.safetensors for each run. Weights with two or more axes are stored in float16. Then the
stored weights are measured in float32 on the run's data, and the file records the result, so ``add`` needs the data.
``pages`` writes a model card for each file, and zoo/README.md. It needs the files alone, and huggingface_hub.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from algebranets import files
from algebranets.algebra import CATALOGUE, Algebra
from algebranets.lab.report.parts import markdown_table
from algebranets.models.downloads import sha256
from algebranets.models.weights import describe, load, parts, publish

ROOT = Path(__file__).resolve().parent.parent
ZOO = ROOT / "zoo"
SUFFIX = ".safetensors"
LICENSE = "apache-2.0"
#: The length of lines in pyproject.toml. ``ruff format`` formats the code in the pages too.
LINE_LENGTH = 120
MEASURED_ON = "the weights in this file, with float32 arithmetic"
#: Options of a command that name folders of the machine on which it ran.
PLACES = ("--out", "--data")
INTRODUCTION = """\
# Model zoo

<!-- `python tools/model_zoo.py pages` writes this page and the cards from the weights; do not edit them by hand. -->

Each file holds trained weights and a description of its model. Its card says what was trained, on which data, and what
was not measured. From a clone of the project:

```python
import algebranets as an

{local}
```

To load a file from the web, append its SHA-256 to the address. The file is downloaded once, checked, and kept in
torch.hub's folder:

```python
{remote}
```

A file on the branch `main` may be replaced by better weights. Then its SHA-256 does not fit, which is an error. To keep
the old file, put a tag or a commit in the place of `main`.

The model is in evaluation mode, and its weights are float32. Options that you leave out are taken from the file. An
option that contradicts the file is an error.
"""
PROSE = """\
The data set `python-prose` is the text that Python's `help()` prints. The character models were trained and measured on
that of Python {versions}. Other versions of Python have a different text, so the quality measured there differs.
"""
COLUMNS = ("weights", "model", "algebra", "parameters", "quality", "size", "SHA-256")
METRICS = {"accuracy": "{:.2f} % accuracy", "bpc": "{:.3f} bits per character"}


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, default=ZOO, help="the folder of the zoo")
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add", help="write the weights of finished runs")
    adding.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    commands.add_parser("pages", help="write the cards and README.md")
    given = parser.parse_args(arguments)
    if given.command == "add":
        for run in given.runs:
            print(add(run, given.zoo))
        return 0
    for path, text in pages(given.zoo).items():
        files.write(path, text)
        print(path)
    return 0


# Weights --------------------------------------------------------------------------------------------------------------


def add(run: Path, zoo: Path) -> str:
    """Write the weights of a finished run, measure them, and return a line that says what was written."""
    from algebranets.lab.train import Hardware, RunFolder, evaluate
    from algebranets.lab.train import plan as plans

    folder = RunFolder(run)
    result = folder.finished()
    if result is None:
        raise ValueError(f"{run} must be the folder of a finished run, with a result.json and weights in it.")
    experiment = folder.experiment()
    file = zoo / f"{result.recipe}-{experiment.name.removesuffix(f'-seed{experiment.seed}')}{SUFFIX}"
    name, algebra, options = parts(*describe(run))
    model, unmeasured = load(run), file.with_suffix(".unmeasured")
    hardware = Hardware.of(folder, ("data", "threads"), precision="32")
    try:
        publish(model, name, algebra, options, unmeasured, dtype=torch.float16)
        measured = evaluate(run, hardware, weights=unmeasured)[result.metric]
    finally:
        unmeasured.unlink(missing_ok=True)
    facts = asdict(result) | {"curve": [], "value": measured, "measured_on": MEASURED_ON}
    facts["command"] = without_places(result.command)
    facts["environment"]["hardware"] = {}
    notes = {"result": facts, "inputs": inputs(plans.make(experiment, hardware.data))}
    publish(model, name, algebra, options, file, dtype=torch.float16, notes=notes)
    return f"{file}: {result.metric} {measured:.4f}, {result.value:.4f} in result.json"


def inputs(plan: Any) -> str:
    """Describe the inputs of the model that a plan trains."""
    from algebranets.lab.train.plan import ImagePlan

    data = plan.data
    if not isinstance(plan, ImagePlan):
        if data.vocab_size != 256:
            raise ValueError(f"{data.name} must be a text of bytes, with 256 tokens; it has {data.vocab_size}.")
        return "Bytes of text as whole numbers from 0 to 255, of shape (batch, time)."
    mean, std = ("(" + ", ".join(f"{value:.4f}" for value in values) + ")" for values in (data.mean, data.std))
    return (
        f"Images of shape (batch, {data.channels}, {data.image_size}, {data.image_size}), scaled to [0, 1] and then "
        f"normalized with mean {mean} and standard deviation {std} of each channel. The classes are "
        f"{', '.join(data.classes)}, in this order."
    )


def without_places(command: str) -> str:
    """Leave out the options of a command that name folders of the machine on which it ran.

    >>> without_places("algebranets train cifar10 --algebra H --out /root/runs/H --data=/root/data --compile")
    'algebranets train cifar10 --algebra H --compile'
    """
    words, kept = iter(shlex.split(command)), []
    for word in words:
        if word in PLACES:
            next(words, None)
        elif word.partition("=")[0] not in PLACES:
            kept.append(word)
    return shlex.join(kept)


# Pages ----------------------------------------------------------------------------------------------------------------


def pages(zoo: Path = ZOO) -> dict[Path, str]:
    """The text of each card and of README.md, by path."""
    weights = sorted(zoo.glob(f"*{SUFFIX}"))
    if not weights:
        raise ValueError(f"{zoo} must hold weights, which `python tools/model_zoo.py add RUN` writes; it has none.")
    return {**{file.with_suffix(".md"): card(file) for file in weights}, zoo / "README.md": index(weights)}


def index(weights: list[Path]) -> str:
    """The page README.md: how to load the weights, and a table of them."""
    rows, commands, versions = [], [], set()
    for file in weights:
        name, algebra, _, result = read(file)
        quality = METRICS[result["metric"]].format(result["value"])
        rows.append((
            f"[{file.stem}]({file.stem}.md)", f"`{name}`", algebra.name, f"{result['parameters']:,}",
            f"{quality}, {result['experiment']['data']['name']}", f"{file.stat().st_size / 1e6:.1f} MB",
            f"`{sha256(file)}`",
        ))  # fmt: skip
        commands.append(result["command"])
        if result["experiment"]["data"]["name"] == "python-prose":
            versions.add(result["environment"]["python"].rpartition(".")[0])
    example = next((file for file in reversed(weights) if read(file)[1].dim > 1), weights[-1])
    introduction = INTRODUCTION.format(local=loading(example, f"zoo/{example.name}"), remote=remote(example))
    trained = "They were trained with these commands:\n\n```bash\n" + "\n".join(commands) + "\n```\n"
    prose = [PROSE.format(versions=" and ".join(sorted(versions)))] if versions else []
    return "\n".join([introduction, *prose, markdown_table(COLUMNS, rows, prose=(0, 1, 2, 4, 6)), "", trained])


def card(file: Path) -> str:
    """The model card of a file, as text."""
    from algebranets.conversion.card import model_card
    from algebranets.lab.cli.publish import costs_of
    from algebranets.lab.train import Result

    name, algebra, notes, result = read(file)
    costs = costs_of(Result(**{key: value for key, value in result.items() if key != "measured_on"}))
    config = {"source": f"algebranets:{name}", "options": {}, "plan": None, "class": name}
    code = f"import algebranets as an\n\n{loading(file, f'zoo/{file.name}')}\n\n# or from the web\n{remote(file)}"
    over = [algebra.name] if algebra.dim > 1 else []
    options = {"result": result, "license": LICENSE, "loading": code, "inputs": notes["inputs"]}
    return str(model_card(config, over, costs, **options))


def read(file: Path) -> tuple[str, Algebra, dict[str, Any], dict[str, Any]]:
    """The model's name, its algebra, the notes and the result in a file of weights."""
    described = describe(file)[1]
    name, algebra, _ = parts(file, described)
    notes = described["notes"]
    return name, algebra, notes, notes["result"]


def loading(file: Path, address: str) -> str:
    """The Python statement that loads a file of weights from an address, formatted as ``ruff format`` does it."""
    name, algebra, *_ = read(file)
    over = [f'algebra="{algebra.name}"'] if CATALOGUE.get(algebra.name) == algebra else []
    given = [f'"{name}"', *over, f'pretrained="{address}"']
    line = f"model = an.models.create({', '.join(given)})"
    if len(line) <= LINE_LENGTH:
        return line
    return "\n".join(["model = an.models.create(", *(f"    {argument}," for argument in given), ")"])


def remote(file: Path) -> str:
    """The Python statement that loads a file of weights from the web."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    return loading(file, f"{urls['Repository']}/raw/main/zoo/{file.name}#sha256={sha256(file)}")


if __name__ == "__main__":
    sys.exit(main())
