"""The analysis of a log: failures by cause, node, user and image, their cost, and how work arrives.

The fits at the end are the inputs of a what-if study with a similar workload: arrivals, sizes, run
times, failures of jobs and of nodes.
"""

from studies.analysis.analyse import analyse
from studies.analysis.values import Analysis, EmptySpan, Fit, Flapping, Group, NodeRecord, Spread

__all__ = ["Analysis", "EmptySpan", "Fit", "Flapping", "Group", "NodeRecord", "Spread", "analyse"]
