"""Text as token ids: splits, units, windows, files that are written once, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from refattn import cli
from refattn.recipes import recipe
from refattn.tasks import text, text_windows
from refattn.train import fit


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """Token files of these tests, in a directory of each."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text.corpus.cache_clear()
    yield
    text.corpus.cache_clear()


def write(path, content="one two\ntwo three\n" * 40):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def saved(path, ids):
    np.save(path, ids)
    return str(path)


def test_a_token_file_that_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(file, ids):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    assert text.corpus(write(tmp_path / "a.txt")).ids["train"].size and not list((tmp_path / "cache").rglob("*.*"))


def test_an_evaluation_has_as_many_windows_at_a_time_as_are_asked_for(tmp_path):
    r = recipe("text", text=write(tmp_path / "a.txt"), length=8, context=4, longest=16, chunks=6, position="alibi",
               batch=4, evaluation_batch=3)
    sizes = {split: [size for size, _ in r.batches(split, 1_000)] for split in ("train", "times_1", "times_2")}
    count = len(text_windows.windows(r.corpus().ids["train"], 8, 4).tokens)
    assert sizes == {"train": [3] * (count // 3) + [count % 3], "times_1": [3] * 4, "times_2": [1] * 6} and count % 3
    one = replace(r, evaluation_batch=1)                    # of the longer windows, which cost more, no fewer
    assert [size for size, _ in one.batches("times_2", 1_000)] == [1] * 6


@pytest.mark.parametrize("unit", ["bytes", "characters", "words"])
def test_texts_of_splits_join_to_the_whole_and_come_back(tmp_path, unit):
    content = "".join(f"word{n % 7} 'é' last\n" for n in range(90))
    made = text.corpus(write(tmp_path / "a.txt", content), unit)
    back = "".join(made.decode(made.ids[split]) for split in text.SPLITS)
    assert (back if unit != "words" else back.replace(" <eos>", "\n").replace("\n", " ").split()) == (
        content if unit != "words" else content.split())
    sizes = [len(made.ids[split]) for split in text.SPLITS]
    assert sizes[0] > 8 * sizes[1] > 0 and abs(sizes[1] - sizes[2]) < sum(sizes) / 30
    assert made.vocabulary > max(int(ids.max()) for ids in made.ids.values())


def test_files_are_divided_whole_and_alike_on_every_machine(tmp_path):
    for n in range(30):
        write(tmp_path / f"{n:02}.txt", f"<{n}>\n" * 5)
    made = text.corpus(str(tmp_path))
    names = {split: {line for line in made.decode(ids).split("\n") if line} for split, ids in made.ids.items()}
    assert {split: len(found) for split, found in names.items()} == {"train": 26, "validation": 2, "test": 2}
    assert len(set.union(*names.values())) == 30
    assert names["validation"] == {"<18>", "<20>"}          # by the checksum of the name
    assert made.words == str(tmp_path) and text.corpus("documentation").words.startswith("documentation of Python 3.")


def test_hardly_a_line_of_the_documentation_that_is_held_out_is_trained_on():
    made = text.corpus("documentation", "bytes")
    whole = {split: ids.astype(np.uint8).tobytes() for split, ids in made.ids.items()}
    for split in "validation", "test":
        windows = [whole[split][n:n + 64] for n in range(0, len(whole[split]) - 64, 16)]
        assert len(windows) > 100 and sum(x in whole["train"] for x in windows) < 0.02 * len(windows)


def test_runs_below_a_directory_of_text_are_no_text(tmp_path):
    write(tmp_path / "a.txt")
    before = text.documents(str(tmp_path))
    (tmp_path / "runs" / "one").mkdir(parents=True)
    for name in "recipe.json", "metrics.jsonl":
        (tmp_path / "runs" / "one" / name).write_text("{}", encoding="utf-8")
    assert text.documents(str(tmp_path)) == before != {}


def test_words_that_training_lacks_are_unknown_and_counted(tmp_path):
    train, other = write(tmp_path / "a.txt"), write(tmp_path / "b.txt", "one new <unk> three\n")
    made = text.corpus(train, "words", other)
    assert made.symbols == ("<unk>", "<eos>", "two", "one", "three")
    assert made.ids["test"].tolist() == [3, 0, 0, 4, 1] and made.unknown["test"] == 0.4
    few = text.corpus(train, "words", other, 3)
    assert few.symbols == ("<unk>", "<eos>", "two") and few.checksum != made.checksum


def test_tokens_are_stored_once_and_a_damaged_file_is_made_again(tmp_path, monkeypatch):
    file = write(tmp_path / "a.txt")
    one = text.corpus(file, "words")
    path, = text.cache().glob("*.npy")
    assert isinstance(one.ids["train"], np.memmap) or isinstance(one.ids["train"].base, np.memmap)
    monkeypatch.setattr(text, "_made", None)                # not called: the file is there
    text.corpus.cache_clear()
    assert np.array_equal(text.corpus(file, "words").ids["test"], one.ids["test"])
    monkeypatch.undo()
    expected = one.ids["train"].tolist()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    text.corpus.cache_clear()
    assert text.corpus(file, "words").ids["train"].tolist() == expected
    about, = text.cache().glob("*.json")
    right = about.read_bytes()
    for suffix, damage in (("npy", b""), ("json", b""), ("json", b"[]"), ("json", b"3"),
                           ("json", right.replace(b'"lengths"', b'"lengthz"')),
                           ("json", right.replace(b'"lengths": [', b'"lengths": [1, ')),
                           ("json", right.replace(b'"three"', b'"there"'))):
        for path in text.cache().glob(f"*.{suffix}"):
            assert path.read_bytes() != damage
            path.write_bytes(damage)
        text.corpus.cache_clear()
        again = text.corpus(file, "words")
        assert again.ids["train"].tolist() == expected and again.symbols == one.symbols
    assert about.read_bytes() == right


def test_a_word_that_has_the_end_of_a_line_in_it_stays_whole(tmp_path):
    made = text.corpus(write(tmp_path / "a.txt", "a b<eos>c d\n" * 60), "words")
    assert made.decode(made.encode("a b<eos>c d\na")) == "a b<eos>c d\na"


def test_two_files_are_cut_after_a_line_of_the_joined_text(tmp_path):
    write(tmp_path / "a.txt", "line\n" * 50)
    write(tmp_path / "b.txt", "last\n" * 50)
    made = text.corpus(str(tmp_path))
    assert {split: made.decode(ids).count("last") for split, ids in made.ids.items()} == {
        "train": 40, "validation": 5, "test": 5}


@pytest.mark.parametrize("content", ["\n" + "ä€" * 41, ("word " * 40 + "\n") * 8, "\n" + "x€y" * 99, "word " * 50])
@pytest.mark.parametrize("unit", text.UNITS[:3])
def test_long_lines_are_cut_between_characters_and_leave_something_for_every_split(tmp_path, content, unit):
    made = text.corpus(write(tmp_path / "a.txt", content), unit)
    assert min(len(ids) for ids in made.ids.values()) > 1 or unit == "words" and len(content.split()) == 1
    if unit != "words":
        assert "".join(made.decode(made.ids[split]) for split in text.SPLITS) == content


def test_ids_made_elsewhere(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(100, dtype=np.uint16) % 50)
    made = text.corpus(str(tmp_path / "a.npy"), "tokens")
    assert made.vocabulary == 50 and [len(made.ids[s]) for s in text.SPLITS] == [90, 5, 5]
    assert made.decode(made.ids["validation"]) == "40 41 42 43 44"
    longer = text.corpus(str(tmp_path / "a.npy"), "tokens", saved(tmp_path / "b.npy", np.array([3, 70])))
    assert longer.vocabulary == 71 and longer.ids["test"].tolist() == [3, 70]


def test_samples_are_windows_of_the_text():
    ids = np.arange(100, dtype=np.uint8)
    drawn = text_windows.sample(np.random.default_rng(0), ids, 500, 97)
    assert drawn.tokens.dtype == np.int64 and (drawn.target == drawn.tokens + 1).all() and drawn.weight.all()
    assert set(drawn.tokens[:, 0]) == {0, 1, 2}


@pytest.mark.parametrize("make, words", [
    (lambda d: text.corpus("nowhere.txt"), "text is 'nowhere.txt'; allowed: documentation, library, or a file or"),
    (lambda d: text.corpus(write(d / "a", "")), "which is empty"),
    (lambda d: text.corpus(str(d / "none")), "a file or directory that exists"),
    (lambda d: text.corpus(write(d / "a"), "bytes", "nowhere.txt"), "test is 'nowhere.txt'; allowed: documentation"),
    (lambda d: text.corpus(write(d / "a"), "bytes", write(d / "b", "")), "test is '"),
    (lambda d: text.corpus(saved(d / "a.npy", [3, 1]), "tokens", "none.npy"), "test is 'none.npy'; allowed: a file"),
    (lambda d: text.corpus(write(d / "a", b"\xff\xfe" * 9), "characters"), "not UTF-8 at byte 0; allowed:"),
    (lambda d: text.corpus(write(d / "a", b"x\n" * 9), "words", write(d / "b", b"y\xff\n" * 9)),
     "b', whose b is not UTF-8 at byte 1; allowed:"),
    (lambda d: text.corpus(write(d / "a"), "letters"), "unit is 'letters'; allowed: bytes, characters, words"),
    (lambda d: text.corpus(write(d / "a"), "bytes", "", 9), "vocabulary is 9, but unit is 'bytes'"),
    (lambda d: text.corpus(write(d / "a"), "words", "", -1), "vocabulary is -1; allowed: whole"),
    (lambda d: text.corpus(write(d / "a"), "tokens"), "is no file of numpy.save"),
    (lambda d: text.corpus(write(d / "a", b""), "tokens"), "is no file of numpy.save"),
    (lambda d: np.savez(d / "a.npz", np.arange(9)) or text.corpus(str(d / "a.npz"), "tokens"), "no file of numpy.save"),
    (lambda d: text.corpus(saved(d / "a.npy", [3, 1]), "tokens", write(d / "b")), "test '"),
    (lambda d: text.corpus(saved(d / "a.npy", [3, 1]), "tokens", saved(d / "b.npy", [-1])), "test '"),
    (lambda d: text.corpus(saved(d / "a.npy", [3, 1]), "tokens", saved(d / "b.npy", [3, 1])), "has all that text '"),
    (lambda d: recipe("text", text=write(d / "a", "x" * 30), length=4).corpus(), "validation split has 1 tokens; all"),
    (lambda d: text.corpus(write(d / "a"), "characters").encode("one 7"), "'7' is not among the 10 characters of"),
    (lambda d: text.corpus(write(d / "a"), "words").encode("one four"), "'four' is not among the 5 words of"),
    (lambda d: text.corpus(write(d / "a")).decode([300]), "ids has 300 to 300; allowed: 0 to 255"),
    (lambda d: text.corpus(saved(d / "a.npy", [3, -1, 2]), "tokens"), "holds int64 of shape (3,); allowed: one axis"),
    (lambda d: text_windows.sample(np.random.default_rng(0), np.arange(9), 2, 9), "length is 9; allowed: numbers"),
    (lambda d: text_windows.sample(np.random.default_rng(0), np.arange(9), 2, 0), "length is 0; allowed: whole"),
    (lambda d: text_windows.windows(np.arange(9), 4, 4), "context is 4; allowed: whole numbers from 0 to 3"),
    (lambda d: text_windows.windows(np.arange(9), 0), "length is 0; allowed: whole numbers of at least 1"),
])
def test_bad_input_gets_one_line(tmp_path, make, words):
    with pytest.raises(ValueError) as error:
        make(tmp_path)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_file_of_the_test_is_not_trained_on(tmp_path):
    for n in range(6):
        write(tmp_path / f"{n}.txt", f"common text {n}\n" * 20)
    write(tmp_path / "test.txt", "SECRET\n" * 9)
    made = text.corpus(str(tmp_path), "bytes", str(tmp_path / "test.txt"))
    said = {split: made.decode(ids) for split, ids in made.ids.items()}
    assert set(said["test"]) == set("SECRET\n") and "SECRET" not in said["train"] + said["validation"]
    kept = sum(f"common text {n}" in said["train"] + said["validation"] for n in range(6))
    assert kept == 5                     # the sixth would have been the text's own test
    with pytest.raises(ValueError, match="which has all that text"):
        text.corpus(str(tmp_path / "test.txt"), "bytes", str(tmp_path / "test.txt"))


@pytest.mark.parametrize("unit", ["bytes", "tokens"])
def test_a_text_without_a_name_is_not_the_working_directory(unit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.txt")
    own = "" if unit == "tokens" else "documentation, library, or "
    with pytest.raises(ValueError, match=f"^text is ''; allowed: {own}a file or directory that exists"):
        text.corpus("", unit)


def test_windows_are_numbered_from_zero_on():
    """A negative number gave a window that began at the end of the text and went on at its beginning."""
    with pytest.raises(ValueError, match="first is -1; allowed: whole numbers of at least 0"):
        text_windows.windows(np.arange(9), 4, 2, -1)


@pytest.mark.parametrize("unit", ["bytes", "characters", "words"])
def test_a_run_goes_on_with_the_text_that_it_began_with_or_not_at_all(unit, tmp_path, capsys):
    """Of a text that has changed, ids of words stand for other words, and no shape of an array says so."""
    file = write(tmp_path / "a.txt")
    small = {"width": 4, "heads": 1, "layers": 1, "length": 4, "steps": 2, "warmup": 0, "evaluation": 2, "probe": 2}
    chosen = recipe("text", attention="softmax", text=file, unit=unit, **small)
    run = tmp_path / chosen.name
    fit(chosen, run, progress=False)
    assert cli.main(["write", str(run), "one two", "--tokens", "2"]) == 0
    write(tmp_path / "a.txt", "one two\ntwo thyee\n" * 40)
    text.corpus.cache_clear()
    (run / "result.json").unlink()
    capsys.readouterr()
    if unit == "bytes":                                     # which mean the same in every text
        assert cli.main(["write", str(run), "one two", "--tokens", "2"]) == 0
    for words in [["write", str(run), "one two"]][unit == "bytes":] + [["train", "--resume", str(run)]]:
        assert cli.main(words) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "was trained on text '" in said and "but now there is text '" in said
    write(tmp_path / "a.txt")
    text.corpus.cache_clear()
    assert cli.main(["train", "--resume", str(run)]) == 0


def test_the_unknown_word_of_a_text_is_number_0(tmp_path):
    made = text.corpus(write(tmp_path / "t.txt", "a <unk> b\n" * 60), "words")
    assert made.symbols == ("<unk>", "<eos>", "a", "b") and made.unknown["train"] == pytest.approx(0.25, abs=0.01)


def test_one_token_has_no_window():
    assert text_windows.windows_of(1, 4) == 0 and text_windows.windows(np.arange(1), 4).tokens.shape == (0, 4)


def test_beside_another_test_all_that_is_not_trained_on_is_validated_on(tmp_path):
    one, other = (saved(tmp_path / f"{n}.npy", np.arange(n) % 7) for n in (40, 9))
    made = text.corpus(one, "tokens", other)
    assert [len(x) for x in made.ids.values()] == [36, 4, 9]
