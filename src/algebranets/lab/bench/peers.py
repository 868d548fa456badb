"""Benchmark of other libraries' layers, forward and backward: their time over ours at the same width.

Each library gets its input in its own form, such as complex numbers. The conversion is not timed. Before a layer is
timed, a small one on the CPU must give the same outputs as a layer of ours with the same weights. The number of values
in the output of the large layer is checked too. complextorch computes in complex64 in every precision, because torch
has no complex products in half precision on a GPU.

clifra has no layer whose weights are multivectors. It is represented by `ProductLinear`, a linear layer that is made
with clifra's product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from math import prod, sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import nn as ann
from algebranets.algebra import Algebra
from algebranets.conversion.peers import ComponentsLast, converted
from algebranets.conversion.peers.weights import Tuples, load
from algebranets.lab.bench.case import (
    check_error,
    difference,
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

PACKAGES = ("complextorch", "cliffordlayers", "speechbrain", "clifra")
INSTALL = "pip install 'algebranets[peers]'"
OPS = ("linear", "conv2d", "conv3d")
WIDTH = {"cpu": 1024, "cuda": 4096}
BATCH = {"cpu": 512, "cuda": 8192}
#: Channels and height of the images. The volumes of conv3d are half as high.
IMAGES = (256, 16)


@dataclass(frozen=True)
class Peer:
    """A layer of another library.

    Args:
        package: The library.
        path: The layer's module and class, within the package. For clifra it is the product.
        op: One of `OPS`.
        algebra: The algebra that the layer computes in.
        make: Makes the layer from what ``path`` names, the shape of our input and the algebra's dimension.
        native: Converts our input of an algebra to the library's form.
        twin: Makes a layer of ours with the weights of the library's layer. It takes and returns the library's form.
    """

    package: str
    path: str
    op: str
    algebra: str
    make: Callable[[Any, tuple[int, ...], int], nn.Module]
    native: Callable[[Tensor, Algebra], Tensor]
    twin: Callable[[Any], nn.Module] = converted

    @property
    def name(self) -> str:
        return f"{self.package} {self.path.rpartition('.')[2]}"

    def layer_type(self) -> Any:
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
            shape = _shape(peer.op, features, batch or BATCH[run.device])
            check_function(peer, algebra, len(shape) - 2)
            yield _measure(run, peer, algebra, shape)


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
    if op == "linear":
        return batch, width
    return max(1, batch // 64), channels, *((size, size) if op == "conv2d" else (size // 2,) * 3)


def check_function(peer: Peer, algebra: Algebra, num_axes: int) -> None:
    """Raise an error if a small layer of the library differs from a layer of ours with the same weights.

    Outputs and gradients of the input are compared, in float32 on the CPU.

    Args:
        peer: The layer.
        algebra: The algebra.
        num_axes: The number of spatial axes of the input.
    """
    torch.manual_seed(0)
    run = Run()
    shape = (3, 2 * algebra.dim, *(5, 4, 3)[:num_axes])
    theirs = peer.make(peer.layer_type(), shape, algebra.dim)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    x = peer.native(torch.randn(shape), algebra)
    results: list[tuple[Tensor, ...]] = []
    upstream: Tensor | None = None
    for layer in (theirs, peer.twin(theirs)):
        leaf = x.clone().requires_grad_()
        y = output(layer(leaf))
        upstream = torch.randn_like(y) if upstream is None else upstream
        results.append((y.detach(), *torch.autograd.grad(y, leaf, upstream)))
    error = max(difference(a, b, run) for a, b in zip(*results, strict=True))
    check_error(error, run, f"{peer.op} of {peer.name} over {algebra}")


def _measure(run: Run, peer: Peer, algebra: Algebra, shape: tuple[int, ...]) -> Row:
    torch.manual_seed(0)
    features = shape[1]

    def ours(lowering: Lowering) -> nn.Module:
        if peer.op == "linear":
            return ann.Linear(features, features, algebra=algebra, lowering=lowering)
        conv = ann.Conv2d if peer.op == "conv2d" else ann.Conv3d
        return conv(features, features, 3, padding=1, algebra=algebra, lowering=lowering)

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


class ProductLinear(nn.Module):
    """A linear layer made with clifra's geometric product, with multivectors as weights.

    clifra's `CliffordLinear` computes something else: its weights are real numbers. This layer multiplies each weight
    by each basis element with clifra's product. The results are matrices of left multiplication, with which it calls
    torch's linear layer. This is the fastest of the ways that we tried. Products of all weights with all inputs would
    need a multivector for each weight and each row of the input.

    The layer takes and returns tensors (batch, tuples, components). The components are in the same order as ours.

    Args:
        product: `clifra.functional.geometric_product`.
        signature: The numbers of generators that square to 1 and to -1.
        channels: The number of input multivectors, and of output multivectors.
    """

    basis: Tensor

    def __init__(self, product: Callable[..., Tensor], signature: tuple[int, int], channels: int) -> None:
        super().__init__()
        self.product = product
        self.context = import_module("clifra").make_algebra(*signature)
        dim = 2 ** sum(signature)
        bound = 1 / sqrt(channels * dim)
        self.weight = nn.Parameter(torch.empty(channels, channels, dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels, dim).uniform_(-bound, bound))
        self.register_buffer("basis", torch.eye(dim), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer.

        Args:
            x: The input, (batch, tuples, components).
        """
        products = self.product(self.context, self.weight.flatten(0, 1), self.basis, pairwise=True)
        outputs, dim = self.bias.shape
        matrix = products.view(outputs, -1, dim, dim).permute(0, 3, 1, 2).reshape(outputs * dim, -1)
        return F.linear(x.flatten(1), matrix, self.bias.flatten()).unflatten(1, (outputs, dim))

    def twin(self, algebra: Algebra) -> nn.Module:
        """Return a layer of ours with the same weights, for tensors of the same form."""
        features = self.bias.numel()
        weight, bias = Tuples(self.weight.detach().movedim(-1, 0), True), Tuples(self.bias.detach().T, True)
        return ComponentsLast(load(ann.Linear(features, features, algebra=algebra), weight, bias, True), algebra)


def _product_linear(p: int, q: int) -> Peer:
    """A linear layer over a Clifford algebra, made with clifra's product."""
    return Peer(
        "clifra", "functional.geometric_product", "linear", f"clifford({p},{q})",
        lambda product, shape, dim: ProductLinear(product, (p, q), shape[1] // dim), _components_last,
        lambda theirs: theirs.twin(algebras.clifford(p, q)),
    )  # fmt: skip


_CLIFFORD, _COMPLEX, _QUATERNION = "nn.modules.clifford", "nnet.complex_networks.c_", "nnet.quaternion_networks.q_"
#: Clifford algebras by signature: (-1) is C, (-1, -1) H, and (1, 1) is M2(R) in another basis. cliffordlayers has up to
#: three generators, and a convolution has as many spatial axes as there are generators. clifra has no convolutions.
PEERS = (
    Peer("complextorch", "nn.Linear", "linear", "C", _plain(), _complex),
    Peer("cliffordlayers", _CLIFFORD + "linear.CliffordLinear", "linear", "C", _plain((-1,)), _components_last),
    Peer("speechbrain", _COMPLEX + "linear.CLinear", "linear", "C", _speech_linear, _channels_last),
    Peer("cliffordlayers", _CLIFFORD + "linear.CliffordLinear", "linear", "H", _plain((-1, -1)), _components_last),
    Peer("speechbrain", _QUATERNION + "linear.QLinear", "linear", "H", _speech_linear, _channels_last),
    Peer("cliffordlayers", _CLIFFORD + "linear.CliffordLinear", "linear", "M2R", _plain((1, 1)), _components_last),
    Peer(
        "cliffordlayers", _CLIFFORD + "linear.CliffordLinear", "linear", "clifford(2,0)", _plain((1, 1)),
        _components_last,
    ),
    _product_linear(2, 0),
    Peer(
        "cliffordlayers", _CLIFFORD + "linear.CliffordLinear", "linear", "clifford(3,0)", _plain((1, 1, 1)),
        _components_last,
    ),
    _product_linear(3, 0),
    _product_linear(1, 3),
    _product_linear(4, 1),
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
    Peer(
        "cliffordlayers", _CLIFFORD + "conv.CliffordConv2d", "conv2d", "clifford(2,0)", _plain((1, 1), kernel_size=3),
        _components_last,
    ),
    Peer(
        "cliffordlayers", _CLIFFORD + "conv.CliffordConv3d", "conv3d", "clifford(3,0)",
        _plain((1, 1, 1), kernel_size=3), _components_last,
    ),
)  # fmt: skip
