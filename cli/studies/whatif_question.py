"""The command line's options as the question that a study answers."""

from pathlib import Path
from typing import Any

import msgspec

from cli.cluster.cluster_files import read_cluster_document
from studies.whatif.whatif import ClusterFile, WhatIf


def question_of(given: dict[str, Any]) -> WhatIf:
    return WhatIf(
        trace=given["trace"],
        format=given["form"] or "",
        gpus=given["gpus"],
        nodes=given["nodes"],
        clusters=tuple(_cluster(path) for path in given["clusters"]),
        policies=given["policies"],
        loads=given["loads"],
        faults=given["faults"],
        checkpoint_s=given["checkpoint_s"],
        checkpoint_write_s=given["checkpoint_write_s"],
        autoscale_from=given["autoscale_from"] or (None,),
        boot_s=given["boot_s"],
        idle_s=given["idle_s"],
        prices=given["prices"],
        quotas=(_quotas(given["quotas"]),),
        start_s=given["start_s"],
        stop_s=given["stop_s"],
        begin_s=given["begin_s"],
        length_s=given["length_s"],
        until_s=given["until_s"],
        synthetic_days=given["synthetic_days"],
        replications=given["replications"],
        seed=given["seed"],
        goal=given["goal"],
        window=_window(given["window"]),
        recorded_on=given["recorded_on"],
        reasons=given["reasons"],
        jobs_csv=not given["no_jobs"],
    )


def _cluster(path: str) -> ClusterFile:
    document = read_cluster_document(Path(path))
    return ClusterFile(Path(path).name, msgspec.json.encode(document).decode())


def _quotas(texts: tuple[str, ...]) -> dict[str, int]:
    quotas: dict[str, int] = {}
    for text in texts:
        queue, sign, gpus = text.rpartition("=")
        if not sign or not gpus.isdigit():
            raise ValueError(f"--quota {text!r} is not QUEUE=GPUS")
        quotas[queue] = int(gpus)
    return quotas


def _window(given: tuple[float, ...] | None) -> tuple[float, float] | None:
    if given is None:
        return None
    if len(given) != 2 or given[0] < 0 or given[1] <= 0:
        raise ValueError("--window is two numbers of seconds: begin,length")
    return given[0], given[1]
