"""Recorded jobs on other hardware, for traces that name the model that a job trains.

The durations of a trace hold for the hardware on which it was recorded. A job whose model is in the
catalogue is therefore converted to training steps: as many as fit into its recorded duration on
that hardware. On the studied cluster these steps take as long as the simulator computes for the
places where the scheduler puts the job.
"""

from functools import lru_cache
from math import ceil

from adapters.simulated_cluster.workload import Training
from simulator.hardware.gpus import find_gpu
from simulator.hardware.hosts import usual_host
from simulator.hardware.links import find_link
from simulator.hardware.names import UnknownHardware
from simulator.hardware.networks import find_network
from simulator.training.pace import pace
from simulator.training.placement import Place
from simulator.training.recipes import BadRecipe, Recipe
from studies.whatif.scenario_parts import Checkpoints

NODE_GPUS = 8


class TraceHardware:
    """The hardware of a trace, as `GPU` or `GPU:NETWORK`: `V100` or `V100-32:25GbE`.

    Raise ValueError if the catalogue does not have it.
    """

    def __init__(self, text: str) -> None:
        gpu, _, network = text.partition(":")
        try:
            self._gpu = find_gpu(gpu)
            self._link = find_link(self._gpu.link)
            self._network = find_network(network or "25GbE")
            self._host = usual_host(gpu, NODE_GPUS)
        except UnknownHardware as error:
            raise ValueError(f"recorded on {text!r}: {error}") from None

    def place(self, gpus: int) -> Place:
        return Place(
            gpu=self._gpu,
            link=self._link,
            ranks=gpus,
            nodes=ceil(gpus / NODE_GPUS),
            network=self._network,
            host=self._host,
        )

    def training(
        self, model: str, gpus: int, length_s: float, plan: Checkpoints
    ) -> Training | None:
        """Return the job as steps; None if its model is unknown or cannot run on `gpus` GPUs."""
        step_s = _step_s(self, model, gpus) if model and gpus and length_s else None
        if step_s is None:
            return None
        return Training(
            model=model,
            steps=max(1, round(length_s / step_s)),
            checkpoint_s=plan.every_s,
            checkpoint_write_s=plan.write_s,
        )


@lru_cache(maxsize=4096)
def _step_s(where: TraceHardware, model: str, gpus: int) -> float | None:
    try:
        return pace(Recipe(model), where.place(gpus)).step_s()
    except BadRecipe:
        return None
