"""Whole networks: a training step of torch's layers and of ours at the same width, and tokens one by one.

A step is forward, loss and backward; the optimiser, which has fewer parameters to update over an algebra, is left out.
Over R, "ours" are torch's layers too, but for depthwise convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import models
from algebranets.algebra import Algebra
from algebranets.lab.bench.case import measure as measure_case
from algebranets.lab.bench.case import num_parameters, placed, refuse
from algebranets.lab.bench.layers import gru_case
from algebranets.lab.bench.rows import Row, make
from algebranets.lab.bench.timing import Run, Step, race
from algebranets.lab.train.hardware import compile_model
from algebranets.models.kit import ImageNetwork
from algebranets.models.language import Decoder

ALGEBRAS = ("M2R", "H")


@dataclass(frozen=True)
class Sizes:
    """What is put in; None for what the benchmark says."""

    batch: int | None = None
    #: Height of images, or length of texts.
    size: int | None = None
    #: Of the model, as `models.create` takes them.
    options: Mapping[str, Any] = field(default_factory=dict)


def measure(
    run: Run,
    names: Iterable[str] = ALGEBRAS,
    benchmarks: Iterable[str] | None = None,
    sizes: Sizes | None = None,
    compiled: bool = True,
) -> Iterator[Row]:
    """Each of `BENCHMARKS` over each algebra, at its usual size or at ``sizes``."""
    names = list(names)
    for benchmark in benchmarks or BENCHMARKS:
        for name in names:
            yield BENCHMARKS[benchmark](run, algebras.get(name), sizes or Sizes(), compiled)


def _image_network(name: str, batch: int, size: int) -> Benchmark:
    def measure_it(run: Run, algebra: Algebra, sizes: Sizes, compiled: bool) -> Row:
        _check(name, algebra, sizes.options)
        shape = (sizes.batch or batch, 3, *(2 * [sizes.size or size]))
        images = run.laid_out(torch.randn(shape, device=run.device).to(run.dtype))
        targets = torch.randint(sizes.options.get("num_classes", 10), shape[:1], device=run.device)
        words = f"{shape[0]} x {shape[2]}^2"
        return _training(run, name, algebra, sizes.options, compiled, words, (images,), targets)

    return measure_it


def _transformer(run: Run, algebra: Algebra, sizes: Sizes, compiled: bool) -> Row:
    """A segment that sees a full memory: sixteen of 1536 characters, the recipe's, if nothing else is said."""
    options = {"num_layers": 24, "window": 1536, **sizes.options}
    _check("transformer_xl", algebra, options)
    batch, length = sizes.batch or 16, sizes.size or 1536
    width = options.get("d_model", 512)
    tokens, targets = torch.randint(options.get("vocab_size", 256), (2, batch, length), device=run.device)
    memory = torch.randn(batch, options["window"], width, device=run.device)
    inputs = (tokens, [memory] * options["num_layers"])
    shape = f"{batch} x {length}, {options['num_layers']} layers"
    return _training(run, "transformer_xl", algebra, options, compiled, shape, inputs, targets)


def _gru(run: Run, algebra: Algebra, sizes: Sizes, _compiled: bool) -> Row:
    """The language model's GRU, one bias a gate, at the recipe's size: cuDNN's, which a compiler does not change."""
    _check("gru_lm", algebras.R, sizes.options)  # over R any size is right, and `gru_case` takes the nearest
    width, length = sizes.options.get("hidden_size", 2048), sizes.size or 512
    case = gru_case(algebra, width, length, sizes.batch or 16, recurrent_bias=False)
    return measure_case(replace(case, op="gru_lm's GRU"), run)


def _generation(run: Run, algebra: Algebra, sizes: Sizes, _compiled: bool) -> Row:
    """A Transformer-XL that goes on behind a prompt that fills its window, one token a step."""
    options = {
        "num_layers": 12, "d_model": 4096, "num_heads": 32, "ff_size": 16384, "window": 512, **sizes.options,
    }  # fmt: skip
    _check("transformer_xl", algebra, options)
    shape = (sizes.batch or 1, sizes.size or options["window"])
    tokens = torch.randint(options.get("vocab_size", 256), shape, device=run.device)
    ours, real, error = _pair(run, "transformer_xl", algebra, options, (tokens[:1],))
    decoders = [Decoder(model.to(run.dtype).eval(), tokens) for model in (ours, real)]
    times, _ = race(replace(run, capture=False), decoders)  # decoders capture themselves
    words = f"{len(tokens)} x {options['d_model']}, {options['num_layers']} layers"
    return _row(run, "generation", words, algebra, (ours, real), error, times, run.on_gpu, len(tokens))


def _check(name: str, algebra: Algebra, options: Mapping[str, Any]) -> None:
    """Raise what is wrong with the options, before anything is made of them."""
    for own in ("algebra", "lowering"):
        if own in options:
            raise ValueError(f"{own} cannot be set here: the benchmark compares algebras. Leave it away.")
    with torch.device("meta"):
        models.create(name, algebra=algebra, **options)


def _training(
    run: Run,
    name: str,
    algebra: Algebra,
    options: Mapping[str, Any],
    compiled: bool,
    shape: str,
    inputs: tuple[Any, ...],
    targets: Tensor,
) -> Row:
    few = tuple(x[:1].to(run.stored) if x.is_floating_point() else x[:1] for x in inputs if isinstance(x, Tensor))
    ours, real, error = _pair(run, name, algebra, options, few)
    steps = []
    for model in (ours, real):
        if compiled:
            compile_model(model, whole=isinstance(model, ImageNetwork))
        steps.append(_step(model.train(), inputs, targets, run))
    times, captured = race(run, steps)
    return _row(run, name, shape, algebra, (ours, real), error, times, captured, targets.numel())


def _pair(
    run: Run, name: str, algebra: Algebra, options: Mapping[str, Any], inputs: tuple[Tensor, ...]
) -> tuple[nn.Module, nn.Module, float]:
    """Ours, checked on a small input (in float32, for the layers have been in half precision), and torch's."""
    torch.manual_seed(0)
    torch._dynamo.reset()

    def create(over: Algebra | str, **lowering: str) -> nn.Module:
        return placed(lambda: models.create(name, algebra=over, **options, **lowering), run)

    ours, reference = create(algebra), create(algebra, lowering="reference")
    reference.load_state_dict(ours.state_dict())
    full = replace(run, dtype=run.stored)
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        value, exact = (_logits(model.eval()(*inputs)) for model in (ours, reference))
    error = float((value - exact).abs().max() / exact.abs().max())
    refuse(error, full, f"{name} over {algebra}")
    del reference
    return ours, create("R", lowering="blocks"), error


def _step(model: nn.Module, inputs: tuple[Any, ...], targets: Tensor, run: Run) -> Step:
    parameters = list(model.parameters())

    def step() -> None:
        with run.autocast():
            loss = F.cross_entropy(_logits(model(*inputs)).flatten(0, -2).float(), targets.flatten())
        torch.autograd.grad(loss, parameters)

    return step


def _logits(result: Any) -> Tensor:
    """A language model gives its state as well."""
    return result if isinstance(result, Tensor) else result[0]


def _row(
    run: Run,
    op: str,
    shape: str,
    algebra: Algebra,
    pair: tuple[nn.Module, nn.Module],
    error: float,
    times: list[list[float]],
    captured: bool,
    examples: int,
) -> Row:
    share = num_parameters(pair[0]) / num_parameters(pair[1])
    return make(
        run, dict(zip(("ours", "real"), times, strict=True)), captured, examples=examples,
        op=op, shape=shape, algebra=algebra.name, lowering="auto", against="torch.nn", parameters=share, error=error,
    )  # fmt: skip


Benchmark = Callable[[Run, Algebra, Sizes, bool], Row]

BENCHMARKS: dict[str, Benchmark] = {
    "resnet50": _image_network("resnet50", 256, 224),
    "mobilenet_v1": _image_network("mobilenet_v1", 256, 224),
    "cifar_resnet": _image_network("cifar_resnet", 500, 24),
    "gru_lm": _gru,
    "transformer_xl": _transformer,
    "generation": _generation,
}
