from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import pytest
import safetensors.torch
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from oism import storage
from oism.storage import External, Storable, StorageError, storable
from oism.storage._registry import CLASSES
from oism.tables import Background

if TYPE_CHECKING:
    from decimal import Decimal

HERE = __name__
DROPPED = object()
CODES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64",
}  # fmt: skip


@storable
@dataclass(frozen=True)
class Clock:
    sigma_min: float
    sigma_max: float = 50.0

    def __post_init__(self) -> None:
        if self.sigma_max <= self.sigma_min:
            raise ValueError(f"sigma_max must exceed sigma_min, got {self.sigma_max!r}")


@storable
@dataclass(frozen=True, eq=False)
class Basis:
    frequencies: Tensor
    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float64


@storable
class Score(Storable):
    """States other names than its attributes have, and takes them in `from_config`."""

    def __init__(self, basis: Basis, clock: Clock | None, extra: object) -> None:
        self.basis, self.clock, self.extra = basis, clock, extra

    def to_config(self) -> dict[str, Any]:
        return {"functions": self.basis, "clock": self.clock, "extra": self.extra}

    @classmethod
    def from_config(cls, functions: Basis, clock: Clock | None, extra: Any = None) -> Score:
        return cls(functions, clock, extra)


@storable
class Net(nn.Module):
    """Keeps the devices that its constructor ran on."""

    stores_state: ClassVar[bool] = True
    devices: ClassVar[list[str]] = []

    def __init__(self, width: int, depth: int = 1) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width must be at least 1, got {width}")
        self.width, self.depth = width, depth
        self.layers = nn.ModuleList(nn.Linear(3, width) for _ in range(depth))
        self.dropout = nn.Dropout()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("waves", torch.arange(width) / 2, persistent=False)
        self.devices.extend(part.device.type for part in self.layers.parameters())

    def to_config(self) -> dict[str, Any]:
        return {"width": self.width, "depth": self.depth}


@storable
@dataclass(eq=False)
class Model:
    predictor: nn.Module
    score: Score
    gate: object = None
    names: dict[str, float] = field(default_factory=dict)


@storable
class Informed(nn.Module):
    """Made of parts, one of which may be a user's own."""

    def __init__(self, net: nn.Module, gate: object, scale: float) -> None:
        super().__init__()
        self.net, self.gate, self.scale = net, gate, scale

    def to_config(self) -> dict[str, Any]:
        return {"net": External(self.net), "gate": External(self.gate), "scale": self.scale}


class OwnNet(nn.Linear):
    """A user's network, of no registered class."""


class OwnGate:
    """A user's gate, of no registered class."""


def model() -> Model:
    generator = torch.Generator().manual_seed(0)
    net = Net(4, 2)
    with torch.no_grad():
        for part in net.parameters():
            part.copy_(torch.randn(part.shape, generator=generator))
    waves = torch.randn(3, 2, dtype=torch.complex128, generator=generator)
    score = Score(Basis(waves, (1, 2)), Clock(0.01, math.inf), [None, True, {"a": (0.5,)}])
    return Model(net, score, "open", {"a": 1.0, "b": 2})


def bits(x: Tensor) -> bytes:
    x = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    x = x.clone(memory_format=torch.contiguous_format)
    return x.reshape(-1).view(torch.uint8).numpy().tobytes()


def same(a: Any, b: Any) -> bool:
    """Compare two values with their types, their tensors bit by bit and objects by their parts."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return (a.dtype, a.shape) == (b.dtype, b.shape) and bits(a) == bits(b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "__dict__"):
        parts = [x.state_dict() if isinstance(x, nn.Module) else vars(x) for x in (a, b)]
        return same(dict(parts[0]), dict(parts[1]))
    return repr(a) == repr(b)  # NaN is NaN, and -0.0 is not 0.0


# A second reader and writer of files, from the description of the format.


def parts_of(content: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    return json.loads(header["__metadata__"]["oism"]), header, content[8 + length :]


def digest_of(about: dict[str, Any], header: dict[str, Any], payload: bytes) -> str:
    def text(value: object) -> bytes:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    sha = hashlib.sha256(text({name: about.get(name) for name in ("class", "config")}))
    for name in sorted(set(header) - {"__metadata__"}):
        first, last = header[name]["data_offsets"]
        sha.update(text([name, CODES[header[name]["dtype"]], header[name]["shape"]]))
        sha.update(payload[first:last])
    return sha.hexdigest()


def with_header(header: dict[str, Any], payload: bytes) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + payload


def edited(content: bytes, change: Callable[[dict[str, Any]], object], *, sign: bool) -> bytes:
    """Return a file whose header was changed, with the digest that it had or with a new one."""
    about, header, payload = parts_of(content)
    change(about)
    if sign:
        about["sha256"] = digest_of(about, header, payload)
    header["__metadata__"]["oism"] = json.dumps(about)
    return with_header(header, payload)


def load(content: bytes, folder: Path, **options: Any) -> Any:
    path = folder / "model.safetensors"
    path.write_bytes(content)
    return storage.load(path, **options)


def refusal(content: bytes, folder: Path, **options: Any) -> str:
    with pytest.raises(StorageError) as caught:
        load(content, folder, **options)
    prefix = f"{folder / 'model.safetensors'}: "
    assert str(caught.value).startswith(prefix), "every error names the file"
    return str(caught.value).removeprefix(prefix)


# Round trips.


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    dtype = draw(st.sampled_from(sorted(storage.DTYPES)))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    seed = draw(st.integers(0, 99))
    size = (math.prod(shape), storage.DTYPES[dtype].itemsize)
    raw = torch.randint(256, size, generator=torch.Generator().manual_seed(seed))
    raw = raw % 2 if dtype == "bool" else raw  # other bytes are no truth values
    x = raw.byte().view(storage.DTYPES[dtype]).reshape(shape)
    view = draw(st.sampled_from(["as it is", "transposed", "strided", "expanded", "conjugated"]))
    if view == "transposed":
        return x.movedim(0, -1) if x.ndim else x
    if view == "strided":
        return x[..., ::2] if x.ndim else x
    if view == "expanded":
        return x.expand(2, *x.shape)
    return x.conj() if view == "conjugated" else x


names = st.text(max_size=5).filter(lambda name: not name.startswith("$") and "." not in name)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
clocks = st.builds(Clock, st.floats(0, 1), st.floats(2, math.inf))
bases = st.builds(
    Basis,
    tensors(),
    st.lists(st.integers(), max_size=3).map(tuple),
    st.sampled_from(list(storage.DTYPES.values())),
)
values = st.recursive(
    scalars | tensors() | clocks | bases,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(names, inner, max_size=3)
    ),
    max_leaves=8,
)


@given(bases, clocks | st.none(), values)
def test_what_is_restored_is_what_was_described(
    basis: Basis, clock: Clock | None, extra: object
) -> None:
    score = Score(basis, clock, extra)
    described, parts = storage.describe(score)
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    again = storage.restore(described, parts)
    assert same(again, score)
    assert storage.to_bytes(again) == storage.to_bytes(score)


@given(values)
def test_what_is_loaded_is_what_was_saved(tmp_path_factory: Any, extra: object) -> None:
    score = Score(Basis(torch.ones(2)), None, extra)
    path = tmp_path_factory.getbasetemp() / "one.safetensors"
    storage.save(score, path)
    assert same(storage.load(path), score)


def test_a_description_is_no_view_of_the_object() -> None:
    basis = Basis(torch.ones(2))
    described, parts = storage.describe(basis)
    basis.frequencies.zero_()
    assert storage.restore(described, parts).frequencies.tolist() == [1.0, 1.0]


def test_loaded_tensors_are_aligned_wherever_they_lie_in_the_file(tmp_path: Path) -> None:
    basis = Basis(torch.ones(2, dtype=torch.complex128))
    _, header, payload = parts_of(storage.to_bytes(basis))
    text = json.dumps(header).encode()
    for spaces in range(8):
        content = (len(text) + spaces).to_bytes(8, "little") + text + b" " * spaces + payload
        again = load(content, tmp_path)
        assert again.frequencies.data_ptr() % 16 == 0
        assert same(again, basis)


def test_equal_objects_give_equal_files() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    one = Score(Basis(x), None, {"a": x.T, "b": 1})
    two = Score(Basis(x.T.contiguous().T), None, {"b": 1, "a": x.T.contiguous()})
    assert storage.to_bytes(one) == storage.to_bytes(two)
    assert storage.to_bytes(one) != storage.to_bytes(Score(Basis(x), None, {"a": x.T, "b": 1.0}))


def test_the_file_is_the_one_that_the_format_describes() -> None:
    about, header, payload = parts_of(storage.to_bytes(model()))
    assert about["sha256"] == digest_of(about, header, payload)
    assert (about["format"], about["version"]) == ("oism", 3)
    assert about["class"] == f"{HERE}.Model"
    score = about["config"]["score"]["$object"]["config"]
    assert score["functions"]["$object"]["config"] == {
        "frequencies": {"$tensor": "complex128"},
        "shape": [1, 2],
        "dtype": {"$dtype": "float64"},
    }
    assert score["clock"]["$object"]["config"]["sigma_max"] == {"$float": "inf"}
    assert header["score.functions.frequencies"]["shape"] == [3, 2, 2]
    assert "predictor.state.layers.1.weight" in header


def test_writing_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "clock.safetensors"
    storage.save(Clock(1.0), path)
    kept = path.read_bytes()

    def fail(draft: Path, content: bytes) -> None:
        with draft.open("wb") as file:
            file.write(content[:50])
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="disk full"):
        storage.save(Clock(2.0), path)
    assert path.read_bytes() == kept
    assert list(tmp_path.iterdir()) == [path]


def test_storable_and_expected(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model().score.save(path)
    assert same(Score.load(path), model().score)
    assert isinstance(storage.load(path, expected=Storable), Score)
    with pytest.raises(StorageError, match=r"holds an object of class '.*\.Score', not '.*\.Net'"):
        storage.load(path, expected=Net)


def test_class_and_config_are_read_from_the_header(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    content = storage.to_bytes(model())
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert storage.class_of(path) == f"{HERE}.Model"
    assert storage.config_of(path) == storage.describe(model())[0]
    for damaged in (
        b"",
        b"text",
        content[:-1],
        edited(content, lambda about: about.clear(), sign=True),
    ):
        path.write_bytes(damaged)
        assert storage.class_of(path) is None
        with pytest.raises(StorageError, match=r"model\.safetensors: "):
            storage.config_of(path)
    assert storage.class_of(tmp_path) is None
    assert storage.class_of(tmp_path / "none") is None


# What cannot be saved.


class Pair(NamedTuple):
    a: int
    b: int


class SubClock(Clock):
    """Not registered, though its base class is."""


UNSTORABLE: list[tuple[object, type[Exception], str]] = [
    (OwnGate(), TypeError, r"entry 'extra' is of class '.*OwnGate', which cannot be stored: reg"),
    ([SubClock(1.0)], TypeError, r"entry 'extra.0' is of class '.*SubClock'"),
    (Pair(1, 2), TypeError, "entry 'extra' is of class '.*Pair'"),
    ({1, 2}, TypeError, "'builtins.set'"),
    ({"a": {1: 2}}, TypeError, r"entry 'extra.a' must have keys that are text without \$, got 1"),
    ({"$a": 1}, TypeError, r"text without \$, got '\$a'"),
    ({"a.b": torch.ones(1), "a": {"b": torch.ones(1)}}, ValueError, "'extra.a.b' is the path of t"),
    (torch.ones(2).to_sparse(), TypeError, "entry 'extra' must be a dense tensor"),
    (torch.ones(2, device="meta"), TypeError, "entry 'extra' must be a dense tensor with values"),
    (torch.ones(2).to(torch.float8_e5m2), TypeError, "has the dtype torch.float8_e5m2"),
]


@pytest.mark.parametrize(("extra", "kind", "message"), UNSTORABLE, ids=range(len(UNSTORABLE)))
def test_what_cannot_be_saved_is_named(extra: object, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        storage.describe(Score(Basis(torch.ones(1)), None, extra))


def test_an_object_that_is_part_of_itself_is_refused() -> None:
    extra: list[object] = []
    extra.append(extra)
    with pytest.raises(ValueError, match="more than 32 levels: is it a part of itself"):
        storage.describe(Score(Basis(torch.ones(1)), None, extra))


def test_what_could_not_be_loaded_is_not_saved() -> None:
    with pytest.raises(TypeError, match=r"Clock must state the arg.*'sigma_min' must be a number"):
        storage.describe(Clock("0", "1"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"'score.functions' must be of class '.*Basis', got None"):
        storage.describe(Model(Net(1), Score(None, None, None)))  # type: ignore[arg-type]


# Registration.


def test_names_are_public() -> None:
    def named(module: str, name: str) -> type[Any]:
        return dataclass(type(name, (), {"__module__": module, "__qualname__": name}))

    assert storage.public_name(named("oism.process._clock", "Clock")) == "oism.process.Clock"
    assert storage.public_name(named("oism.a._b._c", "D")) == "oism.a.D"
    assert storage.public_name(named("mine._own", "D")) == "mine._own.D"
    first = storable(named("oism.toys._a", "Toy"))
    storable(named("oism.toys._a", "Toy"))  # defined again, in a notebook
    with pytest.raises(ValueError, match=r"'oism.toys.Toy' is the name of .*: give .* another"):
        storable(named("oism.toys._b", "Toy"))
    storable("oism.toys.Other")(named("oism.toys._b", "Toy"))
    assert storage.describe(first())[0]["class"] == "oism.toys.Toy"
    for bad in ("_Toy", "toy", "Outer.Toy"):
        with pytest.raises(ValueError, match="must be a public name"):
            storable(named("oism.toys._a", bad))
    with pytest.raises(TypeError, match="must be a dataclass or have a method to_config"):
        storable(OwnGate)
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module to set stores_state"):
        storable(dataclass(type("Toy", (), {"stores_state": True})))


def clock_of_class(name: str) -> bytes:
    return edited(
        storage.to_bytes(Clock(1.0)), lambda about: about.update({"class": name}), sign=True
    )


def test_a_public_module_is_imported_for_its_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("oism.lazy_toys")

    def get(name: str) -> type[Any]:  # as a module does that imports its names when they are used
        if name != "LazyClock":
            raise AttributeError(name)
        return storable("oism.lazy_toys.LazyClock")(type("C", (Clock,), {}))

    module.__dict__["__getattr__"] = get
    monkeypatch.setitem(sys.modules, "oism.lazy_toys", module)
    found = load(clock_of_class("oism.lazy_toys.LazyClock"), tmp_path)
    assert isinstance(found, Clock)
    assert type(found) is not Clock


@pytest.mark.parametrize(
    ("name", "imported"),
    [
        ("my.module.Mine", False),
        ("os.Path", False),
        ("oism._core.atomic.Mine", False),
        ("oism.process._clock.Mine", False),
        ("oism.__main__.Main", False),
        ("oism.storage.mine", False),
        ("oism..Mine", False),
        ("oism.storage.Mine\n", False),
        ("oism" + 5000 * ".a" + ".Mine", False),
        ("", False),
        ("oism.nothing_here.Mine", True),
        ("oism.storage.StorageError", True),  # is there, and is not registered
    ],
)
def test_no_file_decides_which_code_is_run(
    name: str, imported: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = importlib.import_module

    def watched(name: str) -> ModuleType:
        asked.append(name)
        return real(name)

    monkeypatch.setattr(importlib, "import_module", watched)
    message = refusal(clock_of_class(name), tmp_path)
    assert message == (
        f"holds an object of class {name!r}, which is not registered: import the module that "
        "defines it before loading, or give it (see `given`)"
    )
    assert asked == ([name.rpartition(".")[0]] if imported else [])


# Damaged files.


def test_every_changed_byte_of_the_payload_is_an_error(tmp_path: Path) -> None:
    content = storage.to_bytes(model())
    start = 8 + int.from_bytes(content[:8], "little")
    assert len(content) - start > 200
    for place in range(start, len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        assert "SHA-256" in refusal(bytes(damaged), tmp_path)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of everything in a JSON value."""
    inner: Any = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    return [path, *(one for key, part in inner for one in leaves(part, (*path, key)))]


def put(about: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        about = about[key]
    about[path[-1]] = value


def drop(about: Any, path: tuple[Any, ...]) -> None:
    for key in path[:-1]:
        about = about[key]
    del about[path[-1]]


def test_every_changed_value_of_the_configuration_is_an_error(tmp_path: Path) -> None:
    content = storage.to_bytes(model())
    about, header, payload = parts_of(content)
    for path in leaves(about)[1:]:
        for value in (DROPPED, 3.5, "text", None, [1], {}):
            changed = json.loads(json.dumps(about))
            drop(changed, path) if value is DROPPED else put(changed, path, value)
            if changed != about:
                header["__metadata__"]["oism"] = json.dumps(changed)
                assert refusal(with_header(header, payload), tmp_path)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors"):
        storage.load(tmp_path / "none.safetensors")
    with pytest.raises(IsADirectoryError, match=r"is a folder without model\.safetensors"):
        storage.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="pipe: is not a regular file"):
        storage.load(tmp_path / "pipe")


def test_the_length_of_a_file(tmp_path: Path) -> None:
    content = storage.to_bytes(model())
    header = 8 + int.from_bytes(content[:8], "little")
    size = len(content)
    assert refusal(b"", tmp_path) == "is empty"
    for length in (3, 8, 9, header - 1):
        assert refusal(content[:length], tmp_path) == f"is truncated: {length} bytes of {header}"
    for length in (header, size - 1):
        assert refusal(content[:length], tmp_path) == f"is truncated: {length} bytes of {size}"
    for more in (b"\0", content):
        found = refusal(content + more, tmp_path)
        assert found == f"is too long: {len(more)} bytes follow its end"
    for other in (b"\x89PNG\r\n\x1a\n" + bytes(99), b"some text\n" * 9, bytes(8), bytes(99)):
        assert refusal(other, tmp_path).startswith(("is not a safetensors file", "is damaged: "))
    assert refusal(b"a,b\n" * 99, tmp_path) == "is not a safetensors file"
    huge = (90_000_000).to_bytes(8, "little") + b"{"
    assert refusal(huge, tmp_path) == "is truncated: 9 bytes of 90000008"


def test_files_of_others(tmp_path: Path) -> None:
    plain = safetensors.torch.save({"a": torch.ones(2)})
    assert refusal(plain, tmp_path) == "is not a file of oism: its header has no entry 'oism'"

    def of(about: object) -> bytes:
        text = about if isinstance(about, str) else json.dumps(about)
        return safetensors.torch.save({"a": torch.ones(2)}, metadata={"oism": text})

    old = of({"format": "oism.OperatorScore", "version": 2, "settings": 5})
    assert refusal(old, tmp_path) == (
        "has format 'oism.OperatorScore', version 2; this oism reads format 'oism', version 3: fit "
        "again"
    )
    assert refusal(of({"format": "oism", "version": 4}), tmp_path).endswith(
        "version 3: upgrade oism"
    )
    assert refusal(of({"format": "oism", "version": 2}), tmp_path).endswith("version 3: fit again")
    assert refusal(of({"format": "oism", "version": "x"}), tmp_path).endswith("fit again")
    assert refusal(of({}), tmp_path).startswith("has format None, version None")
    for text, shown in (("[1,2]", "[1, 2]"), ("5", "5"), ('"a"', "'a'"), ("null", "None")):
        assert (
            refusal(of(text), tmp_path)
            == f"is damaged: its header must hold an object, got {shown}"
        )
    for text in ("", "{", "{'a': 1}", "[1e999]", "[NaN]", 50_000 * "[" + 50_000 * "]", "9" * 5000):
        assert refusal(of(text), tmp_path) == "is damaged: its header is not JSON that oism writes"


ABOUT: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda a: a.update(config=5), "entry 'config' must be an object, got 5"),
    (lambda a: a.update(config=[1]), "entry 'config' must be an object, got [1]"),
    (lambda a: a.pop("config"), "entry 'config' must be an object, got None"),
    (lambda a: a.update({"class": None}), "entry 'class' must be text, got None"),
    (lambda a: a.update({"class": [1]}), "entry 'class' must be text, got [1]"),
    (lambda a: a.update(more=1), "entry 'more' is unknown"),
    (lambda a: a.update(version=3.0), "entry 'version' must be an integer, got 3.0"),
]


@pytest.mark.parametrize(("change", "message"), ABOUT)
def test_the_object_in_the_header(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    assert refusal(edited(storage.to_bytes(Clock(1.0)), change, sign=True), tmp_path) == message


SCORE = ("config", "score", "$object", "config")
CLOCK = (*SCORE, "clock", "$object", "config")
BASIS = (*SCORE, "functions", "$object", "config")
NET = ("config", "predictor", "$object", "config")
MARKS = "must be an object with one key out of $tensor, $object, $external, $float, $dtype, $list"
NOT_REGISTERED = (
    "holds an object of class 'Mine', which is not registered: import the module that defines it "
    "before loading, or give it (see `given`)"
)
PAIR = "must be an object with the keys 'class' and"
ENTRIES: dict[str, list[tuple[tuple[str, ...], object, str]]] = {
    "score.clock.sigma_min": [
        ((*CLOCK, "sigma_min"), DROPPED, "is missing"),
        ((*CLOCK, "sigma_min"), "a", "must be a number, got 'a'"),
        ((*CLOCK, "sigma_min"), True, "must be a number, got True"),
        ((*CLOCK, "sigma_min"), None, "must be a number, got None"),
        ((*CLOCK, "sigma_min"), {"$float": "1e5"}, "must be one of inf, -inf, nan, got '1e5'"),
        ((*CLOCK, "sigma_min"), {"$float": [1]}, "must be one of inf, -inf, nan, got [1]"),
        ((*CLOCK, "sigma_min"), {"$list": 5}, "must be an array, got 5"),
        ((*CLOCK, "sigma_min"), {"$lost": 5}, f"{MARKS}, got {{'$lost': 5}}"),
        ((*CLOCK, "sigma_min"), {"$list": [], "a": 1}, f"{MARKS}, got {{'$list': [], 'a': 1}}"),
    ],
    "score.clock.sigma": [
        ((*CLOCK, "sigma"), 1, f"is unknown: {HERE}.Clock has no such argument"),
    ],
    "score.clock": [
        ((*CLOCK, "sigma_max"), 0, "cannot be built: sigma_max must exceed sigma_min, got 0"),
        ((*SCORE, "clock"), 3, f"must be of class '{HERE}.Clock' or None, got 3"),
        ((*SCORE, "clock"), {"$object": 3}, f"{PAIR} 'config', got 3"),
        ((*SCORE, "clock"), {"$object": {"class": "Mine", "config": {}}}, NOT_REGISTERED),
        ((*SCORE, "clock"), {"$external": 5}, f"{PAIR} 'state', got 5"),
    ],
    "score.clock.class": [
        ((*SCORE, "clock"), {"$object": {"class": 1, "config": {}}}, "must be text, got 1"),
    ],
    "score.clock.config": [
        ((*SCORE, "clock", "$object", "config"), 5, "must be an object, got 5"),
    ],
    "score.functions.shape": [
        ((*BASIS, "shape"), 5, "must be tuple[int, ...], got 5"),
        ((*BASIS, "shape"), [1, "a"], "must be tuple[int, ...], got (1, 'a')"),
    ],
    "score.functions.dtype": [
        (
            (*BASIS, "dtype"),
            {"$dtype": "float8"},
            f"must be one of {', '.join(storage.DTYPES)}, got 'float8'",
        ),
    ],
    "score.functions.frequencies": [
        ((*BASIS, "frequencies"), 5, "must be a tensor, got 5"),
        ((*SCORE, "functions.frequencies"), {"$tensor": "complex128"}, "is named twice"),
        (
            (*BASIS, "frequencies"),
            {"$tensor": "float32"},
            "must be a tensor that holds torch.float32, got torch.float64 of shape (3, 2, 2)",
        ),
    ],
    "score.extra": [
        ((*SCORE, "extra"), {"$tensor": "float32"}, "is missing: no tensor has this name"),
    ],
    "predictor.width": [
        ((*NET, "width"), "abc", "must be an integer, got 'abc'"),
        ((*NET, "width"), 4.0, "must be an integer, got 4.0"),
    ],
    "predictor": [
        ((*NET, "width"), 0, "cannot be built: width must be at least 1, got 0"),
        ((*NET, "depth"), 1, "cannot be built: tensor 'layers.1.bias' is unknown to Net"),
        ((*NET, "state", "mean"), DROPPED, "cannot be built: tensor 'mean' is missing"),
        (NET[:2], 3, "must be of class 'torch.nn.modules.module.Module', got 3"),
    ],
    "predictor.state": [
        ((*NET, "state"), DROPPED, "is missing"),
        ((*NET, "state"), 5, "must be an object whose values are tensors, got 5"),
        (
            (*NET, "state"),
            {"mean": 5},
            "must be an object whose values are tensors, got {'mean': 5}",
        ),
    ],
    "names": [(("config", "names"), {"a": "b"}, "must be dict[str, float], got {'a': 'b'}")],
}


@pytest.mark.parametrize(
    ("entry", "path", "value", "fault"),
    [(entry, *row) for entry, rows in ENTRIES.items() for row in rows],
)
def test_an_entry_that_is_wrong_is_named(
    entry: str, path: tuple[str, ...], value: object, fault: str, tmp_path: Path
) -> None:
    def change(about: Any) -> None:
        drop(about, path) if value is DROPPED else put(about, path, value)

    found = refusal(edited(storage.to_bytes(model()), change, sign=True), tmp_path)
    assert found == f"entry {entry!r} {fault}"


def test_a_tensor_of_no_entry_is_refused(tmp_path: Path) -> None:
    score = Score(Basis(torch.ones(1)), None, torch.ones(1))
    damaged = edited(storage.to_bytes(score), lambda a: put(a, ("config", "extra"), 1), sign=True)
    assert refusal(damaged, tmp_path) == "tensor 'extra' belongs to no entry"


def test_levels_are_limited(tmp_path: Path) -> None:
    def nested(levels: int) -> bytes:
        value: Any = 1
        for _ in range(levels):
            value = [value]
        content = storage.to_bytes(Score(Basis(torch.ones(1)), None, None))
        return edited(content, lambda about: put(about, ("config", "extra"), value), sign=True)

    assert load(nested(31), tmp_path)
    assert "more than 32 levels" in refusal(nested(32), tmp_path)
    assert "more than 32 levels" in refusal(nested(300), tmp_path)


def test_an_error_of_a_constructor_is_the_cause(tmp_path: Path) -> None:
    damaged = edited(
        storage.to_bytes(Clock(1.0)), lambda a: put(a, ("config", "sigma_max"), 0), sign=True
    )
    path = tmp_path / "model.safetensors"
    path.write_bytes(damaged)
    with pytest.raises(
        StorageError, match=r"safetensors: cannot be built: sigma_max must"
    ) as caught:
        storage.load(path)
    assert isinstance(caught.value.__cause__, StorageError)
    assert isinstance(caught.value.__cause__.__cause__, ValueError)


# Types.


@storable
@dataclass
class Typed:
    number: float = 1.0
    pair: tuple[int, str] = (1, "a")
    one: tuple[int] = (1,)
    many: Sequence[float] = (1.0,)
    items: list[str] = field(default_factory=list)
    table: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    either: int | Clock | None = None
    word: Literal["a", "b"] = "a"
    flag: bool = True
    anything: Any = None
    unknown: Decimal | None = None
    call: Callable[[int], int] = abs


MATCHES: list[tuple[str, list[object], list[object]]] = [
    ("number", [1, 1.5, math.nan], [True, "1", None, (1.0,)]),
    ("pair", [(1, "a")], [(1,), (1, 2), ("a", 1), [1, "a"], (1, "a", "b")]),
    ("one", [(3,)], [(), (1, 2), ("a",)]),
    ("many", [(), (1, 2.0), [1.0]], ["abc", ("a",), {"a": 1.0}, 1.0]),
    ("items", [[], ["a"]], [("a",), [1], "a"]),
    ("table", [{}, {"a": (1, 2)}], [{"a": 1}, {"a": ("b",)}, [("a", (1,))]]),
    ("either", [None, 3, Clock(1.0)], [3.0, "a", True, Basis(torch.ones(1))]),
    ("word", ["a", "b"], ["c", 1, None]),
    ("flag", [True, False], [0, 1, None, "true"]),
    ("anything", [None, 3, {"a": [1]}], []),
    ("unknown", [None, 3, "a"], []),
]


@pytest.mark.parametrize(
    ("name", "good", "bad"), MATCHES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_annotations_are_kept_to(name: str, good: list[object], bad: list[object]) -> None:
    given = {"call": {"$external": {"class": "builtin_function_or_method", "state": None}}}

    def restored(value: object) -> Any:
        encoded, parts = storage.describe(Score(Basis(torch.ones(1)), None, value))
        own = {key.replace("extra", name, 1): part for key, part in parts.items()}
        own.pop("functions.frequencies")
        config = {name: encoded["config"]["extra"], **given}
        described = {"class": f"{HERE}.Typed", "config": config}
        return storage.restore(described, own, given={"call": abs})

    for value in good:
        assert same(getattr(restored(value), name), value)
    for value in bad:
        with pytest.raises(StorageError, match=f"entry '{name}' must be "):
            restored(value)


# Modules.


def test_a_module_is_filled_and_random_numbers_are_left_alone(tmp_path: Path) -> None:
    net = Net(4, 2).double()
    net.layers[1].weight = net.layers[0].weight
    content = storage.to_bytes(net)
    before = torch.get_rng_state()
    again = load(content, tmp_path, expected=Net)
    assert torch.equal(torch.get_rng_state(), before)
    assert same(again, net)
    assert again.layers[0].weight.dtype == torch.float64
    assert isinstance(again.layers[0].weight, nn.Parameter)
    assert again.layers[0].weight.requires_grad
    assert again.waves.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert not again.training


def test_loading_is_on_the_cpu_whatever_the_default_device(tmp_path: Path) -> None:
    content = storage.to_bytes(Net(4))
    with torch.device("meta"):
        again = load(content, tmp_path)
    assert again.layers[0].weight.device.type == again.waves.device.type == "cpu"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("width", 8000, "tensor 'layers.0.weight' has shape (4, 3), but Net has (8000, 3) there"),
        (
            "width",
            10**13,
            "tensor 'layers.0.weight' has shape (4, 3), but Net has (10000000000000, 3)",
        ),
        ("width", 10**30, ""),
        ("depth", 2, "tensor 'layers.1.weight' is missing"),
        ("depth", 10**5, "it has far more layers than there are tensors"),
        ("depth", 0, "tensor 'layers.0.bias' is unknown to Net"),
    ],
)
def test_sizes_that_a_file_claims_get_no_memory(
    name: str, value: int, message: str, tmp_path: Path
) -> None:
    content = storage.to_bytes(Net(4))
    damaged = edited(content, lambda about: put(about, ("config", name), value), sign=True)
    Net.devices.clear()
    assert refusal(damaged, tmp_path).startswith(f"cannot be built: {message}")
    assert "cpu" not in Net.devices, "the constructor ran only where nothing is allocated"
    load(content, tmp_path)
    assert Net.devices[-3:] == ["meta", "cpu", "cpu"], "the test sees where it ran"


# Parts of a user's own.


def informed(net: nn.Module, gate: object) -> bytes:
    holder = Model(Informed(net, gate, 0.5), Score(Basis(torch.ones(1)), None, None))
    return storage.to_bytes(holder)


@pytest.mark.parametrize("key", ["net", "predictor.net"])
def test_a_part_that_is_given_gets_the_weights(key: str, tmp_path: Path) -> None:
    net, gate, mine = OwnNet(3, 2).double(), OwnGate(), OwnNet(3, 2)
    found = load(informed(net, gate), tmp_path, given={key: mine, "gate": gate})
    assert found.predictor.net is mine
    assert found.predictor.gate is gate
    assert found.predictor.scale == 0.5
    assert same(mine, net), "in the precision of the file"


def test_a_part_of_a_registered_class_need_not_be_given(tmp_path: Path) -> None:
    net = Net(2)
    found = load(informed(net, None), tmp_path)
    assert same(found.predictor.net, net)
    assert found.predictor.gate is None
    assert "given 'net' is not the name" in refusal(
        informed(net, None), tmp_path, given={"net": net}
    )


def test_a_class_of_the_same_name_may_be_given(tmp_path: Path) -> None:
    other = type("OwnNet", (nn.Linear,), {"__module__": "another"})
    assert load(informed(OwnNet(3, 2), None), tmp_path, given={"net": other(3, 2)})


def test_parts_that_are_not_given_or_do_not_fit(tmp_path: Path) -> None:
    content = informed(OwnNet(3, 2), OwnGate())
    gate, net = OwnGate(), OwnNet(3, 2)
    assert refusal(content, tmp_path, given={"gate": gate}) == (
        f"entry 'predictor.net' is an object of class '{HERE}.OwnNet' that is not part of oism: "
        "give it again, load(path, given={'net': …})"
    )
    assert refusal(content, tmp_path, given={"gate": gate, "net": nn.Linear(3, 2)}) == (
        f"entry 'predictor.net' is an object of class '{HERE}.OwnNet', but the one given is of "
        "class 'torch.nn.modules.linear.Linear'"
    )
    assert refusal(content, tmp_path, given={"gate": gate, "net": OwnNet(3, 5)}) == (
        "entry 'predictor.net' cannot be filled: tensor 'weight' has shape (2, 3), but OwnNet has "
        "(5, 3) there"
    )
    found = refusal(content, tmp_path, given={"gate": gate, "net": net, "nett": net})
    assert found == "given 'nett' is not the name of an entry that has to be given"


def test_two_parts_of_one_name(tmp_path: Path) -> None:
    first, second = OwnNet(3, 2), OwnNet(3, 2)
    inner = Informed(first, None, 1.0)
    content = storage.to_bytes(
        Score(Basis(torch.ones(1)), None, (inner, Informed(second, None, 2.0)))
    )
    mine = {"extra.0.net": OwnNet(3, 2), "extra.1.net": OwnNet(3, 2)}
    load(content, tmp_path, given=mine)
    assert same(mine["extra.0.net"], first)
    assert same(mine["extra.1.net"], second)
    assert refusal(content, tmp_path, given={"net": first}) == (
        "entry 'extra.1.net' needs a part of its own: given 'net' is that of 'extra.0.net'"
    )


def test_an_object_whose_class_is_not_registered_here_can_be_given(tmp_path: Path) -> None:
    kind: Any = type("Net", (Net,), {"__module__": "trained"})
    old = storable("trained.Net")(kind)(2)
    content = storage.to_bytes(Score(Basis(torch.ones(1)), None, {"net": old}))
    del CLASSES["trained.Net"]
    mine = Net(2)
    assert "'extra.net' holds an object of class 'trained.Net', which is not" in refusal(
        content, tmp_path
    )
    assert load(content, tmp_path, given={"net": mine}).extra["net"] is mine
    assert same(dict(mine.state_dict()), dict(old.state_dict()))

    other: Any = storable("trained.Basis")(type("Basis", (Basis,), {"__module__": "trained"}))
    content = storage.to_bytes(Score(Basis(torch.ones(1)), None, other(torch.ones(2))))
    del CLASSES["trained.Basis"]
    basis = Basis(torch.ones(3))
    assert load(content, tmp_path, given={"extra": basis}).extra is basis


# Random damage.


def random_json(rng: random.Random) -> Any:
    simple: list[Any] = [
        None,
        True,
        -1,
        0,
        3,
        2**70,
        0.5,
        1e300,
        "",
        "text",
        "float64",
        [],
        {},
        [1, 2],
    ]
    marks = [{mark: rng.choice(simple)} for mark in ("$tensor", "$object", "$external", "$dtype")]
    known = {"$object": {"class": rng.choice(sorted(CLASSES)), "config": {}}}
    return rng.choice([*simple, *marks, {"$float": "nan"}, {"$list": [1]}, {"a": {"$x": 1}}, known])


def mutated(content: bytes, rng: random.Random) -> bytes:
    way = rng.choice(["flip", "truncate", "append", "edit", "sign", "sign", "tensor"])
    if way == "truncate":
        return content[: rng.randrange(len(content))]
    if way == "append":
        return content + rng.randbytes(rng.randint(1, 20))
    if way == "flip":
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 1, 4])):
            # The start is where most can go wrong: the lengths, the names, the shapes.
            damaged[rng.randrange(rng.choice([16, 400, len(content)]))] = rng.randrange(256)
        return bytes(damaged)
    if way == "tensor":
        _, header, payload = parts_of(content)
        name = rng.choice(sorted(set(header) - {"__metadata__"}))
        entry = header.pop(name)
        entry[rng.choice(sorted(entry))] = rng.choice([random_json(rng), [0, 2**62], "F64", "F4"])
        return with_header({**header, rng.choice([name, "other"]): entry}, payload)

    def change(about: dict[str, Any]) -> None:
        for _ in range(rng.choice([1, 1, 3])):
            path = rng.choice(leaves(about)[1:])
            drop(about, path) if rng.random() < 0.3 else put(about, path, random_json(rng))

    return edited(content, change, sign=way == "sign")


def test_random_damage_is_a_clear_error_or_does_no_harm(tmp_path: Path) -> None:
    rng = random.Random(0)
    whole = model()
    content = storage.to_bytes(whole)
    refused: list[str] = []
    built = 0
    for _ in range(600):
        damaged = mutated(content, rng)
        try:
            found = load(damaged, tmp_path)
        except StorageError as error:
            refused.append(str(error))
            continue
        built += 1
        about, header, payload = parts_of(damaged)
        assert about["sha256"] == digest_of(about, header, payload)
        if about["config"] == parts_of(content)[0]["config"]:
            assert same(found, whole)
    assert all(": " in message and len(message) < 1000 for message in refused)
    assert len(refused) > 400
    assert built > 5, "who signs again may change values"


def test_a_background_that_was_saved_without_degrees_is_gaussian(tmp_path: Path) -> None:
    """As by versions before it was Student."""
    zero, one = torch.zeros(1).double(), torch.ones(1).double()
    background = Background(0.5, one > 0, zero, one[:, None], zero, one, zero, 3.0)
    assert storage.load(saved(background, tmp_path)).degrees == 3
    content = saved(background, tmp_path).read_bytes()
    old = load(edited(content, lambda about: about["config"].pop("degrees"), sign=True), tmp_path)
    assert old.degrees == math.inf
    assert storage.load(saved(old, tmp_path)).degrees == math.inf
    normal = scipy.stats.norm.logpdf([0.5, 40.0])
    rows = torch.tensor([[0.5], [40.0]]).double()
    np.testing.assert_allclose(old.log_density(rows).numpy(), normal, rtol=1e-12)


def saved(thing: object, folder: Path) -> Path:
    path = folder / "thing.safetensors"
    storage.save(thing, path)
    return path
