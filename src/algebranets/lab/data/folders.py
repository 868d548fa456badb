"""The images in a folder, and the class of each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp")
EVALUATION_FOLDERS = ("val", "valid", "validation", "test")
#: Tiny ImageNet's list of its validation images: file, class and a box, separated by tabs.
ANNOTATIONS = "val_annotations.txt"


@dataclass(frozen=True)
class Listing:
    """Image files and their class numbers."""

    files: tuple[str, ...]
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.files)


def read_folder(root: Path) -> tuple[tuple[str, ...], Listing, Listing]:
    """Read the classes, training images and evaluation images of a folder.

    Images are at any depth under ``train/<class>`` and ``val/<class>``. Instead of class folders, ``val`` may have Tiny
    ImageNet's list, `ANNOTATIONS`.
    """
    others = [root / name for name in EVALUATION_FOLDERS if (root / name).is_dir()]
    if not (root / "train").is_dir() or not others:
        raise ValueError(
            f"{root} must hold train/<class>/<images> and val/<class>/<images> (or valid, validation, test); "
            f"it has the folders {', '.join(_subfolders(root)) or 'none at all'}."
        )
    classes = _subfolders(root / "train")
    train = listing(root / "train", classes)
    empty = set(range(len(classes))) - set(train.labels)
    if empty:
        raise ValueError(
            f"{root / 'train' / classes[min(empty)]} must hold images of its class, files that end in "
            f"{', '.join(SUFFIXES)}; it has none. Remove it or fill it."
        )
    return classes, train, listing(others[0], classes)


def listing(folder: Path, classes: tuple[str, ...]) -> Listing:
    """List the images of ``folder``; their classes must be among ``classes``."""
    images = list(_annotated(folder) if (folder / ANNOTATIONS).is_file() else _in_folders(folder))
    if not images:
        raise ValueError(
            f"{folder} must hold a folder of images for each class, files that end in {', '.join(SUFFIXES)}; "
            "none was found."
        )
    numbers = {name: number for number, name in enumerate(classes)}
    strangers = sorted({name for _, name in images} - numbers.keys())
    if strangers:
        raise ValueError(
            f"{folder} must hold classes of the training images only; {strangers[0]} is not among them "
            f"({len(strangers)} such classes)."
        )
    return Listing(tuple(file for file, _ in images), tuple(numbers[name] for _, name in images))


def _in_folders(folder: Path) -> Iterator[tuple[str, str]]:
    for name in _subfolders(folder):
        seen: set[str] = set()  # a link may lead back to a folder that was already read
        for place, subfolders, files in os.walk(folder / name, followlinks=True):
            seen.add(os.path.realpath(place))
            subfolders[:] = [
                sub for sub in sorted(subfolders) if os.path.realpath(os.path.join(place, sub)) not in seen
            ]
            yield from ((os.path.join(place, file), name) for file in sorted(files) if file.lower().endswith(SUFFIXES))


def _annotated(folder: Path) -> Iterator[tuple[str, str]]:
    path = folder / ANNOTATIONS
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        file, _, rest = line.partition("\t")
        name = rest.partition("\t")[0]
        if not name or not (folder / "images" / file).is_file():
            raise ValueError(
                f"{path}, line {number}, must name a file in {folder / 'images'} and its class; it is {line!r}."
            )
        yield str(folder / "images" / file), name


def _subfolders(folder: Path) -> tuple[str, ...]:
    with os.scandir(folder) as entries:
        return tuple(sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")))
