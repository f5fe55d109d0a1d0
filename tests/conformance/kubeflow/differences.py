"""Scenarios where ours differs on purpose, as rules; docs/kubeflow-differences.md has the reasons."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

# More than this share of the scenarios may not differ.
SHARE_MAX = 0.03

Scenario = Mapping[str, Any]


class Difference(NamedTuple):
    # The heading under which the document gives the reason.
    title: str
    applies: Callable[[Scenario], bool]


def _finished_without_a_time(scenario: Scenario) -> bool:
    status = scenario["given"].get("status")
    if scenario["when"] != "one reconcile" or not status or "recommended" in scenario:
        return False
    ends = ("Succeeded", "Failed")
    ended = any(each["type"] in ends and each["status"] == "True" for each in status["conditions"])
    return ended and "completionTime" not in status


def _asked_to_leave(scenario: Scenario) -> bool:
    """A restartable replica that is being deleted, of a kind that calls the whole job failed."""
    if scenario["when"] != "one reconcile" or "recommended" in scenario:
        return False
    roles, pods = scenario["given"]["spec"]["replicas"], scenario["given"]["pods"]
    going = [pod for pod in pods if pod.get("terminating")]
    rules = [roles[pod["type"]].get("restartPolicy", "Never") for pod in going]
    fails = any(each[:2] == ["Failed", "True"] for each in scenario["expect"].get("conditions", ()))
    return fails and any(rule != "Never" for rule in rules)


def _port_is_missing(scenario: Scenario) -> bool:
    return "port not found" in str(scenario["expect"].get("error", ""))


def _restarted_in_place_after_a_permanent_exit(scenario: Scenario) -> bool:
    chief = str(scenario["given"].get("chief_container", ""))
    return chief.startswith("running, last termination") and scenario["expect"]["state"] == "Failed"


DIFFERENCES: tuple[Difference, ...] = (
    Difference("A finished job always has its completion time", _finished_without_a_time),
    Difference("A replica that is asked to leave has not failed", _asked_to_leave),
    Difference("The framework's port is never missing", _port_is_missing),
    Difference("A container that runs is running", _restarted_in_place_after_a_permanent_exit),
)


def difference(scenario: Scenario) -> Difference | None:
    return next((each for each in DIFFERENCES if each.applies(scenario)), None)
