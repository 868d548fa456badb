"""A reader of Python 2's pickles that runs no code in them.

A pickle is a program: it can name any function and call it. CIFAR's pickles name three objects of numpy. This reader
replaces them by classes that only store their arguments, and refuses every other name.
"""

from __future__ import annotations

import io
import mmap
import pickle
from pathlib import Path
from typing import Any


class Dtype:
    """A stand-in for ``numpy.dtype``."""

    def __init__(self, name: object = None, *_: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and alignment, which bytes do not have."""


class Array:
    """A stand-in for ``numpy.ndarray`` with its shape, the name of its type and its bytes."""

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
    """The unpickler that is written in Python. A small pickle can make the one in C allocate 32 GiB."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no data needs, and was not run")
        return _STAND_INS[module, name]


def load(path: Path, data: mmap.mmap | bytes) -> Any:
    """Read the pickle ``data`` of the file ``path``; it may hold dictionaries, lists, strings, numbers and arrays."""
    try:
        return _Unpickler(io.BytesIO(data), encoding="latin1").load()
    except Exception as error:  # a damaged pickle may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} is no pickled data that can be read ({reason}): get it again.") from None
