"""What `slots.h` makes of a module is what the interpreter makes of it."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from deploy.compiled import build

MODULE = """
from enum import Enum
from typing import Any, NamedTuple


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Pair(NamedTuple):
    first: int
    second: Any = "none"
    third: float = 3.0


class Odd(NamedTuple):
    one: int


def pairs() -> list[Any]:
    return [Pair(1), Pair(1, "x"), Pair(1, "x", 2.0), Pair(first=4, third=5.0)]


def make(kind: Any, *values: Any) -> Any:
    return kind(*values)


def one(kind: Any, value: Any) -> Any:
    return kind(value)


def first(it: Any) -> Any:
    return it.first


def is_red(colour: Any) -> bool:
    return colour is Colour.RED


LIMIT = 1


def limit() -> int:
    return LIMIT


def is_one(it: Any, kind: Any) -> bool:
    return isinstance(it, kind)
"""


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("it", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The module as the core is compiled."""
    try:
        build.require_compiler()
    except build.CannotCompile as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("slots")
    (folder / "it.py").write_text(MODULE)
    told = f"""
import sys
sys.path[:0] = [{str(build.ROOT)!r}]
from pathlib import Path
from deploy.compiled import build
build.C_FILES = Path("c")
build._compile(build._generate(["it.py"]), Path("."))
"""
    subprocess.run([sys.executable, "-c", told], cwd=folder, check=True, env={**os.environ})
    (library,) = folder.glob("it.*.so")
    return _load(library)


@pytest.fixture
def written(tmp_path: Path) -> ModuleType:
    (tmp_path / "it.py").write_text(MODULE)
    return _load(tmp_path / "it.py")


def test_named_tuples_are_made_alike(compiled: ModuleType, written: ModuleType) -> None:
    for _ in range(3):
        assert compiled.pairs() == written.pairs()
    assert {type(pair) for pair in compiled.pairs()} == {compiled.Pair}
    assert compiled.pairs()[0]._asdict() == {"first": 1, "second": "none", "third": 3.0}


def test_too_few_and_too_many_values_are_refused_alike(
    compiled: ModuleType, written: ModuleType
) -> None:
    for module in (compiled, written):
        assert module.one(module.Odd, 1) == (1,)
        assert module.one(module.Pair, 1) == (1, "none", 3.0)
        with pytest.raises(TypeError):
            module.make(module.Pair)
        with pytest.raises(TypeError):
            module.make(module.Odd, 1, 2)
        with pytest.raises(TypeError):
            module.make(module.Pair, 1, 2, 3, 4)


def test_other_tuples_make_themselves(compiled: ModuleType) -> None:
    class Doubled(tuple[int, ...]):
        _fields = ("one",)

        def __new__(cls, value: int) -> "Doubled":
            return super().__new__(cls, (value, value))

    class More(compiled.Odd):
        def __new__(cls, value: int) -> "More":
            return super().__new__(cls, value + 1)

    for _ in range(3):
        assert compiled.one(Doubled, 1) == (1, 1)
        assert compiled.one(More, 1) == (2,)
        assert compiled.one(compiled.Odd, 1) == (1,)
        assert compiled.one(tuple, [1, 2]) == (1, 2)
        assert compiled.one(str, 1) == "1"


def test_a_field_is_read_of_whatever_has_it(compiled: ModuleType) -> None:
    class Slotted:
        __slots__ = ("first",)

    class Plain:
        first = "of the class"

    class Worked:
        @property
        def first(self) -> str:
            return "worked out"

    slotted = Slotted()
    for _ in range(3):
        assert compiled.first(compiled.Pair("p")) == "p"
        with pytest.raises(AttributeError):
            compiled.first(slotted)
        assert compiled.first(Plain()) == "of the class"
        assert compiled.first(Worked()) == "worked out"
        with pytest.raises(AttributeError):
            compiled.first((1, 2))
    slotted.first = "now"
    assert compiled.first(slotted) == "now"
    Plain.first = "changed"
    assert compiled.first(Plain()) == "changed"


def test_a_member_of_an_enumeration_stays_itself(compiled: ModuleType) -> None:
    for _ in range(3):
        assert compiled.is_red(compiled.Colour.RED)
        assert not compiled.is_red(compiled.Colour.BLUE)


def test_isinstance_asks_whoever_has_a_say(compiled: ModuleType) -> None:
    class Never(type):
        def __instancecheck__(cls, it: object) -> bool:
            return False

    class Nobody(metaclass=Never):
        pass

    for _ in range(3):
        assert compiled.is_one(1, int)
        assert compiled.is_one(True, int)
        assert not compiled.is_one("1", (int, float))
        assert compiled.is_one(1, int | str)

    class Child(Nobody):
        pass

    assert not compiled.is_one(Child(), Nobody)
