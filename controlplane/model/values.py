"""Base classes of the values in commands, events and specs, and the unit of shared GPUs."""

import msgspec


class Value(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A frozen value; a field that equals its default is left out when encoded."""


class ArrayValue(Value, frozen=True, array_like=True):
    """A value that is encoded as an array, so the order of its fields must never change."""


def in_gpus(milli: int) -> float:
    """Convert thousandths to GPUs: an int if whole, so that views of whole GPUs show integers."""
    return milli // 1_000 if milli % 1_000 == 0 else milli / 1_000
