"""What type checkers know of the package's names. mypy checks this file, and nothing runs it.

A comment that ignores an error is an error itself if there is nothing to ignore.
"""

from typing import assert_type

import torch

import algebranets as an


def names_and_their_types() -> None:
    """Use names that exist and names that do not."""
    nn = an.over("H")
    assert_type(nn.ReLU(), torch.nn.ReLU)
    assert_type(nn.Linear(8, 8), an.nn.Linear)
    assert_type(nn.Transformer(), an.nn.Transformer)
    assert_type(an.nn.ReLU(), torch.nn.ReLU)
    assert_type(nn.cat([], 1), torch.Tensor)
    nn.Relu()  # type: ignore[attr-defined]
    nn.RNNBase()  # type: ignore[attr-defined]
    an.nn.Relu()  # type: ignore[attr-defined]
    an.Quaternion()  # type: ignore[attr-defined]
