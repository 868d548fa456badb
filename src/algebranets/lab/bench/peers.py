"""Benchmark of other libraries' layers, forward and backward: their time over ours at the same width.

Each library gets its input in its own form, such as complex numbers. The conversion is not timed. Only the number of
values in its output is checked. complextorch computes in complex64 in every precision, because torch has no complex
products in half precision on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from math import prod

import torch
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import nn as ann
from algebranets.algebra import Algebra
from algebranets.lab.bench.case import (
    check_error,
    disagreement,
    fit_width,
    make_on_device,
    num_parameters,
    output,
    training_step,
)
from algebranets.lab.bench.rows import Row, make_row
from algebranets.lab.bench.timing import Run, race
from algebranets.product import Lowering

PACKAGES = ("complextorch", "cliffordlayers", "speechbrain")
INSTALL = "pip install 'algebranets[peers]'"
OPS = ("linear", "conv2d")
WIDTH = {"cpu": 1024, "cuda": 4096}
BATCH = {"cpu": 512, "cuda": 8192}
#: Channels and height of the images.
IMAGES = (256, 16)


@dataclass(frozen=True)
class Peer:
    """A layer of another library.

    Args:
        package: The library.
        path: The layer's module and class, within the package.
        op: ``"linear"`` or ``"conv2d"``.
        algebra: The algebra that the layer computes in.
        make: Makes the layer from its class, the shape of our input and the algebra's dimension.
        native: Converts our input of an algebra to the library's form.
    """

    package: str
    path: str
    op: str
    algebra: str
    make: Callable[[type[nn.Module], tuple[int, ...], int], nn.Module]
    native: Callable[[Tensor, Algebra], Tensor]

    @property
    def name(self) -> str:
        return f"{self.package} {self.path.rpartition('.')[2]}"

    def layer_type(self) -> type[nn.Module]:
        module, _, name = self.path.rpartition(".")
        return getattr(import_module(f"{self.package}.{module}"), name)


def measure(run: Run, ops: tuple[str, ...] = OPS, width: int | None = None, batch: int | None = None) -> Iterator[Row]:
    """Time every layer of every library that is installed; `missing` lists the others.

    Args:
        run: The device, the precision and how times are taken.
        ops: Some of `OPS`.
        width: Features of linear layers, in real numbers; by default `WIDTH` of the device.
        batch: Rows of linear layers, by default `BATCH` of the device; there are 1/64 as many images.
    """
    absent = missing()
    if len(absent) == len(PACKAGES):
        raise ValueError(f"none of {', '.join(PACKAGES)} is installed; {INSTALL} installs them.")
    for peer in PEERS:
        if peer.op in ops and peer.package not in absent:
            algebra = algebras.get(peer.algebra)
            features = fit_width(width or WIDTH[run.device], algebra)
            yield _measure(run, peer, algebra, _shape(peer.op, features, batch or BATCH[run.device]))


def missing() -> list[str]:
    """The libraries that cannot be imported."""
    return [package for package in PACKAGES if not _importable(package)]


def _importable(package: str) -> bool:
    try:
        for peer in PEERS:
            if peer.package == package:
                peer.layer_type()
    except (ImportError, OSError, RuntimeError):  # a compiled part may be built for another torch or CUDA
        return False
    return True


def _shape(op: str, width: int, batch: int) -> tuple[int, ...]:
    channels, size = IMAGES
    return (batch, width) if op == "linear" else (max(1, batch // 64), channels, size, size)


def _measure(run: Run, peer: Peer, algebra: Algebra, shape: tuple[int, ...]) -> Row:
    torch.manual_seed(0)
    features = shape[1]

    def ours(lowering: Lowering) -> nn.Module:
        if peer.op == "linear":
            return ann.Linear(features, features, algebra=algebra, lowering=lowering)
        return ann.Conv2d(features, features, 3, padding=1, algebra=algebra, lowering=lowering)

    layer, reference = make_on_device(lambda: ours("auto"), run), make_on_device(lambda: ours("reference"), run)
    reference.load_state_dict(layer.state_dict())
    x = run.laid_out(torch.randn(shape, device=run.device).to(run.dtype))
    error = disagreement(layer, reference, x, run)
    words = " x ".join(map(str, shape))
    check_error(error, run, f"{peer.op} over {algebra} at {words}")
    theirs = peer.make(peer.layer_type(), shape, algebra.dim).to(run.device)
    native = peer.native(x, algebra)
    with torch.no_grad(), run.autocast():
        y = output(theirs(native))
    if y.numel() * (2 if y.is_complex() else 1) != prod(shape):
        raise RuntimeError(f"{peer.name} gave {tuple(y.shape)} for {words}: not timed.")
    times, captured = race(run, [training_step(layer, x, run), training_step(theirs, native, run)])
    return make_row(
        run, dict(zip(("ours", "real"), times, strict=True)), captured,
        op=peer.op, shape=words, algebra=algebra.name, lowering="auto", against=peer.name, error=error,
        parameters=num_parameters(layer) / _num_real_parameters(theirs),
    )  # fmt: skip


def _num_real_parameters(layer: nn.Module) -> int:
    return sum(p.numel() * (2 if p.is_complex() else 1) for p in layer.parameters())


def _complex(x: Tensor, algebra: Algebra) -> Tensor:
    real, imaginary = x.to(torch.float32).unflatten(1, (algebra.dim, -1)).unbind(1)
    return torch.complex(real, imaginary)


def _components_last(x: Tensor, algebra: Algebra) -> Tensor:
    """The input of cliffordlayers: (batch, channel, ..., component)."""
    return x.unflatten(1, (algebra.dim, -1)).movedim(1, -1).contiguous()


def _channels_last(x: Tensor, _algebra: Algebra) -> Tensor:
    """The input of SpeechBrain: features are the last axis, for images too, with components outermost as in ours."""
    return x.movedim(1, -1).contiguous()


def _plain(*first: object, kernel_size: int | None = None) -> Callable[..., nn.Module]:
    """A function that makes a layer from ``first`` and torch.nn's arguments, with channels counted in tuples."""
    slide = {} if kernel_size is None else {"kernel_size": kernel_size, "padding": kernel_size // 2}
    return lambda layer, shape, dim: layer(*first, shape[1] // dim, shape[1] // dim, **slide)


def _speech_linear(layer: type[nn.Module], shape: tuple[int, ...], dim: int) -> nn.Module:
    return layer(n_neurons=shape[1] // dim, input_shape=shape)


def _speech_conv(layer: type[nn.Module], shape: tuple[int, ...], dim: int) -> nn.Module:
    native = (shape[0], *shape[2:], shape[1])
    return layer(out_channels=shape[1] // dim, kernel_size=3, input_shape=native, padding_mode="constant")


_CLIFFORD, _COMPLEX, _QUATERNION = "nn.modules.clifford", "nnet.complex_networks.c_", "nnet.quaternion_networks.q_"
#: Clifford algebras by signature: (-1) is C, (-1, -1) H, and (1, 1) is M2(R) in another basis.
PEERS = (
    Peer("complextorch", "nn.Linear", "linear", "C", _plain(), _complex),
    Peer("cliffordlayers", _CLIFFORD + "linear.CliffordLinear", "linear", "C", _plain((-1,)), _components_last),
    Peer("speechbrain", _COMPLEX + "linear.CLinear", "linear", "C", _speech_linear, _channels_last),
    Peer("cliffordlayers", _CLIFFORD + "linear.CliffordLinear", "linear", "H", _plain((-1, -1)), _components_last),
    Peer("speechbrain", _QUATERNION + "linear.QLinear", "linear", "H", _speech_linear, _channels_last),
    Peer("cliffordlayers", _CLIFFORD + "linear.CliffordLinear", "linear", "M2R", _plain((1, 1)), _components_last),
    Peer("complextorch", "nn.Conv2d", "conv2d", "C", _plain(kernel_size=3), _complex),
    Peer("speechbrain", _COMPLEX + "CNN.CConv2d", "conv2d", "C", _speech_conv, _channels_last),
    Peer(
        "cliffordlayers", _CLIFFORD + "conv.CliffordConv2d", "conv2d", "H", _plain((-1, -1), kernel_size=3),
        _components_last,
    ),
    Peer("speechbrain", _QUATERNION + "CNN.QConv2d", "conv2d", "H", _speech_conv, _channels_last),
    Peer(
        "cliffordlayers", _CLIFFORD + "conv.CliffordConv2d", "conv2d", "M2R", _plain((1, 1), kernel_size=3),
        _components_last,
    ),
)  # fmt: skip
