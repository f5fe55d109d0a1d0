"""The faults of a cluster file."""

from collections.abc import Iterable
from typing import Protocol

from simulator.config.parsing import BadCluster, Fields
from simulator.faults import PRESETS, Fault, FaultKind, FaultModel, Spot, Window

SCRIPT_MAX = 100_000
# The kinds of faults that a script may contain.
SCRIPTED = tuple(kind for kind in FaultKind if kind is not FaultKind.GIVEN_BACK)


class Placed(Protocol):
    """The name and the rack of a node, to which faults refer."""

    @property
    def name(self) -> str: ...

    @property
    def rack(self) -> str: ...


def faults_of(fields: Fields, nodes: Iterable[Placed]) -> FaultModel:
    names, racks = set[str](), set[str]()
    for node in nodes:
        names.add(node.name)
        racks.add(node.rack)
    default = FaultModel()
    chance = fields.has("node_mtbf_s")
    preset = fields.choice("preset", "none", ("none", *PRESETS))
    model = FaultModel(
        # A mean below one second would make the model do nothing but crash nodes.
        node_mtbf_s=fields.number("node_mtbf_s", least=1.0) if chance else None,
        node_repair_s=fields.number("node_repair_s", default.node_repair_s, least=1.0),
        script=tuple(_fault(f, names) for f in fields.records("script", SCRIPT_MAX)),
        preset=PRESETS.get(preset),
        windows=tuple(_window(f, racks) for f in fields.records("maintenance", 1000)),
        spot=_spot(fields.record("spot"), racks) if fields.has("spot") else None,
    )
    fields.done()
    return model


def _fault(fields: Fields, names: set[str]) -> Fault:
    node = fields.label("node")
    if node not in names:
        raise BadCluster(fields.at("node"), f"names {node}, which is no node of this cluster")
    kind = FaultKind(fields.choice("kind", FaultKind.CRASH, SCRIPTED))
    fault = Fault(
        at_s=fields.number("at_s"),
        node=node,
        repair_s=fields.number("repair_s") if fields.has("repair_s") else None,
        kind=kind,
        cause=fields.text("cause", ""),
        factor=fields.number("factor", 1.0 if kind.takes_node else 0.5, least=0.001),
        notice_s=fields.number("notice_s", 0.0),
    )
    if fault.factor > 1.0:
        raise BadCluster(fields.at("factor"), "must be at most 1: what is left of the speed")
    fields.done()
    return fault


def _window(fields: Fields, racks: set[str]) -> Window:
    window = Window(
        at_s=fields.number("at_s"),
        duration_s=fields.number("duration_s", least=1.0),
        rack=_rack(fields, racks),
        every_s=fields.number("every_s", least=60.0) if fields.has("every_s") else None,
    )
    fields.done()
    return window


def _rack(fields: Fields, racks: set[str]) -> str:
    rack = fields.label("rack") if fields.has("rack") else ""
    if rack and rack not in racks:
        raise BadCluster(fields.at("rack"), f"names {rack}, which is no rack of this cluster")
    return rack


def _spot(fields: Fields, racks: set[str]) -> Spot:
    rack = _rack(fields, racks)
    spot = Spot(
        mean_s=fields.number("mean_s", least=60.0),
        notice_s=fields.number("notice_s", 120.0),
        gone_s=fields.number("gone_s", 1800.0, least=1.0),
        racks=(rack,) if rack else (),
    )
    fields.done()
    return spot
