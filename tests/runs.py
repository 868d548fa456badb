"""Made-up results of finished runs, for tests of the report."""

from dataclasses import replace

from algebranets.algebra import CATALOGUE
from algebranets.lab.train.results import Result

CIFAR = [("R", "batch"), ("C", "batch"), ("C", "whitening"), ("M2R", "batch"), ("H", "batch"), ("H", "whitening")]


def result(value, algebra="R", seed=0, recipe="cifar10", width=1.0, metric="accuracy", changes=None, **fields):
    changes = changes or {}
    model = {"name": "cifar_resnet", "norm": "batch", "num_layers": 24, "d_model": 512, "num_heads": 4, "ff_size": 1536}
    model |= {key.removeprefix("model."): new for key, new in changes.items() if key.startswith("model.")}
    pruning = {"sparsity": 0.9 if recipe.endswith("-pruned") else 0.0, "unit": "tuple", "criterion": "norm"}
    pruning |= {key.removeprefix("pruning."): new for key, new in changes.items() if key.startswith("pruning.")}
    parameters, multiplies = int(4e6 * width / CATALOGUE[algebra].dim), int(5e8 * width)
    left = 1 - pruning["sparsity"]
    computed = left if pruning["unit"] == "tuple" else 1
    curve = [
        {"step": 10.0 * n, "epoch": float(n), "seconds": 20.0 * n, "train_loss": 2.0 / n, metric: value * (1 - 0.1 / n)}
        for n in range(1, 6)
    ]
    made = Result(
        recipe=recipe, algebra=algebra, width=width, seed=seed, changes=changes, metric=metric, value=value,
        parameters=parameters, statistics=1000, multiplies=multiplies, steps=50, seconds=100.0, curve=curve,
        experiment={"recipe": recipe, "model": model, "pruning": pruning},
        environment={"device": "a CPU", "commit": "abc1234", "torch": "2.11"}, command="algebranets train",
        nonzero=round(left * parameters), multiplies_left=round(computed * multiplies),
    )  # fmt: skip
    return replace(made, **fields)


def cifar_results(seeds=3):
    """Return runs of all six rows of the paper's CIFAR-10 table, and of four ablations of M2R and H."""
    rows = [(a, {} if norm == "batch" else {"model.norm": norm}, 94 + i / 10) for i, (a, norm) in enumerate(CIFAR)]
    rows += [("M2R", {"model.lift": "zeros"}, 93.0), ("M2R", {"model.activation": "mean-gate"}, 91.0)]
    rows += [("M2R", {"model.activation": "determinant-gate"}, 84.0), ("H", {"model.init": "polar"}, 94.4)]
    return [
        result(value + (seed - 1) / 100, algebra, seed, changes=changes)
        for algebra, changes, value in rows
        for seed in range(seeds)
    ]


#: Accuracies of dense networks, and the accuracy that is lost at each sparsity.
DENSE = {"R": 94.0, "C": 94.2, "M2R": 94.4, "H": 94.3}
LOST = {0.5: 0.1, 0.7: 0.4, 0.9: 1.6}
#: The further loss by each criterion, as a multiple of ``LOST``. At 50 %, the determinant loses less than the largest
#: eigenvalue.
CRITERIA = {"largest-eigenvalue": 0.5, "determinant": 1.0, "smallest-eigenvalue": 2.0}


def pruned(value, algebra="M2R", seed=0, **settings):
    """Return a run of the recipe ``cifar10-pruned`` with these settings of ``pruning``."""
    changes = {f"pruning.{name}": setting for name, setting in settings.items()}
    return result(value, algebra, seed, "cifar10-pruned", changes=changes)


def pruned_results(seeds=3):
    """Return runs of four algebras pruned by tuples, of two pruned by components, and of M2R with other criteria."""
    rows = [(algebra, {"sparsity": 0.0}, value) for algebra, value in DENSE.items()]
    for sparsity, lost in LOST.items():
        own = {} if sparsity == 0.9 else {"sparsity": sparsity}
        rows += [(algebra, own, value - lost) for algebra, value in DENSE.items()]
        rows += [(algebra, {**own, "unit": "component"}, DENSE[algebra] - lost / 2) for algebra in ("M2R", "H")]
        for criterion, share in CRITERIA.items():
            more = 0.02 if (sparsity, criterion) == (0.5, "determinant") else share * lost
            rows.append(("M2R", {**own, "criterion": criterion}, DENSE["M2R"] - lost - more))
    return [
        pruned(value + (seed - 1) / 100, algebra, seed, **settings)
        for algebra, settings, value in rows
        for seed in range(seeds)
    ]
