"""Files that are written whole or not at all, and named where they are damaged."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which takes ``path``'s place when all is written and on the disk, and goes if that fails.

    The file gets the mode that the umask gives, whatever mode its writer gave it (safetensors': for its owner only). A
    disk that is full is an `OSError` that names ``path``, whatever error its writer raised (torch's: `RuntimeError`).

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "deep" / "note.txt"
    >>> with replacing(target) as partial:
    ...     _ = partial.write_text("whole")
    >>> target.read_text(), len(list(target.parent.iterdir()))
    ('whole', 1)
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.touch()
        mode = partial.stat().st_mode
        yield partial
        partial.chmod(mode)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except Exception as error:
        number = _errno(error)
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from None
    finally:
        partial.unlink(missing_ok=True)


def _errno(error: BaseException | None) -> int | None:
    """The number of the operating system's error that ``error`` is, came from or quotes; None if it is none."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        quoted = re.search(r"\(os error (\d+)\)", str(error))  # as Rust's libraries have it
        if quoted:
            return int(quoted[1])
        error = error.__context__
    return None


def write(path: Path, text: str) -> None:
    """``path.write_text``, whole or not at all."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def append(path: Path, text: str) -> None:
    """Add ``text`` to the end of a file."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:  # Python names a file that it cannot open, but not one that it cannot write
        raise OSError(error.errno, error.strerror, str(path)) from None


def parse(text: bytes, where: object, advice: str) -> Any:
    """The value of a JSON text, or an error that says ``where`` the text is and what to do.

    >>> parse(b"", "result.json", "Leave it out.")
    Traceback (most recent call last):
    ValueError: result.json is no JSON (Expecting value: line 1 column 1 (char 0)). Leave it out.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is no JSON ({error}). {advice}") from None
