"""Which gangs start, and where: pure functions over a snapshot of the state.

`scheduling_pass.py` is one pass in six steps. It reads the state through `cluster_view.py`, allocates in the copies of
`snapshot.py`, and returns the values of `decisions.py`. `cache.py` holds what is kept between passes.
"""

# Fills the registry of quota models before any module here looks one up.
import controlplane.scheduling.quota_models.built_in  # noqa: F401
