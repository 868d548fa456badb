"""Instance norms of tuples: `InstanceNorm1d`, `2d` and `3d`, and lazy versions that read their size from an input."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.instancenorm import _InstanceNorm

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn import functional
from algebranets.nn.group_norm import reset_affine
from algebranets.nn.layer import REQUIRED, Layer


class _Norm(Layer, _InstanceNorm):
    reason = (
        "torch's layer divides each component by its own standard deviation, so it changes the direction of a tuple."
    )

    def reset_parameters(self) -> None:
        """Set scales to one and offsets to zero, and reset the running statistics."""
        self.reset_running_stats()
        reset_affine(self)

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        return functional.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
            algebra=self.algebra,
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, algebra={self.algebra.name}"


class _Sized(_Norm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        algebra: Algebra | str = REQUIRED,
    ) -> None:
        over = self.resolve(algebra)
        num_tuples = product.whole_tuples(num_features, over, "num_features")
        _check_options(eps, momentum)
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)  # type: ignore[arg-type]
        self.algebra = over
        if affine:
            self.weight = nn.Parameter(torch.empty(num_tuples, device=device, dtype=dtype))
        if not bias:
            self.register_parameter("bias", None)
        if track_running_stats:
            self.running_var = torch.empty(num_tuples, device=device, dtype=dtype)
        self.reset_parameters()


class _Lazy(_Norm):
    has_uninitialized_params: Callable[[], bool]

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        algebra: Algebra | str = REQUIRED,
    ) -> None:
        over = self.resolve(algebra)
        _check_options(eps, momentum)
        super().__init__(eps, momentum, affine, track_running_stats, device, dtype)  # type: ignore[arg-type]
        self.algebra = over
        if not bias:
            self.register_parameter("bias", None)

    def reset_parameters(self) -> None:
        if self.num_features:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Read the number of channels from the first input, and make the parameters."""
        self._check_input_dim(input)
        self.num_features = input.shape[input.dim() - self._get_no_batch_dim()]
        num_tuples = product.whole_tuples(self.num_features, self.algebra, "the number of channels")
        if self.has_uninitialized_params():
            sizes = {"weight": num_tuples, "bias": self.num_features}
            sizes |= {"running_mean": self.num_features, "running_var": num_tuples}
            for name, size in sizes.items():
                if (tensor := getattr(self, name)) is not None:
                    tensor.materialize((size,))
            self.reset_parameters()


def _check_options(eps: float, momentum: float | None) -> None:
    checks.positive("eps", eps, or_zero=True)
    if momentum is not None:
        checks.share("momentum", momentum)


class InstanceNorm1d(_Sized, nn.InstanceNorm1d):
    """`torch.nn.InstanceNorm1d` for tuples, (batch, channels, length) or the same without a batch.

    Each tuple is normalized over the positions of a sample. Its mean is a tuple, and its variance is one number, the
    mean over its components. So all components are divided by the same number. Over R it is `torch.nn.InstanceNorm1d`.

    Args:
        num_features: The number of real channels, a multiple of the algebra's dim.
        eps: The number added to the variance.
        momentum: The weight of a new batch in the running statistics. None leaves them unchanged, as in torch.
        affine: Whether to learn a scale for each tuple, ``weight``, and an offset for each real channel, ``bias``.
        track_running_stats: Whether to keep a running mean of each channel and a running variance of each tuple, which
            eval mode uses.
        device: The device of the parameters.
        dtype: The dtype of the parameters.
        bias: Whether there is an offset if ``affine`` is True.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.InstanceNorm1d(12, algebra=an.H)(torch.randn(2, 12, 5)).shape
    torch.Size([2, 12, 5])
    """


class InstanceNorm2d(_Sized, nn.InstanceNorm2d):
    """`torch.nn.InstanceNorm2d` for tuples, (batch, channels, height, width) or the same without a batch.

    Each tuple is normalized over the positions of a sample. Its mean is a tuple, and its variance is one number, the
    mean over its components. So all components are divided by the same number. Over R it is `torch.nn.InstanceNorm2d`.

    Args:
        num_features: The number of real channels, a multiple of the algebra's dim.
        eps: The number added to the variance.
        momentum: The weight of a new batch in the running statistics. None leaves them unchanged, as in torch.
        affine: Whether to learn a scale for each tuple, ``weight``, and an offset for each real channel, ``bias``.
        track_running_stats: Whether to keep a running mean of each channel and a running variance of each tuple, which
            eval mode uses.
        device: The device of the parameters.
        dtype: The dtype of the parameters.
        bias: Whether there is an offset if ``affine`` is True.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.InstanceNorm2d(12, algebra=an.H)(torch.randn(2, 12, 5, 4)).shape
    torch.Size([2, 12, 5, 4])
    """


class InstanceNorm3d(_Sized, nn.InstanceNorm3d):
    """`torch.nn.InstanceNorm3d` for tuples, (batch, channels, depth, height, width) or the same without a batch.

    Each tuple is normalized over the positions of a sample. Its mean is a tuple, and its variance is one number, the
    mean over its components. So all components are divided by the same number. Over R it is `torch.nn.InstanceNorm3d`.

    Args:
        num_features: The number of real channels, a multiple of the algebra's dim.
        eps: The number added to the variance.
        momentum: The weight of a new batch in the running statistics. None leaves them unchanged, as in torch.
        affine: Whether to learn a scale for each tuple, ``weight``, and an offset for each real channel, ``bias``.
        track_running_stats: Whether to keep a running mean of each channel and a running variance of each tuple, which
            eval mode uses.
        device: The device of the parameters.
        dtype: The dtype of the parameters.
        bias: Whether there is an offset if ``affine`` is True.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.InstanceNorm3d(12, algebra=an.H)(torch.randn(2, 12, 3, 5, 4)).shape
    torch.Size([2, 12, 3, 5, 4])
    """


class LazyInstanceNorm1d(_Lazy, nn.LazyInstanceNorm1d):
    """`InstanceNorm1d` that reads its number of channels from the first input, like `torch.nn.LazyInstanceNorm1d`.

    Args:
        eps: The number added to the variance.
        momentum: The weight of a new batch in the running statistics. None leaves them unchanged, as in torch.
        affine: Whether to learn a scale for each tuple, ``weight``, and an offset for each real channel, ``bias``.
        track_running_stats: Whether to keep a running mean of each channel and a running variance of each tuple, which
            eval mode uses.
        device: The device of the parameters.
        dtype: The dtype of the parameters.
        bias: Whether there is an offset if ``affine`` is True.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> norm = an.nn.LazyInstanceNorm1d(algebra=an.H)
    >>> norm(torch.randn(2, 12, 5)).shape, norm.num_features
    (torch.Size([2, 12, 5]), 12)
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_Lazy, nn.LazyInstanceNorm2d):
    """`InstanceNorm2d` that reads its number of channels from the first input, like `torch.nn.LazyInstanceNorm2d`.

    Args:
        eps: The number added to the variance.
        momentum: The weight of a new batch in the running statistics. None leaves them unchanged, as in torch.
        affine: Whether to learn a scale for each tuple, ``weight``, and an offset for each real channel, ``bias``.
        track_running_stats: Whether to keep a running mean of each channel and a running variance of each tuple, which
            eval mode uses.
        device: The device of the parameters.
        dtype: The dtype of the parameters.
        bias: Whether there is an offset if ``affine`` is True.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> norm = an.nn.LazyInstanceNorm2d(algebra=an.H)
    >>> norm(torch.randn(2, 12, 5, 4)).shape, norm.num_features
    (torch.Size([2, 12, 5, 4]), 12)
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_Lazy, nn.LazyInstanceNorm3d):
    """`InstanceNorm3d` that reads its number of channels from the first input, like `torch.nn.LazyInstanceNorm3d`.

    Args:
        eps: The number added to the variance.
        momentum: The weight of a new batch in the running statistics. None leaves them unchanged, as in torch.
        affine: Whether to learn a scale for each tuple, ``weight``, and an offset for each real channel, ``bias``.
        track_running_stats: Whether to keep a running mean of each channel and a running variance of each tuple, which
            eval mode uses.
        device: The device of the parameters.
        dtype: The dtype of the parameters.
        bias: Whether there is an offset if ``affine`` is True.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> norm = an.nn.LazyInstanceNorm3d(algebra=an.H)
    >>> norm(torch.randn(2, 12, 3, 5, 4)).shape, norm.num_features
    (torch.Size([2, 12, 3, 5, 4]), 12)
    """

    cls_to_become = InstanceNorm3d
