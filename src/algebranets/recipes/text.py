"""The paper's experiments on text, and the small ones around them.

Sizes are in real numbers; ``width`` multiplies them, to whole tuples (and whole heads).
"""

from __future__ import annotations

from algebranets import algebra as algebras
from algebranets.train import Experiment, Optimizer, Schedule, Texts


def transformer_xl(algebra: str, width: float) -> Experiment:
    """The "efficient" Transformer-XL on enwik8 (Section 4.3, Table 2): 24 layers over R, 42 over any other algebra."""
    real = algebras.get(algebra).dim == 1
    head, num_heads = whole(128, algebra), max(1, round(4 * width))
    return Experiment(
        recipe="transformer_xl",
        algebra=algebra,
        width=width,
        model={
            "name": "transformer_xl",
            "num_layers": 24 if real else 42,
            "d_model": head * num_heads,
            "num_heads": num_heads,
            "ff_size": 3 * head * num_heads,
            "window": 1536,
            "dropout": 0.25 if real else 0.15,
        },
        data=Texts("enwik8", batch_size=16, length=1536, eval_length=1536, eval_window=4608),
        optimizer=Optimizer(name="adam", lr=2e-4 if real else 5e-4, clip=0.25),
        schedule=Schedule("cosine", warmup=0.01),
        steps=400_000,
        evaluations=100,
    )


def gru(algebra: str, width: float) -> Experiment:
    """The GRU on WikiText-103's characters (Section 4.4, Table 3), ``width`` 1 being 2048 real units: M2R 512."""
    return Experiment(
        recipe="gru",
        algebra=algebra,
        width=width,
        model={"name": "gru_lm", "hidden_size": whole(2048 * width, algebra), "num_readouts": 5},
        data=Texts("wikitext-103", batch_size=16, length=512, eval_batch_size=16),
        optimizer=Optimizer(name="adam", lr=1e-4, weight_decay=1e-7),
        steps=200_000,
        evaluations=400,
    )


def char_lm(algebra: str, width: float) -> Experiment:
    """A small GRU on a text of your own (``--data my.txt``) or, without one, on Python's own prose."""
    return Experiment(
        recipe="char-lm",
        algebra=algebra,
        width=width,
        model={"name": "gru_lm", "hidden_size": whole(256 * width, algebra), "num_readouts": 2},
        data=Texts("python-prose", batch_size=16, length=128, eval_batch_size=16, eval_length=128),
        optimizer=Optimizer(name="adam", lr=2e-3, clip=1.0),
        schedule=Schedule("cosine", warmup=0.02),
        steps=2000,
        evaluations=10,
    )


def whole(size: float, algebra: str) -> int:
    """The nearest size that holds whole tuples.

    >>> whole(1000, "M3R")
    999
    """
    dim = algebras.get(algebra).dim
    return max(1, round(size / dim)) * dim
