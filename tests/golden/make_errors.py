"""Writes the golden log of errors: a job fails for one, another stops the engine twice.

python -m tests.golden.make_errors
"""

from unittest.mock import patch

from controlplane.scheduling import scheduling_pass
from tests.controlplane.test_isolation import System, Thrower, gangs
from tests.golden.make import keep


def past() -> System:
    system = System(wrap=lambda cluster: Thrower(cluster, "b", ("LaunchGang",))).after(1)
    look_at = scheduling_pass.Pass._try_to_start

    def planted(self: scheduling_pass.Pass, gang: object) -> bool:
        assert gang.id != "c", "planted"  # type: ignore[attr-defined]
        return look_at(self, gang)  # type: ignore[arg-type]

    with patch.object(scheduling_pass.Pass, "_try_to_start", planted):
        system.submit(*gangs(*"abcd"))
        system.after(100)
    return system


def main() -> None:
    system = past()
    keep("0.1.0-errors", system.log.events, system.world, decided=True)


if __name__ == "__main__":
    main()
