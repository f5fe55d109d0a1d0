"""Validation of a job's supplies, from the native form or from an annotation of another kind.

A Kubeflow manifest has no field for most supplies, so one annotation has them in the native form:
`muster.dev/supplies: '{"shared_memory": "16Gi"}'`.
"""

import re
from collections.abc import Iterator

import msgspec

from controlplane.model import quantities
from controlplane.model.resources import SUPPLIES_ANNOTATION
from controlplane.model.spec import JobSpec
from controlplane.model.supplies import NO_SUPPLIES, Supplies, VolumeClaim

GPU = "nvidia.com/gpu"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PATH = re.compile(r"/[^:\0\n]*")
# URLs that git accepts, without those that a shell or git could take for something else.
_REPO = re.compile(r"(https?|ssh|git|file)://[^\s\0]+|[\w.-]+@[\w.-]+:[^\s\0]+")
_REF = re.compile(r"[\w][\w./@+-]*")
_RESOURCE = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

Problem = tuple[str, str]


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Yield every problem of a job's supplies, with the path of its field."""
    annotation = spec.annotations.get(SUPPLIES_ANNOTATION)
    if annotation is None:
        if spec.supplies is not NO_SUPPLIES:
            yield from _problems("spec.supplies", spec.supplies)
        return
    path = f"metadata.annotations[{SUPPLIES_ANNOTATION}]"
    if spec.supplies != NO_SUPPLIES:
        yield path, "set it here or in spec.supplies, not in both"
        return
    try:
        supplies = msgspec.json.decode(annotation, type=Supplies)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        yield path, f"not valid supplies: {error}"
        return
    yield from _problems(path, supplies)


def _problems(path: str, supplies: Supplies) -> Iterator[Problem]:
    if supplies == NO_SUPPLIES:
        return
    yield from _code(path, supplies)
    yield from _mounts(path, supplies)
    for field in ("env_from_secrets", "env_from_config_maps"):
        for index, name in enumerate(getattr(supplies, field)):
            yield from _named(f"{path}.{field}[{index}]", name)
    if supplies.shared_memory and quantities.parse(supplies.shared_memory) is None:
        yield f"{path}.shared_memory", f"{supplies.shared_memory!r} is no amount, such as 16Gi"
    for name, amount in supplies.resources.items():
        if not _RESOURCE.fullmatch(name):
            yield f"{path}.resources", f"{name!r} is no name of a resource"
        elif name == GPU:
            yield f"{path}.resources", "GPUs are asked for by the role's gpus"
        elif quantities.parse(amount) is None:
            yield f"{path}.resources[{name}]", f"{amount!r} is no amount, such as 8 or 64Gi"
    board = supplies.tensorboard
    if board is not None and claim_of(supplies, board.log_dir) is None:
        message = "no claim of `data` is mounted there, so TensorBoard could not read it"
        yield f"{path}.tensorboard.log_dir", message


def _code(path: str, supplies: Supplies) -> Iterator[Problem]:
    code = supplies.code
    if code is None:
        return
    if not _REPO.fullmatch(code.repo):
        message = f"{code.repo!r} is no repository, such as https://HOST/TEAM/REPO.git"
        yield f"{path}.code.repo", message
    if code.ref and not _REF.fullmatch(code.ref):
        yield f"{path}.code.ref", f"{code.ref!r} is no branch, tag or commit"
    if code.secret:
        yield from _named(f"{path}.code.secret", code.secret)


def _mounts(path: str, supplies: Supplies) -> Iterator[Problem]:
    """Check that names are valid, paths are absolute, and no two mounts have the same path."""
    taken: set[str] = {"/dev/shm"} if supplies.shared_memory else set()
    mounts = [(f"{path}.code.path", "", supplies.code.path)] if supplies.code else []
    mounts += [(f"{path}.data[{i}]", x.claim, x.path) for i, x in enumerate(supplies.data)]
    for field in ("config_maps", "secrets"):
        each = enumerate(getattr(supplies, field))
        mounts += [(f"{path}.{field}[{i}]", x.name, x.path) for i, x in each]
    for where, name, mounted in mounts:
        if name:
            yield from _named(where, name)
        if not _PATH.fullmatch(mounted) or mounted == "/":
            yield where, f"{mounted!r} is no absolute path to mount something at"
        elif mounted.rstrip("/") in taken:
            yield where, f"something else is mounted at {mounted} already"
        taken.add(mounted.rstrip("/"))


def _named(where: str, name: str) -> Iterator[Problem]:
    if not _NAME.fullmatch(name):
        yield where, f"{name!r} is no name of an object in a cluster"


def claim_of(supplies: Supplies, path: str) -> VolumeClaim | None:
    """Return the claim whose mount contains `path`, the deepest if several do; None if none does."""
    inside = [
        each
        for each in supplies.data
        if f"{path.rstrip('/')}/".startswith(f"{each.path.rstrip('/')}/")
    ]
    return max(inside, key=lambda each: len(each.path), default=None)
