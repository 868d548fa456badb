"""Made-up results of finished runs, for what reads them."""

from dataclasses import replace

from algebranets.algebra import CATALOGUE
from algebranets.train.results import Result

CIFAR = [("R", "batch"), ("C", "batch"), ("C", "whitening"), ("M2R", "batch"), ("H", "batch"), ("H", "whitening")]


def result(value, algebra="R", seed=0, recipe="cifar10", width=1.0, metric="accuracy", changes=None, **fields):
    changes = changes or {}
    model = {"name": "cifar_resnet", "norm": "batch", "num_layers": 24, "d_model": 512, "num_heads": 4, "ff_size": 1536}
    model |= {key.removeprefix("model."): new for key, new in changes.items() if key.startswith("model.")}
    pruning = {"sparsity": changes.get("pruning.sparsity", 0.9 if recipe == "resnet50-pruned" else 0.0)}
    curve = [
        {"step": 10.0 * n, "epoch": float(n), "seconds": 20.0 * n, "train_loss": 2.0 / n, metric: value * (1 - 0.1 / n)}
        for n in range(1, 6)
    ]
    made = Result(
        recipe=recipe, algebra=algebra, width=width, seed=seed, changes=changes, metric=metric, value=value,
        parameters=int(4e6 * width / CATALOGUE[algebra].dim), statistics=1000, multiplies=int(5e8 * width), steps=50,
        seconds=100.0, curve=curve, experiment={"recipe": recipe, "model": model, "pruning": pruning},
        environment={"device": "a CPU", "commit": "abc1234", "torch": "2.11"}, command="algebranets train",
    )  # fmt: skip
    return replace(made, **fields)


def cifar_results(seeds=3):
    """All six rows, and four ablations of M2R and H."""
    rows = [(a, {} if norm == "batch" else {"model.norm": norm}, 94 + i / 10) for i, (a, norm) in enumerate(CIFAR)]
    rows += [("M2R", {"model.lift": "zeros"}, 93.0), ("M2R", {"model.activation": "mean-gate"}, 91.0)]
    rows += [("M2R", {"model.activation": "determinant-gate"}, 84.0), ("H", {"model.init": "polar"}, 94.4)]
    return [
        result(value + (seed - 1) / 100, algebra, seed, changes=changes)
        for algebra, changes, value in rows
        for seed in range(seeds)
    ]
