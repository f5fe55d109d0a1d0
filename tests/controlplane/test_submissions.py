"""Submissions with the same roles share them, and are otherwise what the codec reads."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane import codec, submissions
from controlplane import events as e
from controlplane.errors import LogCorrupt
from controlplane.folding import fold
from controlplane.model import Workload
from controlplane.state import State
from controlplane.submissions import read_submitted
from tests.controlplane.specification import spec
from tests.controlplane.test_codec import texts


def submitted(job: str = "j", **changes: object) -> e.JobSubmitted:
    return e.JobSubmitted(job, "ns", job, spec(**changes))


# The strategies of test_codec know which values JSON can hold.
@given(st.from_type(e.JobSubmitted), texts)
def test_any_submission_is_what_the_codec_reads(event, job):
    for sent in (event, msgspec.structs.replace(event, job=job), event):
        payload = codec.encode(sent)
        found = read_submitted(payload)
        assert found == sent
        assert type(found.spec) is type(sent.spec)
        assert codec.encode(found) == payload


def test_any_number_of_specs_can_be_read():
    large = e.JobSubmitted("j", "n" * 300, "x", spec(queue="q" * 20_000))
    sent = [submitted("j", workers=n) for n in range(1, 3_000)]
    for event in [large, *sent, large, *sent, *(event for event in sent for _ in range(3))]:
        assert read_submitted(codec.encode(event)) == event


def test_the_same_roles_are_shared_and_others_are_not():
    sent = [submitted(f"j{n}", workload=Workload(duration_s=float(n))) for n in range(5)]
    found = [read_submitted(codec.encode(event)) for event in sent]
    assert found == sent
    # Of the first two it may not have been known yet that others would come.
    assert len({id(event.spec.roles) for event in found[2:]}) == 1
    for other in (submitted(workers=3), submitted(priority=1)):
        assert read_submitted(codec.encode(other)) == other


A, B = b'{"name":"a"}', b'{"name":"b"}'


@pytest.mark.parametrize(
    "spec",
    [
        # What a spec says twice.
        b'{"roles":[%b],"done_when":{"role":"a"},"roles":[%b]}' % (A, B),
        b'{"roles":[%b],"done_when":{"role":"a"},"roles":[]}' % A,
        b'{"roles":[%b],"done_when":{"role":"a"}},"spec":{"roles":[],"done_when":{"role":"b"}}' % A,
        # What looks like the end of the roles, and is within them.
        b'{"roles":[{"name":"a","template":{"x":[],"done_when":1}}],"done_when":{"role":"a"}}',
        b'{"roles":[{"name":"a","template":{"x":{"spec":{"roles":[1]}}}}],"done_when":{"role":"a"}}',
        b'{"roles":[{"name":"a","image":"],\\"done_when\\":"}],"done_when":{"role":"a"}}',
        # Workloads, and what looks like one and is within something else.
        b'{"roles":[%b],"done_when":{"role":"a"},"workload":{"duration_s":5.0}}' % A,
        b'{"roles":[%b],"done_when":{"role":"a"},"workload":{}}' % A,
        b'{"roles":[%b],"done_when":{"role":"a"},"workload":{"duration_s":5.0},"labels":{"x":"}"}}'
        % A,
        b'{"roles":[%b],"done_when":{"role":"a"},"workload":{"duration_s":5.0},"workload":{}}' % A,
        b'{"roles":[%b],"done_when":{"role":"a"},"workload":{},"workload":{"exit_code":3}}' % A,
        b'{"roles":[%b],"done_when":{"role":"a"},"workload":{"exit_code":3}, "workload":{}}' % A,
        b'{"roles":[%b],"done_when":{"role":"a"},"workload":{}, "workload":{"exit_code":3}}' % A,
        b'{"roles":[%b],"done_when":{"role":"a"},"workload":{},"\\u0077orkload":{"exit_code":3}}'
        % A,
        b'{"roles":[%b],"done_when":{"role":"a"}, "workload":{"exit_code":3},"workload":{}}' % A,
        b'{"roles":[%b],"done_when":{"role":"a"},"labels":{"a":"b","workload":"x"}}' % A,
        b'{"roles":[%b],"done_when":{"role":"a"},"options":{"a":1,"workload":{"exit_code":3}}}' % A,
        b'{"roles":[%b],"done_when":{"role":"a"},"options":{"a":[1,"workload"],"b":{}}}' % A,
        b'{"roles":[%b],"done_when":{"role":"a"},"options":{"a":{"b":1,"workload":{}},"c":1}}' % A,
        b'{"roles":[{"name":"a","template":{"x":1,"workload":{}}}],"done_when":{"role":"a"}}',
        b'{"roles":[{"name":"a","image":",\\"workload\\":{}"}],"done_when":{"role":"a"}}',
        b'{"roles":[%b],"done_when":{"role":"a"},"workload":{"training":{"model":"{\\"}"}}}' % A,
        # What is written in another way.
        b'{"done_when":{"role":"a"},"workload":{},"roles":[%b]}' % A,
        b'{"roles":[%b],"done_when":{"role":"a"}, "workload":{}}' % A,
        b'{"roles":[%b],"done_when":{"role":"a"},"workload": {}}' % A,
        b'{"roles":[%b],"done_when":{"role":"a"},"workload":{} }' % A,
        b'{"done_when":{"role":"a"},"roles":[%b]}' % A,
        b'{"roles": [%b], "done_when": {"role":"a"}}' % A,
        b'{"roles":[%b] ,"done_when":{"role":"a"}}' % A,
    ],
)
def test_whatever_is_written_is_read_as_the_codec_reads_it(spec):
    payload = b'{"job":"j","namespace":"n","name":"x","spec":%b}' % spec
    expected = codec.read_event(1, "JobSubmitted", 1, payload)
    # What comes again is kept, and what was kept is found.
    for _ in range(3):
        assert read_submitted(payload) == expected


@pytest.mark.parametrize(
    "payload",
    [
        b'{"job":"j","namespace":"n","name":"x","spec":{"roles":[{"name":7}],"done_when":{"role":"a"}}}',
        b'{"job":"j","namespace":"n","name":"x","spec":{"roles":{},"done_when":{"role":"a"}}}',
        b'{"job":"j","namespace":"n","name":"x","spec":{"done_when":{"role":"a"}}}',
        b'{"job":"j","namespace":"n","name":"x","spec":{"roles":[],"done_when":{"role":"a"},"new":1}}',
        b'{"job":"j","namespace":"n","name":"x","new":1,"spec":{"roles":[],"done_when":{"role":"a"}}}',
        b'{"job":"j","namespace":"n","name":"x","spec":{"roles":[}',
        b'{"job":"j","namespace":"n","name":"x","spec":{"roles":[],"done_when":{"role":"a"}',
        b'{"job":"j","namespace":"n","name":"x","spec":{"roles":[],"done_when":{"role":"a"}]}',
        b'{"job":"j","namespace":"n","name":"x","spec":{"roles":[],"done_when":{"role":"a"},"workload":5}}',
        b'{"job":"j","namespace":"n","name":"x","spec":{"roles":[],"done_when":{"role":"a"},"workload":{"x":1}}}',
        b'{"job":"j","namespace":"n","name":"x","spec":{"roles":[],"done_when":{"role":"a"},"workload":{}',
        b'{"job":"j","namespace":"n","name":"x","spec":{"roles":[],"done_when":{"role":"a"},"workload":{}}}}',
        b'{"job":"j","namespace":"n","name":"x","spec":{"roles":[],"done_when":{"role":"a"}"workload":{}}}',
        b'{"job":"j","namespace":"n","name":"x","spec":{"done_when":{"role":"a"},"workload":{}}}',
        b'{"job":"j","namespace":"n","name":"x","spec":}',
        b'{"job":"j","namespace":"n","name":"x","spec":null}',
    ],
)
def test_what_the_codec_refuses_is_refused_in_its_words(payload):
    with pytest.raises(msgspec.MsgspecError):
        read_submitted(payload)
    with pytest.raises(LogCorrupt) as expected:
        codec.read_event(1, "JobSubmitted", 1, payload)
    row = (1, 1.5, "j", "JobSubmitted", 1, payload, "c", "ann")
    with pytest.raises(LogCorrupt) as found:
        fold(State(), [(*row, codec.link(codec.GENESIS, *row))], codec.GENESIS)
    assert str(found.value) == str(expected.value)


def test_only_so_much_is_remembered():
    submissions._known.clear()
    for workers in range(1, submissions.TEXTS_MAX + 2):
        read_submitted(codec.encode(submitted(workers=workers)))
    assert 0 < len(submissions._known) <= submissions.TEXTS_MAX
    roles = spec().roles
    large = msgspec.structs.replace(roles[0], image="x" * submissions.TEXT_BYTES_MAX)
    sent = e.JobSubmitted("j", "ns", "x", msgspec.structs.replace(spec(), roles=(large,)))
    before = len(submissions._known)
    assert read_submitted(codec.encode(sent)) == sent
    assert len(submissions._known) == before
