"""Supplies of a job: what its ranks need besides their program.

Code, data, configuration, shared memory, further resources, and TensorBoard. Claims, config maps and
secrets are references to objects of the cluster; the control plane does not read their contents. A
simulated cluster ignores supplies.
"""

from controlplane.model.values import Value

# The default directory of the code.
CODE_PATH = "/code"
TENSORBOARD_PORT = 6006


class Code(Value, frozen=True, kw_only=True):
    """A git repository, checked out before the rank's program starts."""

    repo: str
    # A branch, a tag or a commit; empty: the repository's default branch.
    ref: str = ""
    path: str = CODE_PATH
    # A secret with an SSH key (`ssh-privatekey`, optionally `known_hosts`), or with `username` and
    # `password`.
    secret: str = ""
    # An image that has git; empty: the site's default.
    image: str = ""
    submodules: bool = False


class VolumeClaim(Value, frozen=True, kw_only=True):
    """An existing persistent volume claim, mounted into every rank."""

    claim: str
    path: str
    read_only: bool = False
    sub_path: str = ""


class Mounted(Value, frozen=True, kw_only=True):
    """A config map or a secret, mounted as files below a path."""

    name: str
    path: str


class TensorBoard(Value, frozen=True, kw_only=True):
    """A TensorBoard on the job's logs, which runs until the job is removed."""

    # A path within one of the job's claims.
    log_dir: str
    image: str = ""


class Supplies(Value, frozen=True, kw_only=True):
    code: Code | None = None
    data: tuple[VolumeClaim, ...] = ()
    config_maps: tuple[Mounted, ...] = ()
    secrets: tuple[Mounted, ...] = ()
    # Secrets and config maps whose keys become environment variables.
    env_from_secrets: tuple[str, ...] = ()
    env_from_config_maps: tuple[str, ...] = ()
    # The size of /dev/shm, such as 16Gi; empty: the cluster's default (64 MiB).
    shared_memory: str = ""
    # Further requests of each rank: cpu, memory, rdma/hca, ...
    resources: dict[str, str] = {}
    tensorboard: TensorBoard | None = None


# One shared value for jobs without supplies, so that the encoder leaves it out as the default.
NO_SUPPLIES = Supplies()
