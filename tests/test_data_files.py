"""Data sets as files: every format as it was published, and files that are damaged, malicious or missing."""

import gzip
import hashlib
import pickle
import struct
import subprocess
import sys
import tracemalloc

import pytest
import torch

from algebranets.lab import data
from algebranets.lab.data import ImageFolder, cifar, corpora, idx, images, python2, sources
from algebranets.lab.data.sources import Known
from test_data import as_bytes, flowers, save


@pytest.fixture
def small(monkeypatch):
    """Forget the sizes and checksums of published files, so that small files are accepted."""
    for known in (cifar.KNOWN, idx.KNOWN):
        for name in known:
            monkeypatch.setitem(known, name, {})
    monkeypatch.setattr(corpora, "KNOWN", {})


# Files as they were published -----------------------------------------------------------------------------------------


def pickle2(entries):
    """Return a pickle as Python 2's cPickle wrote it. ``entries`` has lists of numbers, strings or byte tensors."""
    out = b"\x80\x02}("
    for key, value in entries.items():
        out += b"U" + bytes([len(key)]) + key.encode()
        if isinstance(value, list):
            out += b"](" + b"".join(b"K" + bytes([n]) for n in value) + b"e"
        elif isinstance(value, str):
            out += b"U" + bytes([len(value)]) + value.encode()
        else:
            out += b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
            out += b"(K\x01" + b"".join(b"M" + struct.pack("<H", n) for n in value.shape) + b"\x86"
            out += b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
            raw = bytes(value.flatten().tolist())
            out += b"T" + struct.pack("<I", len(raw)) + raw + b"tb"
    return out + b"u."


def cifar_files(root, num_classes=10, rows=3):
    """Write batches of ``rows`` images under ``py`` and ``bin``, and return the images and labels of all batches."""
    folders, stems, key = {
        10: (
            ("cifar-10-batches-py", "cifar-10-batches-bin"),
            [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"],
            "labels",
        ),
        100: (("cifar-100-python", "cifar-100-binary"), ["train", "test"], "fine_labels"),
    }[num_classes]
    python, binary = root / "py" / folders[0], root / "bin" / folders[1]
    python.mkdir(parents=True), binary.mkdir(parents=True)
    pixels = torch.randint(256, (len(stems), rows, 3072), dtype=torch.uint8)
    labels = torch.randint(num_classes, (len(stems), rows), dtype=torch.uint8)
    for stem, batch, fine in zip(stems, pixels, labels, strict=True):
        coarse = {"coarse_labels": fine // 5} if num_classes == 100 else {}
        numbers = {name: label.tolist() for name, label in {**coarse, key: fine}.items()}
        (python / stem).write_bytes(pickle2({"batch_label": stem, **numbers, "data": batch}))
        records = torch.cat([*(column[:, None] for column in coarse.values()), fine[:, None], batch], 1)
        (binary / f"{stem}.bin").write_bytes(bytes(records.flatten().tolist()))
    return pixels.view(len(stems), rows, 3, 32, 32), labels.long()


@pytest.mark.parametrize("num_classes", [10, 100])
@pytest.mark.parametrize("form", ["py", "bin"])
@pytest.mark.usefixtures("small")
def test_cifars_batches_are_read_in_both_formats(tmp_path, num_classes, form):
    pixels, labels = cifar_files(tmp_path, num_classes)
    dataset = data.load(f"cifar{num_classes}", tmp_path / form)
    assert torch.equal(dataset.train_images, pixels[:-1].flatten(0, 1))
    assert torch.equal(dataset.train_labels, labels[:-1].flatten())
    assert torch.equal(dataset.test_images, pixels[-1])
    assert torch.equal(dataset.test_labels, labels[-1])
    assert dataset.num_classes == len(set(dataset.classes)) == num_classes
    assert (dataset.channels, dataset.image_size) == (3, 32)


def idx_bytes(tensor):
    return (
        bytes([0, 0, 8, tensor.dim()])
        + struct.pack(f">{tensor.dim()}I", *tensor.shape)
        + bytes(tensor.flatten().tolist())
    )


def idx_files(folder, rename=str, pack=bytes):
    folder.mkdir(parents=True)
    tensors = []
    for stem, size in zip(idx.STEMS, [(5, 28, 28), (5,), (3, 28, 28), (3,)], strict=True):
        tensors.append(torch.randint(10, size, dtype=torch.uint8))
        (folder / rename(stem)).write_bytes(pack(idx_bytes(tensors[-1])))
    return tensors


@pytest.mark.parametrize(
    ("name", "folder", "rename", "pack"),
    [
        ("mnist", "mnist", str, bytes),
        ("mnist", ".", lambda stem: stem.replace("-idx", ".idx"), bytes),
        ("mnist", "MNIST/raw", "{}.gz".format, gzip.compress),
        ("fashion-mnist", "fashion-mnist", "{}.gz".format, gzip.compress),
        ("fashion-mnist", "FashionMNIST/raw", str, bytes),
    ],
)
@pytest.mark.usefixtures("small")
def test_idx_files_are_read_packed_or_not(tmp_path, name, folder, rename, pack):
    images, labels, test_images, test_labels = idx_files(tmp_path / "root" / folder, rename, pack)
    dataset = data.load(name, tmp_path / "root")
    assert torch.equal(dataset.train_images[:, 0], images)
    assert torch.equal(dataset.train_labels, labels.long())
    assert torch.equal(dataset.test_images[:, 0], test_images)
    assert torch.equal(dataset.test_labels, test_labels.long())
    assert (dataset.num_classes, dataset.channels, dataset.image_size) == (10, 1, 28)


@pytest.mark.parametrize("published", [True, False])
def test_tiny_imagenet_is_read_as_published_and_as_a_folder(tmp_path, published):
    root = tmp_path / "tiny-imagenet-200"
    for i, wnid in enumerate(["n01", "n02"]):
        save(root / "train" / wnid / ("images" if published else ".") / f"{wnid}_0.JPEG", (80 * i,) * 3)
        save(root / "val" / ("images" if published else wnid) / f"val_{i}.JPEG", (80 * i,) * 3)
    if published:
        (root / "train" / "n01" / "n01_boxes.txt").write_text("n01_0.JPEG\t0\t0\t63\t63\n")
        (root / "val" / "val_annotations.txt").write_text("val_1.JPEG\tn02\t0\t0\t9\t9\nval_0.JPEG\tn01\t0\t0\t9\t9\n")
    dataset = data.load("tiny-imagenet", tmp_path)
    images, labels = next(dataset.evaluation(2).iterate(0, 1))
    assert images.shape == (2, 3, 64, 64)
    assert (labels.tolist(), dataset.classes) == ([1, 0] if published else [0, 1], ("n01", "n02"))
    torch.testing.assert_close(as_bytes(dataset, images)[:, 0, 0, 0].long(), 80 * labels, atol=3, rtol=0)
    _, labels = next(dataset.training(2, workers=0).iterate(0, 1))
    assert sorted(labels.tolist()) == [0, 1]
    if published:
        (root / "val" / "images" / "val_0.JPEG").unlink()
        with pytest.raises(ValueError, match=r"val_annotations.txt, line 2, must name a file .* it is 'val_0.JPEG"):
            data.load("tiny-imagenet", tmp_path)
        (root / "val" / "val_annotations.txt").write_bytes(b"\xff\xfe\tn01\n")
        with pytest.raises(ValueError, match=r"val_annotations.txt, line 1, must name a file"):
            data.load("tiny-imagenet", tmp_path)


def test_imagenet_must_be_whole(tmp_path, monkeypatch):
    flowers(tmp_path / "imagenet")
    expected = (
        r"must hold 1,281,167 \+ 50,000 images of 1,000 classes to be imagenet; it has 7 \+ 5 images of 2 classes"
    )
    with pytest.raises(ValueError, match=expected):
        data.load("imagenet", tmp_path)
    monkeypatch.setitem(images.KNOWN, "imagenet", (7, 5, 2))
    assert data.load("imagenet", tmp_path).image_size == 224


@pytest.mark.parametrize("name", ["enwik8", "text8"])
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.usefixtures("small")
def test_enwik8_and_text8_are_cut_90_5_5(tmp_path, name, nested):
    path = tmp_path / name / name if nested else tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(range(200)))
    dataset = data.load(name, tmp_path)
    assert [len(part) for part in (dataset.train, dataset.valid, dataset.test)] == [180, 10, 10]
    assert torch.cat([dataset.train, dataset.valid, dataset.test]).tolist() == list(range(200))
    assert path.read_bytes() == bytes(range(200))


@pytest.mark.parametrize("pattern", ["wiki.{}.tokens", "{}.txt"])
@pytest.mark.usefixtures("small")
def test_wikitext_is_its_three_files(tmp_path, pattern):
    for size in ("2", "103"):
        (tmp_path / f"wikitext-{size}").mkdir()
        for split in ("train", "valid", "test"):
            (tmp_path / f"wikitext-{size}" / pattern.format(split)).write_text(f" = {size} {split} = \n")

    def read(name):
        dataset = data.load(name, tmp_path)
        return [bytes(part.tolist()).decode() for part in (dataset.train, dataset.valid, dataset.test)]

    assert read("wikitext-2") == [" = 2 train = \n", " = 2 valid = \n", " = 2 test = \n"]
    assert read("wikitext-103") == [" = 103 train = \n", " = 103 valid = \n", " = 103 test = \n"]
    assert read("wikitext-2-103") == [" = 2 train = \n", " = 103 valid = \n", " = 103 test = \n"]
    (tmp_path / "wikitext-103" / pattern.format("train")).unlink()
    assert read("wikitext-2-103")[0] == " = 2 train = \n"
    with pytest.raises(ValueError, match=r"wikitext-103 holds only a part of wikitext-103: wiki.train.tokens or train"):
        data.load("wikitext-103", tmp_path)


def test_builtin_sets_need_no_files(tmp_path):
    digits = data.load("digits", tmp_path)
    assert (len(digits.train_images), len(digits.test_images), digits.num_classes) == (1437, 360, 10)
    assert (digits.channels, digits.image_size, int(digits.train_images.max())) == (1, 8, 255)
    assert set(digits.test_labels.tolist()) == set(range(10))
    prose = data.load("python-prose", tmp_path)
    assert len(prose.train) > 300_000
    assert b"lambda" in bytes(prose.valid.tolist()) + bytes(prose.train.tolist())
    assert torch.equal(prose.train, data.load("python-prose").train)


# Damaged, malicious and missing files ---------------------------------------------------------------------------------


def test_what_is_known_of_published_files_is_consistent():
    sizes = {name: known.size for files in (*cifar.KNOWN.values(), corpora.KNOWN) for name, known in files.items()}
    assert {sizes[f"data_batch_{i}.bin"] for i in range(1, 6)} == {sizes["test_batch.bin"]} == {10_000 * 3073}
    assert (sizes["train.bin"], sizes["test.bin"]) == (50_000 * 3074, 10_000 * 3074)
    for files in idx.KNOWN.values():
        assert [files[stem].size for stem in idx.STEMS] == [
            16 + 60_000 * 784,
            8 + 60_000,
            16 + 10_000 * 784,
            8 + 10_000,
        ]
    sums = [
        k.md5 for files in (*cifar.KNOWN.values(), *idx.KNOWN.values(), corpora.KNOWN) for k in files.values() if k.md5
    ]
    assert len(set(sums)) == len(sums) == 24
    assert all(len(md5) == 32 and set(md5) <= set("0123456789abcdef") for md5 in sums)


def test_a_file_of_another_size_or_content_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "enwik8"
    path.write_bytes(b"mediawiki" * 10)
    with pytest.raises(ValueError, match=r"enwik8 must hold 100,000,000 bytes; it has 90. It is cut off or damaged"):
        data.load("enwik8", tmp_path)
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setattr(corpora, "KNOWN", {"enwik8": Known(90, md5)})
    assert len(data.load("enwik8", tmp_path).train) == 81
    path.write_bytes(b"Mediawiki" + b"mediawiki" * 9)
    with pytest.raises(ValueError, match=rf"enwik8 must have the MD5 sum {md5}; it has [0-9a-f]{{32}}. It is cut off"):
        data.load("enwik8", tmp_path)


def test_a_text_of_fewer_lines_is_refused(tmp_path, monkeypatch):
    (tmp_path / "wikitext-2").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / "wikitext-2" / f"wiki.{split}.tokens").write_text(" = Title = \n" * 3)
    with pytest.raises(ValueError, match=r"wiki.train.tokens must hold 36,718 lines; it has 3. It is cut off"):
        data.load("wikitext-2", tmp_path)
    monkeypatch.setattr(corpora, "KNOWN", {"wikitext-2/train": Known(lines=3), "wikitext-2/test": Known(lines=4)})
    monkeypatch.setattr(sources, "_PIECE", 7)
    with pytest.raises(ValueError, match=r"wiki.test.tokens must hold 4 lines; it has 3"):
        data.load("wikitext-2", tmp_path)


def test_small_files_do_not_pass_for_the_published_ones(tmp_path):
    for name, root in [("cifar10", "py"), ("cifar10", "bin"), ("cifar100", "py"), ("cifar100", "bin"), ("mnist", ".")]:
        (tmp_path / name).mkdir(exist_ok=True)
        if root == "py":
            cifar_files(tmp_path / name, int(name.removeprefix("cifar")))
        elif root == ".":
            idx_files(tmp_path / name / name)
        with pytest.raises(ValueError, match=r"must h(old|ave the MD5 sum) .*; it has .* It is cut off or damaged"):
            data.load(name, tmp_path / name / root)


def damage(path, change):
    path.write_bytes(change(path.read_bytes()))


def batch(label=1, pixels=None):
    return pickle2({"labels": [label], "data": torch.zeros(1, 3072, dtype=torch.uint8) if pixels is None else pixels})


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("test_batch.bin", lambda b: b[:-1], "must hold whole records of 3,073 bytes; it has 9,218 bytes"),
        ("data_batch_2.bin", lambda b: b"\x0a" + b[1:], r"labels must lie between 0 and 9; got labels from . to 10"),
        ("data_batch_2.bin", lambda _: b"", "is empty"),
        ("data_batch_4", lambda b: b[:500], "is no pickled data that can be read"),
        ("data_batch_4", lambda b: b.replace(b"labels", b"lapels"), "must hold a list of small numbers, 'labels'"),
        ("data_batch_4", lambda b: b.replace(b"u1K", b"u2K"), r"data must be u1 \(3, 3072\); it is u2 \(3, 3072\)"),
        ("data_batch_4", lambda b: b.replace(b"M\x03\x00", b"M\x04\x00"), r"must be u1 \(3, 3072\); it is u1 \(4, "),
        ("data_batch_4", lambda _: batch(pixels="x"), r"data must be u1 \(1, 3072\); it is str"),
        (
            "data_batch_4",
            lambda _: batch().replace(b"T\0\x0c\0\0\0", b"T\xff\x0b\0\0"),
            "hold 3,072 pixels; it has 3,071",
        ),
        ("data_batch_4", lambda _: batch(label=11), "labels must lie between 0 and 9; got labels from 11 to 11"),
        ("data_batch_4", lambda _: b"\x80\x02].", "must hold a list of small numbers"),
    ],
)
@pytest.mark.usefixtures("small")
def test_a_damaged_cifar_batch_is_named_with_what_is_wrong(tmp_path, file, change, message):
    cifar_files(tmp_path)
    (path,) = tmp_path.rglob(file)
    damage(path, change)
    with pytest.raises(ValueError, match=message) as info:
        data.load("cifar10", path.parent)
    assert str(path) in str(info.value)


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (0, lambda b: b"\0\0\x0d" + b[3:], "must begin with 00 00 08 03, .* it begins with 00 00 0d 03"),
        (1, lambda b: b[:-1], r"must hold 13 bytes for the sizes \(5,\) that it gives; it has 12"),
        (2, lambda b: b[:9], "t10k-images-idx3-ubyte must hold"),
        (3, lambda b: b[:-1] + b"\x0a", "t10k-labels-idx1-ubyte's labels must lie between 0 and 9"),
        (
            3,
            lambda _: idx_bytes(torch.zeros(4, dtype=torch.uint8)),
            "must hold a label for each of the 3 images of t10k-images.*; it has 4",
        ),
    ],
)
@pytest.mark.usefixtures("small")
def test_a_damaged_idx_file_is_named_with_what_is_wrong(tmp_path, number, change, message):
    idx_files(tmp_path / "mnist")
    damage(tmp_path / "mnist" / idx.STEMS[number], change)
    with pytest.raises(ValueError, match=message) as info:
        data.load("mnist", tmp_path)
    assert idx.STEMS[number] in str(info.value)


def test_a_small_file_that_unpacks_to_too_much_is_refused(tmp_path):
    idx_files(tmp_path / "mnist", "{}.gz".format, gzip.compress)
    path = tmp_path / "mnist" / f"{idx.STEMS[0]}.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(idx.MAX_BYTES // 2**20 + 1):
            file.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    with pytest.raises(ValueError, match=rf"{idx.STEMS[0]}.gz must unpack to at most 100,000,000 bytes; it has more"):
        data.load("mnist", tmp_path)


@pytest.mark.parametrize("change", [lambda b: b[:-9], lambda b: b"no" + b[2:], lambda b: b[:20] + b"\xff" * 9 + b[29:]])
@pytest.mark.usefixtures("small")
def test_a_damaged_gzip_file_is_named(tmp_path, change):
    idx_files(tmp_path / "mnist", "{}.gz".format, gzip.compress)
    damage(tmp_path / "mnist" / f"{idx.STEMS[0]}.gz", change)
    with pytest.raises(ValueError, match=rf"{idx.STEMS[0]}.gz is no whole gzip file \(.*\): get it again"):
        data.load("mnist", tmp_path)


@pytest.mark.usefixtures("small")
def test_a_pickle_costs_no_more_memory_than_its_size(tmp_path):
    """A pickle numbers its memo entries freely. A list up to the number here takes 64 MiB, at worst 32 GiB."""
    cifar_files(tmp_path)
    path = tmp_path / "py" / "cifar-10-batches-py" / "data_batch_1"
    damage(path, lambda b: b[:3] + b"r" + struct.pack("<I", 2**22) + b[3:])
    tracemalloc.start()
    data.load("cifar10", tmp_path / "py")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**24


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.usefixtures("small")
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path, protocol):
    cifar_files(tmp_path)
    trace = tmp_path / "was here"
    blob = pickle.dumps({"labels": [1], "data": Malicious(trace)}, protocol)
    (tmp_path / "py" / "cifar-10-batches-py" / "data_batch_1").write_bytes(blob)
    with pytest.raises(ValueError, match=r"data_batch_1 is no pickled data .*it names \S+\.open, .* was not run"):
        data.load("cifar10", tmp_path / "py")
    assert not trace.exists()
    pickle.loads(blob)["data"].close()
    assert trace.exists(), "the pickle would have run"


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "numpy.load", "numpy.core.multiarray.fromfile"])
def test_a_pickle_may_name_nothing_but_an_array(tmp_path, name):
    module, _, function = name.rpartition(".")
    with pytest.raises(ValueError, match=f"it names {name}"):
        python2.load(tmp_path, f"c{module}\n{function}\n(S'x'\ntR.".encode())


@pytest.mark.parametrize(
    ("name", "file", "how"),
    [
        ("cifar10", "data_batch_1 or data_batch_1.bin", "cifar-10-python.tar.gz or cifar-10-binary.tar.gz"),
        ("cifar100", "train or train.bin", "cifar-100-python.tar.gz or cifar-100-binary.tar.gz"),
        ("mnist", "train-images-idx3-ubyte or", "four .gz files"),
        ("imagenet", "a folder train", "sort the images of ILSVRC2012_img_val.tar into folders by class"),
        ("tiny-imagenet", "a folder train", "tiny-imagenet-200.zip"),
        ("enwik8", "enwik8", "enwik8.zip"),
        ("text8", "text8", "text8.zip"),
        ("wikitext-2", "wiki.train.tokens or train.txt", "wikitext-2-v1.zip"),
        ("wikitext-103", "wiki.train.tokens or train.txt", "wikitext-103-v1.zip"),
        ("wikitext-2-103", "wiki.train.tokens or train.txt", "wikitext-2-v1.zip"),
    ],
)
def test_a_missing_set_says_what_was_looked_for_where_and_how_to_get_it(tmp_path, name, file, how):
    with pytest.raises(ValueError, match="is not there") as info:
        data.load(name, tmp_path)
    message = str(info.value)
    assert f"looked for {file}" in message
    assert how in message
    assert str(tmp_path) in message
    assert "--data or ALGEBRANETS_DATA" in message


@pytest.mark.usefixtures("small")
def test_data_is_looked_for_where_the_argument_or_the_environment_says_or_in_data(tmp_path, monkeypatch):
    for number, place in enumerate(["argument", "environment", "data"], 1):
        (tmp_path / place).mkdir()
        (tmp_path / place / "enwik8").write_bytes(bytes(100 * number))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ALGEBRANETS_DATA", raising=False)
    assert len(data.load("enwik8").train) == 270
    monkeypatch.setenv("ALGEBRANETS_DATA", str(tmp_path / "environment"))
    assert len(data.load("enwik8").train) == 180
    assert len(data.load("enwik8", tmp_path / "argument").train) == 90


def test_any_file_is_a_text_and_an_unknown_name_is_not(tmp_path):
    path = tmp_path / "poem.txt"
    path.write_text("Die Äpfel\n" * 10)
    dataset = data.load(str(path))
    assert dataset.name == "poem.txt"
    assert bytes(torch.cat([dataset.train, dataset.valid, dataset.test]).tolist()) == path.read_bytes()
    with pytest.raises(
        ValueError, match=r"a data set must be one of cifar10, .*; got 'cifar-10'. Did you mean 'cifar10'\?"
    ):
        data.load("cifar-10")
    (tmp_path / "nothing.txt").touch()
    with pytest.raises(ValueError, match=r"nothing.txt is empty"):
        data.load(str(tmp_path / "nothing.txt"))


def test_importing_the_room_imports_neither_torchvision_nor_sklearn():
    code = "import sys, algebranets.lab.data; print([m for m in ('torchvision', 'sklearn', 'PIL') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("module", "make"),
    [("sklearn", lambda _: data.load("digits")), ("torchvision", lambda f: ImageFolder(f).training(2))],
)
def test_a_library_that_is_not_installed_is_named(tmp_path, monkeypatch, module, make):
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match="which is not installed: pip install"):
        make(flowers(tmp_path))
