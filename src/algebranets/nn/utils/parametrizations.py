"""torch.nn.utils.parametrizations over an algebra: a norm of the map, and magnitudes of whole tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from algebranets import checks
from algebranets.nn.weights import AlgebraWeight, algebra_weights, own_class
from algebranets.product.blocks.matrix import matrix

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def spectral_norm(
    module: ModuleT,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> ModuleT:
    """Divide a layer's weight by the operator norm of the real linear map that it represents.

    The norm is the largest singular value of rho(w) over all blocks of the algebra, estimated by power iteration in
    each forward pass in training mode. The weight of a convolution is read as a matrix (out, in * kernel), and stacked
    weights such as those of a GRU as one matrix, as in `torch.nn.utils.parametrizations.spectral_norm`, which is used
    for layers without weights over an algebra. Over R both are the same.

    Args:
        module: The layer.
        name: The name of the weight.
        n_power_iterations: The number of power iterations in each forward pass in training mode.
        eps: The smallest norm by which a vector is divided in a power iteration.
        dim: The axis of the outputs, by default 0, or 1 for a transposed convolution.

    Returns:
        The layer, whose weight is now parametrized.

    >>> import torch, algebranets as an
    >>> layer = spectral_norm(an.nn.Linear(8, 12, algebra="H"), n_power_iterations=100)
    >>> round(torch.linalg.matrix_norm(an.product.real_weight(layer.weight, an.H), 2).item(), 3)
    1.0
    """
    weight = _find(module, name)
    if weight is None:
        return parametrizations.spectral_norm(module, name, n_power_iterations, eps, dim)  # type: ignore[return-value]
    dim = int(weight.transposed) if dim is None else dim
    norm = _SpectralNorm(_stored(module, name), weight, n_power_iterations, eps, dim)
    own_class(module)
    parametrize.register_parametrization(module, name, norm)
    return module


def weight_norm(module: ModuleT, name: str = "weight", dim: int | None = 0) -> ModuleT:
    """Write a layer's weight as a magnitude times a direction, w = g v / ||v||, with one g for each row of tuples.

    The norm is taken over all components, inputs and kernel positions of a row, so all components of a tuple are scaled
    alike. The parameters are ``original0`` (g) and ``original1`` (v), as in
    `torch.nn.utils.parametrizations.weight_norm`, which is used for layers without weights over an algebra. Over R both
    are the same.

    Args:
        module: The layer. Its weight must not be parametrized yet.
        name: The name of the weight.
        dim: The axis that has one g for each of its tuples: 0 for the outputs, or for the inputs of a transposed
            convolution, and 1 for the others. With None, the whole weight has one g.

    Returns:
        The layer, whose weight is now parametrized.

    >>> import algebranets as an
    >>> layer = weight_norm(an.nn.Linear(8, 12, algebra="H"))
    >>> layer.parametrizations.weight.original0.shape  # 3 quaternions
    torch.Size([3, 1])
    """
    weight = _find(module, name)
    if weight is None:
        return parametrizations.weight_norm(module, name, dim)  # type: ignore[arg-type]
    if parametrize.is_parametrized(module, name):
        raise ValueError(
            f"weight_norm must be the first parametrization of {name}, because it replaces one parameter by two; got "
            f"{name} with {_names(module, name)}: call weight_norm before other parametrizations and before a Pruner."
        )
    norm = _WeightNorm(weight, _checked_dim(_stored(module, name), None if dim == -1 else dim))  # -1 is None in torch
    own_class(module)
    parametrize.register_parametrization(module, name, norm, unsafe=True)

    def rename(_: nn.Module, state_dict: dict[str, Any], prefix: str, *__: Any) -> None:
        """Read state dicts of the older torch.nn.utils.weight_norm, as torch's parametrization does."""
        for old, new in (("g", "original0"), ("v", "original1")):
            if f"{prefix}{name}_{old}" in state_dict:
                state_dict[f"{prefix}parametrizations.{name}.{new}"] = state_dict.pop(f"{prefix}{name}_{old}")

    module.register_load_state_dict_pre_hook(rename)
    return module


def orthogonal(
    module: ModuleT, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> ModuleT:
    """`torch.nn.utils.parametrizations.orthogonal`, with an error if the map would not be orthogonal.

    Over R, M_n(R) and algebras that are M_n(R) in another basis, such as clifford(2,0), the stored weight is the matrix
    that multiplies, so torch's function makes the map orthogonal. Over other algebras the stored matrix is not that of
    the map, and a `ValueError` is raised.

    Args:
        module: The layer.
        name: The name of the weight.
        orthogonal_map: "matrix_exp", "cayley" or "householder". By default, "matrix_exp" for a square matrix, else
            "householder".
        use_trivialization: Whether to store a base matrix, which helps the optimizer to converge.

    Returns:
        The layer, whose weight is now parametrized.

    >>> import torch, algebranets as an
    >>> layer = orthogonal(an.nn.Linear(8, 8, algebra="M2R"))
    >>> torch.linalg.svdvals(an.product.real_weight(layer.weight, an.M2R)).detach().round(decimals=3)
    tensor([1., 1., 1., 1., 1., 1., 1., 1.])
    """
    weight = _find(module, name)
    if weight is not None and not weight.algebra.stored.folded:
        raise ValueError(
            f"orthogonal needs a layer whose stored weight is the matrix that multiplies, as over R and M_n(R); got "
            f"{name} over {weight.algebra.name}, where an orthogonal matrix of stored components is not an orthogonal "
            "map. Use spectral_norm to bound the norm of the map."
        )
    options: dict[str, Any] = {"orthogonal_map": orthogonal_map, "use_trivialization": use_trivialization}
    return parametrizations.orthogonal(module, name, **options)  # type: ignore[return-value]


class _SpectralNorm(nn.Module):
    """The parametrization of `spectral_norm`. Its buffers hold the singular vectors of all blocks, one after another.

    Over R the buffers are those of torch's parametrization.
    """

    _u: Tensor
    _v: Tensor

    def __init__(self, stored: Tensor, weight: AlgebraWeight, n_power_iterations: int, eps: float, dim: int) -> None:
        super().__init__()
        self.algebra_weight, self.eps = weight, eps
        self.n_power_iterations = checks.whole("n_power_iterations", n_power_iterations, least=1)
        self.dim = _checked_dim(stored, dim)
        with torch.no_grad():
            matrices = self._matrices(stored)
            pairs = [tuple(m.new_empty(size).normal_() for size in m.shape) for m in matrices]
            for buffer, vectors in zip(("_u", "_v"), zip(*pairs, strict=True), strict=True):
                self.register_buffer(buffer, torch.cat([F.normalize(each, dim=0, eps=eps) for each in vectors]))
            self._iterate(matrices, 15)  # as many as in torch

    def forward(self, stored: Tensor) -> Tensor:
        matrices = self._matrices(stored)
        if self.training:
            self._iterate(matrices, self.n_power_iterations)
        # Clones, because the next forward pass changes the buffers, perhaps before the backward pass of this one.
        us, vs = self._split(matrices, self._u.clone(), self._v.clone())
        norms = [torch.vdot(u, torch.mv(m, v)) for m, u, v in zip(matrices, us, vs, strict=True)]
        return stored / (norms[0] if len(norms) == 1 else torch.stack(norms).amax())

    def right_inverse(self, stored: Tensor) -> Tensor:
        return stored

    def _matrices(self, stored: Tensor) -> list[Tensor]:
        """rho(w) of each block as a matrix, with the outputs on the first axis."""
        weight, algebra = self.algebra_weight, self.algebra_weight.algebra.stored
        blocks = (matrix(stored, algebra, block, weight.transposed, weight.stacks) for block in algebra.blocks)
        return [block.movedim(self.dim, 0).flatten(1) for block in blocks]

    @torch.no_grad()
    def _iterate(self, matrices: list[Tensor], num: int) -> None:
        us, vs = self._split(matrices, self._u, self._v)
        for _ in range(num):
            us = [F.normalize(torch.mv(m, v), dim=0, eps=self.eps) for m, v in zip(matrices, vs, strict=True)]
            vs = [F.normalize(torch.mv(m.T, u), dim=0, eps=self.eps) for m, u in zip(matrices, us, strict=True)]
        # In place, so that replicas of the layer share the result.
        self._u.copy_(torch.cat(us))
        self._v.copy_(torch.cat(vs))

    def _split(self, matrices: list[Tensor], u: Tensor, v: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        rows, columns = ([m.shape[axis] for m in matrices] for axis in (0, 1))
        return list(u.split(rows)), list(v.split(columns))


class _WeightNorm(nn.Module):
    """The parametrization of `weight_norm`."""

    def __init__(self, weight: AlgebraWeight, dim: int | None) -> None:
        super().__init__()
        self.algebra_weight, self.dim = weight, dim

    def forward(self, magnitude: Tensor, direction: Tensor) -> Tensor:
        tuples = self.algebra_weight.tuples(direction)
        return self.algebra_weight.from_tuples(tuples * (magnitude / self._norm(tuples)))

    def right_inverse(self, stored: Tensor) -> tuple[Tensor, Tensor]:
        return self._norm(self.algebra_weight.tuples(stored)), stored

    def _norm(self, tuples: Tensor) -> Tensor:
        if self.dim is None:
            return torch.linalg.vector_norm(tuples)
        axes = [axis for axis in range(tuples.dim()) if axis != self.dim + 1]  # axis 0 is that of the components
        return torch.linalg.vector_norm(tuples, dim=axes, keepdim=True).squeeze(0)


def _find(module: nn.Module, name: str) -> AlgebraWeight | None:
    """The description of a weight over an algebra, or None if the layer has no such weight."""
    return next((weight for weight in algebra_weights(module) if weight.name == name), None)


def _stored(module: nn.Module, name: str) -> Tensor:
    stored: Tensor = getattr(module, name)
    if nn.parameter.is_lazy(stored):
        raise ValueError(f"{name} has no shape yet: call the lazy layer once before you parametrize its weight.")
    return stored


def _checked_dim(stored: Tensor, dim: Any) -> Any:
    """``dim`` counted from the first axis. None is returned as it is."""
    num_axes = stored.dim()
    if dim is not None and not -num_axes <= dim < num_axes:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-num_axes}, {num_axes - 1}], but got {dim})"
        )
    return dim if dim is None else dim % num_axes


def _names(module: Any, name: str) -> str:
    return ", ".join(type(stage).__name__ for stage in module.parametrizations[name])


if not TYPE_CHECKING:  # type checkers report names that do not exist only if there is no __getattr__

    def __getattr__(name: str) -> Any:
        return getattr(parametrizations, name)
