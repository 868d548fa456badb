"""Data: batches by number, from images in memory, from text and from folders of images."""

import struct
import zlib
from itertools import pairwise, product

import pytest
import torch
from PIL import Image

from algebranets.lab import data
from algebranets.lab.data import IGNORED, ImageFolder, ImageTensors, Share, Text
from algebranets.lab.data.batches import WHOLE

WORLDS = [1, 2, 4]


def numbered(num_train=14, num_test=7, side=6, channels=2):
    """Return images of noise. Each is a class of its own, so that a label identifies the image."""
    noise = data.generator(num_train, num_test)
    sizes = ((num, channels, side, side) for num in (num_train, num_test))
    train, test = (torch.randint(256, size, dtype=torch.uint8, generator=noise) for size in sizes)
    classes = tuple(map(str, range(num_train)))
    return ImageTensors("noise", train, torch.arange(num_train), test, torch.arange(num_test), classes)


def alphabet(size=101):
    """Return a text in which each character is its own position."""
    return Text("alphabet", *(torch.arange(n, dtype=torch.uint8) for n in (size, size - 20, size - 30)))


def save(path, color, mode="RGB", size=(20, 16)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).convert(mode).save(path)


def flowers(folder):
    """Write seven training and five evaluation images of two classes. Gray values differ within each set."""
    for i in range(7):
        save(folder / "train" / "ab"[i % 2] / f"{i}.png", (10 * i,) * 3)
    for i in range(5):
        save(folder / "val" / "ab"[i > 2] / f"{i}.png", (10 * i,) * 3)
    return folder


def gradients(folder, num_train=7):
    """Write images that are dark on the left and have no two equal parts."""
    for part, num in (("train", num_train), ("val", 5)):
        for i in range(num):
            save(folder / part / "ab"[i % 2] / f"{i}.png", (0, 0, 0))
            ramp = Image.linear_gradient("L").rotate(90).crop((0, 0, 200 + i, 200))
            ramp.save(folder / part / "ab"[i % 2] / f"{i}.png")
    return folder


@pytest.fixture
def folder(tmp_path):
    return flowers(tmp_path / "flowers")


@pytest.fixture(params=["tensors", "text", "folder", "folder with workers"])
def source(request, tmp_path):
    """Return two functions of a share, which make the training and evaluation batches of one data set."""
    options = {}
    if request.param == "tensors":
        training, evaluation = numbered().training, numbered().evaluation
        augmentation = {"padding": 1, "flip": True}
    elif request.param == "text":
        training, evaluation = alphabet().training, alphabet().evaluation
        options, augmentation = {"length": 5}, {}
    else:
        ramps = ImageFolder(gradients(tmp_path / "ramps"))
        training, evaluation = ramps.training, ramps.evaluation
        options, augmentation = {"crop": 8, "workers": 2 * ("workers" in request.param)}, {"flip": True}
    return (
        lambda share=WHOLE: training(4, seed=3, share=share, **options, **augmentation),
        lambda share=WHOLE: evaluation(4, share=share, **options),
    )


def equal(ones, others):
    return len(ones) == len(others) and all(
        torch.equal(a, b) for one, other in zip(ones, others, strict=True) for a, b in zip(one, other, strict=True)
    )


# Batches by number ----------------------------------------------------------------------------------------------------


def test_a_batch_depends_on_its_number_and_on_no_batch_before_it(source):
    training, _ = source
    stop = 2 * len(training()) + 1
    whole = list(training().iterate(0, stop))
    assert equal(list(training().iterate(3, stop)), whole[3:])
    assert equal(list(training().iterate(stop - 1, stop)), whole[-1:])
    assert not equal(whole[:1], whole[-1:]), "the first batches of two passes differ"


def test_drawing_batches_leaves_the_models_random_numbers_alone(source):
    before = torch.get_rng_state()
    for make in source:
        list(make().iterate(0, 2))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("world", WORLDS[1:])
def test_processes_together_see_what_one_process_sees(source, world):
    for make in source:
        whole = list(make().iterate(0, 3))
        shares = [list(make(Share(rank, world)).iterate(0, 3)) for rank in range(world)]
        for step, batch in enumerate(whole):
            for part, tensor in enumerate(batch):
                rows = [share[step][part] for share in shares]
                together = torch.cat(rows) if tensor.dim() else rows[0]
                torch.testing.assert_close(together, tensor, rtol=0, atol=0)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("num_test", [1, 7, 8])
def test_every_test_image_counts_once_over_all_processes(world, num_test):
    dataset = numbered(num_test=num_test)
    counted = []
    for rank in range(world):
        batches = dataset.evaluation(4, share=Share(rank, world))
        assert len(batches) == -(-num_test // 4)
        for images, labels in batches.iterate(0, len(batches)):
            assert len(images) == len(labels) == -(-min(num_test, 4) // world)
            counted += labels[labels != IGNORED].tolist()
    assert sorted(counted) == list(range(num_test))


def test_passes_are_different_permutations_of_everything():
    batches = numbered(num_train=12).training(4)
    labels = [batch[1] for batch in batches.iterate(0, 30)]
    passes = [tuple(torch.cat(labels[i : i + 3]).tolist()) for i in range(0, 30, 3)]
    assert all(sorted(each) == list(range(12)) for each in passes)
    assert len(set(passes)) == len(passes)
    other = torch.cat([batch[1] for batch in numbered(num_train=12).training(4, seed=1).iterate(0, 3)])
    assert tuple(other.tolist()) != passes[0]


def test_what_does_not_divide_is_explained():
    dataset = numbered()
    with pytest.raises(ValueError, match="of all 4 processes together and must be a multiple of 4; got 6"):
        dataset.training(6, share=Share(0, 4))
    with pytest.raises(ValueError, match="14 examples do not fill one batch of 15: batch_size must be at most 14"):
        dataset.training(15)
    with pytest.raises(ValueError, match="batch_size must be at least 1; got 0"):
        dataset.evaluation(0)
    with pytest.raises(ValueError, match="rank must lie between 0 and world - 1; got rank=2 and world=2"):
        Share(2, 2)


# Images in memory -----------------------------------------------------------------------------------------------------


def as_bytes(dataset, images):
    mean, std = (torch.tensor(numbers).view(-1, 1, 1) for numbers in (dataset.mean, dataset.std))
    return ((images * std + mean) * 255).round().to(torch.uint8)


@pytest.mark.parametrize(("crop", "padding"), [(None, 0), (None, 1), (4, 0), (5, 2)])
@pytest.mark.parametrize("flip", [False, True])
def test_training_images_are_windows_at_every_place_half_of_them_mirrored(crop, padding, flip):
    dataset = numbered(num_train=8, channels=1)
    batches = dataset.training(8, crop=crop, padding=padding, flip=flip)
    side = crop or 6
    places, mirrored, total = set(), 0, 0
    for images, labels in batches.iterate(0, 60):
        for image, label in zip(as_bytes(dataset, images), labels, strict=True):
            padded = torch.nn.functional.pad(dataset.train_images[label], (padding,) * 4)
            corners = range(padded.shape[2] - side + 1)
            (place,) = [
                (top, left, turned)
                for top, left, turned in product(corners, corners, (False, True))
                if torch.equal(image.flip(2) if turned else image, padded[:, top : top + side, left : left + side])
            ]
            places.add(place)
            mirrored += place[2]
            total += 1
    assert len(places) == len(corners) ** 2 * (1 + flip)
    assert abs(mirrored / total - 0.5 * flip) < 0.1


def test_test_images_come_whole_and_in_order():
    dataset = numbered()
    images, labels = next(dataset.evaluation(7, crop=3).iterate(0, 1))
    assert torch.equal(as_bytes(dataset, images), dataset.test_images)
    assert labels.tolist() == list(range(7))
    assert images.is_contiguous()


def test_pixels_have_mean_0_and_variance_1():
    dataset = numbered(num_train=500)
    images, _ = next(dataset.training(500).iterate(0, 1))
    torch.testing.assert_close(images.mean((0, 2, 3)), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(images.var((0, 2, 3), correction=0), torch.ones(2), atol=1e-4, rtol=0)
    pixels = dataset.train_images.double() / 255
    torch.testing.assert_close(torch.tensor(dataset.mean).double(), pixels.mean((0, 2, 3)))
    black = ImageTensors(
        "black", *(torch.zeros(n, dtype=t) for n, t in [((2, 1, 3, 3), torch.uint8), (2, torch.long)] * 2), ("a",)
    )
    assert next(black.training(2).iterate(0, 1))[0].abs().max() == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": torch.zeros(3, 1, 4, 4)}, r"train_images must be uint8 .* got torch.float32 \(3, 1, 4, 4\)"),
        ({"test_images": torch.zeros(3, 1, 4, 5, dtype=torch.uint8)}, r"test_images .* got torch.uint8 \(3, 1, 4, 5\)"),
        ({"test_images": torch.zeros(3, 1, 5, 5, dtype=torch.uint8)}, "training and test images must be of one size"),
        ({"train_labels": torch.zeros(2, dtype=torch.long)}, "train_labels must be int64, one for each of 3 images"),
        ({"test_labels": torch.tensor([0, 1, 2])}, "test_labels must lie between 0 and 1; got labels from 0 to 2"),
    ],
)
def test_tensors_that_are_no_data_set_are_refused(changes, message):
    images, labels = torch.zeros(3, 1, 4, 4, dtype=torch.uint8), torch.zeros(3, dtype=torch.long)
    parts = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
    with pytest.raises(ValueError, match=message):
        ImageTensors("wrong", **(parts | changes), classes=("a", "b"))


def test_a_crop_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"crop must lie between 1 and 8, .* got crop=9 and padding=1"):
        numbered().training(2, crop=9, padding=1)
    for padding in (-1, 7, 10**9):
        with pytest.raises(ValueError, match=f"padding must lie between 0 and 6, the side of .*; got {padding}"):
            numbered().training(2, padding=padding)


# Text -----------------------------------------------------------------------------------------------------------------


def test_targets_are_the_next_characters_and_rows_go_on_in_the_next_batch():
    batches = alphabet().training(3, 5)
    segments = list(batches.iterate(0, 2 * len(batches)))
    for tokens, targets, _ in segments:
        assert tokens.shape == targets.shape == (3, 5)
        assert torch.equal(targets, tokens + 1)  # characters are positions
    for before, after in pairwise(segments):
        assert torch.equal(before[1][:, -1], after[0][:, 0]) or after[2].item()
    assert [fresh.item() for _, _, fresh in segments] == 2 * ([True] + [False] * (len(batches) - 1))
    assert all(fresh.dtype == torch.bool and fresh.device.type == "cpu" for *_, fresh in segments)


def test_the_state_is_dropped_every_so_many_batches_of_a_pass():
    batches = alphabet().training(3, 5, fresh_every=4)
    plain = alphabet().training(3, 5)
    segments = list(batches.iterate(0, 2 * len(batches)))
    assert [fresh.item() for *_, fresh in segments] == 2 * [True, False, False, False, True, False]
    for one, two in zip(segments, plain.iterate(0, 2 * len(plain)), strict=True):
        assert torch.equal(one[0], two[0])
        assert torch.equal(one[1], two[1])
    with pytest.raises(ValueError, match="fresh_every must be a number of batches, or 0 for never; got -1"):
        alphabet().training(3, 5, fresh_every=-1)


def test_rows_are_equal_parts_and_each_pass_begins_elsewhere():
    batches = alphabet().training(3, 5)
    firsts = [next(batches.iterate(epoch * len(batches), epoch * len(batches) + 1))[0][:, 0] for epoch in range(40)]
    assert {int(first[0]) for first in firsts} == set(range(5))
    assert all(torch.equal(first.diff(), torch.tensor([32, 32])) for first in firsts)  # (101 - 5) // 3
    assert len(batches) == 32 // 5


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("size", "length"), [(101, 5), (97, 8), (33, 40), (32, 1)])
def test_every_character_but_the_first_is_a_target_once_over_all_processes(world, size, length):
    counted = []
    for rank in range(world):
        batches = alphabet(size).evaluation(4, length, split="train", share=Share(rank, world))
        for tokens, targets, _ in batches.iterate(0, len(batches)):
            assert tokens.shape == targets.shape == (4 // world, min(length, -(-(size - 1) // 4)))
            there = targets != IGNORED
            assert torch.equal(targets[there], tokens[there] + 1)
            counted += targets[there].tolist()
    assert sorted(counted) == list(range(1, size))


def test_evaluated_rows_go_on_and_are_fresh_once():
    batches = alphabet().evaluation(2, 8)
    segments = list(batches.iterate(0, len(batches)))
    assert torch.equal(torch.cat([tokens for tokens, _, _ in segments], 1)[:, :40], torch.arange(80).view(2, 40))
    assert [fresh.item() for *_, fresh in segments] == [True] + [False] * (len(batches) - 1)


@pytest.mark.parametrize("world", WORLDS)
def test_evaluation_lays_out_no_more_than_there_is(world):
    huge, share = 10**12 // world * world, Share(0, world)
    images, labels = next(numbered(num_test=8).evaluation(huge, share=share).iterate(0, 1))
    assert len(images) == len(labels) == 8 // world
    for batch_size, length in ((4, huge), (huge, huge), (huge, 1)):
        batches = alphabet(101).evaluation(batch_size, length, split="train", share=share)
        tokens = torch.cat([tokens.flatten() for tokens, *_ in batches.iterate(0, len(batches))])
        assert 100 / world <= len(tokens) < 100 / world + 4


def test_a_text_that_is_too_short_says_how_long_it_must_be():
    with pytest.raises(ValueError, match=r"must hold at least 120 characters, .* it has 101"):
        alphabet().training(5, 20)
    assert len(alphabet(120).training(5, 20)) == 1
    with pytest.raises(ValueError, match="test text must hold at least 2 characters; it has 1"):
        alphabet(31).evaluation(1, 5, split="test")
    with pytest.raises(ValueError, match="split must be one of train, valid, test; got 'dev'"):
        alphabet().evaluation(1, 5, split="dev")
    with pytest.raises(ValueError, match="length must be at least 1; got 0"):
        alphabet().training(1, 0)
    with pytest.raises(ValueError, match="valid must be one row of uint8"):
        Text("wrong", alphabet().train, alphabet().valid.long(), alphabet().test)


# Folders of images ----------------------------------------------------------------------------------------------------


def test_a_folder_is_its_images_and_its_classes(folder):
    dataset = data.load(str(folder))
    assert (dataset.name, dataset.classes, dataset.num_classes, dataset.channels) == ("flowers", ("a", "b"), 2, 3)
    images, labels = next(dataset.evaluation(5, crop=8).iterate(0, 1))
    gray = torch.arange(5.0).mul(10).view(5, 1, 1, 1).expand(5, 3, 8, 8).to(torch.uint8)
    assert torch.equal(as_bytes(dataset, images), gray)
    assert labels.tolist() == [0, 0, 0, 1, 1]
    batches = dataset.training(7, crop=8, seed=1)
    images, labels = next(batches.iterate(0, 1))
    assert sorted(as_bytes(dataset, images)[:, 0, 0, 0].tolist()) == [0, 10, 20, 30, 40, 50, 60]
    assert torch.equal(labels, as_bytes(dataset, images)[:, 0, 0, 0].long() // 10 % 2)
    assert next(dataset.evaluation(1).iterate(0, 1))[0].shape == (1, 3, 224, 224)


def test_every_evaluation_image_of_a_folder_counts_once(folder):
    counted = []
    for rank in range(2):
        batches = ImageFolder(folder).evaluation(4, crop=8, share=Share(rank, 2))
        for images, labels in batches.iterate(0, len(batches)):
            assert len(images) == 2
            counted += as_bytes(ImageFolder, images[labels != IGNORED])[:, 0, 0, 0].tolist()
    assert sorted(counted) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("flip", [False, True])
def test_half_of_a_folders_images_are_mirrored_if_asked(tmp_path, flip):
    batches = ImageFolder(gradients(tmp_path, num_train=2)).training(2, crop=9, flip=flip)
    images = torch.cat([images for images, _ in batches.iterate(0, 30)])
    rises = images[:, 0, 4, -1] > images[:, 0, 4, 0]
    assert 0.3 < rises.float().mean() < 0.7 if flip else rises.all()
    assert (rises[0::2] != rises[1::2]).any() == flip, "images of one pass draw apart from each other"
    assert len({tuple(image.flatten().tolist()) for image in images}) > 50, "parts differ from pass to pass"


def test_the_number_of_workers_changes_nothing(tmp_path):
    dataset = ImageFolder(gradients(tmp_path))
    alone, many = (list(dataset.training(4, crop=8, flip=True, workers=n).iterate(2, 6)) for n in (0, 2))
    assert equal(alone, many)


def test_images_of_every_mode_become_rgb(tmp_path):
    for part in ("train", "val"):
        for mode, suffix in [("L", "jpg"), ("CMYK", "jpg"), ("RGBA", "png"), ("P", "png"), ("1", "PNG")]:
            save(tmp_path / part / "white" / f"{mode}.{suffix}", (255, 255, 255), mode)
        (tmp_path / part / "white" / "readme.txt").write_text("no image")
    dataset = ImageFolder(tmp_path)
    images, _ = next(dataset.evaluation(5, crop=4).iterate(0, 1))
    assert images.shape == (5, 3, 4, 4)
    assert as_bytes(dataset, images).min() >= 254


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_image_is_named(folder, workers):
    path = folder / "train" / "a" / "2.png"
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(
        ValueError, match=r"2\.png is no image that can be read \(.*\): get it again or remove it"
    ) as info:
        list(ImageFolder(folder).training(7, crop=8, workers=workers).iterate(0, 1))
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("size", "reason"),
    [((20_000, 20_000), "decompression bomb"), ((200_000, 1), "its sides must not differ by more than 100 times")],
)
def test_a_small_file_of_a_huge_image_is_refused(folder, size, reason):
    """A thin strip would become huge if it were scaled to the size of the other images."""
    header = struct.pack(">2I5B", *size, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(size[1] * (1 + (size[0] + 7) // 8)) if size[1] == 1 else b"")
    chunks = ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b""))
    path = folder / "val" / "a" / "0.png"
    packed = (struct.pack(">I", len(c)) + kind + c + struct.pack(">I", zlib.crc32(kind + c)) for kind, c in chunks)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(packed))
    assert path.stat().st_size < 1000
    with pytest.raises(ValueError, match=rf"0\.png is no image that can be read \(.*{reason}.*\)"):
        next(ImageFolder(folder).evaluation(5, crop=224).iterate(0, 1))


def test_a_folder_that_holds_itself_is_read_once(folder):
    expected = ImageFolder(folder)._train
    for name in ("one", "two"):
        (folder / "train" / "a" / name).symlink_to(folder / "train" / "a")
    assert ImageFolder(folder)._train == expected


def test_a_folder_that_is_no_data_set_is_explained(folder, tmp_path):
    with pytest.raises(ValueError, match=r"must hold train/<class>/<images> .* it has the folders flowers"):
        data.load(str(tmp_path))
    with pytest.raises(ValueError, match="padding must be 0 for a folder of images"):
        ImageFolder(folder).training(2, padding=4)
    for crop in (0, 10**6):
        with pytest.raises(ValueError, match=f"crop must lie between 1 and 8192; got {crop}"):
            ImageFolder(folder).evaluation(2, crop=crop)
    save(folder / "val" / "c" / "0.png", (0, 0, 0))
    with pytest.raises(ValueError, match="classes of the training images only; c is not among them"):
        ImageFolder(folder)
    (folder / "train" / "c").mkdir()
    with pytest.raises(ValueError, match="train/c must hold images of its class"):
        ImageFolder(folder)
    for path in folder.rglob("*.png"):
        path.unlink()
    with pytest.raises(ValueError, match="train must hold a folder of images for each class"):
        ImageFolder(folder)


# On a GPU -------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("make", [
    lambda: numbered(800, 800).training(8, padding=1, flip=True, device="cuda"),
    lambda: numbered(800, 800).evaluation(8, device="cuda"),
    lambda: alphabet().training(2, 5, device="cuda"),
    lambda: alphabet().evaluation(2, 5, device="cuda"),
])  # fmt: skip
def test_no_batch_makes_the_gpu_wait(make):
    batches = make().iterate(0, 5)
    first = next(batches)
    torch.cuda.set_sync_debug_mode("error")
    try:
        rest = list(batches)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(tensor.is_cuda for batch in (first, *rest) for tensor in batch[:2])
    assert first[0].dim() == 2 or first[0].is_contiguous(memory_format=torch.channels_last)
