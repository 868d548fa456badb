"""Recipes on text: the paper's experiments, the same networks on other texts, and small experiments.

Sizes count real numbers. ``width`` multiplies them, and they are rounded to whole tuples (and whole heads).
"""

from __future__ import annotations

from dataclasses import replace

from algebranets import algebra as algebras
from algebranets.lab.train import Experiment, Optimizer, Schedule, Texts
from algebranets.product import nearest_multiple


def transformer_xl(algebra: str, width: float) -> Experiment:
    """The "efficient" Transformer-XL on enwik8 (Section 4.3, Table 2): 24 layers over R, 42 over any other algebra.

    The paper does not say where layer norms are. They come first here, because deep networks then learn sooner. Every
    hundredth batch starts without a memory. Otherwise the network would not learn to continue a short prompt. The
    validation text is split into sixteen rows. In each row the network looks back 4608 characters, as in the paper,
    except at the start of the row.
    """
    real = algebras.get(algebra).dim == 1
    head, num_heads = whole(128, algebra), nearest_multiple(4 * width, 1)
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
    """The networks of `transformer_xl` in 25 minutes: shorter windows, no dropout, higher learning rates.

    These settings are not in the paper. In 25 minutes a text is read only a few times, and dropout made M2(R) worse.
    The learning rate is inversely proportional to the number of products in a sum, `fan_in`. M2(R) sums half as many
    products as R, so its rate is twice that of R (2.5 times in the paper).
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
    """A Transformer-XL of twelve layers over every algebra, to compare widths.

    It trains for 2000 steps with a higher learning rate and fewer evaluations. The other settings are those of
    `transformer_xl_short`.
    """
    short = transformer_xl_short(algebra, width)
    head, num_heads = whole(64, algebra), nearest_multiple(4 * width, 1)
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
    """The GRU on WikiText-103's characters (Section 4.4, Table 3). Width 1 is 2048 real units, 512 tuples over M2R."""
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
    """The GRU at half the size, in minutes, trained on WikiText-2 and judged on WikiText-103's validation text.

    WikiText-103's own training text was not available to us.
    """
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


def text8_transformer_xl(algebra: str, width: float) -> Experiment:
    """The networks and settings of `transformer_xl` on text8: not in the paper, and not trained to the end by us."""
    paper = transformer_xl(algebra, width)
    return replace(paper, recipe="text8-transformer_xl", data=replace(paper.data, name="text8"))


def wikitext_2_gru(algebra: str, width: float) -> Experiment:
    """The networks and settings of `gru_short` on WikiText-2: not in the paper, and not trained to the end by us."""
    short = gru_short(algebra, width)
    return replace(short, recipe="wikitext-2-gru", data=replace(short.data, name="wikitext-2"))


def char_lm(algebra: str, width: float) -> Experiment:
    """A small GRU on your own text (``--data my.txt``), or by default on Python's language reference."""
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


def char_lm_small(algebra: str, width: float) -> Experiment:
    """The GRU of `char_lm` at half the size, in seconds on a CPU: the networks of ``algebranets demo``.

    The learning rate is inversely proportional to the number of products in a sum at width 1, `fan_in`, so that M2(R)
    has twice the rate of R, C and H. For each network of the demo, a sweep of rates found none that is better by more
    than about 0.01 bits per character (docs/results/training.md).
    """
    larger = char_lm(algebra, width / 2)
    return replace(
        larger,
        recipe="char-lm-small",
        width=width,
        model={**larger.model, "num_readouts": 1},
        data=Texts("python-prose", batch_size=32, length=16, eval_batch_size=64, eval_length=64),
        optimizer=replace(larger.optimizer, lr=2 / fan_in(whole(128, algebra), algebra)),
        schedule=Schedule("cosine", warmup=0.1),
        steps=200,
        evaluations=4,
    )


def fan_in(size: int, algebra: str) -> int:
    """The number of products that are summed for one output of a layer with ``size`` real inputs.

    >>> fan_in(512, "R"), fan_in(512, "H"), fan_in(512, "M2R")
    (512, 512, 256)
    """
    over = algebras.get(algebra)
    return size * over.multiplies // over.dim**2


def whole(size: float, algebra: str) -> int:
    """The size nearest to ``size`` that is a multiple of the algebra's dimension.

    >>> whole(1000, "M3R")
    999
    """
    return nearest_multiple(size, algebras.get(algebra).dim)
