"""Writing files completely or not at all, and errors that name a damaged file."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to. At the end it replaces ``path``, or is removed if there was an error.

    The file is on the disk before it replaces ``path``. It gets the mode that the umask gives, whatever mode its writer
    gave it (safetensors makes it readable for its owner only). An error of the operating system, such as a full disk,
    becomes an `OSError` that names ``path``, whatever error the writer raised (torch raises a `RuntimeError`).

    Threads, processes and machines with a common folder may write the same file at the same time. Each has a temporary
    path of its own, in the folder of ``path`` and with a name that ends in ".partial". The last one to finish wins.

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
    partial = path.with_name(f"{path.name[:50]}.{secrets.token_hex(8)}.partial")
    try:
        partial.touch(exist_ok=False)
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
    """The number of the operating system's error that ``error`` is, came from or quotes, or None.

    An error that was raised ``from None`` explains itself, so its cause does not count.
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        quoted = re.search(r"\(os error (\d+)\)", str(error))  # as Rust's libraries write it
        if quoted:
            return int(quoted[1])
        error = None if error.__suppress_context__ else error.__context__
    return None


def write(path: Path, text: str) -> None:
    """Write ``text`` to a file, completely or not at all."""
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
    """Parse a JSON text. The error says ``where`` the text is and gives ``advice``.

    >>> parse(b"", "result.json", "Leave it out.")
    Traceback (most recent call last):
    ValueError: result.json is no JSON (Expecting value: line 1 column 1 (char 0)). Leave it out.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is no JSON ({error}). {advice}") from None
