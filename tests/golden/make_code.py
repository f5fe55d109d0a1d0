"""Writes this release's golden log of a job with supplies: `python -m tests.golden.make_code`.

Its code is another commit on one rank; a second leader follows the first. Never run for an old
release.
"""

from importlib.metadata import version

from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.spec import DoneWhen, JobSpec, Role
from controlplane.model.supplies import Code, Supplies, VolumeClaim
from tests.golden.make import keep
from tests.golden.make_scheduling import Tale

COMMITS = ("1" * 40, "2" * 40)


def past() -> Tale:
    tale = Tale()
    tale.record(e.EngineStarted(1, version("muster"), "http://10.0.0.5:8642"))
    tale.do(c.ReportNode(node=NodeInfo("n1", 4)))
    supplies = Supplies(
        code=Code(repo="https://git.example/team/train.git", ref="main"),
        data=(VolumeClaim(claim="imagenet", path="/data", read_only=True),),
        shared_memory="16Gi",
        resources={"rdma/hca": "1"},
    )
    roles = (Role(name="worker", replicas=2, gpus=1),)
    spec = JobSpec(roles=roles, done_when=DoneWhen("worker"), supplies=supplies)
    tale.do(c.SubmitJob(job="id-train", namespace="default", name="train", spec=spec))
    tale.schedule()
    tale.report("train", started=(0,), commits=((0, COMMITS[0]),))
    tale.record(e.EngineStarted(2, version("muster"), "http://10.0.0.6:8642"))
    tale.report("train", started=(1,), commits=((0, COMMITS[0]), (1, COMMITS[1])))
    tale.do(c.CancelJob(namespace="default", name="train"))
    tale.report("train", gone=(0, 1))
    return tale


def main() -> None:
    tale = past()
    keep(f"{version('muster')}-code", tale.log, tale.world, decided=False)


if __name__ == "__main__":
    main()
