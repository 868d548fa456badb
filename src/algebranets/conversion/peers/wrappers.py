"""Modules that let a layer of ours take and return tensors in another library's layout.

The child ``layer`` of a wrapper is the layer. The wrapper converts the input to our layout, calls the layer, and
converts the output back. Most of these conversions copy the tensor. `torch.fx` can trace wrappers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algebranets.algebra import Algebra


class ComplexTensors(nn.Module):
    """A wrapper around a layer over C, for complex tensors as in torch and complextorch.

    A complex input becomes a real one with twice the channels: all real parts, then all imaginary parts. The output
    becomes complex again. Without the wrapper, ``layer`` takes and returns such real tensors.

    Args:
        layer: A layer over an algebra of dimension 2, whose components are the real and the imaginary part.
        channel_axis: The channel axis, counted from the last one: -1 for a linear layer, -3 for `Conv2d`.

    >>> import torch, algebranets as an
    >>> wrapper = ComplexTensors(an.nn.Linear(6, 4, algebra=an.C))
    >>> wrapper(torch.randn(7, 3, dtype=torch.cfloat)).shape
    torch.Size([7, 2])
    """

    def __init__(self, layer: nn.Module, channel_axis: int = -1) -> None:
        super().__init__()
        self.layer = layer
        self.channel_axis = channel_axis

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer.

        Args:
            x: The input, complex.
        """
        return self.to_complex(self.layer(self.to_real(x)), x)

    def to_real(self, x: Tensor) -> Tensor:
        """Return the real tensor that the layer takes: all real parts, then all imaginary parts.

        Args:
            x: A complex tensor.
        """
        if isinstance(x, Tensor) and not x.is_complex():  # it is not a Tensor while torch.fx traces the wrapper
            raise ValueError(
                f"this layer takes complex tensors; got {x.dtype}. Use x.to(torch.cfloat) for a real input, or call "
                "the layer inside, `wrapper.layer`, which takes real tensors: all real parts, then all imaginary parts."
            )
        return torch.cat([x.real, x.imag], self.channel_axis)

    def to_complex(self, y: Tensor, x: Tensor) -> Tensor:
        """Return the layer's output as a complex tensor.

        Args:
            y: The output of the layer.
            x: An input of the wrapper. The result gets its dtype, because under autocast the layer may return bfloat16,
                for which torch has no complex dtype.
        """
        real, imaginary = y.to(x.real.dtype).unflatten(self.channel_axis, (2, -1)).unbind(self.channel_axis - 1)
        return torch.complex(real, imaginary)

    def extra_repr(self) -> str:
        return f"channel_axis={self.channel_axis}"


class ComplexForms(ComplexTensors):
    """A wrapper around a bilinear layer over C, for complex tensors as in complextorch's ``Bilinear``.

    Args:
        layer: A bilinear layer over C.
        conjugate: Whether to conjugate the first input.

    >>> import torch, algebranets as an
    >>> wrapper = ComplexForms(an.nn.Bilinear(6, 4, 10, algebra=an.C), conjugate=True)
    >>> wrapper(torch.randn(7, 3, dtype=torch.cfloat), torch.randn(7, 2, dtype=torch.cfloat)).shape
    torch.Size([7, 5])
    """

    def __init__(self, layer: nn.Module, conjugate: bool) -> None:
        super().__init__(layer)
        self.conjugate = conjugate

    def forward(self, x: Tensor, z: Tensor) -> Tensor:  # type: ignore[override]
        """Apply the layer to two complex tensors.

        Args:
            x: The first input.
            z: The second input. Its shape is that of ``x``, except for the last axis.
        """
        first = self.to_real(x.conj() if self.conjugate else x)
        return self.to_complex(self.layer(first, self.to_real(z)), x)

    def extra_repr(self) -> str:
        return f"conjugate={self.conjugate}"


class ComponentsLast(nn.Module):
    """A wrapper around a layer, for tensors (batch, tuples, ..., components) as in cliffordlayers.

    Args:
        layer: A layer over ``algebra`` whose channel axis is 1.
        algebra: The algebra. The last axis holds components in the order of its table.
        in_components: The components that the input has. The others are zero. The default is all components.
        out_components: The components to return. The default is all components.

    >>> import torch, algebranets as an
    >>> wrapper = ComponentsLast(an.nn.Linear(12, 8, algebra=an.H), an.H)
    >>> wrapper(torch.randn(7, 3, 4)).shape
    torch.Size([7, 2, 4])
    """

    def __init__(
        self,
        layer: nn.Module,
        algebra: Algebra,
        in_components: range | None = None,
        out_components: range | None = None,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.algebra = algebra
        self.in_components = range(algebra.dim) if in_components is None else in_components
        self.out_components = range(algebra.dim) if out_components is None else out_components

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer.

        Args:
            x: The input, (batch, tuples, ..., components).
        """
        given, dim = self.in_components, self.algebra.dim
        if isinstance(x, Tensor) and (x.dim() < 3 or x.shape[-1] != len(given)):
            raise ValueError(
                f"the input must be (batch, tuples, ..., components) with {len(given)} components; "
                f"got {tuple(x.shape)}."
            )
        if len(given) < dim:
            x = F.pad(x, (given.start, dim - given.stop))
        order = list(self.algebra.order)
        is_sorted = order == sorted(order)
        x = x.movedim(-1, 1)
        y = self.layer((x if is_sorted else x[:, order]).flatten(1, 2)).unflatten(1, (dim, -1))
        y = (y if is_sorted else y[:, [order.index(k) for k in range(dim)]]).movedim(1, -1)
        returned = self.out_components
        return y if len(returned) == dim else y[..., returned.start : returned.stop]

    def extra_repr(self) -> str:
        named = (("in_components", self.in_components), ("out_components", self.out_components))
        return ", ".join(f"{name}={list(part)}" for name, part in named if len(part) < self.algebra.dim)


class ChannelsLast(nn.Module):
    """A wrapper around a convolution, for tensors with the channels on the last axis as in SpeechBrain.

    Args:
        layer: A convolution.
        axes: The permutation of the input's axes that gives the layer's input, such as (0, 2, 1) for `Conv1d`.
        pad: The number of zeros to add before and after the last axis of the layer's input, for causal convolutions.

    >>> import torch, algebranets as an
    >>> wrapper = ChannelsLast(an.nn.Conv1d(8, 12, 3, algebra=an.H), axes=(0, 2, 1), pad=(2, 0))
    >>> wrapper(torch.randn(7, 20, 8)).shape
    torch.Size([7, 20, 12])
    """

    def __init__(self, layer: nn.Module, axes: Sequence[int], pad: tuple[int, int] = (0, 0)) -> None:
        super().__init__()
        self.layer = layer
        self.axes, self.pad = tuple(axes), pad

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer.

        Args:
            x: The input, with the channels on the last axis.
        """
        if isinstance(x, Tensor) and x.dim() != len(self.axes):
            raise ValueError(f"the input must have {len(self.axes)} axes; got {tuple(x.shape)}.")
        x = x.permute(self.axes)
        if any(self.pad):
            x = F.pad(x, self.pad)
        y: Tensor = self.layer(x)
        return y.permute([self.axes.index(axis) for axis in range(len(self.axes))])

    def extra_repr(self) -> str:
        return f"axes={self.axes}" + (f", pad={self.pad}" if any(self.pad) else "")


#: All wrappers.
WRAPPERS = (ComplexTensors, ComplexForms, ComponentsLast, ChannelsLast)
