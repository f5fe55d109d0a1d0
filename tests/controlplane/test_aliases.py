"""Numbered names in place of others."""

from controlplane.audit.pseudonyms import Aliases


def test_a_name_has_one_alias_of_its_kind():
    names = Aliases()
    names.of("job", "needs")
    assert names.of("job", "bert") == names.of("job", "bert") == "job-2"
    assert names.of("team", "bert") == "team-1"
