"""How often nodes fail, by the name of who published it: faults a node and day, and mean repair.

Llama 3 (arXiv:2407.21783, table 5), Meta's research clusters RSC-1 and RSC-2 (arXiv:2410.21680),
Acme (NSDI'24), Philly (ATC'19) and the StepFun trace (584 faults on 400 servers in 348 days, with
repairs of 5.5 days in the mean, which stand in where a paper has none: 5.9 hours without the tail).
"""

from studies.scenario import DAY_S, Faults

HOUR_S = 3_600.0
NODE_FAULTS = {
    "llama3": (419 / 54 / 2048, 5.9 * HOUR_S),
    "rsc1": (6.5e-3, 5.9 * HOUR_S),
    "rsc2": (2.34e-3, 5.9 * HOUR_S),
    "acme": (3.8e-3, 5.9 * HOUR_S),
    "philly": (1.0e-3, 5.9 * HOUR_S),
    "stepfun": (584 / (400 * 348), 5.535 * DAY_S),
}


def faults_named(text: str) -> Faults:
    """`none`, a name of the table, or `MTBF_DAYS:REPAIR_HOURS` as in `90:6`."""
    if text == "none":
        return Faults()
    if text in NODE_FAULTS:
        rate, repair_s = NODE_FAULTS[text]
        return Faults(name=text, node_mtbf_s=DAY_S / rate, node_repair_s=repair_s)
    days, colon, hours = text.partition(":")
    try:
        found = Faults(
            name=text,
            node_mtbf_s=float(days) * DAY_S,
            node_repair_s=float(hours) * HOUR_S if colon else 6 * HOUR_S,
        )
    except ValueError:
        names = ", ".join(("none", *NODE_FAULTS))
        raise ValueError(
            f"{text!r} is no fault preset: {names}, or MTBF_DAYS:REPAIR_HOURS as in 90:6"
        ) from None
    if not (found.node_mtbf_s or 0) > 0 or not found.node_repair_s > 0:
        raise ValueError(f"{text!r}: the mean times must be above 0")
    return found
