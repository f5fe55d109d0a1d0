"""Disciplines and quota models of third parties, loaded from Python entry points."""

from functools import cache

from cli.server.entry_points import load_group
from controlplane.disciplines.discipline import Discipline
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.model.registry import NameTaken
from controlplane.scheduling.quota_models.quota_model import QUOTA_MODELS, QuotaModel

DISCIPLINES_GROUP = "muster.disciplines"
QUOTA_MODELS_GROUP = "muster.quota_models"


@cache
def load_policies() -> None:
    """Register every installed discipline and quota model, once for each process.

    Call it before a log is read. Raises CliError for one that cannot be loaded.
    """
    load_group(DISCIPLINES_GROUP, "discipline", Discipline, DISCIPLINES.register, taken=NameTaken)
    load_group(
        QUOTA_MODELS_GROUP, "quota model", QuotaModel, QUOTA_MODELS.register, taken=NameTaken
    )
