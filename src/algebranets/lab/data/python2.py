"""A reader of Python 2's pickles that runs no code in them.

A pickle is a program: it may name any function and call it. CIFAR's pickles name three things of numpy. They get
stand-ins that only hold what they are given; every other name is refused.
"""

from __future__ import annotations

import io
import mmap
import pickle
from pathlib import Path
from typing import Any


class Dtype:
    """Stands for ``numpy.dtype``."""

    def __init__(self, name: object = None, *_: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and alignment; bytes have none."""


class Array:
    """Stands for ``numpy.ndarray``: its shape, the name of its type, its bytes."""

    shape: object = ()
    dtype: object = None
    data: bytes = b""

    def __setstate__(self, state: tuple[object, ...]) -> None:
        _, self.shape, dtype, columns_first, data = state
        if not isinstance(dtype, Dtype) or not isinstance(data, str) or columns_first:
            raise pickle.UnpicklingError("an array must be stored as bytes, row by row")
        self.dtype, self.data = dtype.name, data.encode("latin1")


def _reconstruct(*_: object) -> Array:
    return Array()


_STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): Array,
    ("numpy", "dtype"): Dtype,
}


class _Unpickler(pickle._Unpickler):
    """Python's own unpickler, since the one in C can be made to allocate 32 GiB by a number in a small pickle."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no data needs, and was not run")
        return _STAND_INS[module, name]


def load(path: Path, data: mmap.mmap | bytes) -> Any:
    """Read the pickle ``data`` of the file ``path``: dictionaries, lists, strings, numbers and `Array`."""
    try:
        return _Unpickler(io.BytesIO(data), encoding="latin1").load()
    except Exception as error:  # a damaged pickle may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} is no pickled data that can be read ({reason}): get it again.") from None
