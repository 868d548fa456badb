"""The paper's experiments on text, and the small ones around them.

Sizes are in real numbers; ``width`` multiplies them, to whole tuples (and whole heads).
"""

from __future__ import annotations

from dataclasses import replace

from algebranets import algebra as algebras
from algebranets.lab.train import Experiment, Optimizer, Schedule, Texts


def transformer_xl(algebra: str, width: float) -> Experiment:
    """The "efficient" Transformer-XL on enwik8 (Section 4.3, Table 2): 24 layers over R, 42 over any other algebra.

    Where layer norms stand the paper does not say: first here, since many layers then begin to learn sooner. Every
    hundredth batch begins without a memory, else the network would not know how to go on behind a short prompt. Sixteen
    texts are validated side by side: each looks back 4608 characters, as in the paper, but for its beginning.
    """
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
            "norm_first": True,
        },
        data=Texts(
            "enwik8",
            batch_size=16,
            length=1536,
            eval_batch_size=16,
            eval_length=1536,
            eval_window=4608,
            fresh_every=100,
        ),
        optimizer=Optimizer(name="adam", lr=2e-4 if real else 5e-4, clip=0.25),
        schedule=Schedule("cosine", warmup=0.01),
        steps=400_000,
        evaluations=100,
    )


def transformer_xl_short(algebra: str, width: float) -> Experiment:
    """The same networks in 25 minutes (or what ``--budget`` says): shorter windows, no dropout, higher learning rates.

    None of it is in the paper. In minutes a text is read a few times only, and a little dropout cost M2(R) more than it
    gained; and the more products a sum has, the smaller steps it bears, so that M2(R), with half as many, has twice R's
    rate (2.5 times, in the paper).
    """
    paper = transformer_xl(algebra, width)
    return replace(
        paper,
        recipe="transformer_xl-short",
        model={**paper.model, "window": 512, "dropout": 0.0},
        data=Texts("enwik8", batch_size=48, length=512, eval_batch_size=16, eval_length=4096, fresh_every=100),
        optimizer=Optimizer(
            name="adam", lr=0.4 / fan_in(paper.model["d_model"], algebra), betas=(0.9, 0.98), clip=0.25
        ),
        schedule=Schedule("cosine", warmup=0.03),
        steps=0,
        budget=25 * 60.0,
        evaluations=12,
    )


def transformer_xl_small(algebra: str, width: float) -> Experiment:
    """Twelve layers over every algebra, for series of widths: what parameters are worth; trained as the short ones."""
    short = transformer_xl_short(algebra, width)
    head, num_heads = whole(64, algebra), max(1, round(4 * width))
    sizes = {"num_layers": 12, "d_model": head * num_heads, "num_heads": num_heads, "ff_size": 3 * head * num_heads}
    return replace(
        short,
        recipe="transformer_xl-small",
        model={**short.model, **sizes},
        optimizer=replace(short.optimizer, lr=0.64 / fan_in(head * num_heads, algebra)),
        budget=0.0,
        steps=2000,
        evaluations=4,
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
        judged_over=0.05,
    )


def gru_short(algebra: str, width: float) -> Experiment:
    """The GRU at half the size, within minutes, on what can be had: WikiText-2's training text, judged on 103's."""
    paper = gru(algebra, width / 2)
    return replace(
        paper,
        recipe="gru-short",
        width=width,
        data=replace(paper.data, name="wikitext-2-103"),
        optimizer=Optimizer(name="adam", lr=1e-3, weight_decay=1e-7, clip=1.0),
        schedule=Schedule("cosine", warmup=0.02),
        steps=8000,
        evaluations=20,
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


def fan_in(size: int, algebra: str) -> int:
    """How many products are summed to one number where ``size`` numbers go in.

    >>> fan_in(512, "R"), fan_in(512, "H"), fan_in(512, "M2R")
    (512, 512, 256)
    """
    over = algebras.get(algebra)
    return size * over.multiplies // over.dim**2


def whole(size: float, algebra: str) -> int:
    """The nearest size that holds whole tuples.

    >>> whole(1000, "M3R")
    999
    """
    dim = algebras.get(algebra).dim
    return max(1, round(size / dim)) * dim
