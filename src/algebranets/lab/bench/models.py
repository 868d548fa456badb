"""Benchmark of whole networks: training steps at the same width, and generation token by token.

A step is forward, loss and backward, without the optimizer, which has fewer parameters to update over an algebra. Over
R, our networks have torch's layers too, except for depthwise convolutions.
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
from algebranets.lab.bench.case import check_error, make_on_device, num_parameters
from algebranets.lab.bench.case import measure as measure_case
from algebranets.lab.bench.layers import gru_case
from algebranets.lab.bench.rows import Row, make_row
from algebranets.lab.bench.timing import Run, Step, race
from algebranets.lab.train.compiling import compile_model
from algebranets.models.kit import ImageNetwork
from algebranets.models.language import Decoder

ALGEBRAS = ("M2R", "H")


@dataclass(frozen=True)
class Sizes:
    """The sizes of the inputs and the model; None for the benchmark's defaults.

    Args:
        batch: Number of images or texts.
        size: Height and width of images, or length of texts.
        options: Options of the model, as `models.create` takes them.
    """

    batch: int | None = None
    size: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Network:
    """A model over an algebra, and the shape of its input as text."""

    name: str
    algebra: Algebra
    options: Mapping[str, Any]
    shape: str


@dataclass(frozen=True)
class _Pair:
    """Our network, the real one of the same width, and the error of ours against its reference."""

    network: _Network
    ours: nn.Module
    real: nn.Module
    error: float


def measure(
    run: Run,
    names: Iterable[str] = ALGEBRAS,
    benchmarks: Iterable[str] | None = None,
    sizes: Sizes | None = None,
    compiled: bool = True,
) -> Iterator[Row]:
    """Time networks.

    Args:
        run: The device, the precision and how times are taken.
        names: Algebras.
        benchmarks: Some of `BENCHMARKS`; by default all.
        sizes: Sizes of inputs and models.
        compiled: Whether both sides are compiled with torch.compile.
    """
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
        network = _Network(name, algebra, sizes.options, f"{shape[0]} x {shape[2]}^2")
        return _training(run, network, (images,), targets, compiled)

    return measure_it


def _transformer(run: Run, algebra: Algebra, sizes: Sizes, compiled: bool) -> Row:
    """Time a training step on a segment with a full memory; the default, 16 x 1536 characters, is the recipe's."""
    options = {"num_layers": 24, "window": 1536, **sizes.options}
    _check("transformer_xl", algebra, options)
    batch, length = sizes.batch or 16, sizes.size or 1536
    width = options.get("d_model", 512)
    tokens, targets = torch.randint(options.get("vocab_size", 256), (2, batch, length), device=run.device)
    memory = torch.randn(batch, options["window"], width, device=run.device)
    inputs = (tokens, [memory] * options["num_layers"])
    network = _Network("transformer_xl", algebra, options, f"{batch} x {length}, {options['num_layers']} layers")
    return _training(run, network, inputs, targets, compiled)


def _gru(run: Run, algebra: Algebra, sizes: Sizes, _compiled: bool) -> Row:
    """Time the language model's GRU, with one bias per gate, by default at the recipe's size. It is not compiled."""
    _check("gru_lm", algebras.R, sizes.options)  # over R, because `gru_case` rounds the size to fit the algebra
    width, length = sizes.options.get("hidden_size", 2048), sizes.size or 512
    case = gru_case(algebra, width, length, sizes.batch or 16, recurrent_bias=False)
    return measure_case(replace(case, op="gru_lm's GRU"), run)


def _generation(run: Run, algebra: Algebra, sizes: Sizes, _compiled: bool) -> Row:
    """Time a Transformer-XL that continues a prompt, one token per step. By default the prompt fills the window."""
    options = {
        "num_layers": 12, "d_model": 4096, "num_heads": 32, "ff_size": 16384, "window": 512, **sizes.options,
    }  # fmt: skip
    _check("transformer_xl", algebra, options)
    shape = (sizes.batch or 1, sizes.size or options["window"])
    tokens = torch.randint(options.get("vocab_size", 256), shape, device=run.device)
    words = f"{len(tokens)} x {options['d_model']}, {options['num_layers']} layers"
    pair = _make_pair(run, _Network("transformer_xl", algebra, options, words), (tokens[:1],))
    decoders = [Decoder(model.to(run.dtype).eval(), tokens) for model in (pair.ours, pair.real)]
    times, _ = race(replace(run, capture=False), decoders)  # decoders capture their own CUDA graphs
    return replace(_row(run, pair, times, run.on_gpu, len(tokens)), op="generation")


def _check(name: str, algebra: Algebra, options: Mapping[str, Any]) -> None:
    """Raise an error if the options are wrong, before a full model is made."""
    for own in ("algebra", "lowering"):
        if own in options:
            raise ValueError(f"{own} cannot be set here: the benchmark compares algebras. Leave it out.")
    with torch.device("meta"):
        models.create(name, algebra=algebra, **options)


def _training(run: Run, network: _Network, inputs: tuple[Any, ...], targets: Tensor, compiled: bool) -> Row:
    few = tuple(x[:1].to(run.stored) if x.is_floating_point() else x[:1] for x in inputs if isinstance(x, Tensor))
    pair = _make_pair(run, network, few)
    steps = []
    for model in (pair.ours, pair.real):
        if compiled:
            compile_model(model, whole=isinstance(model, ImageNetwork))
        steps.append(_step(model.train(), inputs, targets, run))
    times, captured = race(run, steps)
    return _row(run, pair, times, captured, targets.numel())


def _make_pair(run: Run, network: _Network, inputs: tuple[Tensor, ...]) -> _Pair:
    """Make our network and the real one. Ours is checked on a small input, in at least float32."""
    torch.manual_seed(0)
    torch._dynamo.reset()

    def create(over: Algebra | str, **lowering: str) -> nn.Module:
        return make_on_device(lambda: models.create(network.name, algebra=over, **network.options, **lowering), run)

    ours, reference = create(network.algebra), create(network.algebra, lowering="reference")
    reference.load_state_dict(ours.state_dict())
    full = replace(run, dtype=run.stored)
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        value, exact = (_logits(model.eval()(*inputs)) for model in (ours, reference))
    error = float((value - exact).abs().max() / exact.abs().max())
    check_error(error, full, f"{network.name} over {network.algebra}")
    del reference
    return _Pair(network, ours, create("R", lowering="blocks"), error)


def _step(model: nn.Module, inputs: tuple[Any, ...], targets: Tensor, run: Run) -> Step:
    parameters = list(model.parameters())

    def step() -> None:
        with run.autocast():
            loss = F.cross_entropy(_logits(model(*inputs)).flatten(0, -2).float(), targets.flatten())
        torch.autograd.grad(loss, parameters)

    return step


def _logits(result: Any) -> Tensor:
    """The logits in a model's result. A language model also returns its state."""
    return result if isinstance(result, Tensor) else result[0]


def _row(run: Run, pair: _Pair, times: list[list[float]], captured: bool, examples: int) -> Row:
    network, share = pair.network, num_parameters(pair.ours) / num_parameters(pair.real)
    return make_row(
        run, dict(zip(("ours", "real"), times, strict=True)), captured, examples=examples,
        op=network.name, shape=network.shape, algebra=network.algebra.name, lowering="auto", against="torch.nn",
        parameters=share, error=pair.error,
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
