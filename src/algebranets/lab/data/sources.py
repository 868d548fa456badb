"""The files of a data set: where they are, and whether they are complete."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: The environment variable with the path of the folder of data sets.
ROOT = "ALGEBRANETS_DATA"

#: The last sentence of errors about a damaged file.
AGAIN = "It is cut off or damaged: get it again."

#: The number of bytes that are searched at once when lines are counted.
_PIECE = 1 << 24


@dataclass(frozen=True)
class Known:
    """The size, checksum and line count of a published file, as far as we know them."""

    size: int | None = None
    md5: str | None = None
    lines: int | None = None


def content(path: Path, known: Known | None = None) -> mmap.mmap:
    """Map a file into memory and check its bytes. Writing to them does not change the file."""
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty. {AGAIN}")
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    check(path, mapped, known)
    return mapped


def check(path: Path, data: mmap.mmap | bytes, known: Known | None) -> None:
    """Raise an error if the bytes ``data`` of the file ``path`` do not match ``known``.

    >>> check(Path("enwik8"), b"<mediawiki", Known(size=100_000_000))
    Traceback (most recent call last):
    ValueError: enwik8 must hold 100,000,000 bytes; it has 10. It is cut off or damaged: get it again.
    """
    if known is None:
        return
    if known.size is not None and len(data) != known.size:
        raise ValueError(f"{path} must hold {known.size:,} bytes; it has {len(data):,}. {AGAIN}")
    if known.lines is not None:
        lines = sum(data[at : at + _PIECE].count(b"\n") for at in range(0, len(data), _PIECE))
        if lines != known.lines:
            raise ValueError(f"{path} must hold {known.lines:,} lines; it has {lines:,}. {AGAIN}")
    if known.md5 is not None:
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if md5 != known.md5:
            raise ValueError(f"{path} must have the MD5 sum {known.md5}; it has {md5}. {AGAIN}")


def data_root(root: Path | str | None = None) -> Path:
    """The folder of data sets: ``root``, else ``$ALGEBRANETS_DATA``, else ``data`` in the working directory."""
    return Path(os.path.expanduser(root or os.environ.get(ROOT) or "data"))


def find_files(name: str, root: Path, folders: Sequence[str], files: Sequence[Sequence[str]], how: str) -> list[Path]:
    """Find the files of a data set in the first folder that has any of them.

    Args:
        name: The data set's name, for errors.
        root: The folder of data sets.
        folders: The folders to search, relative to ``root``.
        files: The files, each with its possible names.
        how: A sentence on how to get the files, for errors.
    """
    for folder in (root / folder for folder in folders):
        found = [path for names in files for path in [folder / n for n in names if (folder / n).is_file()][:1]]
        if len(found) == len(files):
            return found
        if found:
            missing = next(names for names in files if not any(folder / n in found for n in names))
            raise ValueError(f"{folder} holds only a part of {name}: {_any(missing)} is missing. {how}")
    raise _not_found(name, root, folders, _any(files[0]), how)


def find_folder(name: str, root: Path, folders: Sequence[str], how: str) -> Path:
    """Find the first of ``folders`` in ``root`` that has a folder ``train``; ``name`` and ``how`` are for errors."""
    for folder in folders:
        if (root / folder / "train").is_dir():
            return root / folder
    raise _not_found(name, root, folders, "a folder train", how)


def _not_found(name: str, root: Path, folders: Sequence[str], what: str, how: str) -> ValueError:
    """The error for a missing data set: what was searched for, where, and how to get it."""
    places = ", ".join(folder for folder in folders if folder != ".")
    return ValueError(
        f"{name} is not there: looked for {what} in {root.absolute()} and, in it, {places}. {how} "
        f"The folder of data sets is what --data or {ROOT} says, or ./data."
    )


def _any(names: Sequence[str]) -> str:
    return " or ".join(names)
