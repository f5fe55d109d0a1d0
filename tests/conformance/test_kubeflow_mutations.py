"""The harness itself: a scenario whose expectation is altered anywhere must fail.

Each expectation of the sample files is altered in every place, one at a time: a value becomes
another one, a list gets one entry more, a mapping one key more. Where a scenario recommends what would be
better than what upstream does, that sentence is what is compared, and so what is altered.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.conformance.gangs.one_cycle import same_but_for_ids
from tests.conformance.kubeflow import recommended
from tests.conformance.kubeflow.differences import difference
from tests.conformance.kubeflow.tracking import Expected
from tests.conformance.test_kubeflow import read

Path = tuple[str | int, ...]
Scenario = Mapping[str, Any]


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place of an expectation; of alternatives, those of the first stand for all."""
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from places(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:1] if path == ("any_of",) else value):
            yield from places(inner, (*path, number))


def altered(value: Any) -> Any:
    match value:
        case dict():
            return {**value, "unheard of": 1}
        case list():
            return [*value, copy.deepcopy(value[-1]) if value else "unheard of"]
        case bool():
            return not value
        case int() | float():
            return value + 1
        case None:
            return "unheard of"
        case _:
            return f"{value}-altered"


def altered_at(value: Any, path: Path) -> Any:
    """A copy of an expectation that differs in one place, in all alternatives alike."""
    if not path:
        return altered(value)
    first, *rest = path
    changed = copy.copy(value)
    if first == "any_of" and rest:
        changed["any_of"] = [altered_in(each, tuple(rest[1:])) for each in value["any_of"]]
    else:
        changed[first] = altered_at(value[first], tuple(rest))
    return changed


def altered_in(alternative: Any, path: Path) -> Any:
    """An alternative may lack the place; then all of it is altered."""
    try:
        return altered_at(alternative, path)
    except (KeyError, IndexError):
        return altered(alternative)


def wrong_ones(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    if "recommended" in scenario:
        yield "recommended", {**scenario, "recommended": "something that no reader knows"}
        return
    expect = scenario["expect"]
    for path in places(expect):
        if path == ("any_of",):
            # One alternative more is no other expectation.
            continue
        yield str(path), {**scenario, "expect": altered_at(expect, path)}


def test_an_altered_expectation_fails(kubeflow_scenario: Scenario) -> None:
    if difference(kubeflow_scenario) is not None:
        pytest.skip("ours differs, so nothing of it is compared")
    read(kubeflow_scenario)
    passed = []
    for where, wrong in wrong_ones(kubeflow_scenario):
        try:
            read(wrong)
        except Exception:  # noqa: BLE001 - however a reader refuses it, it refuses it
            continue
        passed.append(where)
    assert not passed, f"altered in {passed}, it still passes"


def test_unread_fields_are_detected_at_any_depth() -> None:
    expected = Expected({"a": {"b": 1, "c": [{"d": 2, "e": 3}]}, "f": 4, "g": {"h": 5}})
    assert expected["a"]["c"][0]["d"] == 2
    assert expected["g"] == {"h": 5}
    assert {**expected["g"]} == {"h": 5}
    assert expected.unseen() == ["expect.a.b", "expect.a.c[0].e", "expect.f"]


def test_a_recommendation_of_which_nothing_is_known_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recommended, "invariants", lambda outcome: [])
    with pytest.raises(AssertionError, match="no reader knows the recommendation"):
        recommended.problems(None, "make it better")  # type: ignore[arg-type]


def test_victims_that_the_scenario_does_not_have_are_no_victims() -> None:
    """A name that did not match once ended the comparison, and everything before it was equal."""
    scenario = {"running": [{"id": "a", "gpus": 1}, {"id": "b", "gpus": 1}, {"id": "c", "gpus": 2}]}
    assert same_but_for_ids(scenario, ["a"], ["b"])
    assert same_but_for_ids(scenario, ["a#1"], ["b"])
    assert not same_but_for_ids(scenario, ["a"], ["c"])
    with pytest.raises(AssertionError, match="is called x"):
        same_but_for_ids(scenario, ["x"], ["y"])
