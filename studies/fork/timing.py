"""Start and stop delays of ranks, estimated from the log of a cluster."""

from collections.abc import Iterable
from statistics import median, quantiles

from controlplane.model import events as e
from simulator.network.topology import Delays

SAMPLES_MIN = 20
_STOPPERS = (e.JobRestarting, e.JobSuspended, e.JobCancelled, e.JobFailed)


def delays_of(events: Iterable[e.Recorded]) -> Delays:
    """Return delays estimated from the events; defaults where there are fewer than `SAMPLES_MIN`.

    The start delay is the first decile of the observed delays; the rest is modelled as jitter.
    """
    placed: dict[str, float] = {}
    stopped: dict[str, float] = {}
    starts: list[float] = []
    stops: list[float] = []
    for recorded in events:
        event, at = recorded.event, recorded.at
        if isinstance(event, e.GangPlaced):
            placed[event.job] = at
            stopped.pop(event.job, None)
        elif isinstance(event, e.RanksStarted) and event.job in placed:
            starts += [at - placed[event.job]] * len(event.ranks)
        elif isinstance(event, _STOPPERS):
            stopped[event.job] = at
        elif isinstance(event, e.RanksGone) and event.job in stopped:
            stops.append(at - stopped[event.job])
    default = Delays()
    stop_s = median(stops) if len(stops) >= SAMPLES_MIN else default.stop_s
    if len(starts) < SAMPLES_MIN:
        return Delays(default.start_s, default.start_jitter_s, stop_s)
    first = quantiles(starts, n=10)[0]
    return Delays(
        start_s=first, start_jitter_s=max(0.0, 2 * (median(starts) - first)), stop_s=stop_s
    )
