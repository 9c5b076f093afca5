"""Text as token ids: any file or directory of text, in three splits.

    bytes        a token for each byte; 256 of them
    characters   a token for each character of the training split, 0 for any other
    words        what stands between blanks, <eos> for a line's end; 0 is <unk>, for words that training does not have
    tokens       ids made elsewhere: a file of whole numbers written by numpy.save, one axis

Without a file: "documentation", the topics of the running Python's own help (prose), and "library", the sources of its
standard library.  Three or more files are divided by file: of an order by checksums of their names a twentieth, rounded
up, goes to validation and as many to test; fewer are joined and cut at 90 and 95 of 100.  Another text can be the test.
Ids are stored once, below `cache()`, under a checksum of the text, and memory-mapped from there.
Source: the corpora of H, C and R are not at hand; words and <eos> as in C's released code.
"""

import hashlib
import json
import os
import sys
import sysconfig
from collections import Counter
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..checks import check_choice, check_integer, check_numbers
from ..files import whole_file

__all__ = ["OWN", "SPLITS", "UNITS", "Corpus", "corpus"]

UNITS = "bytes", "characters", "words", "tokens"
SPLITS = "train", "validation", "test"
OWN = "documentation", "library"
UNKNOWN, END = "<unk>", "<eos>"
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}        # directories of "library"


class Corpus(NamedTuple):
    """A text as token ids, split by split."""
    unit: str
    ids: dict                  # split -> token ids, one axis, memory-mapped
    symbols: tuple             # of characters and words: the text of each id; empty for bytes and tokens
    vocabulary: int            # ids run from 0 below it
    unknown: dict              # split -> share of its tokens that are id 0: <unk> itself, and what has no id
    checksum: str              # of texts, unit and vocabulary
    words: str                 # what the text is, with versions

    def encode(self, text: str) -> np.ndarray:
        """Token ids of a text, which must be made of known symbols.  Raises ValueError naming the first unknown one."""
        if self.unit == "tokens":
            raise ValueError("the text was made into tokens elsewhere, so a prompt cannot be; allowed: other units")
        pieces = text.encode(errors="surrogateescape") if self.unit == "bytes" else _pieces(text, self.unit)
        known = range(256) if self.unit == "bytes" else _numbers(self.symbols)
        for piece in pieces:
            if piece not in known:
                raise ValueError(f"{piece!r} is not among the {self.vocabulary:,} {self.unit} of {self.words}; "
                                 f"allowed: texts of these")
        return np.array([known[piece] for piece in pieces], dtype=np.int64)

    def decode(self, ids) -> str:
        """The text of token ids; numbers with spaces between them where tokens were made elsewhere."""
        ids = [int(i) for i in ids]
        if self.unit == "tokens":
            return " ".join(map(str, ids))
        check_numbers("ids", ids, self.vocabulary)
        if self.unit == "bytes":
            return bytes(ids).decode("utf-8", errors="replace")
        text = [self.symbols[i] for i in ids]
        if self.unit == "characters":
            return "".join(text)
        return " ".join("\n" if x == END else x for x in text).replace(" \n", "\n").replace("\n ", "\n")


@lru_cache(maxsize=8)
def _numbers(symbols):
    return {symbol: number for number, symbol in enumerate(symbols)}


def _pieces(text, unit):
    return list(text) if unit == "characters" else text.replace("\n", f" {END} ").split()


def cache() -> Path:
    """Where token files are kept: refattn/ in XDG_CACHE_HOME, or in .cache of the home directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "refattn")


def found(text: str, option: str = "text", own=OWN) -> Path:
    """The file or directory of that name, here or in the directory REFATTN_DATA.  Raises ValueError without one."""
    for path in Path(text), Path(os.environ.get("REFATTN_DATA", "."), text):
        if text and path.exists():
            return path
    allowed = f"{', '.join(own)}, or a" if own else "a"
    raise ValueError(f"{option} is {text!r}; allowed: {allowed} file or directory that exists, here or in the "
                     "directory REFATTN_DATA (docs/experiments.md says where those of the scales are from)")


def documents(text: str, option: str = "text") -> dict[str, bytes]:
    """{name: content} of the files of a text, in order of name; of a directory not those of runs.

    Raises ValueError for an empty one.
    """
    if text == "documentation":
        from pydoc_data.topics import topics
        lines, kept = {name: {*words.splitlines()} - {""} for name, words in topics.items()}, []
        for name in sorted(topics, key=lambda name: (-len(topics[name]), name)):    # half of it stands in a longer one?
            if not any(2 * len(lines[name] & lines[other]) > len(lines[name]) for other in kept):
                kept.append(name)
        return {name: topics[name].encode() for name in sorted(kept)}
    if text == "library":
        root = Path(sysconfig.get_path("stdlib"))
        paths = [p for p in root.rglob("*.py") if not LEFT_OUT & set(p.relative_to(root).parts)]
    else:
        root = found(text, option)
        below = [p for p in root.rglob("*") if p.is_file() and not p.with_name("recipe.json").exists()]     # no runs
        paths = [root] if root.is_file() else below
    base = root if root.is_dir() else root.parent
    read = {p.relative_to(base).as_posix(): p.read_bytes() for p in sorted(paths)}
    if not any(read.values()):
        raise ValueError(f"{option} is {text!r}, which is empty; allowed: files with text in them")
    return read


def divided(files: dict[str, bytes]) -> dict[str, bytes]:
    """{split: content}: whole files in each, or, of fewer than three, the joined text cut after a line.

    A line that goes on for a twentieth of the text is cut where it is, between characters.
    """
    if len(files) > 2:
        share = -(-len(files) // 20)
        order = sorted(files, key=lambda name: hashlib.sha256(name.encode()).digest())
        parts = order[2 * share:], order[:share], order[share: 2 * share]
        return {split: b"\n".join(files[name] for name in sorted(names))
                for split, names in zip(SPLITS, parts, strict=True)}
    whole = b"\n".join(files.values())
    cuts = [0, *(_cut(whole, len(whole) * n // 20) for n in (18, 19)), len(whole)]
    return {split: whole[start:stop] for split, start, stop in zip(SPLITS, cuts, cuts[1:], strict=False)}


def _cut(whole, near):
    """Where to cut at about `near`: behind the end of a line, or else before a character of UTF-8."""
    behind = whole.find(b"\n", near, near + len(whole) // 20 - 4) + 1
    if behind:
        return behind
    places = range(near, max(near - 4, -1), -1)
    return next((place for place in places if whole[place] & 0xC0 != 0x80), near)


def _symbols(text, unit, most):
    """Id 0, then the symbols of the training text: characters in their order, words by how often they occur."""
    counts = Counter(_pieces(text, unit))
    first = UNKNOWN if unit == "words" else "\ufffd"
    counts.pop(first, None)
    ordered = sorted(counts, key=lambda word: (-counts[word], word)) if unit == "words" else sorted(counts)
    return (first, *(ordered[:most - 1] if most else ordered))


def _made(parts, unit, most, named):
    """(ids of all splits in a row, what else there is to know of them), from the texts; `named` are their files."""
    if unit == "bytes":
        symbols, ids = (), [np.frombuffer(parts[split], dtype=np.uint8) for split in SPLITS]
    else:
        for n, content in named.items():
            try:
                content.decode("utf-8")
            except UnicodeDecodeError as e:
                raise ValueError(f"{n} is not UTF-8 at byte {e.start:,}; allowed: unit bytes, or files of text") from e
        texts = [parts[split].decode("utf-8") for split in SPLITS]
        symbols = _symbols(texts[0], unit, most)
        number, kind = _numbers(symbols), np.min_scalar_type(len(symbols))
        ids = [np.array([number.get(piece, 0) for piece in _pieces(text, unit)], dtype=kind) for text in texts]
    unknown = {split: float((x == 0).mean()) for split, x in zip(SPLITS, ids, strict=True) if len(x) and symbols}
    return np.concatenate(ids), {"lengths": [len(x) for x in ids], "symbols": symbols, "unknown": unknown}


def _digest(ids, known):
    """SHA-256 of ids and of what else is known of them."""
    return hashlib.sha256(hashlib.sha256(ids).digest() + json.dumps(known).encode()).hexdigest()


def _stored(checksum, make):
    """What `make` returns, ids memory-mapped, from a file that is written once; made anew if that was damaged."""
    path, about = (cache() / f"{checksum[:32]}.{ending}" for ending in ("npy", "json"))
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = dict(json.loads(about.read_text(encoding="utf-8")))
        ids = np.lib.format.open_memmap(path, mode="r")
        if known.pop("sha256") == _digest(ids, known):
            return ids, known
    ids, known = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path, "wb") as file:
            np.save(file, ids)
        with whole_file(about) as file:
            file.write(json.dumps(known | {"sha256": _digest(ids, known)}))
        return np.load(path, mmap_mode="r"), known
    except OSError:                                         # nowhere to write: they stay in memory
        return ids, known


def _tokens(text, test):
    whole = {}
    for option, name in {"text": text, **({"test": test} if test else {})}.items():
        path = found(name, option, ())
        try:
            x = np.lib.format.open_memmap(path, mode="r")
        except (OSError, ValueError) as error:
            raise ValueError(f"{option} {name!r} is no file of numpy.save ({error})") from None
        if x.ndim != 1 or x.dtype.kind not in "iu" or not len(x) or x.min() < 0:
            raise ValueError(f"{option} {name!r} holds {x.dtype} of shape {x.shape}; allowed: one axis of 0, 1, ...")
        whole[option] = x
    if test and np.array_equal(whole["text"], whole["test"]):
        raise ValueError(f"test is {test!r}, which has all that text {text!r} has; allowed: another text")
    ids, n = whole["text"], len(whole["text"])
    cut, end = n * 18 // 20, n if test else n * 19 // 20    # where validation begins and ends
    parts = {"train": ids[:cut], "validation": ids[cut:end], "test": whole["test"] if test else ids[end:]}
    digest = hashlib.sha256(b"".join(hashlib.sha256(x).digest() for x in parts.values())).hexdigest()
    return Corpus("tokens", parts, (), 1 + max(int(x.max()) for x in whole.values()), {}, digest, f"tokens of {text}")


@lru_cache(maxsize=8)
def corpus(text: str, unit: str = "bytes", test: str = "", vocabulary: int = 0) -> Corpus:
    """The tokens of a text, and of another one as its test split if `test` names one, whose files the text then lacks.

    Then the files that would be the text's own test split, a twentieth of three files or more, are in no split; of
    fewer files that part is validated on.
    `vocabulary` is the greatest number of words, 0 for all.  A process reads a text once.  Raises ValueError for what
    is not there, empty, not UTF-8, or an unknown unit.

    >>> made = corpus("documentation", "characters")
    >>> made.decode(made.encode("The for statement")), min(map(len, made.ids.values())) > 1000
    ('The for statement', True)
    """
    check_choice("unit", unit, UNITS)
    vocabulary = check_integer("vocabulary", vocabulary, 0)
    if vocabulary and unit != "words":
        raise ValueError(f"vocabulary is {vocabulary:,}, but unit is {unit!r}; allowed: 0, or unit words")
    if unit == "tokens":
        return _tokens(text, test)
    tested = documents(test, "test") if test else {}
    files = {name: content for name, content in documents(text).items() if content not in tested.values()}
    if not files:
        raise ValueError(f"test is {test!r}, which has all that text {text!r} has; allowed: another text")
    parts = divided(files)
    if test:
        if len(files) < 3:
            parts["validation"] += parts["test"]
        parts["test"] = b"\n".join(tested.values())
    digest = hashlib.sha256(f"1 {unit} {vocabulary}".encode())
    for split in SPLITS:
        digest.update(hashlib.sha256(parts[split]).digest())
    named = {f"text is {text!r}, whose {file}": content for file, content in files.items()}
    named |= {f"test is {test!r}, whose {file}": content for file, content in tested.items()}
    ids, known = _stored(digest.hexdigest(), lambda: _made(parts, unit, vocabulary, named))
    ends, symbols = np.cumsum(known["lengths"]), tuple(known["symbols"])
    ids = dict(zip(SPLITS, np.split(ids, ends[:-1]), strict=True))
    version = f" of Python {sys.version.split()[0]}" if text in OWN else ""
    return Corpus(unit, ids, symbols, len(symbols) or 256, known["unknown"], digest.hexdigest(), f"{text}{version}")
