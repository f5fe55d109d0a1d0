"""Fault rates of nodes: a published preset by its name, or two mean times."""

from simulator.faults.presets import PRESETS
from studies.whatif.scenario_parts import Faults

HOUR_S, DAY_S = 3_600.0, 86_400.0


def faults_named(text: str) -> Faults:
    """Parse `none`, a preset of the simulator, or `MTBF_DAYS:REPAIR_HOURS` of a node as in `90:6`.

    The repair time is 6 hours where it is missing. Raise ValueError for any other text.
    """
    if text == "none":
        return Faults()
    preset = PRESETS.get(text)
    if preset is not None:
        mtbf_s = DAY_S / preset.node_rate_day
        return Faults(name=text, node_mtbf_s=mtbf_s, node_repair_s=preset.repair_mean_s)
    days, colon, hours = text.partition(":")
    try:
        faults = Faults(
            name=text,
            node_mtbf_s=float(days) * DAY_S,
            node_repair_s=float(hours) * HOUR_S if colon else 6 * HOUR_S,
        )
    except ValueError:
        names = ", ".join(("none", *PRESETS))
        raise ValueError(
            f"{text!r} is not a fault preset; use one of {names}, or MTBF_DAYS:REPAIR_HOURS as in 90:6"
        ) from None
    if not (faults.node_mtbf_s or 0) > 0 or not faults.node_repair_s > 0:
        raise ValueError(f"{text!r}: the mean times must be above 0")
    return faults
