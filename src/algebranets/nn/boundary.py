"""`Lift`, from real numbers to tuples at the input, and `TupleNorm`, from tuples to real logits."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.conv import Conv2d
from algebranets.nn.layer import REQUIRED, Layer

MODES = ("learned", "zeros", "copy")


class _Lift(Layer):
    """The base of all Lifts. The first component is the input, and ``mode`` says what the others are."""

    num_axes: ClassVar[int] = 0

    def __init__(
        self,
        channels: int,
        mode: str,
        num_layers: int,
        hidden_channels: int | None,
        kernel: dict[str, Any],
        algebra: Algebra | str,
    ) -> None:
        super().__init__()
        checks.one_of("mode", mode, MODES)
        checks.one_of("num_layers", checks.whole("num_layers", num_layers), (1, 2))
        self.algebra = self.resolve(algebra)
        self.channels, self.mode = checks.whole("channels", channels, least=1), mode
        if hidden_channels is not None:
            checks.whole("hidden_channels", hidden_channels, least=1)
        layer = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)[self.num_axes]
        self.mlp: nn.Module | None = None
        if mode == "learned" and self.algebra.dim > 1:
            others = (self.algebra.dim - 1) * channels
            hidden = others if hidden_channels is None else hidden_channels
            sizes = [channels, others] if num_layers == 1 else [channels, hidden, others]
            for a, b in pairwise(sizes):
                checks.size("a weight", (b, a, *kernel.get("kernel_size", ())))
            layers = [layer(a, b, **kernel) for a, b in pairwise(sizes)]
            self.mlp = layers[0] if num_layers == 1 else nn.Sequential(layers[0], nn.ReLU(), layers[1])

    def forward(self, x: Tensor) -> Tensor:
        dim = x.dim() - 1 - self.num_axes
        if x.shape[dim] != self.channels:
            raise ValueError(f"axis {dim} of the input must have {self.channels} channels; got shape {tuple(x.shape)}.")
        if self.algebra.dim == 1:
            return x
        count = self.algebra.dim - 1
        if self.mlp is not None:
            others = self.mlp(x).chunk(count, dim)
        else:
            others = (torch.zeros_like(x) if self.mode == "zeros" else x,) * count
        components = (x.to(others[0].dtype), *others)
        return torch.cat([components[k] for k in self.algebra.order], dim)

    def extra_repr(self) -> str:
        return f"{self.channels}, mode={self.mode}, algebra={self.algebra.name}"


class Lift(_Lift):
    """Turn real features into tuples. The first component is the input, and the others are an MLP of it.

    The output has ``channels * algebra.dim`` features on the last axis.

    Args:
        channels: The number of real features on the last axis of the input.
        mode: The other components: "learned" (an MLP of the input, as in the paper), "zeros", or "copy" (the input
            again). The paper compares "learned" with the other two.
        num_layers: The number of layers of the MLP, 1 or 2.
        hidden_channels: The number of features between two layers; by default, that of the MLP's output.
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> lift = an.nn.Lift(10, algebra=an.H)
    >>> x = torch.randn(3, 10)
    >>> y = lift(x)
    >>> y.shape, torch.equal(an.tuples(y, an.H)[:, 0], x)
    (torch.Size([3, 40]), True)
    """

    def __init__(
        self,
        channels: int,
        mode: str = "learned",
        num_layers: int = 1,
        hidden_channels: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str = REQUIRED,
    ) -> None:
        kernel = {"device": device, "dtype": dtype}
        super().__init__(channels, mode, num_layers, hidden_channels, kernel, algebra)


class _ConvLift(_Lift):
    def __init__(
        self,
        channels: int,
        mode: str = "learned",
        num_layers: int = 1,
        hidden_channels: int | None = None,
        kernel_size: int | tuple[int, ...] = 3,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str = REQUIRED,
    ) -> None:
        size = checks.per_axis("kernel_size", kernel_size, self.num_axes, least=1)
        kernel = {"kernel_size": size, "padding": "same", "device": device, "dtype": dtype}
        super().__init__(channels, mode, num_layers, hidden_channels, kernel, algebra)


class Lift1d(_ConvLift):
    """Turn a real sequence (batch, channels, length) into tuples. The first component is the input.

    The output has ``channels * algebra.dim`` channels.

    Args:
        channels: The number of real channels of the input.
        mode: The other components: "learned" (convolutions of the input), "zeros", or "copy" (the input again).
        num_layers: The number of convolutions, 1 or 2, with a ReLU between them.
        hidden_channels: The number of channels between two convolutions; by default, that of the last one's output.
        kernel_size: The size of the kernels.
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.Lift1d(3, algebra=an.H)(torch.randn(2, 3, 10)).shape
    torch.Size([2, 12, 10])
    """

    num_axes = 1


class Lift2d(_ConvLift):
    """Turn real images (batch, channels, height, width) into tuples. The first component is the image.

    The output has ``channels * algebra.dim`` channels.

    Args:
        channels: The number of real channels of the image.
        mode: The other components: "learned" (convolutions of the image), "zeros", or "copy" (the image again).
        num_layers: The number of convolutions, 1 or 2, with a ReLU between them.
        hidden_channels: The number of channels between two convolutions; by default, that of the last one's output.
        kernel_size: The size of the kernels, an int or a tuple of 2 ints.
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.Lift2d(3, kernel_size=1, algebra=an.M2R)(torch.randn(2, 3, 8, 8)).shape
    torch.Size([2, 12, 8, 8])
    """

    num_axes = 2

    def into(self, conv: Conv2d, x: Tensor) -> Tensor:
        """Compute ``conv(self(x))``, on a GPU as one convolution of the image if the Lift is linear at each pixel.

        Lifted images are large, and writing them would take longer than the convolution. Layers with hooks are called
        one after the other.

        Args:
            conv: The convolution that follows.
            x: The real images.
        """
        listened = any(m._forward_hooks or m._forward_pre_hooks for m in (*self.modules(), conv))
        if x.is_cuda and not listened and self._merges_with(conv):
            return self._merged(conv, x)
        return conv(self(x))

    def _merges_with(self, conv: Conv2d) -> bool:
        if type(conv).forward is not Conv2d.forward:  # a subclass that computes something else
            return False
        is_pointwise = self.mlp is None or (isinstance(self.mlp, nn.Conv2d) and set(self.mlp.kernel_size) == {1})
        return self.algebra.dim > 1 and is_pointwise and conv.groups == 1 and conv.padding_mode == "zeros"

    def _merged(self, conv: Conv2d, x: Tensor) -> Tensor:
        """One convolution with the product of both weights. The Lift's biases are weights of a channel of ones."""
        with torch.autocast(x.device.type, enabled=False):  # multiply weights in their own precision
            kernel = torch.einsum(
                "ocyx,ci->oiyx", product.real_weight(conv.weight, self.algebra), self._matrix(conv.weight)
            )
        image = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        return F.conv2d(image, kernel, conv.bias, conv.stride, conv.padding, conv.dilation)

    def _matrix(self, like: Tensor) -> Float[Tensor, "feat chan_and_one"]:
        """The Lift as a matrix whose last column holds the biases."""
        own = torch.eye(self.channels, self.channels + 1, dtype=like.dtype, device=like.device)
        if isinstance(self.mlp, nn.Conv2d):
            weight = self.mlp.weight.flatten(1)
            bias = weight.new_zeros(len(weight)) if self.mlp.bias is None else self.mlp.bias
            others = torch.cat([weight, bias[:, None]], dim=1).split(self.channels)
        else:
            others = (torch.zeros_like(own) if self.mode == "zeros" else own,) * (self.algebra.dim - 1)
        components = (own, *others)
        return torch.cat([components[k] for k in self.algebra.order])


class Lift3d(_ConvLift):
    """Turn real volumes (batch, channels, depth, height, width) into tuples. The first component is the input.

    The output has ``channels * algebra.dim`` channels.

    Args:
        channels: The number of real channels of the input.
        mode: The other components: "learned" (convolutions of the input), "zeros", or "copy" (the input again).
        num_layers: The number of convolutions, 1 or 2, with a ReLU between them.
        hidden_channels: The number of channels between two convolutions; by default, that of the last one's output.
        kernel_size: The size of the kernels, an int or a tuple of 3 ints.
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.Lift3d(1, mode="zeros", algebra=an.C)(torch.randn(2, 1, 4, 4, 4)).shape
    torch.Size([2, 2, 4, 4, 4])
    """

    num_axes = 3


class TupleNorm(Layer):
    """Turn each tuple into one real number, its L2 norm: the logits of an AlgebraNet. Over R it is the identity.

    The gradient of a zero tuple, where the norm has no derivative, is zero. The norm is correct whenever it can
    be represented, even if the squares of the components overflow or underflow.

    Args:
        dim: The channel axis: 1 for images (batch, channels, height, width), -1 for features. It must be given.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.TupleNorm(dim=-1, algebra=an.C)(torch.tensor([3.0, 0.0, 4.0, 0.0]))  # the tuples (3, 4) and (0, 0)
    tensor([5., 0.])
    """

    def __init__(self, *, dim: int = REQUIRED, algebra: Algebra | str = REQUIRED) -> None:
        super().__init__()
        self.algebra = self.resolve(algebra)
        self.dim = channel_axis(dim, type(self).__name__)

    def forward(self, x: Tensor) -> Tensor:
        dim = product.tuple_axis(x, self.algebra, self.dim)
        if self.algebra.dim == 1:
            return x
        t, scale = scaled(x.unflatten(dim, (self.algebra.dim, -1)), dim, degree=2)
        # A sum of squares is zero or far above the smallest number: the clamp only removes the gradient at zero. The
        # scale of a zero tuple is also the smallest number, so that the product of the two rounds to zero.
        root = t.square().sum(dim).clamp(min=torch.finfo(t.dtype).tiny).sqrt()
        return product.in_format_of(x, (root * scale.squeeze(dim)).to(x.dtype))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, algebra={self.algebra.name}"


def channel_axis(dim: int, layer: str) -> int:
    """Check the argument ``dim`` of a layer. It has no default: channels are axis 1 of images and the last of features.

    Args:
        dim: The channel axis, or `REQUIRED` if it was not given.
        layer: The name of the layer, for the error.
    """
    if dim is REQUIRED:
        raise ValueError(
            f"{layer} needs dim, the channel axis: write dim=1 for images (batch, channels, height, width), "
            "or dim=-1 for features."
        )
    return checks.whole("dim", dim)


def scaled(t: Tensor, dim: int, degree: int) -> tuple[Tensor, Tensor]:
    """Return ``t / scale`` and ``scale``. Products of ``degree`` components then neither overflow nor all become zero.

    The scale has no gradient and is 1 except for very large and very small tuples. Both results are float32 or better.

    Args:
        t: Tuples.
        dim: The component axis.
        degree: How many components are multiplied.
    """
    t = t.float() if t.dtype.itemsize < 4 else t
    limits = torch.finfo(t.dtype)
    far = limits.tiny ** (1 / (degree + 1))
    largest = t.detach().abs().amax(dim, keepdim=True)
    scale = (largest / largest.clamp(far, 1 / far)).clamp(limits.tiny, limits.max)
    return t / scale, scale
