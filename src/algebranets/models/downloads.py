"""Finds weights given as a path or URL: downloads them once and checks their SHA-256."""

from __future__ import annotations

import hashlib
import http.client
import re
import urllib.parse
import urllib.request
from pathlib import Path

import torch

from algebranets import files

#: Separates the address of a file from its SHA-256.
MARK = "#sha256="
_EXAMPLE = f"'https://host/weights.safetensors{MARK}' and 64 hexadecimal digits"
#: The number of seconds without data from the server after which a download fails.
_TIMEOUT = 60
_CHUNK = 1 << 20


def local_file(source: Path | str) -> Path:
    """Return the path of a file on this machine. A file on the web is downloaded first, unless it was already.

    Downloads go to the folder "checkpoints" of `torch.hub.get_dir`, completely or not at all.

    Args:
        source: A path or a URL (https, http or file). ``#sha256=`` and 64 hexadecimal digits may follow it. Then the
            file must have this SHA-256. For a file on the web, the SHA-256 is required.

    >>> local_file("https://example.org/weights.safetensors")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: https://example.org/weights.safetensors must be followed by the SHA-256 of the file, as in ...
    """
    if not isinstance(source, (str, Path)):
        raise ValueError(f"weights must be a path or a URL of https, http or file; got {source!r:.200}.")
    address, mark, digest = source.partition(MARK) if isinstance(source, str) else (source, "", "")
    if mark and not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise ValueError(f"a SHA-256 must be 64 hexadecimal digits, as in {_EXAMPLE}; got {digest!r:.80}.")
    digest = digest.lower()
    scheme, rest = re.match(r"(?:([a-zA-Z][a-zA-Z0-9+.-]+)://)?(.*)", str(address), flags=re.S).groups()  # type: ignore[union-attr]
    if scheme in ("http", "https"):
        if not digest:
            raise ValueError(f"{address} must be followed by the SHA-256 of the file, as in {_EXAMPLE}.")
        return _downloaded(str(address), digest)
    if scheme not in (None, "file"):
        raise ValueError(f"weights must be a path or a URL of https, http or file; got {address!r:.200}.")
    path = Path(address) if scheme is None else Path(urllib.request.url2pathname(rest.removeprefix("localhost")))
    if digest:
        if not path.is_file():
            raise ValueError(f"{path} must be a file, because a SHA-256 was given; there is no such file.")
        _check(str(path), sha256(path), digest, "Check the path, or get the file again.")
    return path


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits.

    Args:
        path: The file.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _downloaded(url: str, digest: str) -> Path:
    """The downloaded file. A file that is already there is used if its SHA-256 is right, and else replaced."""
    name = Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path)).name or "weights"
    path = Path(torch.hub.get_dir()) / "checkpoints" / f"{digest[:16]}-{name}"
    if path.is_file() and sha256(path) == digest:
        return path
    with files.replacing(path) as partial:
        try:
            _copy(url, partial)
        except (OSError, ValueError, http.client.HTTPException) as error:  # URLError is an OSError
            raise ValueError(
                f"{url} could not be downloaded: {error}. Check the address, or download the file yourself and give "
                "its path."
            ) from None
        _check(url, sha256(partial), digest, "The file was not kept. Check the address and the SHA-256.")
    return path


def _copy(url: str, path: Path) -> None:
    """Copy a file from the web. If the connection ends early, the copy is short, which its SHA-256 shows."""
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as response, path.open("wb") as file:
        while chunk := response.read(_CHUNK):
            file.write(chunk)


def _check(what: str, found: str, wanted: str, advice: str) -> None:
    if found != wanted:
        raise ValueError(f"{what} must have the SHA-256 {wanted}; it has {found}. {advice}")
