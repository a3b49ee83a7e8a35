"""Images in and out of files: the same pixels, in the same order, or a word about the bad one."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from PIL import Image

from oism.data.files import FileError, Images, check_images, is_images, open_images, write_images

Pixels = NDArray[np.uint8]


def random(*shape: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encoded(
    pixels: NDArray[Any], kind: str = "png", mode: str | None = None, **options: Any
) -> bytes:
    image, sink = Image.fromarray(pixels), io.BytesIO()
    (image.convert(mode) if mode else image).save(sink, kind, **options)
    return sink.getvalue()


def last(images: Pixels) -> Pixels:
    """Channels last, or none where they are grey."""
    return images[:, 0] if images.shape[1] == 1 else images.transpose(0, 2, 3, 1)


def whole(images: Images) -> Pixels:
    return np.concatenate(list(images))


def refusal(path: Path | list[str], **options: Any) -> str:
    """What reading everything is refused with."""
    with pytest.raises(FileError) as caught:
        whole(open_images(path if isinstance(path, list) else str(path), **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def to_folder(folder: Path, images: Pixels) -> str:
    path = folder / f"images{len(list(folder.iterdir()))}"
    write_images(str(path), images)
    return str(path)


def to_parquet(folder: Path, images: Pixels) -> str:
    path = str(folder / "images.parquet")
    cells = [{"bytes": encoded(picture), "path": None} for picture in last(images)]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = pa.table({"label": range(len(cells)), "img": pa.array(cells, kind)})
    pq.write_table(table, path, row_group_size=3)
    return path


def to_binary(folder: Path, images: Pixels) -> str:
    path = str(folder / "images.pq")
    cells = pa.array([encoded(picture, "bmp") for picture in last(images)], pa.large_binary())
    pq.write_table(pa.table({"id": range(len(cells)), "b": cells}), path)
    return path


def to_npy(folder: Path, images: Pixels) -> str:
    path = str(folder / "images.npy")
    write_images(path, images)
    return path


def to_fortran(folder: Path, images: Pixels) -> str:
    path = str(folder / "fortran.npy")
    np.save(path, np.asfortranarray(last(images)))
    return path


def to_npz(folder: Path, images: Pixels) -> str:
    path = str(folder / "images.npz")
    np.savez_compressed(path, labels=np.arange(len(images)), x=last(images))
    return path


Writer = Callable[[Path, Pixels], str]
WRITERS = [to_folder, to_parquet, to_binary, to_npy, to_fortran, to_npz]
every_writer = pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__[3:])
# Three channels before, and not three columns: else an array would be read with channels last.
sets = st.tuples(
    st.integers(1, 7), st.sampled_from([1, 3]), st.integers(1, 6), st.sampled_from([2, 4, 5])
).flatmap(lambda shape: hnp.arrays(np.uint8, shape))


@every_writer
@settings(max_examples=15)
@given(images=sets, batch=st.integers(1, 8))
def test_round_trip(
    writer: Writer, images: Pixels, batch: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = writer(tmp_path_factory.mktemp("images"), images)
    found = open_images(path, batch=batch)
    assert is_images(path)
    assert (len(found), found.shape, found.source.startswith(path)) == (
        *images.shape[:1],
        images.shape[1:],
        True,
    )
    batches = list(found)
    sizes = [len(part) for part in batches]
    assert sizes[:-1] == [batch] * (len(sizes) - 1)
    assert 1 <= sizes[-1] <= batch
    for part in batches:
        assert part.dtype == np.uint8
        assert part.flags.c_contiguous
        assert part.flags.writeable
    np.testing.assert_array_equal(np.concatenate(batches), images)


@every_writer
def test_two_passes_are_equal_and_independent(writer: Writer, tmp_path: Path) -> None:
    images = open_images(writer(tmp_path, random(11, 3, 4, 5)), batch=4)
    next(iter(images))  # a pass that is given up changes nothing
    first, second = list(images), list(images)
    assert [len(batch) for batch in first] == [4, 4, 3]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    first[0][:] = 0
    np.testing.assert_array_equal(whole(images), np.concatenate(second))


@every_writer
def test_modes_convert(writer: Writer, tmp_path: Path) -> None:
    colour = random(3, 3, 4, 5)
    grey = np.stack([np.asarray(Image.fromarray(x).convert("L")) for x in last(colour)])[:, None]
    path = writer(tmp_path, colour)
    np.testing.assert_array_equal(whole(open_images(path, mode="L")), grey)
    np.testing.assert_array_equal(whole(open_images(path, mode="RGB")), colour)
    path = writer(tmp_path, grey)
    np.testing.assert_array_equal(whole(open_images(path, mode="RGB")), grey.repeat(3, axis=1))


@pytest.mark.parametrize("writer", [to_parquet, to_npy, to_npz])
def test_only_some_images_are_in_memory(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oism.data.files._image_arrays.BLOCK", 1 << 16)
    monkeypatch.setattr("oism.data.files._image_folder.ROWS", 8)
    images = random(8, 3, 64, 64).repeat(50, axis=0)
    found = open_images(writer(tmp_path, images), batch=16)
    total = images.nbytes
    tracemalloc.start()
    for _ in found:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total > 4_900_000
    assert peak < total / 6, "two batches, and some that are to be decoded"


def test_folders_are_read_in_the_order_of_their_paths(tmp_path: Path) -> None:
    images = random(6, 1, 2, 2)[:, 0]
    names = ["B/1.png", "a-b/3.PNG", "a/2.bmp", "a/sub/1.TIFF", "z.webp"]
    for name, picture in zip(names, images, strict=False):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        kind = {"webp": "webp", "bmp": "bmp", "tiff": "tiff"}.get(
            name[2:].lower().split(".")[-1], "png"
        )
        options: dict[str, Any] = {"lossless": True} if kind == "webp" else {}
        (tmp_path / name).write_bytes(encoded(picture, kind, **options))
    for other in (".hidden.png", "notes.txt", "a.gif", ".git/x.png", "table.parquet"):
        (tmp_path / other).parent.mkdir(exist_ok=True)
        (tmp_path / other).write_bytes(b"nothing to see")
    found = open_images(str(tmp_path), mode="L")
    order = ["B/1.png", "a/2.bmp", "a/sub/1.TIFF", "a-b/3.PNG", "z.webp"]
    assert [found.place(k) for k in range(len(found))] == [str(tmp_path / name) for name in order]
    expected = [images[names.index(name)] for name in order]
    np.testing.assert_array_equal(whole(found)[:, 0], expected)


def test_jpeg_orientation_is_ignored(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    (tmp_path / "a.JPeG").write_bytes(encoded(np.full((4, 7), 90, np.uint8), "jpeg", exif=exif))
    assert open_images(str(tmp_path)).shape == (1, 4, 7)


def test_shards_are_read_by_name_and_rows_counted_in_each(tmp_path: Path) -> None:
    images, folder = random(7, 3, 2, 4), tmp_path / "hub"
    (folder / "data").mkdir(parents=True)
    parts = {"train-00001.parquet": images[3:3], "train-00000.parquet": images[:3]}
    for name, part in {**parts, "train-00002.parquet": images[3:]}.items():
        Path(to_parquet(tmp_path, part)).rename(folder / "data" / name)
    found = open_images(str(folder), batch=5)
    np.testing.assert_array_equal(whole(found), images)
    assert (len(found), found.source) == (7, str(folder))
    assert found.place(2) == f"{folder}/data/train-00000.parquet: row 3"
    assert found.place(3) == f"{folder}/data/train-00002.parquet: row 1"
    paths = [f"{folder}/data/train-0000{k}.parquet" for k in (2, 1, 0)]
    np.testing.assert_array_equal(
        whole(open_images(paths)), np.concatenate([images[3:], images[:3]])
    )
    assert open_images(paths).source == f"{paths[0]} and 2 more"
    np.testing.assert_array_equal(whole(open_images(paths[:1])), images[3:])


def damaged(content: bytes) -> list[bytes]:
    return [b"", b"no image", content[: len(content) // 2], content[:-30]]


@pytest.mark.parametrize("kind", ["png", "jpeg", "bmp", "webp", "tiff"])
def test_broken_images_are_named_or_skipped(kind: str, tmp_path: Path) -> None:
    good = encoded(random(16, 16, 3), kind)
    for k, bad in enumerate(damaged(good)):
        path = tmp_path / f"{kind}{k}.parquet"
        pq.write_table(pa.table({"x": [bad, good, bad, good]}), path)
        message = refusal(path)
        assert message.startswith(f"{path}: row 1: ")
        assert message.endswith("; --skip-broken leaves such images out")
        found = open_images(str(path), skip_broken=True)
        assert (len(found), found.skipped) == (4, [])
        for _ in range(2):
            assert len(whole(found)) == 2
            assert found.skipped == [f"{path}: row 1", f"{path}: row 3"]


@pytest.mark.parametrize("kind", ["png", "jpeg", "bmp", "webp", "tiff"])
def test_whatever_byte_is_wrong_nothing_but_a_file_error_comes(kind: str, tmp_path: Path) -> None:
    good, r = encoded(random(6, 6, 3), kind), np.random.default_rng(1)
    rows = [good]
    for _ in range(150):
        bad = np.frombuffer(good, np.uint8).copy()
        bad[r.integers(0, min(len(bad), 120), 3)] = r.integers(0, 256, 3)
        rows.append(bad.tobytes())
    right = 0
    for k, row in enumerate(rows):
        path = str(tmp_path / f"{k}.parquet")
        pq.write_table(pa.table({"x": [good, row]}), path)
        with suppress(FileError):  # or no error: a wrong byte may be a pixel
            assert len(whole(open_images(path, mode="RGB"))) == 2
            right += 1
    assert 1 <= right < 0.8 * len(rows)


def test_no_bit_of_the_pixels_of_a_png_changes_unseen(tmp_path: Path) -> None:
    write_images(str(tmp_path / "x"), random(1, 1, 8, 8))
    path = tmp_path / "x" / "00000.png"
    good = path.read_bytes()
    for place in range(good.index(b"IDAT"), len(good) - 12):  # up to IEND
        path.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        assert refusal(tmp_path / "x").startswith(f"{path}: damaged")


def test_a_broken_file_among_hundreds(tmp_path: Path) -> None:
    write_images(str(tmp_path / "x"), random(300, 1, 3, 3))
    bad = tmp_path / "x" / "00222.png"
    bad.write_bytes(bad.read_bytes()[:40])
    assert refusal(tmp_path / "x").startswith(f"{bad}: damaged")
    found = open_images(str(tmp_path / "x"), skip_broken=True, batch=64)
    expected = np.delete(random(300, 1, 3, 3), 222, axis=0)
    for _ in range(2):
        np.testing.assert_array_equal(whole(found), expected)
        assert found.skipped == [str(bad)]
    assert [len(batch) for batch in found] == [64] * 4 + [43]


def test_where_all_are_broken_there_are_no_images(tmp_path: Path) -> None:
    for k in range(3):
        (tmp_path / f"{k}.png").touch()
    assert "none of the 3 images can be read" in refusal(tmp_path, skip_broken=True)


def test_bombs_are_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(str(tmp_path / "x"), random(2, 1, 4, 4))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)  # warns from 10 pixels on, refuses from 20
    assert len(whole(open_images(str(tmp_path / "x")))) == 2
    (tmp_path / "x" / "1.png").write_bytes(encoded(random(5, 5)))
    assert f"{tmp_path}/x/1.png: damaged: Image size (25 pixels)" in refusal(tmp_path / "x")
    found = open_images(str(tmp_path / "x"), skip_broken=True)
    assert len(whole(found)) == 2
    assert found.skipped == [f"{tmp_path}/x/1.png"]


def two(folder: Path, first: bytes, second: bytes) -> Path:
    (folder / "a.png").write_bytes(first)
    (folder / "b.png").write_bytes(second)
    return folder


def test_sizes_must_agree_and_are_never_skipped(tmp_path: Path) -> None:
    folder = two(tmp_path, encoded(random(4, 6)), encoded(random(4, 7)))
    for skip in (False, True):
        message = refusal(folder, skip_broken=skip)
        assert message == (
            f"{folder}/b.png: the image is 7 × 4 pixels, but {folder}/a.png is 6 × 4; all must "
            "have one size"
        )


def test_the_first_that_can_be_read_is_the_measure(tmp_path: Path) -> None:
    two(tmp_path, b"", encoded(random(4, 7)))
    (tmp_path / "c.png").write_bytes(encoded(random(5, 7)))
    found = open_images(str(tmp_path), skip_broken=True)
    assert found.shape == (1, 4, 7)
    assert f"c.png: the image is 7 × 5 pixels, but {tmp_path}/b.png" in refusal(
        tmp_path, skip_broken=True
    )


def test_grey_beside_colour_is_refused_or_converted(tmp_path: Path) -> None:
    grey, colour = encoded(random(2, 2)), encoded(random(2, 2, 3))
    message = refusal(two(tmp_path, grey, colour), skip_broken=True)
    assert (
        f"b.png: the image is colour (RGB), but {tmp_path}/a.png is grey (L); --mode L" in message
    )
    assert open_images(str(tmp_path), mode="RGB").shape == (3, 2, 2)
    assert whole(open_images(str(tmp_path), mode="L")).shape == (2, 1, 2, 2)
    message = refusal(two(tmp_path, colour, grey))
    assert f"b.png: the image is grey (L), but {tmp_path}/a.png is colour (RGB)" in message


@pytest.mark.parametrize("mode", ["P", "RGBA", "LA", "1", "CMYK"])
def test_other_modes_are_refused_or_converted(mode: str, tmp_path: Path) -> None:
    content = encoded(random(4, 4, 3), "tiff" if mode == "CMYK" else "png", mode)
    folder = two(tmp_path, content, content)
    message = refusal(folder, skip_broken=True)
    assert f"a.png: the image is neither grey nor colour but of mode {mode}; --mode L" in message
    wanted: list[Literal["L", "RGB"]] = ["L", "RGB"]
    for target in wanted:
        expected = np.asarray(Image.open(io.BytesIO(content)).convert(target))
        found = whole(open_images(str(folder), mode=target))
        np.testing.assert_array_equal(last(found)[0], expected)


def test_a_mode_that_does_not_convert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which those are depends on the version of Pillow."""

    def convert(*_: object) -> None:
        raise ValueError("conversion not supported")

    content = encoded(random(4, 4, 3), "tiff", "LAB")
    monkeypatch.setattr(Image.Image, "convert", convert)
    message = refusal(two(tmp_path, content, content), mode="RGB")
    assert message == f"{tmp_path}/a.png: mode LAB does not convert to RGB"


def sixteen(kind: str) -> bytes:
    """16 bits of grey, or of colour, which Pillow reads as 8 but cannot write."""
    if kind != "colour":
        return encoded(random(4, 4).astype(np.uint16) * 257, kind)

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    rows = zlib.compress(b"".join(b"\0" + bytes(range(24)) for _ in range(4)))
    head = struct.pack(">IIBBBBB", 4, 4, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["png", "tiff", "colour"])
def test_sixteen_bits_are_refused_in_every_mode(kind: str, tmp_path: Path) -> None:
    folder = two(tmp_path, sixteen(kind), sixteen(kind))
    for options in ({}, {"mode": "L"}, {"mode": "RGB", "skip_broken": True}):
        assert "a.png: the image has more than 8 bits a channel" in refusal(folder, **options)


def test_sixteen_bits_for_three_channels_are_fine(tmp_path: Path) -> None:
    """As in a BMP with 5, 6 and 5 bits."""
    masks = struct.pack("<III", 0xF800, 0x07E0, 0x001F)
    head = struct.pack("<IiiHHIIiiII", 40, 2, 1, 1, 16, 3, 4, 0, 0, 0, 0)
    content = b"BM" + struct.pack("<IHHI", 70, 0, 0, 66) + head + masks
    content += struct.pack("<HH", 0xF800, 0x001F)
    found = whole(open_images(str(two(tmp_path, content, content))))
    np.testing.assert_array_equal(last(found)[0, 0], [[255, 0, 0], [0, 0, 255]])


def test_floating_point_is_refused(tmp_path: Path) -> None:
    content = encoded(random(4, 4).astype(np.float32), "tiff")
    assert "more than 8 bits" in refusal(two(tmp_path, content, content), mode="L")


def write_columns(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_the_image_column_is_found_or_named(tmp_path: Path) -> None:
    one, other = encoded(random(2, 2)), encoded(random(3, 3))
    path = write_columns(tmp_path / "a.parquet", label=[1], x=[one], y=[other])
    assert refusal(path) == (
        f"{path}: more than one column may hold images, choose with --image-column: 'x', 'y'"
    )
    assert open_images(str(path), column="y").shape == (1, 3, 3)
    assert open_images(str(path), column="1").shape == (1, 2, 2)
    assert "no column 'z', only 'label', 'x', 'y'" in refusal(path, column="z")
    assert "column 'label' holds int64, not the bytes of images" in refusal(path, column="label")
    assert is_images(str(path))
    path = write_columns(tmp_path / "b.parquet", label=[1], name=["a"])
    assert refusal(path) == f"{path}: no column holds images: 'label', 'name'"
    assert not is_images(str(path))
    path = tmp_path / "c.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array([one])] * 2, ["x", "x"]), path)
    assert "more than one column is called 'x'" in refusal(path, column="x")


def test_every_shard_needs_the_column(tmp_path: Path) -> None:
    content = [encoded(random(2, 2))]
    write_columns(tmp_path / "a.parquet", x=content)
    write_columns(tmp_path / "b.parquet", y=content)
    assert f"{tmp_path}/b.parquet: there is no column 'x'" in refusal(tmp_path)


def test_rows_without_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oism.data.files._image_folder.ROWS", 1)
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    good = {"bytes": encoded(random(2, 2)), "path": "a.png"}
    cells = pa.array([good, None, {"bytes": None, "path": "b.png"}], kind)
    path = write_columns(tmp_path / "a.parquet", x=cells)
    assert f"{path}: row 2: there is no image; --skip-broken" in refusal(path)
    message = refusal(path, skip_broken=True)
    assert f"{path}: row 3: holds only the path of an image, 'b.png', not its bytes" in message


def test_channels_come_last_where_both_fit(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npy")
    array = random(2, 3, 5, 3)
    np.save(path, array)
    np.testing.assert_array_equal(whole(open_images(path)), array.transpose(0, 3, 1, 2))
    for shape in ((2, 3, 5, 4), (2, 1, 5, 4)):
        np.save(path, random(*shape))
        np.testing.assert_array_equal(whole(open_images(path)), random(*shape))
    np.save(path, random(2, 5, 4, 1))
    np.testing.assert_array_equal(whole(open_images(path))[:, 0], random(2, 5, 4, 1)[..., 0])


ARRAYS: list[tuple[NDArray[Any], str]] = [
    (np.zeros((2, 4, 4)), "must be of dtype uint8, 0 to 255, got float64"),
    (np.zeros((2, 4, 4), np.int8), "got int8"),
    (np.array([[[None]]]), "got object"),
    (random(2, 4, 4, 4), "with 1 or 3 channels, got (2, 4, 4, 4)"),
    (random(2, 4), "got (2, 4)"),
    (random(0, 4, 4), "no images in an array of shape (0, 4, 4)"),
    (random(2, 0, 4), "no images"),
]


@pytest.mark.parametrize(("array", "message"), ARRAYS, ids=[message for _, message in ARRAYS])
def test_bad_arrays(array: NDArray[Any], message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    assert message in refusal(tmp_path / "a.npy")
    assert is_images(str(tmp_path / "a.npy")) == (array.ndim > 2)


def test_archives_of_several_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=random(2, 3, 4), y=random(2, 5, 6), n=np.arange(2))
    assert refusal(path).endswith("the archive holds x (2, 3, 4), y (2, 5, 6), n (2,)")
    assert open_images(str(path), column="y").place(1) == f"{path}, array 'y': row 2"
    np.testing.assert_array_equal(whole(open_images(str(path), column="y"))[:, 0], random(2, 5, 6))
    assert "array 'n': images must have shape" in refusal(path, column="n")
    np.savez(path, n=np.arange(2))
    assert "no array has the shape of images; the archive holds n (2,)" in refusal(path)
    assert not is_images(str(path))


@pytest.mark.parametrize("writer", [to_parquet, to_npy, to_fortran, to_npz])
def test_damaged_files(writer: Writer, tmp_path: Path) -> None:
    path = Path(writer(tmp_path, random(20, 3, 8, 8)))
    content = path.read_bytes()
    for length in (0, 1, 20, len(content) // 2, len(content) - 5):
        path.write_bytes(content[:length])
        assert "damaged" in refusal(path, skip_broken=True)
        is_images(str(path))
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes(200) + content[middle + 200 :])
    if writer is to_npz:
        assert "damaged" in refusal(path)


@pytest.mark.parametrize("writer", [to_npy, to_fortran])
def test_arrays_that_end_too_early(writer: Writer, tmp_path: Path) -> None:
    path = Path(writer(tmp_path, random(20, 3, 8, 8)))
    found, content = open_images(str(path)), path.read_bytes()
    path.write_bytes(content[:-5])
    with pytest.raises(
        FileError, match=r"damaged: the file ends before its array of shape \(20, 8"
    ):
        open_images(str(path))
    with pytest.raises(FileError, match="damaged, or not an NPY file: the file ends before"):
        whole(found)
    path.write_bytes(content + b"more")
    with pytest.raises(FileError, match="damaged: the file goes on after its array"):
        open_images(str(path))


def test_archives_of_images_with_a_block_removed(tmp_path: Path) -> None:
    path = Path(to_npz(tmp_path, random(20, 3, 8, 8)))
    content = path.read_bytes()
    for start in (0, 10, 100):
        path.write_bytes(content[:start] + content[start + 20 :])
        assert "damaged" in refusal(path)


def test_what_is_not_there_or_holds_no_images(tmp_path: Path) -> None:
    for path in (str(tmp_path / "none"), str(tmp_path / "none.parquet")):
        with pytest.raises(FileNotFoundError, match="none"):
            open_images(path)
        assert not is_images(path)
    assert "there are no images in the folder; known are .png, .jpg" in refusal(tmp_path)
    (tmp_path / "a.csv").write_text("a\n1\n")
    assert "csv holds no images" in refusal(tmp_path / "a.csv")
    assert not is_images(str(tmp_path / "a.csv"))
    assert not is_images("-")
    assert "standard input" in refusal(["-"])
    content = encoded(random(2, 2))
    folder = two(tmp_path, content, content)
    assert "a single image" in refusal(folder / "a.png")
    assert "has no columns" in refusal(folder, column="x")
    none = write_columns(tmp_path / "a.parquet", x=pa.array([], pa.binary()))
    assert "there are no images" in refusal(none)
    assert "all must be Parquet files" in refusal([str(none), str(folder)])
    np.save(tmp_path / "a.npy", random(2, 2, 2))
    assert "has no columns" in refusal(tmp_path / "a.npy", column="x")
    wrong: list[dict[str, Any]] = [{"batch": 0}, {"mode": "P"}]
    for options in wrong:
        with pytest.raises(ValueError, match=next(iter(options))):
            open_images(str(folder), **options)
    with pytest.raises(ValueError, match="got none"):
        open_images([])


def test_images_are_written_to_new_folders_only(tmp_path: Path) -> None:
    images = random(3, 3, 4, 5)
    empty = tmp_path / "with.suffix"
    empty.mkdir()
    write_images(str(empty), images)
    assert sorted(path.name for path in empty.iterdir()) == [f"0000{k}.png" for k in range(3)]
    np.testing.assert_array_equal(np.asarray(Image.open(empty / "00001.png")), last(images)[1])
    with pytest.raises(FileExistsError, match="not empty"):
        write_images(str(empty), images)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="is a file"):
        write_images(str(tmp_path / "file"), images)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        write_images(str(tmp_path / "none" / "x"), images)
    for path in ("a.jpg", "-"):
        with pytest.raises(FileError, match=r"written to an \.npy file, or a folder"):
            write_images(path, images)
    wrong: list[Any] = [images.astype(float), images[0], images[:, :2], images[:0]]
    for bad in wrong:
        with pytest.raises(ValueError, match="images must be uint8 of shape"):
            write_images(str(tmp_path / "bad"), bad)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "with.suffix"]


def test_paths_are_checked_before_images_are_written(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for good in ("new", "empty", "a.npy"):
        check_images(str(tmp_path / good))
    for bad, words in (
        ("full", "not empty"),
        ("file", "is a file"),
        ("nowhere/a.npy", "no such folder"),
        ("nowhere/new", "no such folder"),
        ("a.jpg", "an .npy file, or a folder"),
    ):
        with pytest.raises((OSError, FileError), match=words):
            check_images(str(tmp_path / bad))
    with pytest.raises(FileError):
        check_images("-")


def test_an_interrupted_folder_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr("oism.data.files._decoding.encoded", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_images(str(tmp_path / "x"), random(3, 3, 4, 5))
    assert list(tmp_path.iterdir()) == []


def test_many_images_have_longer_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oism.data.files._decoding.encoded", lambda _: b"")
    monkeypatch.setattr(Path, "write_bytes", lambda path, _: names.append(path.name))
    names: list[str] = []
    write_images(str(tmp_path / "x"), np.zeros((100_001, 1, 1, 1), np.uint8))
    assert names == sorted(names)
    assert (names[0], names[-1]) == ("000000.png", "100000.png")


def test_tables_are_read_without_pillow() -> None:
    code = "import oism.data.files, sys; print('PIL' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_without_pillow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.zeros((2, 1, 3, 3), np.uint8)
    write_images(str(tmp_path / "folder"), images)
    write_images(str(tmp_path / "array.npy"), images)
    monkeypatch.setitem(sys.modules, "PIL", None)
    for use, purpose in (
        (lambda: open_images(str(tmp_path / "folder")), "reading"),
        (lambda: open_images(str(tmp_path / "array.npy"), mode="RGB"), "converting"),
        (lambda: write_images(str(tmp_path / "more"), images), "writing"),
    ):
        message = rf"^{purpose} images needs Pillow: pip install 'oism\[images\]'$"
        with pytest.raises(ModuleNotFoundError, match=message):
            use()
    assert not (tmp_path / "more").exists()
    assert len(open_images(str(tmp_path / "array.npy"))) == 2, "arrays need no Pillow"


def header_of_png(width: int, height: int) -> bytes:
    """Return a PNG whose header promises so many pixels, and whose pixels are missing."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    data = b"IDAT" + zlib.compress(bytes(100))
    chunks += struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))
    return b"\x89PNG\r\n\x1a\n" + chunks


def test_sizes_are_refused_before_pixels_are_decoded(tmp_path: Path) -> None:
    """An image of 13,000² pixels was decoded, to 1.2 GB, and refused then."""
    (tmp_path / "a.png").write_bytes(encoded(random(4, 6)))
    (tmp_path / "b.png").write_bytes(header_of_png(4000, 4000))
    assert "b.png: the image is 4000 × 4000 pixels, but" in refusal(tmp_path)
    for name in ("b.png", "0.png"):  # the first image has no size to be compared with
        (tmp_path / name).write_bytes(header_of_png(13_000, 13_000))
        message = f"{name}: the image is 13000 × 13000 pixels, and at most 4096 × 4096 are read"
        assert message in refusal(tmp_path)
