"""What a log teaches: what failed, where, by whose doing, and what it cost; and how work arrives.

The fits at the end are what a what-if study needs to make more of the same: arrivals, sizes, run
times, failures of jobs and of nodes.
"""

from studies.analysis.analyse import analyse
from studies.analysis.values import Analysis, EmptySpan, Fit, Flapping, Group, NodeRecord, Spread

__all__ = ["Analysis", "EmptySpan", "Fit", "Flapping", "Group", "NodeRecord", "Spread", "analyse"]
