"""Files that are written whole or not at all, and named where they are damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which takes ``path``'s place when all is written and on the disk, and goes if that fails.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "deep" / "note.txt"
    >>> with replacing(target) as partial:
    ...     _ = partial.write_text("whole")
    >>> target.read_text(), len(list(target.parent.iterdir()))
    ('whole', 1)
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write(path: Path, text: str) -> None:
    """``path.write_text``, whole or not at all."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def parse(text: bytes, where: object, advice: str) -> Any:
    """What JSON says, or an error that says ``where`` it stands and what to do.

    >>> parse(b"", "result.json", "Leave it out.")
    Traceback (most recent call last):
    ValueError: result.json is no JSON (Expecting value: line 1 column 1 (char 0)). Leave it out.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where} is no JSON ({error}). {advice}") from None
