"""torch.nn.functional for tuples. Functions that need no algebra (relu, ...) are torch.nn.functional's own.

Functions that cut, reorder or compare channels have the argument ``algebra=`` and treat a tuple as a whole. Functions
of torch.nn.functional that multiply by a real matrix are not passed on. The error says what to use instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algebranets.nn.functional import untouched
from algebranets.nn.functional.channels import channel_shuffle, glu, pixel_shuffle, pixel_unshuffle
from algebranets.nn.functional.norms import group_norm, instance_norm, local_response_norm, rms_norm
from algebranets.nn.functional.untouched import *  # noqa: F403
from algebranets.nn.refused import unknown_name

__all__ = [
    "channel_shuffle",
    "glu",
    "group_norm",
    "instance_norm",
    "local_response_norm",
    "pixel_shuffle",
    "pixel_unshuffle",
    "rms_norm",
]
__all__ += untouched.__all__

_LINEAR = "it multiplies by a real matrix. Use algebranets.product.linear, or the layer algebranets.nn.Linear"
_CONV = "it multiplies by a real kernel. Use algebranets.product.conv, or the layer algebranets.nn"

#: Why each of these functions is refused, and what to use instead.
REFUSED = {
    "bilinear": "it multiplies by a real tensor. Use the layer algebranets.nn.Bilinear",
    **{f"conv{axes}d": f"{_CONV}.Conv{axes}d" for axes in (1, 2, 3)},
    **{f"conv_transpose{axes}d": f"{_CONV}.ConvTranspose{axes}d" for axes in (1, 2, 3)},
    "conv_tbc": f"{_CONV}.Conv1d",
    "linear": _LINEAR,
    "linear_cross_entropy": "it multiplies by a real matrix. Use algebranets.nn.Linear, algebranets.nn.TupleNorm and "
    "cross_entropy",
    "multi_head_attention_forward": "it multiplies by real matrices. Use the layer algebranets.nn.MultiheadAttention",
    "native_channel_shuffle": "it moves single channels, so it mixes components of different tuples. Use "
    "channel_shuffle",
    **dict.fromkeys(("grouped_mm", "scaled_addmm", "scaled_addmm_", "scaled_grouped_mm", "scaled_mm"), _LINEAR),
}


if not TYPE_CHECKING:  # type checkers know the names above, and report others

    def __getattr__(name: str) -> Any:
        raise unknown_name(__name__, name, __all__, REFUSED)
