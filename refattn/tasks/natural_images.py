"""Pictures of ten classes, 32 x 32 pixels in three channels: the standard archives, and sets that need no archive.

    cifar10        the binary version; 50,000 and 10,000
    fashion_mnist  idx; grey, 28 x 28 in a black frame of 2; 60,000 and 10,000
    svhn           mat, without "extra"; 73,257 and 26,032; needs SciPy
    folders        any zip of SPLIT/CLASS/*.jpg or .png, the same ten classes in both, by alphabet; needs Pillow
    digits         of scikit-learn: 8 x 8, every pixel four times in rows and columns; 1,437 and 360
    shapes         drawn here: ten silhouettes of any colour, place, size and tilt over noise; 3,000 and 600
    gratings       drawn here: grey stripes of ten steepnesses, any phase, width and contrast, in noise; 3,000 and 600

The first three are read as they were published, checked by size and MD5; nothing is unpacked to a disk or unpickled.
Source: C, section 4.4 and appendix C.4; Krizhevsky 2009; Xiao et al. 2017; Netzer et al. 2011.
Differs: digits, shapes and gratings are none of C's sets and stand beside none of its figures.
"""

import gzip
import hashlib
import importlib
import io
import os
import tarfile
import zipfile
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..checks import check_choice
from .splits import frozen

SIZE, CLASSES, SPLITS = 32, 10, ("train", "test")


class Images(NamedTuple):
    image: np.ndarray          # (n, 32, 32, 3) uint8
    label: np.ndarray          # (n) integers, 0 to 9


_FASHION, _SVHN = "github.com/zalandoresearch/fashion-mnist", "ufldl.stanford.edu/housenumbers"
ARCHIVES = {                            # file -> (bytes, MD5, where it comes from)
    "cifar-10-binary.tar.gz": (170_052_171, "c32a1d4ab5d03f1284b67883e8d87530", "www.cs.toronto.edu/~kriz"),
    "train-images-idx3-ubyte.gz": (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d", _FASHION),
    "train-labels-idx1-ubyte.gz": (29_515, "25c81989df183df01b3e8a0aad5dffbe", _FASHION),
    "t10k-images-idx3-ubyte.gz": (4_422_102, "bef4ecab320f06d8554ea6380940ec79", _FASHION),
    "t10k-labels-idx1-ubyte.gz": (5_148, "bb300cfdad3c16e7a12a480ee83cd310", _FASHION),
    "train_32x32.mat": (182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373", _SVHN),
    "test_32x32.mat": (64_275_384, "eb5a983be6a315427106f1b164d9cef3", _SVHN),
}


def checked(directory, name):
    """The bytes of an archive.  Raises ValueError, one line with where it comes from, if it is missing or another."""
    path, (size, md5, source) = os.path.join(directory, name), ARCHIVES[name]
    should = f"allowed: the file of {size:,} bytes and MD5 {md5} from {source} where --data or REFATTN_DATA says"
    try:
        with open(path, "rb") as file:
            content = file.read(size + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}); {should}") from None
    if len(content) != size:
        raise ValueError(f"{path} has {os.path.getsize(path):,} bytes; {should}")
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise ValueError(f"{path} has MD5 {found}; {should}")
    return content


def in_colour(grey):
    """(n, g, j) as (n, 32, 32, 3), in a black frame where it is smaller."""
    frame = [(0, 0)] + [((SIZE - side) // 2,) * 2 for side in grey.shape[1:]]
    return np.repeat(np.pad(grey, frame)[..., None], 3, axis=-1)


def needed(module, name, package):
    """The module.  Raises ValueError naming the set and what to install where it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        others = ", ".join(x for x in SETS if x != name)
        raise ValueError(f"images is {name!r}, for which {package} is missing; allowed without it: {others}") from None


# ---------------------------------------------------------------- the archives

def cifar10(directory, split):
    """Records of a label and the planes of red, green and blue."""
    files = [f"data_batch_{n}.bin" for n in range(1, 6)] if split == "train" else ["test_batch.bin"]
    with tarfile.open(fileobj=io.BytesIO(checked(directory, "cifar-10-binary.tar.gz"))) as archive:
        content = b"".join(archive.extractfile(f"cifar-10-batches-bin/{name}").read() for name in files)
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + 3 * SIZE * SIZE)
    return records[:, 1:].reshape(-1, 3, SIZE, SIZE).transpose(0, 2, 3, 1), records[:, 0]


def fashion_mnist(directory, split):
    """Two idx files: sizes as big-endian words after a magic number, then bytes."""
    start, arrays = {"train": "train", "test": "t10k"}[split], []
    for kind, axes in ("images", 3), ("labels", 1):
        content = gzip.decompress(checked(directory, f"{start}-{kind}-idx{axes}-ubyte.gz"))
        sizes = np.frombuffer(content, dtype=">u4", count=axes, offset=4).tolist()
        arrays.append(np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(sizes))
    return in_colour(arrays[0]), arrays[1]


def svhn(directory, split):
    """X (row, column, channel, n) and y (n, 1), where 10 stands for the digit 0."""
    found = needed("scipy.io", "svhn", "SciPy").loadmat(io.BytesIO(checked(directory, f"{split}_32x32.mat")))
    return found["X"].transpose(3, 0, 1, 2), found["y"].reshape(-1) % CLASSES


def in_eight_bits(opened):
    """(g, j, 3) uint8 of a picture that Pillow has opened.  Raises ValueError for more bits, which it would cut off."""
    if opened.mode.startswith(("I", "F")):
        raise ValueError(f"its mode is {opened.mode}; allowed: 8 bits a channel")
    return np.asarray(opened.convert("RGB"))


def folders(path, split):
    """Pictures of a zip of SPLIT/CLASS/NAME, in the order of their names; both splits have the same classes."""
    pillow = needed("PIL.Image", "folders", "Pillow")
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(archive.namelist())
            classes = sorted({name.split("/")[1] for name in names if name.startswith(("train/", "test/"))} - {""})
            pictures = [name for name in names if name.startswith(f"{split}/")
                        and name.lower().endswith((".jpg", ".jpeg", ".png"))]
            empty = sorted(set(classes) - {name.split("/")[1] for name in pictures})
            if len(classes) != CLASSES or empty:
                raise ValueError(f"it has {len(classes)} classes" + (
                    f", of which {', '.join(empty)} without pictures in {split}/" if empty else ""))
            images = np.stack([in_eight_bits(pillow.open(io.BytesIO(archive.read(name)))) for name in pictures])
            labels = np.array([classes.index(name.split("/")[1]) for name in pictures])
    except Exception as error:                              # of a file, a zip, or any decoder: LZMAError, RuntimeError
        raise ValueError(f"{path} cannot be read ({error}); allowed: zips of train/CLASS/*.jpg and test/CLASS/*.jpg "
                         f"with {CLASSES} classes") from None
    return images, labels


@lru_cache(maxsize=8)
def checksum(path):
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


# ---------------------------------------------------------------- without an archive

def digits(directory, split):
    """The handwritten digits of scikit-learn; the last fifth is for testing."""
    found = needed("sklearn.datasets", "digits", "scikit-learn").load_digits()
    here = slice(0, 1_437) if split == "train" else slice(1_437, None)
    grey = np.rint(found.images[here] * (255 / 16)).astype(np.uint8)
    return in_colour(grey.repeat(4, axis=1).repeat(4, axis=2)), found.target[here]


SILHOUETTES = (                         # of a point (x, y) with -1 <= x, y <= 1
    lambda x, y: x**2 + y**2 < 1,                                                       # disc
    lambda x, y: np.maximum(abs(x), abs(y)) < 0.85,                                     # square
    lambda x, y: (y < 0.8) & (y > 2 * abs(x) - 0.9),                                    # triangle
    lambda x, y: np.minimum(abs(x), abs(y)) + 9 * (np.maximum(abs(x), abs(y)) > 1) < 0.3,           # cross
    lambda x, y: (x**2 + y**2 < 1) & (x**2 + y**2 > 0.4),                               # ring
    lambda x, y: (abs(x) < 0.3) & (abs(y) < 1),                                         # bar
    lambda x, y: (x**2 + y**2 < 1) & (y > 0),                                           # half a disc
    lambda x, y: (np.maximum(abs(x), abs(y)) < 0.9) & ((x < -0.3) | (y > 0.3)),         # corner
    lambda x, y: (abs(x) > 0.4) & (abs(x) < 0.9) & (abs(y) < 0.9),                      # two bars
    lambda x, y: (np.hypot(x - 0.5, y) < 0.45) | (np.hypot(x + 0.5, y) < 0.45),         # two discs
)


def drawn(split, seed):
    """(rng, label (n), g (1, 32, 1), j (1, 1, 32)) of a set that is drawn here; the same for everybody."""
    rng = np.random.default_rng((seed, SPLITS.index(split)))
    label = rng.integers(CLASSES, size=3_000 if split == "train" else 600)
    return rng, label, np.arange(SIZE)[None, :, None], np.arange(SIZE)[None, None, :]


def shapes(directory, split):
    """A silhouette of one colour on another, both noisy."""
    rng, label, g, j = drawn(split, 1)
    x0, y0, radius, tilt = (rng.uniform(*span, size=(len(label), 1, 1)) for span in (
        (11, 20), (11, 20), (6, 11), (-0.35, 0.35)))
    x, y = (j - x0) / radius, (g - y0) / radius
    x, y = x * np.cos(tilt) - y * np.sin(tilt), x * np.sin(tilt) + y * np.cos(tilt)
    back = rng.uniform(40, 215, size=(len(label), 1, 1, 3)).astype(np.float32)
    front = np.where(back > 127, back - 100, back + 100) + rng.uniform(-60, 60, size=back.shape).astype(np.float32)
    image = 20 * rng.standard_normal((len(label), SIZE, SIZE, 3), dtype=np.float32)
    for n, silhouette in enumerate(SILHOUETTES):
        here = label == n
        image[here] += np.where(silhouette(x[here], y[here])[..., None], front[here], back[here])
    return np.clip(image, 0, 255).astype(np.uint8), label


def gratings(directory, split):
    """Stripes from upright to level in steps of 10 degrees, leaning left or right: mirrored they are the same class."""
    rng, label, g, j = drawn(split, 2)
    turn, waves, phase, contrast = (rng.uniform(*span, size=(len(label), 1, 1)) for span in (
        (-0.03, 0.03), (0.5, 1.2), (0, 2 * np.pi), (30, 90)))
    angle = (label * rng.choice((-1, 1), size=len(label)))[:, None, None] * (np.pi / 18) + turn
    wave = np.sin(waves * (j * np.cos(angle) + g * np.sin(angle)) + phase)
    grey = 128 + contrast * wave + rng.normal(0, 30, size=wave.shape)
    return in_colour(np.clip(grey, 0, 255).astype(np.uint8)), label


SETS = {f.__name__: f for f in (cifar10, fashion_mnist, svhn, folders, digits, shapes, gratings)}


@lru_cache(maxsize=8)
def load(name, split, directory=""):
    """The Images of a set; archives are looked for in `directory` (for folders it is the zip itself).

    Raises ValueError, one line, for an unknown set or split, an archive that is missing, damaged or of other pictures.

    >>> images = load("gratings", "test")
    >>> images.image.shape, images.image.dtype.name, sorted(set(images.label.tolist()))
    ((600, 32, 32, 3), 'uint8', [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    check_choice("images", name, tuple(SETS))
    check_choice("split", split, SPLITS)
    image, label = SETS[name](directory, split)
    source = f"{directory or name}, {split}"
    return frozen(checked_images(np.ascontiguousarray(image), label.astype(np.int64), source))


def checked_images(image, label, source):
    """Images of these arrays.  Raises ValueError naming the source for other shapes, or labels out of range."""
    if image.shape != (len(label), SIZE, SIZE, 3) or image.dtype != np.uint8 or not len(label):
        raise ValueError(f"{source} has images of shape {image.shape} and {image.dtype} for {len(label)} labels; "
                         f"allowed: ({len(label) or 'n'}, {SIZE}, {SIZE}, 3) and uint8")
    if label.min() < 0 or label.max() >= CLASSES:
        raise ValueError(f"{source} has labels from {label.min()} to {label.max()}; allowed: 0 to {CLASSES - 1}")
    return Images(image, label)


def augment(rng, image):
    """Every image in a black frame of 4, cut out again somewhere, and mirrored left to right with probability 1/2.

    Shapes: image (b, 32, 32, 3) uint8, returns the same.  Source: C, appendix C.4 and the authors' code, digits too.
    """
    pad, side = 4, image.shape[1]
    framed = np.pad(image, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    places = rng.integers(2 * pad + 1, size=(len(image), 2)).tolist()
    mirrored = (rng.random(len(image)) < 0.5).tolist()
    cut = np.empty_like(image)
    for n, ((top, left), mirror) in enumerate(zip(places, mirrored, strict=True)):
        cut[n] = framed[n, top:top + side, left:left + side][:, ::-1 if mirror else 1]
    return cut
