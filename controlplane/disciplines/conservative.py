"""Conservative backfill: every waiting job has a planned start, and no backfilled job may delay any of them."""

from controlplane.disciplines.easy import Easy


class Conservative(Easy):
    name = "conservative"
    description = (
        "first in, first out; a job may start ahead of blocked ones if it delays none of them"
    )
    plans_all = True
