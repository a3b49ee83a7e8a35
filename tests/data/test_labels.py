"""Labels of images in files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from oism.data.files import FileError, open_images


def png(value: int) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(np.full((4, 4), value, np.uint8)).save(sink, "png")
    return sink.getvalue()


def folders(place: Path, **classes: int) -> str:
    value = 0
    for name, count in classes.items():
        (place / name).mkdir(parents=True, exist_ok=True)
        for k in range(count):
            (place / name / f"{k}.png").write_bytes(png(value))
            value += 1
    return str(place)


def test_folders_are_classes(tmp_path: Path) -> None:
    images = open_images(folders(tmp_path / "images", dog=2, cat=3))
    found = images.labels()
    assert found.names == ("cat", "dog")
    assert found.numbers.tolist() == [0, 0, 0, 1, 1]
    assert np.concatenate(list(images))[:, 0, 0, 0].tolist() == [2, 3, 4, 0, 1]


@pytest.mark.parametrize(
    ("counts", "names", "numbers"),
    [
        ({"data/dog": 1, "data/cat": 2}, ("cat", "dog"), [0, 0, 1]),
        ({"cat": 1, "dog/old": 1, "dog": 1}, ("cat", "dog"), [0, 1, 1]),
        ({"n01/images": 1, "n02/images": 2}, ("n01", "n02"), [0, 1, 1]),
        ({"only": 2}, ("only",), [0, 0]),
        ({"train/cat": 1, "train/dog": 1, "test/dog": 1}, ("cat", "dog"), [0, 1]),
    ],
)
def test_the_class_is_the_first_folder_that_differs(
    counts: dict[str, int], names: tuple[str, ...], numbers: list[int], tmp_path: Path
) -> None:
    found = open_images(folders(tmp_path / "root", **counts)).labels()
    assert (found.names, found.numbers.tolist()) == (names, numbers)


def test_folders_that_are_no_classes_are_named(tmp_path: Path) -> None:
    path = folders(tmp_path / "b", **{"data/train/cat": 1, "data/test/cat": 1})
    with pytest.raises(FileError, match=r"b.data: the folders in it are splits: give this path"):
        open_images(path).labels()
    path = folders(tmp_path / "c", train=1, test=1)
    with pytest.raises(FileError, match=r"train.0\.png: the image is in no subfolder"):
        open_images(path).labels()


def test_skipped_images_have_no_labels(tmp_path: Path) -> None:
    path = folders(tmp_path / "images", a=2, b=2)
    (tmp_path / "images" / "a" / "1.png").write_bytes(b"damaged")
    images = open_images(path, skip_broken=True)
    assert len(np.concatenate(list(images))) == 3
    assert images.labels().numbers.tolist() == [0, 1, 1]
    assert len(images.skipped) == 1


def parquet(path: Path, labels: Any, column: str = "label", names: list[str] | None = None) -> str:
    table = pa.table({"img": [png(k) for k in range(len(labels))], column: labels})
    if names is not None:
        stored = {"info": {"features": {column: {"names": names, "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(stored)})
    pq.write_table(table, path)
    return str(path)


def test_parquet_columns(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [1, 0, 1], names=["cat", "dog"])
    found = open_images(path).labels()
    assert (found.numbers.tolist(), found.names) == ([1, 0, 1], ("cat", "dog"))
    words = parquet(tmp_path / "b.parquet", ["x", "a", "x"], column="kind")
    found = open_images(words, column="img").labels("kind")
    assert (found.numbers.tolist(), found.names) == ([1, 0, 1], ("a", "x"))
    sparse = parquet(tmp_path / "c.parquet", [7, 3, 7])
    assert open_images(sparse).labels().names == ("3", "7")
    several = [parquet(tmp_path / f"{k}.parquet", [k]) for k in range(3)]
    assert open_images(several).labels().numbers.tolist() == [0, 1, 2]


TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
ENCODED = [pa.dictionary(pa.int32(), kind) for kind in TEXTS[:2]]  # Parquet holds none of views


@pytest.mark.parametrize("kind", [*TEXTS, *ENCODED], ids=str)
def test_every_type_of_text_in_parquet(kind: pa.DataType, tmp_path: Path) -> None:
    labels = pa.array(["x", "a", "x"])
    column = (labels.dictionary_encode() if pa.types.is_dictionary(kind) else labels).cast(kind)
    found = open_images(parquet(tmp_path / "a.parquet", column)).labels()
    assert (found.numbers.tolist(), found.names) == ([1, 0, 1], ("a", "x"))


def test_dictionaries_of_integers_and_of_gaps(tmp_path: Path) -> None:
    integers = pa.array([1, 0, 1]).dictionary_encode()
    found = open_images(parquet(tmp_path / "a.parquet", integers, names=["cat", "dog"])).labels()
    assert (found.numbers.tolist(), found.names) == ([1, 0, 1], ("cat", "dog"))
    gap = pa.array(["x", None]).dictionary_encode()
    with pytest.raises(FileError, match=r"row 2: there is no label"):
        open_images(parquet(tmp_path / "b.parquet", gap)).labels()


def test_arrays(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npz")
    np.savez(path, images=np.zeros((4, 5, 5), np.uint8), labels=np.array([2, 0, 1, 2]))
    found = open_images(path).labels()
    assert (found.numbers.tolist(), found.names) == ([2, 0, 1, 2], ("0", "1", "2"))
    np.savez(path, images=np.zeros((4, 5, 5), np.uint8), kind=np.array(["b", "a", "b", "b"]))
    assert open_images(path).labels("kind").numbers.tolist() == [1, 0, 1, 1]


def test_mistakes_are_named(tmp_path: Path) -> None:
    path = folders(tmp_path / "images", a=1, b=1)
    with pytest.raises(FileError, match="has no column 'label'"):
        open_images(path).labels("label")
    (tmp_path / "images" / "x.png").write_bytes(png(0))
    with pytest.raises(FileError, match=r"x\.png: the image is in no subfolder"):
        open_images(path).labels()
    nothing = parquet(tmp_path / "n.parquet", [0.5, 1.5])
    with pytest.raises(FileError, match="holds double, not integers or names"):
        open_images(nothing).labels()
    missing = parquet(tmp_path / "m.parquet", [0, None])
    with pytest.raises(FileError, match=r"row 2: there is no label"):
        open_images(missing).labels()
    other = parquet(tmp_path / "o.parquet", [0, 1], column="id")
    with pytest.raises(FileError, match=r"no labels among the columns 'img', 'id': choose with"):
        open_images(other).labels()
    npz = str(tmp_path / "a.npz")
    np.savez(npz, images=np.zeros((4, 5, 5), np.uint8), labels=np.zeros(3, int))
    with pytest.raises(FileError, match=r"each of the 4 images, but the array 'labels'"):
        open_images(npz).labels()
    for labels in (np.zeros(4, float), np.array([b"a"] * 4)):
        np.savez(npz, images=np.zeros((4, 5, 5), np.uint8), labels=labels)
        with pytest.raises(FileError, match="integers or names, but the array 'labels' holds"):
            open_images(npz).labels()
    npy = str(tmp_path / "a.npy")
    np.save(npy, np.zeros((4, 5, 5), np.uint8))
    with pytest.raises(FileError, match="an NPY file has no labels"):
        open_images(npy).labels()


def test_labels_that_are_objects_are_refused_with_the_remedy(tmp_path: Path) -> None:
    path, labels = str(tmp_path / "a.npz"), np.array(["b", "a", "b"], dtype=object)
    images = np.zeros((3, 5, 5), np.uint8)
    np.savez(path, images=images, kind=labels)
    with pytest.raises(FileError) as caught:
        open_images(path).labels("kind")
    assert str(caught.value) == (
        f"{path}, array 'kind': the array holds Python objects, which are not loaded because that "
        "could run any code: save kind.astype(str) instead"
    )
    np.savez(path, images=images, kind=labels.astype(str))
    assert open_images(path).labels("kind").names == ("a", "b")
