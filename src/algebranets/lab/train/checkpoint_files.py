"""Checkpoint files: written whole or not at all, with a SHA-256, and read without running code in them."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from algebranets import files

#: The keys that Lightning needs in a checkpoint.
_NEEDED_KEYS = ("state_dict", "optimizer_states", "lr_schedulers", "loops", "global_step", "epoch")


def step_of(checkpoint: Path) -> int:
    """The step after which a checkpoint was saved.

    >>> step_of(Path("checkpoints/step-000000042.ckpt"))
    42
    """
    return int(checkpoint.stem.removeprefix("step-"))


def digest_of(checkpoint: Path) -> Path:
    """The path of the file with a checkpoint's SHA-256."""
    return checkpoint.with_suffix(".sha256")


def remove(checkpoints: Iterable[Path]) -> None:
    """Remove checkpoints and their digests."""
    for path in checkpoints:
        path.unlink(missing_ok=True)
        digest_of(path).unlink(missing_ok=True)


def save_checkpoint(state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint whole or not at all. The digest is written first, so every checkpoint of ours has one."""
    with files.replacing(path) as partial:
        with partial.open("wb") as file:  # Python's errors, unlike torch's writer's, say what went wrong
            torch.save(state, file)
        files.write(digest_of(path), _sha256(partial) + "\n")


def read_checkpoint(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """Read a checkpoint from `save_checkpoint` without running code in the file."""
    try:
        state = torch.load(path, map_location=map_location, weights_only=True)
    except OSError:
        raise
    except Exception as error:  # a file that is not a checkpoint may raise anything
        raise foreign_checkpoint(path, error) from None
    missing = [name for name in _NEEDED_KEYS if not isinstance(state, dict) or name not in state]
    if missing:
        raise foreign_checkpoint(path, f"it has no {missing[0]}")
    return state


def foreign_checkpoint(path: Path, reason: object) -> ValueError:
    """The error for a file that is not a checkpoint of this run."""
    return ValueError(
        f"{path} is no checkpoint of this run ({textwrap.shorten(str(reason), 200, placeholder=' ...')}). Remove it to "
        "go on from the one before it, or from the beginning."
    )


def what_is_broken(path: Path) -> str | None:
    """Describe what is wrong with a checkpoint file; None if it is whole."""
    digest = digest_of(path)
    if not digest.exists():
        return "its digest is missing"
    try:
        expected, found = digest.read_text(encoding="ascii", errors="replace").strip(), _sha256(path)
    except OSError as error:  # the disk failed, or the first process has removed the file meanwhile
        return str(error)
    return None if expected == found else f"its SHA-256 should be {expected[:12]}... and is {found[:12]}..."


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
