"""The traces Helios (SenseTime) and Acme (Shanghai AI Lab).

Helios is `cluster_log.csv`, Acme `trace_seren.csv` and `trace_kalos.csv`. Both are accounting
tables of a batch system with one row for each job; Acme has a type of work instead of a virtual
cluster. Jobs without GPUs are left out: they wait for other resources.
"""

from pathlib import Path

from studies.workloads.collecting import Collector
from studies.workloads.csv_trace import Table, open_text
from studies.workloads.moments import seconds
from studies.workloads.trace import BadTrace, Trace

COMMON = ("job_id", "user", "gpu_num", "state", "submit_time", "start_time", "end_time")
HELIOS = (*COMMON, "vc")
ACME = (*COMMON, "type")


def read_helios(path: Path) -> Trace:
    return _read(path, HELIOS)


def read_acme(path: Path) -> Trace:
    return _read(path, ACME)


def _read(path: Path, required: tuple[str, ...]) -> Trace:
    with open_text(path) as file:
        table = Table(path.name, file)
    columns = table.columns(required)
    collector = Collector(path.name)
    cells = zip(*(columns[name] for name in required), table.lines, strict=True)
    for job, user, gpu_num, state, submit, start, end, last, line in cells:
        try:
            gpus = round(float(gpu_num))
            submitted, began, ended = seconds(submit), seconds(start), seconds(end)
        except ValueError as error:
            raise BadTrace(path.name, line, str(error)) from None
        if gpus <= 0:
            collector.leave_out("no GPUs")
        elif submitted is None:
            collector.leave_out("no time of submission")
        elif began is None or ended is None or ended < began:
            collector.leave_out("never ran, or ended before it began")
        else:
            labels = {"user": user, "status": state}
            labels["queue" if required is HELIOS else "kind"] = last
            collector.add(job, submitted, gpus, ended - began, **labels)
    return collector.trace()
