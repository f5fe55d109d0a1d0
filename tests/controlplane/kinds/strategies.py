"""Manifests drawn at random: those that are right, and those that are anything at all."""

from typing import Any

from hypothesis import strategies as st

from controlplane.kinds.kubeflow import jax, legacy, mxnet, paddle, pytorch, tensorflow, xgboost

names = st.from_regex(r"[a-z]([-a-z0-9]{0,12}[a-z0-9])?", fullmatch=True)
words = st.text("abc-/.:", max_size=6)
FRAMEWORKS = (
    tensorflow.TF,
    pytorch.TORCH,
    xgboost.XGB,
    paddle.PADDLE,
    jax.JAX,
    mxnet.MX,
)
LISTED = (tensorflow.LISTED, pytorch.LISTED, mxnet.LISTED)
VERSIONS = {
    "TFJob": (tensorflow.V1, *tensorflow.OLDER),
    "PyTorchJob": (pytorch.V1, *pytorch.OLDER),
    "XGBoostJob": (xgboost.V1, *xgboost.OLDER),
    "MXJob": (mxnet.V1, mxnet.V1BETA1),
}


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def templates(container: str, port: str) -> st.SearchStrategy[dict[str, Any]]:
    more = some(
        command=st.lists(words, max_size=2),
        args=st.lists(words, max_size=2),
        env=st.lists(some(value=words).map(lambda e: {"name": "A", **e}), max_size=1),
        resources=st.sampled_from(
            [{}, {"limits": {"nvidia.com/gpu": 2, "cpu": "4"}}, {"requests": {"amd.com/gpu": "1"}}]
        ),
        ports=st.sampled_from([[], [{"name": port, "containerPort": 7}], [{"containerPort": 1}]]),
        volumeMounts=st.just([{"name": "v", "mountPath": "/v"}]),
    )
    speaker = more.map(lambda fields: {"name": container, "image": "i", **fields})
    others = st.sampled_from([[], [{"name": "sidecar", "image": "s"}]])
    pods = st.tuples(others, speaker, some(tolerations=st.just([{"key": "gpu"}])))
    metadata = some(metadata=st.just({"labels": {"a": "b"}, "creationTimestamp": None}))
    return st.tuples(pods, metadata).map(
        lambda drawn: {
            "spec": {"containers": [*drawn[0][0], drawn[0][1]], **drawn[0][2]},
            **drawn[1],
        }
    )


policies = some(
    cleanPodPolicy=st.sampled_from(["None", "Running", "All"]),
    ttlSecondsAfterFinished=st.integers(0, 10**6),
    activeDeadlineSeconds=st.integers(0, 10**6),
    backoffLimit=st.integers(0, 100),
    schedulingPolicy=some(
        minAvailable=st.integers(0, 3),
        queue=names,
        priorityClass=st.sampled_from(["", "high"]),
        minResources=st.just({"cpu": "1"}),
        scheduleTimeoutSeconds=st.integers(0, 100),
    ),
)
run_policies = st.tuples(
    policies,
    some(
        suspend=st.booleans(),
        managedBy=st.sampled_from(["muster.dev/muster", "kueue.x-k8s.io/multikueue"]),
    ),
).map(lambda both: {**both[0], **both[1]})
metadatas = st.tuples(
    st.fixed_dictionaries({"name": names}, optional={"namespace": names}),
    some(
        labels=st.dictionaries(words, words, max_size=2),
        annotations=some(
            **{
                "muster.dev/priority": st.sampled_from(["7", "-1"]),
                "muster.dev/queue": names,
                "muster.dev/restart-scope": st.sampled_from(["gang", "rank"]),
                "muster.dev/image-timeout-seconds": st.sampled_from(["0", "30.5"]),
                "sim.muster.dev/duration-seconds": st.sampled_from(["1", "2.5"]),
                "other": words,
            }
        ),
    ),
).map(lambda both: {**both[0], **both[1]})


@st.composite
def map_style(draw: st.DrawFn) -> dict[str, Any]:
    framework = draw(st.sampled_from(FRAMEWORKS))
    spec: dict[str, Any] = {framework.field: _roles(draw, framework)}
    place = draw(st.sampled_from(["flat", "runPolicy", "none"]))
    if place == "flat":
        spec |= draw(policies)
    elif place == "runPolicy":
        spec["runPolicy"] = draw(run_policies)
    spec |= _own(draw, framework.kind, spec[framework.field])
    return {
        "apiVersion": draw(st.sampled_from(VERSIONS.get(framework.kind, ("kubeflow.org/v1",)))),
        "kind": framework.kind,
        "metadata": draw(metadatas),
        "spec": spec,
    }


def _roles(draw: st.DrawFn, framework: Any) -> dict[str, Any]:
    names = [name for name in framework.roles if not name.startswith(("Tuner", "Chief"))]
    needed = {"XGBoostJob": "Master"}.get(framework.kind, "Worker")
    chosen = draw(st.sets(st.sampled_from(names))) | {needed}
    roles = {}
    for name in sorted(chosen):
        spelt = draw(st.sampled_from([name, name.lower(), name.upper()]))
        role = draw(
            some(
                replicas=st.integers(1, 3),
                restartPolicy=st.sampled_from(["Always", "OnFailure", "Never", "ExitCode"]),
            )
        )
        role["template"] = draw(templates(framework.container, framework.port_name))
        if name in ("Master", "Scheduler"):
            role["replicas"] = 1
        roles[spelt] = role
    return roles


def _own(draw: st.DrawFn, kind: str, roles: dict[str, Any]) -> dict[str, Any]:
    """What only this kind understands."""
    match kind:
        case "TFJob":
            return draw(
                some(
                    successPolicy=st.sampled_from(["", "AllWorkers"]),
                    enableDynamicWorker=st.booleans(),
                )
            )
        case "PyTorchJob":
            elastic = some(
                maxReplicas=st.integers(2, 4),
                minReplicas=st.integers(1, 2),
                rdzvConf=st.just([{"key": "a", "value": "b"}]),
                maxRestarts=st.integers(0, 3),
            )
            return draw(some(nprocPerNode=st.sampled_from(["auto", "4"]), elasticPolicy=elastic))
        case "PaddleJob":
            return draw(some(elasticPolicy=some(maxReplicas=st.integers(1, 3))))
        case _:
            return {}


@st.composite
def list_style(draw: st.DrawFn) -> dict[str, Any]:
    style = draw(st.sampled_from(LISTED))
    chosen = draw(st.sets(st.sampled_from(sorted(style.types)))) | {style.default_chief}
    entries = []
    for name in draw(st.permutations(sorted(chosen))):
        entry = {
            style.type: name,
            "template": draw(templates(style.framework.container, "other")),
            **draw(st.fixed_dictionaries({}, optional={style.port: st.integers(1, 9)})),
        }
        if name != style.single:
            entry["replicas"] = draw(st.integers(1, 3))
        entries.append(entry)
    more = some(schedulerName=names, RuntimeId=st.just("ab12"), **{style.image: words})
    return {
        "apiVersion": legacy.VERSION,
        "kind": style.framework.kind,
        "metadata": draw(metadatas),
        "spec": {"replicaSpecs": entries, **draw(more)},
    }


manifests = map_style() | list_style()

KEYS = st.sampled_from(
    ["spec", "metadata", "name", "roles", "replicas", "template", "Worker", "containers", "env",
     "tfReplicaSpecs", "runPolicy", "annotations", "framework", "kind", "options"]
)  # fmt: skip
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)


@st.composite
def nearly(draw: st.DrawFn) -> dict[str, Any]:
    """A manifest that was right, with anything at all somewhere in it."""
    document = draw(manifests)
    inner: Any = document
    while True:
        steps = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        step = draw(st.sampled_from(steps))
        deeper = inner[step]
        if not isinstance(deeper, dict | list) or not deeper or draw(st.booleans()):
            inner[step] = draw(anything)
            return document
        inner = deeper
