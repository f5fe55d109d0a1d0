"""Shared GPUs in a trace: the parts of devices that the ranks of a job use.

The text column `shares` lists them as `RANKSxPART` joined by `+`: `2x250` are two ranks with 250
thousandths of a device each, `8192Mi` is one rank with that much of a device's memory, and
`2x250+8192Mi` is both. The column `gpus` counts whole devices and thousandths; requests by memory
are not counted there, because their share depends on the device. A fraction of `gpus` that is not
listed is one more rank with that share.
"""

import re
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from controlplane.state.devices import WHOLE
from studies.workloads.trace import Trace, gpu_column

RANKS_MAX = 1_000_000
MEMORY_MAX_MIB = 2**31
_PART = re.compile(r"(?:(\d{1,7})x)?(\d{1,10})(Mi)?")


class Part(NamedTuple):
    """Ranks with a share of one device each, in thousandths or in MiB of its memory."""

    ranks: int
    share: int = 0
    memory_mib: int = 0


class Demand(NamedTuple):
    """Whole devices, and ranks that share other devices."""

    whole: int
    parts: tuple[Part, ...] = ()


@lru_cache(maxsize=65_536)
def demand(gpus: float, shares: str = "") -> Demand:
    """Return the demand of a row; raise ValueError if `shares` is invalid or exceeds `gpus`."""
    parts = _parsed(shares)
    listed = sum(part.ranks * part.share for part in parts)
    whole, fraction = divmod(round(gpus * WHOLE) - listed, WHOLE)
    if whole < 0:
        raise ValueError(f"shares {shares!r} are {listed / WHOLE:g} GPUs, but gpus is {gpus:g}")
    return Demand(whole, (*parts, Part(1, fraction)) if fraction else parts)


def written(parts: tuple[Part, ...]) -> str:
    """Return the parts in the form of the column `shares`, equal ones joined."""
    ranks: dict[tuple[int, int], int] = {}
    for part in parts:
        kind = (part.share, part.memory_mib)
        ranks[kind] = ranks.get(kind, 0) + part.ranks
    return "+".join(
        (f"{count}x" if count > 1 else "") + (f"{memory}Mi" if memory else str(share))
        for (share, memory), count in ranks.items()
    )


def count_memory(trace: Trace, device_mib: int) -> Trace:
    """Return the trace with requests by memory counted in `gpus`, for devices of `device_mib` MiB.

    With `device_mib` 0 (unknown) nothing is added. The result does not show which GPUs of a row are
    whole, so jobs must be built from the original trace.
    """
    shares = trace.labels.get("shares", ())
    if not device_mib or not any("Mi" in text for text in shares):
        return trace
    milli = [
        sum(
            part.ranks * min(WHOLE, -(-part.memory_mib * WHOLE // device_mib))
            for part in _parsed(text)
            if part.memory_mib
        )
        for text in shares
    ]
    return replace(trace, gpus=gpu_column(trace.gpus + np.array(milli) / WHOLE))


def _parsed(shares: str) -> tuple[Part, ...]:
    return tuple(_part(text.strip()) for text in shares.split("+")) if shares.strip() else ()


def _part(text: str) -> Part:
    match = _PART.fullmatch(text)
    if match is None:
        raise ValueError(f"shares has {text!r}, which is not a part such as 250, 2x250 or 8192Mi")
    ranks, amount = int(match[1] or 1), int(match[2])
    if not 1 <= ranks <= RANKS_MAX:
        raise ValueError(f"shares has {text!r}: at least 1 and at most {RANKS_MAX:,} ranks share")
    if match[3]:
        if not 1 <= amount <= MEMORY_MAX_MIB:
            raise ValueError(f"shares has {text!r}: memory is from 1 to {MEMORY_MAX_MIB:,} MiB")
        return Part(ranks, memory_mib=amount)
    if not 1 <= amount < WHOLE:
        raise ValueError(f"shares has {text!r}: a share is from 1 to {WHOLE - 1} thousandths")
    return Part(ranks, amount)
