"""What a job's ranks need beside their program: code, data, configuration, memory, and a view.

Everything is by reference: claims, config maps and secrets are the cluster's, and nobody here knows
what is in them. A simulated cluster ignores it all.
"""

import msgspec

# Where code lands unless said otherwise.
CODE_PATH = "/code"
TENSORBOARD_PORT = 6006


class _Value(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """As the values of `model`, which is made of these too."""


class Code(_Value, frozen=True, kw_only=True):
    """A git repository, checked out before the rank's program starts."""

    repo: str
    # A branch, a tag or a commit; empty means what the repository offers first.
    ref: str = ""
    path: str = CODE_PATH
    # A secret with an SSH key (`ssh-privatekey`, perhaps `known_hosts`) or `username` and `password`.
    secret: str = ""
    # The image with git in it; empty means the site's.
    image: str = ""
    submodules: bool = False


class Claim(_Value, frozen=True, kw_only=True):
    """A persistent volume claim that is there already, mounted into every rank."""

    claim: str
    path: str
    read_only: bool = False
    sub_path: str = ""


class Mounted(_Value, frozen=True, kw_only=True):
    """A config map or a secret as files below a path."""

    name: str
    path: str


class TensorBoard(_Value, frozen=True, kw_only=True):
    """A view of what the job writes, as long as the job is known."""

    # A path within one of the job's claims.
    log_dir: str
    image: str = ""


class Supplies(_Value, frozen=True, kw_only=True):
    code: Code | None = None
    data: tuple[Claim, ...] = ()
    config_maps: tuple[Mounted, ...] = ()
    secrets: tuple[Mounted, ...] = ()
    # Secrets and config maps whose keys become variables.
    env_from_secrets: tuple[str, ...] = ()
    env_from_config_maps: tuple[str, ...] = ()
    # How large /dev/shm is, such as 16Gi; empty leaves it to the cluster (64 MiB).
    shared_memory: str = ""
    # More of each rank's resources: cpu, memory, rdma/hca, ...
    resources: dict[str, str] = {}
    tensorboard: TensorBoard | None = None


# What asks for nothing; one value for all, so that it is left out where jobs are written.
NO_SUPPLIES = Supplies()
