"""Readers of the published archives, on small files in the same formats; sets drawn here; augmentation; refusals."""

import gzip
import hashlib
import io
import pathlib
import sys
import tarfile
import zipfile

import numpy as np
import pytest

from refattn.analysis.images import picture
from refattn.tasks import natural_images as images
from tests.refusals import refused

RNG = np.random.default_rng(0)
PICTURES, LABELS = RNG.integers(256, size=(6, 32, 32, 3), dtype=np.uint8), np.array([3, 9, 0, 1, 1, 7], dtype=np.uint8)


@pytest.fixture
def known(tmp_path, monkeypatch):
    """A function that writes an archive and enters it as the one that was published."""
    images.load.cache_clear()

    def write(name, content):
        (tmp_path / name).write_bytes(content)
        source = images.ARCHIVES[name][2]
        monkeypatch.setitem(images.ARCHIVES, name, (len(content), hashlib.md5(content).hexdigest(), source))
        return str(tmp_path)

    yield write
    images.load.cache_clear()


def cifar(labels=LABELS):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name in [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]:
            content = b"".join(bytes([label]) + picture.transpose(2, 0, 1).tobytes()
                               for label, picture in zip(labels, PICTURES, strict=True))
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def same(found, pictures, labels):
    np.testing.assert_array_equal(found.image, pictures)
    np.testing.assert_array_equal(found.label, labels)


def test_cifar_10(known):
    where = known("cifar-10-binary.tar.gz", cifar())
    same(images.load("cifar10", "test", where), PICTURES, LABELS)
    assert len(images.load("cifar10", "train", where).label) == 30


def test_fashion_mnist(known):
    grey = PICTURES[:, 2:30, 2:30, 0]
    for kind, x in ("images", grey), ("labels", LABELS):
        head = bytes([0, 0, 8, x.ndim]) + np.array(x.shape, dtype=">u4").tobytes()
        where = known(f"t10k-{kind}-idx{x.ndim}-ubyte.gz", gzip.compress(head + x.tobytes()))
    found = images.load("fashion_mnist", "test", where)
    same(found._replace(image=found.image[:, 2:30, 2:30]), grey[..., None].repeat(3, axis=-1), LABELS)
    assert not found.image[:, :2].any() and not found.image[:, :, 30:].any()


def test_svhn(known):
    scipy_io = pytest.importorskip("scipy.io")
    stream, labels = io.BytesIO(), np.where(LABELS == 0, 10, LABELS)[:, None]
    scipy_io.savemat(stream, {"X": PICTURES.transpose(1, 2, 3, 0), "y": labels})
    same(images.load("svhn", "train", known("train_32x32.mat", stream.getvalue())), PICTURES, LABELS)


def folder(path, classes=10, empty=()):
    pillow = pytest.importorskip("PIL.Image")
    with zipfile.ZipFile(path, "w") as archive:
        for n in reversed(range(classes)):                  # not in the order of their names
            stream = io.BytesIO()
            pillow.fromarray(PICTURES[n % 6]).save(stream, "png")
            archive.writestr(f"test/class{n}/" + ("readme.txt" if n in empty else "one.png"), stream.getvalue())
    images.load.cache_clear()
    images.checksum.cache_clear()
    return str(path)


def test_folders(tmp_path):
    found = images.load("folders", "test", folder(tmp_path / "a.zip"))
    same(found, PICTURES[np.arange(10) % 6], np.arange(10))
    refused("it has 10 classes, of which class3 without pictures in test/); allowed: zips of train/CLASS/*.jpg",
            images.load, "folders", "test", folder(tmp_path / "b.zip", empty=(3,)))
    refused("of which class0, class2, class5, class7 without pictures in test/)", images.load, "folders", "test",
            folder(tmp_path / "e.zip", empty=(7, 2, 5, 0)))
    refused("it has 9 classes); allowed", images.load, "folders", "test", folder(tmp_path / "c.zip", classes=9))
    (tmp_path / "d.zip").write_bytes(b"PK no zip")
    refused("d.zip cannot be read (File is not a zip file)", images.load, "folders", "test", str(tmp_path / "d.zip"))


def test_pictures_of_more_than_eight_bits_are_refused_and_not_cut_off(tmp_path):
    pillow, stream = pytest.importorskip("PIL.Image"), io.BytesIO()
    pillow.fromarray(np.full((32, 32), 30_000, np.uint16)).save(stream, "png")
    with zipfile.ZipFile(folder(tmp_path / "a.zip"), "a") as archive:
        archive.writestr("test/class0/two.png", stream.getvalue())
    refused("a.zip cannot be read (its mode is I;16; allowed: 8 bits a channel)", images.load, "folders", "test",
            str(tmp_path / "a.zip"))
    (tmp_path / "two.png").write_bytes(stream.getvalue())
    refused("two.png cannot be read as a picture (its mode is I;16", picture, tmp_path / "two.png", 32)
    with zipfile.ZipFile(folder(tmp_path / "b.zip"), "a") as archive:
        archive.writestr("test//two.png", stream.getvalue())
    refused("b.zip cannot be read (", images.load, "folders", "test", str(tmp_path / "b.zip"))


def test_folders_of_other_classes_sizes_or_compressions_are_refused_in_one_line(tmp_path):
    with zipfile.ZipFile(folder(tmp_path / "a.zip"), "a") as archive:      # training has other classes than the test
        archive.writestr("train/other/one.png", archive.read("test/class0/one.png"))
    refused("a.zip cannot be read (it has 11 classes, of which other without", images.load, "folders", "test",
            str(tmp_path / "a.zip"))
    stream = io.BytesIO()
    pytest.importorskip("PIL.Image").fromarray(PICTURES[0][:16]).save(stream, "png")
    with zipfile.ZipFile(folder(tmp_path / "b.zip"), "a") as archive:
        archive.writestr("test/class0/two.png", stream.getvalue())
    refused("b.zip cannot be read (all input arrays must have", images.load, "folders", "test", str(tmp_path / "b.zip"))
    content = bytearray(pathlib.Path(folder(tmp_path / "c.zip")).read_bytes())
    for mark, at in (b"PK\x03\x04", 6), (b"PK\x01\x02", 8):                # every entry says that it is encrypted
        start = -1
        while (start := content.find(mark, start + 1)) >= 0:
            content[start + at] |= 1
    (tmp_path / "c.zip").write_bytes(content)
    images.load.cache_clear()
    refused("c.zip cannot be read (File 'test/class0/one.png' is encrypted", images.load, "folders", "test",
            str(tmp_path / "c.zip"))


def test_archives_that_are_missing_or_damaged_are_refused_in_one_line(known, tmp_path):
    source = "from www.cs.toronto.edu/~kriz"
    refused("cannot be read (No such file or directory); allowed: the file of 170,052,171 bytes and MD5 c32a1d4a",
            images.load, "cifar10", "test", str(tmp_path))
    where = known("cifar-10-binary.tar.gz", cifar())
    content = bytearray(cifar())
    content[-1] ^= 1
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(content)
    refused(source, images.load, "cifar10", "test", where)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(content[:-1])
    refused(f"has {len(content) - 1:,} bytes; allowed: the file of {len(content):,} bytes", images.load, "cifar10",
            "test", where)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(cifar() + b"x")
    refused(f"has {len(content) + 1:,} bytes; allowed: the file of {len(content):,} bytes", images.load, "cifar10",
            "test", where)
    where = known("cifar-10-binary.tar.gz", cifar(LABELS + 3))
    refused("has labels from 3 to 12; allowed: 0 to 9", images.load, "cifar10", "test", where)


def test_unknown_sets_and_splits_are_refused():
    refused("images is 'mnist'; allowed: cifar10, fashion_mnist", images.load, "mnist", "test")
    refused("split is 'held_out'; allowed: train, test", images.load, "shapes", "held_out")
    refused("has images of shape (1, 28, 28) and uint8 for 1 labels; allowed: (1, 32, 32, 3)", images.checked_images,
            np.zeros((1, 28, 28), np.uint8), np.zeros(1, int), "mine")
    for labels, words in ([9, -1], "from -1 to 9"), ([10, 0], "from 0 to 10"):
        refused(f"mine has labels {words}; allowed: 0 to 9", images.checked_images, PICTURES[:2], np.array(labels),
                "mine")


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    for module, name, package in (("sklearn.datasets", "digits", "scikit-learn"), ("PIL.Image", "folders", "Pillow")):
        monkeypatch.setitem(sys.modules, module, None)
        images.load.cache_clear()
        refused(f"images is {name!r}, for which {package} is missing; allowed without it: cifar10", images.load,
                name, "train", str(tmp_path))


@pytest.mark.parametrize("name", ["digits", "shapes", "gratings"])
def test_sets_without_an_archive_have_their_classes_and_keep_splits_apart(name):
    if name == "digits":
        pytest.importorskip("sklearn")
    train, test = (images.load(name, split) for split in images.SPLITS)
    assert train.image.max() == 255
    assert np.bincount(test.label, minlength=10).min() > 20 and len(train.label) > 3 * len(test.label)
    assert not {x.tobytes() for x in train.image} & {x.tobytes() for x in test.image}


def test_silhouettes_have_their_areas():
    y, x = np.mgrid[-2:2:200j, -2:2:200j]                   # all of them lie between -1 and 1
    areas = [4 * float(silhouette(x, y).mean()) for silhouette in images.SILHOUETTES]
    assert areas == pytest.approx([0.77, 0.72, 0.36, 0.51, 0.46, 0.30, 0.385, 0.44, 0.44, 0.31], abs=0.02)


def moments(mask):
    """The area of a silhouette, and its standard deviations along the axes of its own, the longer one first."""
    places = np.argwhere(mask)
    return len(places), np.sqrt(np.linalg.eigvalsh(np.cov(places.T))[::-1])


def test_drawn_silhouettes_are_the_ones_of_their_class_turned():
    """A bar (class 5) is 20 : 6, a disc (0) has an area of 4 pi times its variance along each axis."""
    found, ratio = images.load("shapes", "test"), {}
    for label in 0, 5:
        made = []
        for image in found.image[found.label == label].astype(float):
            apart = abs(image - image[[0, 0, -1, -1], [0, -1, 0, -1]].mean(axis=0)).mean(axis=-1)
            area, (longer, shorter) = moments(apart > 45)
            made.append((area / (longer * shorter), longer / shorter))
        ratio[label] = np.median(made, axis=0)
    assert ratio[0] == pytest.approx([4 * np.pi, 1], rel=0.05)
    assert 2.5 < ratio[5][1] < 20 / 6                       # noise makes it wider


def test_gratings_lean_to_either_side_by_ten_degrees_a_class():
    found = images.load("gratings", "test")
    grey = found.image[..., 0].astype(float)
    assert abs(grey.mean() - 127.5) < 0.4                   # 128 before it is cut to whole numbers
    power = abs(np.fft.fft2(grey - grey.mean(axis=(1, 2), keepdims=True), (128, 128))[:, :, :64]) ** 2
    row, column = np.divmod(power.reshape(len(grey), -1).argmax(axis=1), 64)
    angle = np.rad2deg(np.arctan2((row + 64) % 128 - 64, column))
    for label in range(10):
        mine = angle[found.label == label]
        assert np.median(abs(mine)) == pytest.approx(10 * label, abs=1.5)
        assert label in (0, 9) or 0.3 < (mine > 0).mean() < 0.7


@pytest.mark.parametrize(("name", "split", "total", "weighted"), [
    ("shapes", "train", 1_162_941_724, 9919432342113), ("shapes", "test", 234_543_458, 2048272504464),
    ("gratings", "train", 1_175_512_044, 9986679118731), ("gratings", "test", 235_228_767, 1907185585233)])
def test_drawn_sets_are_the_same_for_everybody(name, split, total, weighted):
    """But for a few pixels: the last bits of sines are the machine's."""
    image, label = images.load(name, split)
    assert image.sum(dtype=np.int64) == pytest.approx(total, rel=1e-6)
    places = image.reshape(len(label), -1) @ np.arange(image[0].size, dtype=np.float64)
    assert places @ (1.0 + label) == pytest.approx(weighted, rel=1e-6)


def test_augmentation_cuts_a_framed_and_perhaps_mirrored_image():
    image = np.broadcast_to(PICTURES[:1], (400, 32, 32, 3))
    cut = images.augment(np.random.default_rng(1), image)
    framed = np.pad(PICTURES[0], ((4, 4), (4, 4), (0, 0)))
    views = {framed[g:g + 32, j:j + 32][:, ::m].tobytes(): (g, j, m) for g in range(9) for j in range(9)
             for m in (1, -1)}
    found = np.array([views[x.tobytes()] for x in cut])
    assert {*found[:, 0]} == {*found[:, 1]} == {*range(9)} and 150 < (found[:, 2] == 1).sum() < 250
