"""Images at the command line: priors from folders and files, and the commands for priors."""

from __future__ import annotations

import io
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from oism import VariancePreserving, fit_mixture, fit_prior, load
from oism.basis import CosineFrame, IdentityFrame
from oism.cli import reports
from oism.cli.fit_images import POLYNOMIALS_ONLY, FitImages, Form
from oism.cli.options import LEVELS
from oism.data.files import MODES, open_images
from oism.flow import Pixels
from oism.images import CHOICES, PCA, MixturePrior, Prior, add_local_terms

Run = Callable[..., Any]


def bytes_of(folder: Path) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(list(open_images(str(folder)))))


def same(found: Prior, expected: Prior) -> None:
    """Two priors are one: the same kind, and equal tensors."""
    assert type(found) is type(expected)
    assert found.spec == expected.spec
    ours, theirs = found.state_dict(), expected.state_dict()
    assert ours.keys() == theirs.keys()
    for name, part in ours.items():
        torch.testing.assert_close(part, theirs[name], rtol=0, atol=0, equal_nan=True)


def strict(text: str) -> Any:
    """Return what JSON says, as a reader that knows no NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    return json.loads(text, parse_constant=refuse)


def encoded(picture: NDArray[np.uint8]) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(picture).save(sink, "png")
    return sink.getvalue()


def to_parquet(path: Path, images: NDArray[np.uint8], **more: object) -> None:
    cells = [{"bytes": encoded(picture[0]), "path": None} for picture in images]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = {"image": pa.array(cells, kind), "label": range(len(cells)), **more}
    pq.write_table(pa.table(table), path)


# Fitting


def test_fit_is_that_of_the_library(gallery: Run, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "p"
    ended = gallery(f"fit-images images -o {out}")
    assert ended.code == 0, ended.err
    data = bytes_of(images / "images")
    expected = fit_prior(data, order=4)
    same(load(out), expected)
    first, *rest = ended.text.splitlines()
    assert first.startswith("100 images fitted in ")
    assert rest[-1] == f"prior written to {out}"
    assert "\n".join(rest[:-1]) == reports.prior_summary(reports.prior_facts(expected))
    assert ended.err == ""


def test_every_option_reaches_the_fit(gallery: Run, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "p"
    words = (
        f"fit-images colour --order 3 --frame cosine --ridge 0.5 --flip --no-dequantise -o {out}"
    )
    assert gallery(f"{words} --no-dequantise --clock vp:0.2:9 --device cpu --quiet").text == ""
    data = bytes_of(images / "colour")
    clock = VariancePreserving(0.2, 9.0)
    expected: Prior = fit_prior(
        data, order=3, frame=CosineFrame((3, 6, 6)), ridge=0.5, flip=True, dequantise=False,
        clock=clock,
    )  # fmt: skip
    same(load(out), expected)
    assert gallery(f"fit-images images --frame identity --order 2 -o {out}").code == 0
    same(load(out), fit_prior(bytes_of(images / "images"), order=2, frame=IdentityFrame()))
    assert gallery(f"fit-images colour --mode L --top 5 --cv 3 -o {out}").code == 0
    grey = np.concatenate(list(open_images(str(images / "colour"), mode="L")))
    folds = replace(CHOICES, folds=3)
    same(load(out), fit_prior(torch.from_numpy(grey), frame=PCA(5), ridge=folds))
    assert gallery(f"fit-images colour --components 3 --top 9 --flip -o {out}").code == 0
    same(load(out), fit_mixture(data, components=3, frame=PCA(9), flip=True))


def test_options_of_images() -> None:
    names = set(Form.__dataclass_fields__)
    assert names > set(POLYNOMIALS_ONLY)
    assert list(MODES) == ["L", "RGB"]
    assert Form().order == 4
    assert FitImages("data", "out").prior == Form()


def test_files_of_images(gallery: Run, images: Path, tmp_path: Path) -> None:
    """Parquet, a folder of Parquet, NPY and NPZ hold the same images, and give the same prior."""
    data = bytes_of(images / "images").numpy()
    shards = tmp_path / "shards"
    shards.mkdir()
    to_parquet(tmp_path / "one.parquet", data, thumb=pa.array([b"x"] * 100))
    to_parquet(shards / "0.parquet", data[:70])
    to_parquet(shards / "1.parquet", data[70:])
    np.save(tmp_path / "grey.npy", data[:, 0])
    np.save(tmp_path / "four.npy", data)
    np.savez(tmp_path / "two.npz", a=data[:, 0], b=data[:5, 0])
    contents = set()
    for words in (
        "one.parquet --image-column image",
        "shards",
        "grey.npy",
        "four.npy",
        "two.npz --image-column a",
    ):
        out = tmp_path / "p"
        ended = gallery(f"fit-images {tmp_path}/{words} --order 2 -o {out} --json")
        assert ended.code == 0, ended.err
        assert strict(ended.text)["images"] == 100
        contents.add(out.read_bytes())
    assert len(contents) == 1
    for words in ("one.parquet", "two.npz"):
        ended = gallery(f"fit-images {tmp_path}/{words} -o {out}")
        assert ended.code == 1
        assert "choose with --image-column" in ended.err


def test_columns_of_a_table_beside_images(gallery: Run, images: Path, tmp_path: Path) -> None:
    data = bytes_of(images / "images").numpy()
    to_parquet(tmp_path / "t.parquet", data, x=np.random.default_rng(0).normal(size=100))
    ended = gallery(f"fit {tmp_path}/t.parquet --columns x -o {tmp_path}/m --max-eigenvalue 25")
    assert ended.code == 0, ended.err
    assert "100 rows fitted" in ended.text


def test_fit_as_json(gallery: Run, images: Path, tmp_path: Path) -> None:
    found = strict(gallery(f"fit-images colour --components 2 -o {tmp_path}/p --json").text)
    assert (found["images"], found["skipped"], found["broken"]) == (60, 0, [])
    assert found["output"] == f"{tmp_path}/p"
    assert found["seconds"] > 0
    assert found["model"]["components"] == 2
    assert found["model"] == strict(gallery("info colour.safetensors --json").text)


@pytest.fixture
def damaged(images: Path, tmp_path: Path) -> Path:
    """A folder where 5 of 45 images are damaged."""
    place = tmp_path / "damaged"
    shutil.copytree(images / "test", place)
    for k in range(5):
        content = (images / "images" / f"0000{k}.png").read_bytes()
        (place / f"bad{k}.png").write_bytes(content[:-30] if k else b"")
    return place


def test_damaged_images(gallery: Run, damaged: Path, tmp_path: Path) -> None:
    out = tmp_path / "p"
    ended = gallery(f"fit-images {damaged} -o {out}")
    assert ended.code == 1
    assert f"{damaged}/bad0.png: there is no image; --skip-broken leaves" in ended.err
    assert not out.exists()
    ended = gallery(f"fit-images {damaged} -o {out} --order 2 --skip-broken")
    first = ended.text.splitlines()[0]
    assert first.startswith("40 images fitted in ")
    named = ", ".join(f"{damaged}/bad{k}.png" for k in range(3))
    assert first.endswith(f" s, 5 skipped: {named} and 2 more")
    found = strict(gallery(f"evaluate {out} {damaged} --no-bits --skip-broken --json").text)
    assert (found["images"], found["skipped"], len(found["broken"])) == (40, 5, 3)
    text = gallery(f"evaluate {out} {damaged} --no-bits --skip-broken").text
    assert ", 5 skipped: " in text
    ended = gallery(f"evaluate {out} {damaged} --no-bits")
    assert (ended.code, ended.out) == (1, b"")
    assert "--skip-broken" in ended.err


# Evaluating


@pytest.mark.parametrize("name", ["prior", "colour"])
def test_errors_are_those_of_the_library(gallery: Run, images: Path, name: str) -> None:
    folder = {"prior": "test", "colour": "colour"}[name]
    words = f"evaluate {name}.safetensors {folder} --levels 0.01 0.1 0.6 --seed 5 --json"
    found = strict(gallery(words).text)
    prior, data = load(images / f"{name}.safetensors"), bytes_of(images / folder)
    assert prior.pixels is not None
    generator = torch.Generator().manual_seed(5)
    noise = torch.stack([torch.randn(prior.shape, generator=generator) for _ in data])
    x = prior.prepare(data, torch.Generator().manual_seed(6))
    for level in found["noise"]:
        tau = level["tau"]
        alpha, sigma = prior.noising.alpha(tau), prior.noising.sigma(tau)
        errors = (prior.noise((alpha * x + sigma * noise).float(), tau) - noise).square()
        each = errors.double().mean(dim=(1, 2, 3))
        assert level["error"] == pytest.approx(float(each.mean()), rel=1e-5)
        assert level["standard_error"] == pytest.approx(
            float(each.std()) / math.sqrt(len(each)), rel=1e-4
        )
        assert level["expected"] == float(prior.expected_error(tau))
        assert level["sigma"] == pytest.approx(float(sigma))
    assert [level["tau"] for level in found["noise"]] == [0.01, 0.1, 0.6]
    bits = prior.bits_per_dim(data, torch.Generator().manual_seed(6)).double()
    assert found["bits_per_dim"]["mean"] == pytest.approx(float(bits.mean()), rel=1e-6)
    expected = float(bits.std()) / math.sqrt(len(bits))
    assert found["bits_per_dim"]["standard_error"] == pytest.approx(expected, rel=1e-4)
    assert found["shape"] == list(prior.shape)


def test_errors_are_about_what_was_expected(gallery: Run) -> None:
    for level in strict(gallery("evaluate prior.safetensors test --json").text)["noise"]:
        assert abs(level["error"] - level["expected"]) < 5 * level["standard_error"]


def test_batches_do_not_change_the_numbers(gallery: Run) -> None:
    words = "evaluate prior.safetensors test --json"
    whole, parts = (strict(gallery(f"{words} --batch {n}").text) for n in (40, 7))
    for one, other in zip(whole["noise"], parts["noise"], strict=True):
        assert one == pytest.approx(other, rel=1e-5)
    assert whole["bits_per_dim"] == pytest.approx(parts["bits_per_dim"], rel=1e-6)
    other = strict(gallery(f"{words} --seed 1").text)
    assert other["noise"] != whole["noise"]


def test_the_first_images_only(gallery: Run, images: Path, tmp_path: Path) -> None:
    for k in range(12):
        shutil.copy(images / "test" / f"{k:05}.png", tmp_path)
    words = "--levels 0.1 --json --batch 5"
    some = strict(gallery(f"evaluate prior.safetensors test -n 12 {words}").text)
    assert some["images"] == 12
    these = strict(gallery(f"evaluate prior.safetensors {tmp_path} --limit 99 {words}").text)
    assert {**some, "data": 0} == {**these, "data": 0}


def test_evaluate_as_text(gallery: Run) -> None:
    text = gallery("evaluate prior.safetensors test").text
    first, words, head, *rows, bits = text.splitlines()
    assert first == "40 images of 1 × 6 × 6 evaluated"
    assert words.startswith("error of the predicted noise, per dimension")
    assert head.split() == ["τ", "σ", "error", "±", "expected"]
    assert [float(row.split()[0]) for row in rows] == list(LEVELS)
    assert len({len(row) for row in [head, *rows]}) == 1, "columns are aligned"
    assert bits.startswith("bits per dimension  ")
    short = gallery("evaluate prior.safetensors test --no-bits --levels 0.5 -n 1 --quiet").text
    assert short.splitlines()[0] == "1 image of 1 × 6 × 6 evaluated"
    assert short.splitlines()[-1].split()[3] == "?", "one image has no standard error"
    only = gallery("evaluate prior.safetensors test -n 1 --no-bits --levels 0.5 --json").text
    assert strict(only)["noise"][0]["standard_error"] is None
    assert strict(only)["bits_per_dim"] is None


# Drawing


def test_samples_are_those_of_the_prior(gallery: Run, images: Path, tmp_path: Path) -> None:
    for name in ("prior", "colour"):
        prior = load(images / f"{name}.safetensors")
        assert prior.pixels is not None
        drawn = prior.sample(5, torch.Generator().manual_seed(3))
        expected = prior.pixels.values(drawn).permute(0, 2, 3, 1).squeeze(-1).numpy()
        out = tmp_path / f"{name}.npy"
        ended = gallery(f"sample {name}.safetensors -n 5 --seed 3 -o {out}")
        assert ended.text == f"5 images written to {out}\n"
        found = np.load(out)
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, expected)
        place = tmp_path / name
        words = f"sample {name}.safetensors -n 5 --seed 3 -o {place} --json"
        assert strict(gallery(words).text) == {
            "images": 5, "method": "exact", "evaluations": 0, "expected_error": None,
            "output": str(place),
        }  # fmt: skip
        for picture, path in zip(expected, sorted(place.iterdir()), strict=True):
            np.testing.assert_array_equal(np.asarray(Image.open(path)), picture)
        grid = tmp_path / f"{name}.png"
        assert gallery(f"sample {name}.safetensors -n 5 --seed 3 -o {grid} --quiet").text == ""
        picture = np.asarray(Image.open(grid))
        assert picture.ndim == (2 if name == "prior" else 3)
        scale = (picture.shape[1] - 4 * 2) // (3 * 6)
        np.testing.assert_array_equal(picture[2 : 2 + 6 * scale : scale, 2 : 2 + 6 * scale : scale],
                                      expected[0])  # fmt: skip


def test_without_a_seed_every_run_draws_others(gallery: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert gallery(f"sample prior.safetensors -n 2 -o {tmp_path}/{name}.npy").code == 0
    first, second = (np.load(tmp_path / f"{name}.npy") for name in ("a", "b"))
    assert (first != second).any()


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A prior of five numbers, which are no picture."""
    path = tmp_path / "vectors"
    rows = torch.randn(50, 5, generator=torch.Generator().manual_seed(0))
    fit_prior(rows, order=2).save(path)
    return path


def test_priors_of_other_tensors(gallery: Run, vectors: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.npy"
    assert gallery(f"sample {vectors} -n 3 --seed 0 -o {out}").code == 0
    expected = load(vectors).sample(3, torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(np.load(out), expected.numpy())
    for name in ("s.png", "s"):
        ended = gallery(f"sample {vectors} -o {tmp_path / name}")
        assert ended.code == 2
        assert "samples of shape 5 without pixels are not images" in ended.err
    assert "shape       5, no pixels" in gallery(f"info {vectors}").text
    assert gallery(f"plot {vectors} -o {tmp_path}/p.png --dpi 40").code == 0
    ended = gallery(f"evaluate {vectors} images")
    assert ended.code == 1
    assert "a prior without pixels, which is not one of images" in ended.err


def test_pixels_of_another_range(gallery: Run, images: Path, tmp_path: Path) -> None:
    data = bytes_of(images / "images")[:, 0] // 16
    prior = fit_prior(data, order=2, pixels=Pixels(0, 15))
    prior.save(tmp_path / "p")
    assert "6 × 6, pixels from 0 to 15" in gallery(f"info {tmp_path}/p").text
    assert gallery(f"sample {tmp_path}/p -n 9 --seed 0 -o {tmp_path}/s.npy").code == 0
    levels = np.load(tmp_path / "s.npy")
    assert (levels.shape, levels.dtype) == ((9, 6, 6), np.uint8)
    assert levels.max() <= 15
    np.save(tmp_path / "low.npy", data.numpy())
    words = f"evaluate {tmp_path}/p"
    assert gallery(f"{words} {tmp_path}/low.npy").code == 0, "grey images need no channel"
    ended = gallery(f"{words} images")
    assert ended.code == 1
    assert "must be in [0, 15]" in ended.err


@pytest.mark.parametrize("name", ["prior", "colour"])
def test_plot(gallery: Run, tmp_path: Path, name: str) -> None:
    for suffix, start in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        out = tmp_path / f"p.{suffix}"
        ended = gallery(f"plot {name}.safetensors -o {out} --dpi 40 --seed 1")
        assert ended.text == f"figure written to {out}\n", ended.err
        assert out.read_bytes().startswith(start)


def test_info(gallery: Run, images: Path) -> None:
    prior = load(images / "prior.safetensors")
    found = strict(gallery("info prior.safetensors --json").text)
    assert found["kind"] == "Hermite polynomials"
    assert (found["shape"], found["order"], found["pixels"]) == ([1, 6, 6], 4, [0, 255])
    assert found["frame"] == "36 principal directions"
    assert found["clock"] == {"kind": "VariancePreserving", "beta_0": 0.1, "beta_1": 20.0}
    assert [level["tau"] for level in found["noise"]] == list(LEVELS)
    for level in found["noise"]:
        assert level["expected"] == float(prior.expected_error(level["tau"]))
    text = gallery("info prior.safetensors").text
    assert "prior       Hermite polynomials, order 4\n" in text
    assert "shape       1 × 6 × 6, pixels from 0 to 255, dequantised\n" in text
    assert f"{float(prior.expected_error(0.1)):.4f}" in text
    assert "mixture of Gaussians, 2 components" in gallery("info colour.safetensors").text


def test_priors_go_through_pipes(gallery: Run, images: Path, tmp_path: Path) -> None:
    fitted = gallery("fit-images images -o -")
    assert "100 images fitted" in fitted.err, "the report goes where the prior does not"
    assert fitted.out == (images / "prior.safetensors").read_bytes()
    for words in ("info", "evaluate"):
        rest = " test --no-bits" if words == "evaluate" else ""
        piped, straight = (
            gallery(f"{words} -{rest}", fitted.out),
            gallery(f"{words} prior.safetensors{rest}"),
        )
        assert piped.text == straight.text != ""
    assert gallery(f"sample - -n 2 -o {tmp_path}/s.npy", fitted.out).code == 0
    assert gallery(f"plot - -o {tmp_path}/p.png --dpi 40", fitted.out).code == 0
    cut = gallery("info -", fitted.out[:-9])
    assert cut.code == 1
    assert cut.err.startswith("oism: error: standard input: is truncated: ")


def test_a_prior_of_another_version(gallery: Run, images: Path, tmp_path: Path) -> None:
    content = (images / "prior.safetensors").read_bytes()
    old = tmp_path / "old"
    assert b'\\"version\\":3' in content
    old.write_bytes(content.replace(b'\\"version\\":3', b'\\"version\\":9'))
    for words in (f"info {old}", f"evaluate {old} test", f"sample {old} -o {tmp_path}/x.png"):
        ended = gallery(words)
        assert ended.code == 1
        assert f"{old}: has format 'oism', version 9; this oism reads" in ended.err


@pytest.mark.slow
def test_local_terms(gallery: Run, images: Path, tmp_path: Path) -> None:
    """They are added to a mixture as well, and the other commands include them."""
    out, line = tmp_path / "p", "\nlocal       27 filters of 3 by 3, 7 degrees\n"
    ended = gallery(f"fit-images colour --components 2 --local --device cpu -o {out}")
    assert ended.code == 0, ended.err
    assert line in ended.text
    base = load(images / "colour.safetensors")
    assert isinstance(base, MixturePrior)
    expected = add_local_terms(bytes_of(images / "colour"), base)
    same(load(out), expected)
    assert (
        gallery(f"info {out}").text == f"{reports.prior_summary(reports.prior_facts(expected))}\n"
    )
    assert line in gallery(f"info {out}").text
    assert strict(gallery(f"info {out} --json").text)["local terms"].startswith("27 filters")
    found = strict(gallery(f"evaluate {out} colour -n 2 --levels 0.1 --json").text)
    assert found["images"] == 2
    assert math.isfinite(found["bits_per_dim"]["mean"])
    assert gallery(f"sample {out} -n 2 -o {tmp_path}/s.png").code == 0


def test_local_terms_of_polynomials(gallery: Run, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "p"
    found = strict(gallery(f"fit-images images --order 2 --local -o {out} --json").text)
    assert found["model"]["local terms"] == "9 filters of 3 by 3, 7 degrees"
    assert found["model"]["order"] == 2
    data = bytes_of(images / "images")
    same(load(out), add_local_terms(data, fit_prior(data, order=2)))


def test_local_terms_are_fitted_on_the_device(
    gallery: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def added(data: object, base: Prior, *, device: str | None) -> Prior:
        asked.append(device)
        return base

    monkeypatch.setattr("oism.images.add_local_terms", added)
    for option in ("--device cpu", ""):
        assert gallery(f"fit-images images --order 2 --local {option} -o {tmp_path}/p").code == 0
    assert asked == ["cpu", None]


# Mistakes

TABLE_OPTIONS = [
    "--columns image", "--periodic 360", "--bounds 0=0:1", "--box 0 1", "--weights w",
    "--missing skip", "--process ou", "--max-eigenvalue 9",
    "--flow-steps 9", "--seed 1", "--format npy",
]  # fmt: skip
IMAGE_OPTIONS = [
    "--components 2", "--top 2", "--local", "--flip", "--no-dequantise", "--image-column x",
    "--split train", "--mode L", "--skip-broken",
]  # fmt: skip

USAGE = [
    ("fit-images images -o - --json", "--json and the output would both be written"),
    ("fit-images images -o images", "images is the input"),
    ("fit-images images -o m --clock ve:0.1:9", "--clock: the noise of images preserves variance"),
    ("fit-images images -o m --clock vp:1", "--clock: expected ve:SIGMA_MIN:SIGMA_MAX or vp:"),
    ("fit-images images -o m --cv 1", "--cv: expected at least 2, got 1"),
    ("fit-images images -o m --components 0", "--components: expected at least 1, got 0"),
    ("fit-images images -o m --top 0", "--top: expected at least 1, got 0"),
    ("fit-images images -o m --top 37", "--top: images have 36 entries, got 37"),
    ("fit-images images -o m --top 3 --frame cosine", "--top: counts principal directions, not"),
    *((f"fit-images images -o m --components 2 {option}",
       f"{option.split()[0]}: an option for polynomials")
      for option in ("--order 3", "--ridge 1", "--cv 3", "--frame identity")),
    ("evaluate - -", "cannot both be standard input"),
    ("evaluate prior.safetensors test -n 0", "--limit: expected at least 1, got 0"),
    ("evaluate prior.safetensors test --batch 0", "--batch: expected at least 1, got 0"),
    ("evaluate prior.safetensors test --levels 0.1 1.5", "--levels: expected τ from 0 to 1, got"),
    ("evaluate prior.safetensors test --levels nan", "--levels: expected τ from 0 to 1, got nan"),
    ("sample prior.safetensors", "(without suffix), not to standard output: name one"),
    ("sample prior.safetensors -o x.csv", "-o: x.csv: samples of images go to a grid (.png)"),
    ("sample prior.safetensors -n 0 -o x.png", "-n: expected at least 1, got 0"),
    ("sample prior.safetensors -o - --json", "--json and the output would both be written"),
    *((f"sample prior.safetensors -o x.npy {option}", f"{option.split()[0]}: an option for tables")
      for option in ("--given x=1", "--method sde", "--density", "--format npy")),
    *((f"plot prior.safetensors -o x.png {option}", f"{option.split()[0]}: an option for tables")
      for option in ("--data moons.csv", "--columns 0 1", "--missing skip", "--format npy")),
    ("plot prior.safetensors -o x.gif", "must be one of .png, .svg, .pdf"),
]  # fmt: skip

DATA_OR_FILES = [
    ("fit-images sizes -o m", "sizes/b.png: the image is 5 × 5 pixels, but sizes/a.png is 6 × 6"),
    ("fit-images kinds -o m", "kinds/b.png: the image is colour (RGB), but kinds/a.png is grey"),
    ("fit-images kinds -o m", "--mode L or --mode RGB converts all"),
    ("fit-images empty -o m", "empty: there are no images in the folder"),
    ("fit-images alike -o m", "all rows are in one (equal rows share a fold)"),
    ("fit-images images -o m --components 999", "components must be at most the number of rows"),
    ("fit-images images/00000.png -o m", "images/00000.png: a single image; give a folder"),
    ("fit-images nowhere.png -o m", "nowhere.png: no such file or directory"),
    ("fit-images nowhere --flip -o m", "nowhere: no such file or directory"),
    ("fit images -o m", "images: holds images, not a table; `oism fit-images` fits images"),
    ("fit images/00000.png -o m", "00000.png: holds images, not a table"),
    ("fit nowhere.png -o m", "nowhere.png: no such file or directory"),
    ("fit hf://owner/name -o m", "hf://owner/name: holds images, not a table"),
    ("fit-images moons.csv -o m", "moons.csv: csv holds no images"),
    ("fit-images images -o nowhere/m", "nowhere: no such folder"),
    ("fit-images images -o empty", "empty: is a folder, not a file"),
    ("fit-images images -o m --image-column x", "a folder of images has no columns to choose 'x'"),
    ("fit-images images -o m --split test", "a folder of images has no splits to choose 'test'"),
    ("fit-images images -o m --order 10", "order must be at most 9, got 10"),
    ("fit-images images -o m --ridge -1", "ridge must be"),
    ("fit-images images -o m --device nonsense", "device 'nonsense' cannot be used here"),
    ("fit-images floats.npy -o m", "floats.npy: images must be of dtype uint8"),
    ("evaluate prior.safetensors colour", "colour: the images have shape 3 × 6 × 6 (channels × he"),
    ("evaluate prior.safetensors colour", "but prior.safetensors is a prior of 1 × 6 × 6"),
    ("evaluate prior.safetensors nowhere", "nowhere: no such file or directory"),
    ("evaluate prior.safetensors moons.csv", "moons.csv: csv holds no images"),
    ("evaluate prior.safetensors kinds", "--mode L or --mode RGB converts all"),
    ("evaluate prior.safetensors empty", "empty: there are no images in the folder"),
    ("evaluate prior.safetensors test --device nonsense", "device 'nonsense' cannot be used here"),
    ("evaluate moons.csv test", "moons.csv: is not a safetensors file"),
    ("evaluate nowhere test", "nowhere: no such file or directory"),
    ("density prior.safetensors test", "prior.safetensors: a prior of images, not a model of a t"),
    ("density prior.safetensors moons.csv", "`oism evaluate` evaluates it on images"),
    *((f"{words}", "cut.safetensors: is truncated: ")
      for words in ("info cut.safetensors", "evaluate cut.safetensors test",
                    "sample cut.safetensors -o x.npy", "plot cut.safetensors -o x.png")),
    ("sample prior.safetensors -o nowhere/x.png", "nowhere: no such folder"),
    ("sample prior.safetensors -o nowhere/x.npy", "nowhere: no such folder"),
    ("sample prior.safetensors -o nowhere/x", "nowhere: no such folder"),
    ("sample prior.safetensors -o images", "images: the folder is not empty"),
    ("sample prior.safetensors -o moons.safetensors/x", "moons.safetensors: no such folder"),
    ("plot prior.safetensors -o nowhere/x.png", "nowhere: no such folder"),
]  # fmt: skip


@pytest.fixture(scope="module")
def bad(images: Path) -> None:
    """Bad folders and files beside the good ones."""
    first = images / "images" / "00000.png"
    for name in ("sizes", "kinds", "empty", "alike"):
        (images / name).mkdir()
    for name in ("sizes", "kinds"):
        shutil.copy(first, images / name / "a.png")
    Image.new("L", (5, 5)).save(images / "sizes" / "b.png")
    Image.new("RGB", (6, 6)).save(images / "kinds" / "b.png")
    for k in range(4):
        shutil.copy(first, images / "alike" / f"{k}.png")
    content = (images / "prior.safetensors").read_bytes()
    (images / "cut.safetensors").write_bytes(content[:-50])
    np.save(images / "floats.npy", np.zeros((3, 4, 4)))


def listing(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [(*case, 1) for case in DATA_OR_FILES] + [(*case, 2) for case in USAGE],
)
def test_a_mistake(
    gallery: Run, images: Path, bad: None, words: str, message: str, code: int
) -> None:
    before = listing(images)
    ended = gallery(words)
    assert ended.code == code, ended.err
    assert ended.out == b""
    assert ended.err.startswith("oism: error: ")
    assert ended.err.count("\n") == 1, "one line, no traceback"
    assert message in ended.err
    assert listing(images) == before, "nothing is written"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        *((f"fit-images images -o m {option}", option) for option in TABLE_OPTIONS),
        *((f"fit moons.csv -o m {option}", option) for option in IMAGE_OPTIONS),
        ("fit moons.csv -o m --frame cosine", "--frame"),
    ],
)
def test_options_are_for_tables_or_for_images(
    gallery: Run, images: Path, words: str, option: str
) -> None:
    before = listing(images)
    ended = gallery(words)
    assert (ended.code, ended.out) == (2, b"")
    assert option.split(maxsplit=1)[0] in ended.err
    assert listing(images) == before, "nothing is written"


def test_the_output_is_looked_at_before_the_work(
    gallery: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("too late")

    monkeypatch.setattr("oism.data.files.open_images", work)
    monkeypatch.setattr("oism.storage.load", work)
    for words in (
        "fit-images images -o nowhere/m",
        "sample prior.safetensors -o nowhere/x.npy",
        "sample prior.safetensors -o nowhere/x.png",
        "plot prior.safetensors -o nowhere/x.png",
    ):
        assert "no such folder" in gallery(words).err


# Processes


@pytest.mark.slow
def test_from_images_to_samples(process: Run, images: Path, tmp_path: Path) -> None:
    prior, drawn = tmp_path / "p", tmp_path / "drawn"
    fitted = process(f"fit-images {images}/images -o {prior} --order 2 --json")
    assert fitted.code == 0, fitted.err
    assert json.loads(fitted.out)["images"] == 100
    assert (
        process(f"sample {prior} -n 3 --seed 0 -o {drawn}").text == f"3 images written to {drawn}\n"
    )
    ended = process(f"evaluate {prior} {drawn} --levels 0.1 --json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["images"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drawn", "p"]


def test_no_permission(unprivileged: Run, images: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    for words in (
        f"fit-images {images}/images -o {locked}/m",
        f"sample {images}/prior.safetensors -o {locked}/new",
    ):
        ended = unprivileged(words)
        assert ended.code == 1
        assert ended.err == f"oism: error: {locked}: no permission to write in this folder\n"
    assert not list(locked.iterdir())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("density prior.safetensors test", 1, "oism: error: prior.safetensors: a prior of images"),
        ("fit images -o m", 1, "images: holds images, not a table"),
        ("fit-images images -o m --periodic 360", 2, "--periodic"),
    ],
)
def test_exit_codes(process: Run, images: Path, words: str, code: int, message: str) -> None:
    command, *rest = words.split()
    paths = [f"{images}/{word}" if (images / word).exists() else word for word in rest]
    ended = process(" ".join([command, *paths]))
    assert (ended.code, ended.out) == (code, b"")
    assert message.replace("prior.safetensors", f"{images}/prior.safetensors") in ended.err
    assert "Traceback" not in ended.err
