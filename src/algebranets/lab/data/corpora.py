"""Readers of texts: enwik8, text8, WikiText, or any file."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from algebranets.lab.data.sources import Known, content, find_files
from algebranets.lab.data.text import Text

#: Sizes and checksums, or line counts, of the published files.
KNOWN: dict[str, Known] = {
    "enwik8": Known(100_000_000, "a1fa5ffddb56f4953e226637dabbb36a"),
    "text8": Known(100_000_000, "3bea1919949baf155f99411df5fada7e"),
    "wikitext-2/train": Known(lines=36_718),
    "wikitext-2/valid": Known(lines=3_760),
    "wikitext-2/test": Known(lines=4_358),
    "wikitext-103/train": Known(lines=1_801_350),
    "wikitext-103/valid": Known(lines=3_760),
    "wikitext-103/test": Known(lines=4_358),
}


def enwik8(root: Path) -> Text:
    """Read enwik8 from ``root``: 100,000,000 bytes of English Wikipedia, split as usual into 90 + 5 + 5 million."""
    return _hutter("enwik8", root)


def text8(root: Path) -> Text:
    """Read text8 from ``root``: letters a to z and spaces from English Wikipedia, split into 90 + 5 + 5 million."""
    return _hutter("text8", root)


def wikitext_2(root: Path) -> Text:
    """Read WikiText-2 from ``root``: the characters of the published tokens, with ``<unk>`` for rare words."""
    train, valid, test = _wikitext("wikitext-2", root, "train", "valid", "test")
    return Text("wikitext-2", train, valid, test)


def wikitext_103(root: Path) -> Text:
    """Read WikiText-103 from ``root``: the characters of the published tokens, with ``<unk>`` for rare words."""
    train, valid, test = _wikitext("wikitext-103", root, "train", "valid", "test")
    return Text("wikitext-103", train, valid, test)


def wikitext_2_103(root: Path) -> Text:
    """Read WikiText-2's training text, and WikiText-103's validation and test texts, from ``root``."""
    (train,), (valid, test) = _wikitext("wikitext-2", root, "train"), _wikitext("wikitext-103", root, "valid", "test")
    return Text("wikitext-2-103", train, valid, test)


def text_file(path: Path) -> Text:
    """Read any file as bytes: the first 90% for training, 5% for validation and 5% for testing.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "zen.txt"
    >>> path.write_text("Simple is better than complex. " * 20)
    620
    >>> text_file(path)
    <zen.txt: 558 + 31 + 31 characters>
    """
    return split(path.name, _tensor(path))


def whole_file(path: Path) -> Text:
    """Read any file as bytes, each part the whole file, to evaluate a model that was trained on another text."""
    text = _tensor(path)
    if len(text) < 2:
        raise ValueError(f"{path} must hold at least 2 characters, because the first one is context only; it has 1.")
    return Text(path.name, text, text, text)


def split(name: str, text: UInt8[Tensor, " text"]) -> Text:
    """Split a text into its first 90%, the next 5% and the last 5%."""
    train, test = len(text) * 90 // 100, len(text) * 95 // 100
    return Text(name, text[:train], text[train:test], text[test:])


def _hutter(name: str, root: Path) -> Text:
    (path,) = find_files(name, root, (".", name), [(name,)], f"Unpack {name}.zip there.")
    return split(name, _tensor(path, KNOWN.get(name)))


def _wikitext(name: str, root: Path, *splits: str) -> list[UInt8[Tensor, " text"]]:
    files = [(f"wiki.{split}.tokens", f"{split}.txt") for split in splits]
    folders = (name, f"{name}-v1", f"{name}/{name}", ".")
    paths = find_files(name, root, folders, files, f"Unpack {name}-v1.zip there.")
    return [_tensor(path, KNOWN.get(f"{name}/{split}")) for path, split in zip(paths, splits, strict=True)]


def _tensor(path: Path, known: Known | None = None) -> UInt8[Tensor, " text"]:
    return torch.frombuffer(content(path, known), dtype=torch.uint8)
