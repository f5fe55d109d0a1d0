"""Supplies of a job: from the native form, or from an annotation of any other kind; checked.

A Kubeflow manifest has no field for most of this, so it says it in one annotation, in the native
form's own words: `muster.dev/supplies: '{"shared_memory": "16Gi"}'`.
"""

import re
from collections.abc import Iterator

import msgspec

from controlplane import quantities
from controlplane.model import JobSpec
from controlplane.requests import SUPPLIES_ANNOTATION
from controlplane.supplies import NO_SUPPLIES, Claim, Supplies

GPU = "nvidia.com/gpu"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PATH = re.compile(r"/[^:\0\n]*")
# What git takes, without what a shell or an option would make something else of.
_REPO = re.compile(r"(https?|ssh|git|file)://[^\s\0]+|[\w.-]+@[\w.-]+:[^\s\0]+")
_REF = re.compile(r"[\w][\w./@+-]*")
_RESOURCE = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

Problem = tuple[str, str]


def problems(spec: JobSpec) -> Iterator[Problem]:
    """All that is wrong, each with the path of its field."""
    told = spec.annotations.get(SUPPLIES_ANNOTATION)
    if told is None:
        if spec.supplies is not NO_SUPPLIES:
            yield from _problems("spec.supplies", spec.supplies)
        return
    path = f"metadata.annotations[{SUPPLIES_ANNOTATION}]"
    if spec.supplies != NO_SUPPLIES:
        yield path, "say it here or in spec.supplies, not in both"
        return
    try:
        supplies = msgspec.json.decode(told, type=Supplies)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        yield path, f"not what supplies are: {error}"
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
        told = "no claim of `data` is mounted there, so nobody else could read it"
        yield f"{path}.tensorboard.log_dir", told


def _code(path: str, supplies: Supplies) -> Iterator[Problem]:
    code = supplies.code
    if code is None:
        return
    if not _REPO.fullmatch(code.repo):
        told = f"{code.repo!r} is no repository, such as https://HOST/TEAM/REPO.git"
        yield f"{path}.code.repo", told
    if code.ref and not _REF.fullmatch(code.ref):
        yield f"{path}.code.ref", f"{code.ref!r} is no branch, tag or commit"
    if code.secret:
        yield from _named(f"{path}.code.secret", code.secret)


def _mounts(path: str, supplies: Supplies) -> Iterator[Problem]:
    """Names are names, paths are absolute, and no two things are mounted at one path."""
    taken: set[str] = {"/dev/shm"} if supplies.shared_memory else set()
    found = [(f"{path}.code.path", "", supplies.code.path)] if supplies.code else []
    found += [(f"{path}.data[{i}]", x.claim, x.path) for i, x in enumerate(supplies.data)]
    for field in ("config_maps", "secrets"):
        each = enumerate(getattr(supplies, field))
        found += [(f"{path}.{field}[{i}]", x.name, x.path) for i, x in each]
    for where, name, mounted in found:
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


def claim_of(supplies: Supplies, path: str) -> Claim | None:
    """The claim in which a path lies: the deepest, where one is mounted within another."""
    inside = [
        each
        for each in supplies.data
        if f"{path.rstrip('/')}/".startswith(f"{each.path.rstrip('/')}/")
    ]
    return max(inside, key=lambda each: len(each.path), default=None)
