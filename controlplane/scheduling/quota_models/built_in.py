"""The quota models of this release. The composition root adds those of other packages before any log is read."""

from controlplane.scheduling.quota_models.classic import Classic
from controlplane.scheduling.quota_models.deserved import Deserved
from controlplane.scheduling.quota_models.fair import Fair
from controlplane.scheduling.quota_models.fair_preempt import FairPreempt
from controlplane.scheduling.quota_models.home_away import HomeAway
from controlplane.scheduling.quota_models.progressive import Progressive
from controlplane.scheduling.quota_models.quota_model import QUOTA_MODELS

for _model in (Classic(), Fair(), Deserved(), Progressive(), FairPreempt(), HomeAway()):
    QUOTA_MODELS.register(_model)
