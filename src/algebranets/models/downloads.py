"""Finds weights given as a path or URL: downloads them once and checks their SHA-256."""

from __future__ import annotations

import hashlib
import http.client
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import torch

from algebranets import files

#: Separates the address of a file from its SHA-256.
MARK = "#sha256="
_EXAMPLE = f"'https://host/weights.safetensors{MARK}' and 64 hexadecimal digits"
#: The number of seconds without data from the server after which a download fails.
_TIMEOUT = 60
_CHUNK = 1 << 20
#: The number of characters of a URL's last part that the name of a downloaded file keeps.
_LONGEST_NAME = 100


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
    address, mark, digest = source.partition(MARK) if isinstance(source, str) else (str(source), "", "")
    if mark and not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise ValueError(f"a SHA-256 must be 64 hexadecimal digits, as in {_EXAMPLE}; got {digest!r:.80}.")
    digest = digest.lower()
    url = _parsed(address)
    if url is not None and url.scheme != "file":
        if not digest:
            raise ValueError(f"{address} must be followed by the SHA-256 of the file, as in {_EXAMPLE}.")
        return _downloaded(address, url.path, digest)
    path = Path(address) if url is None else _path_of(url)
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


def _parsed(address: str) -> urllib.parse.SplitResult | None:
    """The parts of a URL of https, http or file. None if the address is not a URL but a path."""
    if not re.match("[a-zA-Z][a-zA-Z0-9+.-]+://", address):
        return None
    try:
        url = urllib.parse.urlsplit(address)
    except ValueError as error:
        raise ValueError(f"{address!r:.200} must be a valid URL: {error}. Check the address.") from None
    if url.scheme not in ("https", "http", "file"):
        raise ValueError(f"weights must be a path or a URL of https, http or file; got {address!r:.200}.")
    return url


def _path_of(url: urllib.parse.SplitResult) -> Path:
    """The path that a file URL names."""
    is_local = url.netloc.lower() in ("", "localhost") and url.path.startswith("/")
    if not is_local or url.query or url.fragment or "%00" in url.path:
        raise ValueError(
            f"a file URL must be 'file://' and an absolute path on this machine, in which '?' is written %3F and '#' "
            f"%23; got {url.geturl()!r:.200}. Correct it, or give the path itself."
        )
    return Path(urllib.request.url2pathname(url.path))


def _downloaded(address: str, url_path: str, digest: str) -> Path:
    """The downloaded file. A file that is already there is used if its SHA-256 is right, and else replaced."""
    last = Path(urllib.parse.unquote(url_path)).name or "weights"
    name = re.sub("[^a-zA-Z0-9._-]+", "_", last)[-_LONGEST_NAME:]
    path = Path(torch.hub.get_dir()) / "checkpoints" / f"{digest[:16]}-{name}"
    if path.is_file() and sha256(path) == digest:
        return path
    with files.replacing(path) as partial:
        with partial.open("wb") as file:
            file.writelines(_chunks(address))
        _check(address, sha256(partial), digest, "The file was not kept. Check the address and the SHA-256.")
    return path


def _chunks(address: str) -> Iterator[bytes]:
    """The content of a file on the web, in parts. Errors of code that uses them, as of a full disk, are unchanged."""
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as response:
            while chunk := response.read(_CHUNK):
                yield chunk
            if response.length:  # bytes that the server announced and did not send
                raise ConnectionError(f"the connection ended {response.length:,} bytes before the end of the file")
    except (OSError, ValueError, http.client.HTTPException) as error:  # URLError is an OSError
        raise ValueError(
            f"{address} could not be downloaded: {error}. Check the address, or download the file yourself and give "
            "its path."
        ) from None


def _check(what: str, found: str, wanted: str, advice: str) -> None:
    if found != wanted:
        raise ValueError(f"{what} must have the SHA-256 {wanted}; it has {found}. {advice}")
