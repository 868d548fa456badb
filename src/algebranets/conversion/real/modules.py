"""Layers that act on tuples as small graphs of torch's functions, which load without algebranets.

Each class here computes the same as a layer of `algebranets.nn`, only with torch's functions. `traced` turns an
instance into a `torch.fx.GraphModule`, which is saved as its own source code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from algebranets.algebra import Algebra
from algebranets.conversion.parts import Parts, planar_index
from algebranets.nn.activation import block_matrices


def traced(module: nn.Module, name: str) -> nn.Module:
    """Return a module as a graph, with the class name ``name``.

    Args:
        module: A module whose forward does not depend on sizes or on the mode, except in torch's own modules.
        name: The name to print.
    """
    graph = fx.Tracer().trace(module)
    for node in graph.nodes:
        node.type = None  # annotations are text, which torch before 2.12 cannot save
    made = fx.GraphModule(module, graph, name)
    made.train(module.training)
    return made


class _Axes:
    """The component axis and the tuple axis after the channel axis ``dim`` of a tensor was split in two."""

    def __init__(self, dim: int) -> None:
        self.component, self.tuple = (dim, dim + 1) if dim >= 0 else (dim - 1, dim)


def permutations(parts: tuple[Parts | None, Parts | None], algebra: Algebra) -> tuple[Tensor | None, Tensor | None]:
    """Return the indices for `Tensor.index_select` that make the input planar, and that give the output its parts.

    Args:
        parts: The parts of the input and of the output. A planar axis is None, and its index is None too.
        algebra: The algebra of the tuples.
    """
    before, after = (None if axis is None else torch.tensor(planar_index(axis, algebra)) for axis in parts)
    return before, None if after is None else after.argsort()


def kept(parameter: Tensor, value: Tensor) -> nn.Parameter:
    """Return a new parameter with the ``requires_grad`` of ``parameter``.

    Args:
        parameter: The parameter that the value comes from.
        value: The value.
    """
    return nn.Parameter(value.detach().clone(), requires_grad=parameter.requires_grad)


class GroupedConv(nn.Module):
    """A convolution with groups, between two rearrangements that put the components of a tuple side by side."""

    def __init__(
        self, conv: nn.Module, num_axes: int, parts: tuple[Parts | None, Parts | None], algebra: Algebra
    ) -> None:
        super().__init__()
        self.conv, self.size, self.axis = conv, algebra.dim, -num_axes - 1
        before, after = permutations(parts, algebra)
        self.register_buffer("before", before)
        self.register_buffer("after", after)
        self.scale: nn.Parameter | None = None
        self.offset: nn.Parameter | None = None

    def multiply(self, scale: Tensor, offset: Tensor) -> None:
        """Let the layer multiply each output channel by a factor and add an offset.

        Args:
            scale: The factors.
            offset: The numbers to add.
        """
        shape = [-1, *[1] * (-self.axis - 1)]
        self.scale, self.offset = kept(scale, scale.reshape(shape)), kept(offset, offset.reshape(shape))

    def forward(self, x: Any) -> Any:
        axis = self.axis
        if self.before is not None:
            x = x.index_select(axis, self.before)
        x = x.unflatten(axis, (self.size, -1)).transpose(axis - 1, axis).flatten(axis - 1, axis)
        y = self.conv(x)
        y = y.unflatten(axis, (-1, self.size)).transpose(axis - 1, axis).flatten(axis - 1, axis)
        if self.after is not None:
            y = y.index_select(axis, self.after)
        return y if self.scale is None else y * self.scale + self.offset


class Reordered(nn.Module):
    """A layer with one input and one output, whose channels are put into another order before and after it."""

    def __init__(self, inner: nn.Module, parts: tuple[Parts | None, Parts | None], algebra: Algebra, axis: int) -> None:
        super().__init__()
        self.inner, self.axis = inner, axis
        before, after = permutations(parts, algebra)
        self.register_buffer("before", before)
        self.register_buffer("after", after)

    def forward(self, x: Any) -> Any:
        y = self.inner(x if self.before is None else x.index_select(self.axis, self.before))
        return y if self.after is None else y.index_select(self.axis, self.after)


class ReorderedSequence(nn.Module):
    """A recurrent layer whose output features are put into another order. States stay as they are.

    A graph takes one kind of input: tensors, or packed sequences if ``is_packed`` is set.
    """

    def __init__(self, inner: nn.Module, after: Tensor, is_packed: bool) -> None:
        super().__init__()
        self.inner, self.is_packed = inner, is_packed
        self.register_buffer("after", after)

    def forward(self, x: Any, hx: Any = None) -> Any:
        result = self.inner(x, hx)
        y = result[0]
        if self.is_packed:
            return y._replace(data=y.data.index_select(-1, self.after)), result[1]
        return y.index_select(-1, self.after), result[1]


class Lift(nn.Module):
    """`algebranets.nn.Lift`: tuples of the input and of functions of it, in the algebra's order."""

    def __init__(self, mlp: nn.Module | None, mode: str, num_axes: int, order: Sequence[int]) -> None:
        super().__init__()
        self.mlp, self.mode, self.axis, self.order = mlp, mode, -1 - num_axes, order

    def forward(self, x: Any) -> Any:
        count = len(self.order) - 1
        if self.mlp is not None:
            parts = self.mlp(x).chunk(count, self.axis)
            others = [parts[n] for n in range(count)]
        else:
            others = [torch.zeros_like(x) if self.mode == "zeros" else x] * count
        components = [x.type_as(others[0]), *others]
        return torch.cat([components[k] for k in self.order], self.axis)


class TupleNorm(nn.Module):
    """`algebranets.nn.TupleNorm`: the L2 norm of each tuple."""

    def __init__(self, dim: int, size: int) -> None:
        super().__init__()
        self.dim, self.size, self.axes = dim, size, _Axes(dim)

    def forward(self, x: Any) -> Any:
        return torch.linalg.vector_norm(x.unflatten(self.dim, (self.size, -1)), dim=self.axes.component)


class TupleGate(nn.Module):
    """`algebranets.nn.TupleGate`: multiplies each tuple by a number that depends on it."""

    def __init__(self, g: Any, f: Any, dim: int, algebra: Algebra) -> None:
        super().__init__()
        self.g, self.f, self.dim, self.algebra, self.axes = g, f, dim, algebra, _Axes(dim)

    def forward(self, x: Any) -> Any:
        planar = x.unflatten(self.dim, (self.algebra.dim, -1))
        places = [self.algebra.order.index(k) for k in range(self.algebra.dim)]
        t = torch.stack([planar.select(self.axes.component, place) for place in places])
        gate = self.f(self._value(t)) if callable(self.f) else (self._value(t) > 0).type_as(x)
        return (planar * gate.unsqueeze(self.axes.component)).flatten(self.axes.component, self.axes.tuple)

    def _value(self, t: Any) -> Any:
        if callable(self.g):
            return self.g(t)
        if self.g == "mean":
            return t.mean(0)
        value = None
        for block in self.algebra.blocks:
            factor = torch.linalg.det(block_matrices(t, block))
            value = factor if value is None else value * factor
        return value


class TupleDropout(nn.Module):
    """`algebranets.nn.TupleDropout`: all components of a tuple become zero together."""

    def __init__(self, p: float, dim: int, size: int) -> None:
        super().__init__()
        self.dropout, self.dim, self.size, self.axes = nn.Dropout(p), dim, size, _Axes(dim)

    def forward(self, x: Any) -> Any:
        t, axis = x.unflatten(self.dim, (self.size, -1)), self.axes.component
        keep = self.dropout(torch.ones_like(t.select(axis, 0))).unsqueeze(axis)
        return (t * keep).flatten(axis, self.axes.tuple)


class GLU(nn.Module):
    """`algebranets.nn.GLU`: the first half of the tuples, multiplied by the sigmoid of the second half."""

    def __init__(self, dim: int, size: int) -> None:
        super().__init__()
        self.dim, self.size, self.axes = dim, size, _Axes(dim)

    def forward(self, x: Any) -> Any:
        y = F.glu(x.unflatten(self.dim, (self.size, -1)), self.axes.tuple)
        return y.flatten(self.axes.component, self.axes.tuple)


class ChannelShuffle(nn.Module):
    """`algebranets.nn.ChannelShuffle`: interleaves groups of whole tuples."""

    def __init__(self, groups: int, size: int) -> None:
        super().__init__()
        self.groups, self.size = groups, size

    def forward(self, x: Any) -> Any:
        return x.unflatten(1, (self.size, self.groups, -1)).transpose(2, 3).flatten(1, 3)


class GroupNorm(nn.Module):
    """`algebranets.nn.GroupNorm`: normalizes groups of whole tuples, each with one variance."""

    def __init__(self, num_groups: int, size: int, eps: float, weight: Tensor | None, bias: Tensor | None) -> None:
        super().__init__()
        self.num_groups, self.size, self.eps = num_groups, size, eps
        self.weight = None if weight is None else kept(weight, weight.repeat(size))
        self.bias = None if bias is None else kept(bias, bias)

    def forward(self, x: Any) -> Any:
        t = x.unsqueeze(-1).flatten(2).unflatten(1, (self.size, self.num_groups, -1))
        deviation = t - t.mean((3, 4), keepdim=True)
        y = deviation * (deviation.square().mean((1, 3, 4), keepdim=True) + self.eps).rsqrt()
        y = y.flatten(1, 3)
        if self.weight is not None:
            y = y * self.weight[:, None]
        if self.bias is not None:
            y = y + self.bias[:, None]
        return y.reshape_as(x)


class InstanceNorm(nn.Module):
    """`algebranets.nn.InstanceNorm1d` to `3d`: normalizes tuples over positions, or by running statistics."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, layer: Any, num_axes: int) -> None:
        super().__init__()
        self.size, self.eps, self.num_axes = layer.algebra.dim, layer.eps, num_axes
        self.is_running = layer.track_running_stats
        self.weight = None if layer.weight is None else kept(layer.weight, layer.weight)
        self.bias = None if layer.bias is None else kept(layer.bias, layer.bias.unflatten(0, (self.size, -1)))
        if self.is_running:
            self.register_buffer("running_mean", layer.running_mean.unflatten(0, (self.size, -1)).clone())
            self.register_buffer("running_var", layer.running_var.clone())

    def forward(self, x: Any) -> Any:
        t = x.flatten(-self.num_axes).unflatten(-2, (self.size, -1))  # (..., component, tuple, position)
        if self.is_running:
            deviation, variance = t - self.running_mean[:, :, None], self.running_var[:, None]
        else:
            deviation = t - t.mean(-1, keepdim=True)
            variance = deviation.square().mean((-3, -1), keepdim=True)
        y = deviation * (variance + self.eps).rsqrt()
        if self.weight is not None:
            y = y * self.weight[:, None]
        if self.bias is not None:
            y = y + self.bias[:, :, None]
        return y.reshape_as(x)


class LocalResponseNorm(nn.Module):
    """`algebranets.nn.LocalResponseNorm`: divides tuples by a function of the squares of their neighbors."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.size, self.neighbors = layer.algebra.dim, layer.size
        self.alpha, self.beta, self.k = layer.alpha, layer.beta, layer.k

    def forward(self, x: Any) -> Any:
        t = x.unflatten(1, (self.size, -1))
        square = t.square().mean(1)
        beside = F.pad(square.flatten(2).unsqueeze(1), (0, 0, self.neighbors // 2, (self.neighbors - 1) // 2))
        sums = F.avg_pool2d(beside, (self.neighbors, 1), stride=1).reshape_as(square)
        return (t / (sums * self.alpha + self.k).pow(self.beta).unsqueeze(1)).flatten(1, 2)


class TupleAffine(nn.Module):
    """An affine map of each tuple: `algebranets.nn.Whitening1d` to `3d` with fixed statistics."""

    def __init__(self, matrix: Tensor, offset: Tensor) -> None:
        super().__init__()
        self.matrix, self.offset = nn.Parameter(matrix), nn.Parameter(offset)  # (row, component, tuple), (row, tuple)
        self.size = len(offset)

    def forward(self, x: Any) -> Any:
        t = x.unsqueeze(-1).flatten(2).unflatten(1, (self.size, -1))
        y = torch.einsum("ijc,njcp->nicp", self.matrix, t) + self.offset[:, :, None]
        return y.flatten(1, 2).reshape_as(x)
