"""Datasets of the Hub without it: which files are asked for, what is read, what is said instead."""

from __future__ import annotations

import io
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import huggingface_hub
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants, errors
from huggingface_hub.utils import are_progress_bars_disabled  # type: ignore[attr-defined]
from PIL import Image

from oism.cli import main
from oism.data.files import TESTING, FileError, is_dataset_id, is_images, open_images
from oism.data.files._hub import PATIENCE
from oism.data.files._splits import are_whole, chosen, split_of

CIFAR = {
    "README.md": 0,
    "plain_text/test-00000-of-00001.parquet": 3,
    "plain_text/train-00000-of-00002.parquet": 5,
    "plain_text/train-00001-of-00002.parquet": 4,
}
SHA = "0" * 40


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, a folder to work in, and no network, whatever a test forgets."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("tests use no network")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "cache"


def write_shard(path: Path, count: int, value: int = 0) -> None:
    """Write grey images of two pixels, numbered from a value on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = []
    for k in range(count):
        sink = io.BytesIO()
        Image.fromarray(np.full((1, 2), value + k, np.uint8)).save(sink, "png")
        cells.append({"bytes": sink.getvalue(), "path": None})
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    pq.write_table(pa.table({"img": pa.array(cells, kind)}), path)


def write_dataset(folder: Path, files: dict[str, int]) -> None:
    """Write the shards of a dataset; their images are numbered through, in the order of files."""
    value = 0
    for name, count in files.items():
        if name.endswith(".parquet"):
            write_shard(folder / name, count, value)
        value += count


def numbers(**options: Any) -> list[int]:
    """The numbers of the images that are read."""
    return [int(x) for batch in open_images(**options) for x in batch[:, 0, 0, 0]]


class Hub:
    """A hub with one dataset; it notes what it is asked for."""

    def __init__(self, folder: Path, name: str, files: dict[str, int]) -> None:
        self.folder, self.name, self.files = folder, name, files
        self.asked: list[tuple[str, object]] = []
        self.bars = False
        write_dataset(folder, files)

    def dataset_info(self, name: str, *, timeout: float) -> object:
        self.asked.append((name, timeout))
        if name != self.name:
            raise http_error(errors.RepositoryNotFoundError)
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=one) for one in self.files])

    def snapshot_download(self, name: str, **options: object) -> str:
        self.asked.append((name, options))
        self.bars = not are_progress_bars_disabled()
        return str(self.folder)


def http_error(kind: type[Exception]) -> Exception:
    """An error as the client raises it, whatever else its constructor wants."""
    error = kind.__new__(kind)
    error.args = ("404 Client Error.\n\nwith more\nlines",)
    return error


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Hub]:
    """Put up a hub with one dataset."""

    def up(files: dict[str, int] = CIFAR, name: str = "uoft-cs/cifar10") -> Hub:
        made = Hub(tmp_path / "snapshot", name, files)
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: made)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", made.snapshot_download)
        return made

    return up


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let the client's request fail; its cache is still looked at."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", fail)


def refusal(path: str, **options: Any) -> str:
    with pytest.raises(FileError) as caught:
        open_images(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Names


@pytest.mark.parametrize(
    "name", ["uoft-cs/cifar10", "hf://uoft-cs/cifar10", "a/b", "o_1/x.v2-3", "hf://", "data/train"]
)
def test_ids(name: str) -> None:
    assert is_dataset_id(name)
    assert is_images(name)


@pytest.mark.parametrize(
    "name",
    ["cifar10", "-", "", "/a/b", "./a", "../a", "a/b/c", "a/", "~/a", "a--b/c", "a/b..c", "a/b-",
     "a b/c", "a/nowhere.npy", "a/x.CSV.gz", "a/x.parquet", "a/x.PNG", "s3://a/b", "é/b",
     "a/" + 95 * "b"],
)  # fmt: skip
def test_other_names_are_paths(name: str) -> None:
    assert not is_dataset_id(name)
    assert not is_images(name)


def test_what_is_there_is_no_id(tmp_path: Path) -> None:
    write_shard(Path("data/train/0.parquet"), 2)
    assert not is_dataset_id("data/train")
    assert numbers(path="data/train") == [0, 1]


@pytest.mark.parametrize("name", ["hf://cifar10", "hf://", "hf://models/a/b/c", "hf://a--b/c"])
def test_addresses_that_are_no_ids(name: str) -> None:
    assert refusal(name) == f"{name}: expected hf://OWNER/NAME, the id of a dataset"


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("data/train-00000-of-00005.parquet", "train"),
        ("train-00000-of-00001-566cc9b19d7203f8.parquet", "train"),
        ("cfg/extra_2-00000-of-00005.parquet", "extra_2"),
        ("valid-00000-of-00005.parquet", "validation"),
        ("train.parquet", "train"),
        ("train1.parquet", "train"),
        ("Training_01.pq", "train"),
        ("cifar10-test.parquet", "test"),
        ("eval.parquet", "test"),
        ("dev/x/0001.parquet", "validation"),
        ("test/train.parquet", "train"),
        ("trains.parquet", None),
        ("contest.parquet", None),
        ("0000.parquet", None),
        ("partial-train/0000.parquet", None),
    ],
)
def test_splits_of_names(name: str, split: str | None) -> None:
    assert split_of(name) == split


# The Hub


@pytest.mark.parametrize(
    "name", ["uoft-cs/cifar10", "hf://uoft-cs/cifar10", "hf://datasets/uoft-cs/cifar10"]
)
def test_a_split_is_downloaded_and_read(hub: Callable[..., Hub], name: str) -> None:
    own = hub()
    images = open_images(name)
    assert (images.source, images.split, len(images)) == (name, "train", 9)
    assert numbers(path=name) == [3, 4, 5, 6, 7, 8, 9, 10, 11]
    first, second = own.asked[:2]
    assert first == ("uoft-cs/cifar10", PATIENCE)
    wanted = [one for one in CIFAR if "train" in one]
    assert second == (
        "uoft-cs/cifar10",
        {"repo_type": "dataset", "allow_patterns": wanted, "local_files_only": False},
    )
    assert numbers(path=name, split="test") == [0, 1, 2]
    assert numbers(path=name, split=TESTING) == [0, 1, 2]


@pytest.mark.parametrize(
    ("files", "split", "expected"),
    [
        ({"data/train-00000-of-00001.parquet": 2}, TESTING, ("train", [0, 1])),
        ({"train-00000-of-00001.parquet": 2, "val-00000-of-00001.parquet": 1}, TESTING,
         ("validation", [2])),
        ({"data/0.parquet": 2, "data/1.parquet": 1}, ("train",), (None, [0, 1, 2])),
        ({"data/extra-00000-of-00001.parquet": 2}, ("train",), ("extra", [0, 1])),
        ({"data/train-00000-of-00001.parquet": 1, "notes.parquet": 1}, "training", ("train", [0])),
    ],
)  # fmt: skip
def test_layouts(
    hub: Callable[..., Hub],
    files: dict[str, int],
    split: str | tuple[str, ...],
    expected: tuple[str | None, list[int]],
) -> None:
    hub(files)
    found = open_images("uoft-cs/cifar10", split=split)
    assert (found.split, numbers(path="uoft-cs/cifar10", split=split)) == expected


@pytest.mark.parametrize(
    ("files", "split", "message"),
    [
        (CIFAR, "val", "there is no split 'val', only 'test', 'train'"),
        ({"a.zip": 1}, "train", "the dataset has no Parquet files; a local folder"),
        ({"0.parquet": 1}, "train", "no split 'train', and no Parquet file is named by one"),
        ({"extra-00000-of-00001.parquet": 1, "test.parquet": 1}, ("train",),
         "there is more than one split, choose with --split: 'extra', 'test'"),
        ({"train.parquet": 1, "notes.parquet": 1}, ("train",),
         "some Parquet files are named by a split, 'train', and notes.parquet is not: --split"),
        ({"a/train.parquet": 1, "b/train.parquet": 1}, ("train",),
         "the Parquet files lie in 2 folders, a, b; download one of them, and give its path"),
    ],
)  # fmt: skip
def test_a_split_that_cannot_be_chosen(
    hub: Callable[..., Hub], files: dict[str, int], split: str | tuple[str, ...], message: str
) -> None:
    own = hub(files)
    error = refusal("uoft-cs/cifar10", split=split)
    assert error.startswith("uoft-cs/cifar10: ")
    assert message in error
    assert len(own.asked) == 1, "nothing is downloaded"


def test_bars_are_those_of_this_library(hub: Callable[..., Hub]) -> None:
    own = hub()
    before = are_progress_bars_disabled()
    open_images("uoft-cs/cifar10")
    assert not own.bars, "there is no terminal here"
    assert are_progress_bars_disabled() == before


# What keeps a dataset away

REACHED = "the Hub could not be reached, and its cache does not hold the dataset"
LOCAL = "a local folder of images or a Parquet file does as well"


@pytest.mark.parametrize(
    "error", [OSError("no route"), ConnectionError("no\nroute"), KeyError("no route")]
)
def test_without_a_network(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    failing(monkeypatch, error)
    for path, here in (("data/train", "no such file or folder here; "), ("hf://data/train", "")):
        text = refusal(path)
        assert text.startswith(f"{path}: {here}{REACHED}; {LOCAL} (")
        assert "no route" in text


def test_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with HF_HUB_OFFLINE=1, by the client itself."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    error = refusal("uoft-cs/cifar10")
    assert REACHED in error
    assert "offline mode is enabled" in error


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (errors.RepositoryNotFoundError, "the Hub has no dataset of this id, or a private one"),
        (errors.GatedRepoError, "the dataset is gated: accept its conditions on its page"),
    ],
)
def test_unknown_private_and_gated(
    monkeypatch: pytest.MonkeyPatch,
    hub: Callable[..., Hub],
    kind: type[Exception],
    message: str,
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise http_error(kind)

    failing(monkeypatch, http_error(kind))
    assert refusal("own/name").startswith(f"own/name: no such file or folder here; {message}")
    hub()  # what a dataset holds may be public, and its files may not
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    assert message in refusal("uoft-cs/cifar10")


def test_a_download_that_breaks_off(
    monkeypatch: pytest.MonkeyPatch, hub: Callable[..., Hub]
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError("no space left")

    hub()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    error = refusal("hf://uoft-cs/cifar10")
    assert error == f"hf://uoft-cs/cifar10: the download failed; {LOCAL} (no space left)"


# The cache, as the client keeps it


def keep(cache: Path, files: dict[str, int]) -> None:
    place = cache / "datasets--uoft-cs--cifar10"
    write_dataset(place / "snapshots" / SHA, files)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(SHA)


@pytest.mark.parametrize("offline", [True, False])
def test_the_cache_is_read_without_a_network(
    cache: Path, monkeypatch: pytest.MonkeyPatch, offline: bool
) -> None:
    if offline:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    else:
        failing(monkeypatch, OSError("no route"))
    keep(cache, CIFAR)
    assert numbers(path="uoft-cs/cifar10") == [3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert numbers(path="hf://uoft-cs/cifar10", split=TESTING) == [0, 1, 2]
    error = refusal("uoft-cs/cifar10", split="val")
    assert "in the cache, and the Hub could not be asked: there is no split 'val', only" in error
    assert REACHED in refusal("uoft-cs/cifar100")


def test_what_the_cache_holds_of_a_dataset_may_not_be_all(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, OSError("no route"))
    keep(cache, {one: count for one, count in CIFAR.items() if "00001-of-00002" not in one})
    assert REACHED in refusal("uoft-cs/cifar10"), "one of two shards"
    assert numbers(path="uoft-cs/cifar10", split="test") == [0, 1, 2]
    for path in (cache / "datasets--uoft-cs--cifar10" / "snapshots" / SHA).glob("*/train*"):
        path.unlink()
    assert "there is no split 'train', only 'test'" in refusal("uoft-cs/cifar10")
    for path in (cache / "datasets--uoft-cs--cifar10" / "snapshots" / SHA).glob("*/*"):
        path.unlink()
    assert "the dataset has no Parquet files in the cache, and the Hub could not be asked" in (
        refusal("uoft-cs/cifar10")
    )


def test_shards_are_counted() -> None:
    assert are_whole(["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"])
    assert are_whole(["0.parquet", "1.parquet"])
    assert not are_whole(["train-00000-of-00002.parquet"])


# Splits of local folders


def test_a_folder_is_read_split_by_split() -> None:
    write_dataset(Path("cifar"), {"test.parquet": 2, "train-1.parquet": 1, "train-2.parquet": 2})
    assert open_images("cifar").split == "train"
    assert numbers(path="cifar") == [2, 3, 4]
    assert numbers(path="cifar", split="test") == numbers(path="cifar", split=TESTING) == [0, 1]
    assert refusal("cifar", split="val") == ("cifar: there is no split 'val', only 'test', 'train'")
    write_dataset(Path("plain"), {"b.parquet": 2, "a.parquet": 1})
    assert open_images("plain").split is None
    assert numbers(path="plain") == [2, 0, 1]
    assert "no Parquet file is named by one" in refusal("plain", split="train")
    with pytest.raises(FileError, match="some Parquet files are named by a split, 'test', and 0"):
        chosen(["0.parquet", "test.parquet"], ("train",), "x")


def test_only_folders_have_splits() -> None:
    write_shard(Path("train.parquet"), 2)
    Path("images").mkdir()
    Image.new("L", (2, 2)).save("images/a.png")
    np.save("a.npy", np.zeros((2, 3, 3), np.uint8))
    for path in ("train.parquet", "a.npy"):
        assert refusal(path, split="test") == f"{path}: a file has no splits to choose 'test' from"
        assert open_images(path).split is None
    assert "a folder of images has no splits" in refusal("images", split="train")


def test_a_folder_of_images_is_read_split_by_split() -> None:
    places = ("train/dog", "train/cat", "Test/dog", "Test/cat", "val/dog")
    for value, place in enumerate(places):
        Path("root", place).mkdir(parents=True)
        # The name of an image names no split.
        Image.fromarray(np.full((2, 2), value, np.uint8)).save(f"root/{place}/test_1.png")
    expected: dict[str | tuple[str, ...], list[int]] = {
        "train": [1, 0],
        "test": [3, 2],
        "valid": [4],
        TESTING: [3, 2],
    }
    for split, values in expected.items():
        images = open_images("root", split=split)
        assert np.concatenate(list(images))[:, 0, 0, 0].tolist() == values
        assert images.labels().names == (("dog",) if split == "valid" else ("cat", "dog"))
        assert images.labels().numbers.tolist() == list(range(len(values)))
    assert (open_images("root").split, len(open_images("root"))) == ("train", 2)
    assert refusal("root", split="extra") == (
        "root: there is no split 'extra', only 'test', 'train', 'validation'"
    )
    Image.new("L", (2, 2)).save("root/x.png")
    assert "some folders are named by a split, 'test', 'train', 'validation', and x.png is not" in (
        refusal("root")
    )
    assert len(open_images("root", split="test")) == 2


def test_a_class_may_be_named_like_a_split() -> None:
    for place in ("car", "train"):
        Path("vehicles", place).mkdir(parents=True)
        Image.new("L", (2, 2)).save(f"vehicles/{place}/1.png")
    images = open_images("vehicles")
    assert (images.split, images.labels().names) == (None, ("car", "train"))
    assert "has no splits to choose 'train' from, unless" in refusal("vehicles", split="train")


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    message = r"^a dataset of the Hub needs huggingface-hub: pip install 'oism\[images\]'$"
    with pytest.raises(ModuleNotFoundError, match=message):
        open_images("uoft-cs/cifar10")


# The command


def run(capsys: pytest.CaptureFixture[str], words: str) -> tuple[int, str, str]:
    code = main(words.split())
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_fit_and_evaluate(hub: Callable[..., Hub], capsys: pytest.CaptureFixture[str]) -> None:
    hub({"train-00000-of-00001.parquet": 40, "test-00000-of-00001.parquet": 9})
    code, out, err = run(capsys, "fit-images uoft-cs/cifar10 --order 2 -o m")
    assert code == 0, err
    assert out.startswith("40 images of the split train fitted in ")
    code, out, _ = run(capsys, "evaluate m uoft-cs/cifar10 --no-bits --levels 0.5")
    assert out.startswith("9 images of 1 × 1 × 2 of the split test evaluated\n")
    code, out, _ = run(capsys, "evaluate m hf://uoft-cs/cifar10 --split train --no-bits --json")
    assert '"split": "train",\n  "images": 40' in out
    code, out, _ = run(capsys, "fit-images hf://uoft-cs/cifar10 --split test --order 2 -o n --json")
    assert '"split": "test",\n  "images": 9' in out
    code, _, err = run(capsys, "fit-images uoft-cs/cifar10 --split val -o m")
    assert (code, err) == (
        1,
        "oism: error: uoft-cs/cifar10: there is no split 'val', only 'test', 'train'\n",
    )


def test_misspelt_paths(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, OSError("no route"))
    code, _, err = run(capsys, "fit-images data/train -o m")
    assert code == 1
    assert f"data/train: no such file or folder here; {REACHED}; {LOCAL}" in err
    assert err.count("\n") == 1
    code, _, err = run(capsys, "fit data/table --periodic 360 -o m")
    assert (code, err) == (1, "oism: error: data/table: no such file or directory\n")
    code, _, err = run(capsys, "fit hf://data/table --periodic 360 -o m")
    assert (code, "hf://data/table: holds images" in err) == (1, True)
