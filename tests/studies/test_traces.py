"""Traces: our own form with its exact refusals, and the forms in which owners publish theirs."""

import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.logs.memory_log import MemoryLog
from controlplane.audit.bundle import make_bundle
from controlplane.log.codec import to_line, to_rows
from controlplane.model.rows import GENESIS
from studies.workloads.csv_trace import parse_csv, write_csv
from studies.workloads.formats import form_of, read_trace
from studies.workloads.resampling import resampled, scaled
from studies.workloads.statistics import statistics
from studies.workloads.synthetic import fit_profile, synthetic
from studies.workloads.trace import BadTrace, make_trace
from tests.cli.logs import recorded
from tests.scenarios.scenario import run_now
from tests.shared_data import shared

HEAD = "id,submit,gpus,duration\n"
SHARES = "id,submit,gpus,duration,shares\n"


def parsed(text: str):
    return parse_csv("t.csv", io.StringIO(text))


def test_a_column_that_no_study_uses_is_noted():
    trace = parsed("id,submit,gpus,duration,vc,colour\na,0,1,5,x,red\n")
    assert (list(trace.ids), dict(trace.labels)) == (["a"], {})
    assert trace.notes == ("columns that a study does not use: vc, colour",)
    assert parsed(HEAD + "a,0,1,5\n").notes == ()


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "is empty"),
        ("id,submit,gpus\na,0,1\n", 1, "no column 'duration'"),
        ("id,submit,gpus,duration,gpus\n", 1, "'gpus' is there twice"),
        (HEAD + "a,0,1,5\nb,0,1\n", 3, "has 3 fields; the header names 4"),
        (HEAD + "a,0,1,5\na,1,1,5\n", 3, "the id 'a' is that of line 2 too"),
        (HEAD + ",0,1,5\n", 2, "the id is empty"),
        (HEAD, None, "has no jobs"),
        (HEAD + "\n \n", None, "has no jobs"),
        (HEAD + "a,0,1,5\n\nb,later,1,5\n", 4, "submit is 'later', which is not a number"),
        (HEAD + "a,0,1,5\nb,-1,1,5\n", 3, "submit is -1; it must be"),
        (HEAD + "a,0,1.2345,5\n", 2, "gpus is 1.2345; it must be a number"),
        (SHARES + "a,0,1,5,half\n", 2, "'half', which is not a part"),
        (SHARES + "a,0,1,5,\nb,0,0.2,5,250\n", 3, "are 0.25 GPUs, but gpus is 0.2"),
        (SHARES + "a,0,1,5,1000\n", 2, "from 1 to 999"),
        (SHARES + "a,0,1,5,0x250\n", 2, "ranks share"),
        (HEAD + "a,0,-1,5\n", 2, "gpus is -1"),
        (HEAD + "a,0,1,nan\n", 2, "duration is nan"),
        (HEAD + "a,0,1,inf\n", 2, "duration is inf"),
        (HEAD + "a,0,1,\n", 2, "duration is empty"),
        (HEAD + 'a,0,"1\n",5\nb,0,x,5\n', 4, "gpus is 'x'"),
        (HEAD + 'a,0,"1,5\n', 2, "is not CSV"),
    ],
)
def test_a_malformed_trace_is_refused_with_the_line_and_the_reason(text, line, message):
    with pytest.raises(BadTrace) as refused:
        parsed(text)

    assert refused.value.line == line
    assert message in refused.value.problem


def test_rows_are_put_in_the_order_of_submission_and_then_of_ids_as_numbers():
    trace = parsed(HEAD + "10,5,1,1\n9,5,1,1\n2,0,1,1\n")

    assert list(trace.ids) == ["2", "9", "10"]


rows = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(0, 4096), st.integers(0, 10**7)),
    min_size=1, max_size=30,
)  # fmt: skip


@given(rows, st.booleans())
def test_what_was_written_is_read_again(rows, labelled):
    ids = [f"job {i}" for i in range(len(rows))]
    labels = {"queue": [f"q,{i % 3}" for i in range(len(rows))]} if labelled else {}
    trace = make_trace("t.csv", ids, *zip(*rows, strict=True), labels=labels)
    text = io.StringIO()
    write_csv(trace, text)

    again = parsed(text.getvalue())

    assert again.ids == trace.ids
    for column in ("submit", "gpus", "duration"):
        assert (getattr(again, column) == getattr(trace, column)).all()
    assert again.labels == trace.labels


# ---------------------------------------------------------------- other people's forms

PHILLY = [
    {
        "status": "Pass", "vc": "ee9e8c", "jobid": "application_1", "user": "ce2f4c",
        "submitted_time": "2017-10-07 01:11:39",
        "attempts": [
            {"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:23",
             "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}]},
            {"start_time": "2017-10-07 01:13:30", "end_time": "2017-10-07 01:14:30",
             "detail": [{"ip": "m41", "gpus": ["gpu0"]}, {"ip": "m42", "gpus": ["gpu0"]}]},
        ],
    },
    {"status": "Killed", "vc": "x", "jobid": "application_2", "user": "u",
     "submitted_time": "2017-10-07 01:12:39", "attempts": []},
    {"status": "Failed", "vc": "x", "jobid": "application_3", "user": "u",
     "submitted_time": "2017-10-07 01:12:39", "attempts": [
        {"start_time": "2017-10-07 02:00:00", "end_time": None,
         "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
]  # fmt: skip

SWF = """; Version: 2.2
1 0 10 100 4 -1 -1 4 600 -1 1 7 1 1 2 -1 -1 -1
2 5 10 -1 -1 -1 -1 4 600 -1 5 7 1 1 2 -1 -1 -1
3 6 10 50 8 -1 -1 -1 -1 -1 0 8 1 1 -1 -1 -1 -1
"""
HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXB,vcJ,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVM,vch,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:30,2020-06-09 18:45:39,249,3
1425513,uVM,vch,0,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:30,2020-06-09 18:45:39,249,3
"""
ACME = """job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
5778432,u59,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,117,32,936.0
dlc1,u59,8,64,960,Pretrain,CANCELLED,2023-03-01 00:19:22+08:00,,2023-03-01 00:20:51+08:00,117,32,936.0
"""
OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0017,88000,327680,8,1000,,Burstable,Succeeded,9437497,10769854,9437499
openb-pod-0022,4000,15258,1,220,V100M16|V100M32,BE,Running,9679175,9973826,9679175
openb-pod-0023,4000,15258,0,0,,BE,Running,9679175,9973826,9679175
openb-pod-0024,4000,15258,1,1000,,LS,Pending,9679175,9973826,
"""
PAI_JOBS = """4b3f,8cb3,5854,Terminated,4550879.0,4551416.0
9999,8cb4,5855,Failed,4550880.0,
"""
PAI_TASKS = """4b3f,ps,1.0,Terminated,4550900.0,4551400.0,600.0,29.3,,MISC
4b3f,worker,3.0,Terminated,4550910.0,4551416.0,600.0,29.3,50.0,V100
9999,worker,1.0,Failed,4550910.0,,600.0,29.3,100.0,P100
"""
LINGJUN_JOBS = """id,uid,job_name,kind,namespace,model,status,gmt_job_submitted,gmt_job_running,gmt_job_finished,gmt_job_stopped
1,u,dlc1,PyTorchJob,ns,bert,Succeeded,2023/7/15 02:19,2023/7/15 02:20,2023/7/15 02:23,
2,u,dlc2,TFJob,ns,,Stopped,2023/7/15 02:21,2023/7/15 02:22,,2023/7/15 03:22
3,u,dlc3,TFJob,ns,,Failed,2023/7/15 02:21,,,2023/7/15 03:22
"""
LINGJUN_WORKERS = """id,job_name,worker_name,RES
1,dlc1,w0,"{""cpu"": ""8"", ""nvidia.com/gpu"": ""8""}"
2,dlc1,w1,"{""cpu"": ""8"", ""nvidia.com/gpu"": ""8""}"
3,dlc2,w0,"{""nvidia.com/gpu"": 4}"
4,dlc3,w0,"{""nvidia.com/gpu"": 4}"
"""


@pytest.fixture
def traces(tmp_path):
    """One small trace in each form, by the name of the form."""
    files = {
        "philly": ("cluster_job_log", json.dumps(PHILLY, indent=1)),
        "swf": ("x.swf", SWF),
        "helios": ("cluster_log.csv", HELIOS),
        "acme": ("trace_seren.csv", ACME),
        "openb": ("openb_pod_list_default.csv", OPENB),
    }
    paths = {}
    for form, (name, text) in files.items():
        paths[form] = tmp_path / name
        paths[form].write_text(text)
    for form, tables in (
        ("pai", {"pai_job_table.csv": PAI_JOBS, "pai_task_table.csv": PAI_TASKS}),
        ("lingjun", {"job.csv": LINGJUN_JOBS, "worker.csv": LINGJUN_WORKERS}),
    ):
        paths[form] = tmp_path / form
        paths[form].mkdir()
        for name, text in tables.items():
            (paths[form] / name).write_text(text)
    return paths


EXPECTED = {
    # Id, submit, GPUs, duration of every job that can be used.
    "philly": [("application_1", 0, 2, 74 + 60)],
    "swf": [("1", 0, 4, 100), ("3", 6, 8, 50)],
    "helios": [("1425511", 0, 1, 36848), ("1425512", 26, 4, 249)],
    "acme": [("5778432", 0, 8, 117)],
    "openb": [("openb-pod-0017", 0, 8, 1332355), ("openb-pod-0022", 241678, 0.22, 294651)],
    "pai": [("4b3f", 0, 1.5, 516)],
    "lingjun": [("dlc1", 0, 16, 180), ("dlc2", 120, 4, 3600)],
}


@pytest.mark.parametrize("form", EXPECTED)
def test_a_public_trace_is_read_as_its_owner_publishes_it(traces, form):
    trace = read_trace(traces[form])

    assert form_of(traces[form]) == form
    columns = zip(trace.ids, trace.submit, trace.gpus, trace.duration, strict=True)
    assert list(columns) == EXPECTED[form]
    # What was left out is reported.
    assert trace.notes


@pytest.mark.parametrize(
    ("form", "spoilt", "line", "message"),
    [
        ("helios", HELIOS.replace("2020-06-09 18:41:30", "soon", 1), 3, "soon"),
        ("swf", SWF.replace("5 10 -1", "5 10"), 3, "has 17 fields"),
        ("openb", OPENB.replace(",220,", ",some,"), 3, "gpu_milli"),
        ("philly", json.dumps(PHILLY, indent=1).replace('"attempts": []', '"attempts": 7'), 40, "attempts"),
    ],
)  # fmt: skip
def test_a_spoilt_public_trace_is_refused_with_the_line(traces, form, spoilt, line, message):
    traces[form].write_text(spoilt)

    with pytest.raises(BadTrace, match=message) as refused:
        read_trace(traces[form], form)

    if form != "philly":
        assert refused.value.line == line


def test_a_packed_trace_is_unpacked_and_a_broken_one_refused(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress((HEAD + "a,0,1,5\n").encode()))
    assert list(read_trace(path).ids) == ["a"]

    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BadTrace, match="unpacked"):
        read_trace(path, "csv")


def test_the_log_of_a_study_is_a_workload_with_the_same_jobs(tmp_path):
    from studies.simulation.run import run
    from studies.whatif.clusters import pool
    from studies.whatif.policies import policy_named

    trace = parsed(HEAD + "0,0,4,50\n1,10,8,30\n2,10,2,5\n")
    kept = run(trace, pool(8), policy_named("fifo"), keep_events=True).log
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(to_line(row) + b"\n" for row in to_rows(kept, GENESIS)))

    again = read_trace(path)

    assert form_of(path) == "muster"
    assert sorted(zip(again.submit, again.gpus, again.duration, strict=True)) == sorted(
        zip(trace.submit, trace.gpus, trace.duration, strict=True)
    )


def test_a_bundle_and_a_packed_export_are_workloads_as_well(tmp_path):
    lines = [to_line(row) + b"\n" for row in to_rows(recorded(), GENESIS)]
    plain = tmp_path / "log.jsonl"
    plain.write_bytes(b"".join(lines))
    packed = tmp_path / "log.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    log = MemoryLog(recorded())
    bundle = tmp_path / "night.bundle"
    made = run_now(make_bundle(log, first=20, last=len(lines), release="0"))
    bundle.write_bytes(b"".join(made.lines()))
    (tmp_path / "night.bundle.gz").write_bytes(gzip.compress(bundle.read_bytes()))

    jobs = [
        sorted(zip(x.submit, x.gpus, x.duration, strict=True))
        for x in map(read_trace, (plain, packed, bundle, tmp_path / "night.bundle.gz"))
    ]

    assert len(jobs[0]) == 3
    assert jobs == [jobs[0]] * 4


def test_an_export_that_was_changed_or_lacks_its_beginning_is_no_workload(tmp_path):
    lines = [to_line(row) + b"\n" for row in to_rows(recorded(), GENESIS)]
    path = tmp_path / "log.jsonl"
    for spoilt, line in (
        (lines[1:], 1),
        ([*lines[:4], *lines[5:]], 5),
        ([*lines[:4], lines[4].replace(b'"hash":"', b'"hash":"00')[:-5] + b'"}\n'], 5),
    ):
        path.write_bytes(b"".join(spoilt))
        with pytest.raises(BadTrace) as refused:
            read_trace(path, "muster")
        assert refused.value.line == line


def test_a_log_or_a_binary_file_is_refused_without_printing_its_bytes(tmp_path):
    log = tmp_path / "muster.db"
    log.write_bytes(b"SQLite format 3\0" + b"\x1b[31m\xff" * 100)
    spoilt = tmp_path / "spoilt.csv.gz"
    spoilt.write_bytes(b"\x1f\x8bxx")
    noise = tmp_path / "noise.csv"
    noise.write_bytes(b"\x1b[31m\0," * 1000)
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 5000 + "]" * 5000)
    cases = (
        (log, "muster log export"),
        (noise, "no column"),
        (deep, "too deeply"),
        (spoilt, "unpacked"),
    )
    for path, message in cases:
        with pytest.raises(BadTrace, match=message) as caught:
            read_trace(path)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 400


# ---------------------------------------------------------------- workloads like them


def test_a_synthetic_workload_has_the_statistics_of_the_recorded_one():
    trace = read_trace(shared("traces", "bench_b1_lingjun.csv"))
    recorded = statistics(trace)

    made = [
        statistics(synthetic(fit_profile(trace), str(seed), days=trace.span_s / 86_400))
        for seed in range(8)
    ]

    mean = {key: sum(m[key] for m in made) / len(made) for key in ("jobs", "gpu_days")}
    assert mean["jobs"] == pytest.approx(recorded["jobs"], rel=0.1)
    assert mean["gpu_days"] == pytest.approx(recorded["gpu_days"], rel=0.25)
    # Far from Poisson, whose coefficient of variation is 1; and far from exponential lengths.
    assert min(m["interarrival_cv"] for m in made) > 2
    assert min(m["mean_duration"] / m["duration_s"]["50"] for m in made) > 10


def test_twice_the_load_is_twice_the_work_in_the_same_time():
    trace = read_trace(shared("traces", "bench_b1_lingjun.csv"))
    profile = fit_profile(trace)

    double = synthetic(profile, "7", days=30, load=2.0)
    single = synthetic(profile, "7", days=30, load=1.0)

    assert len(double) == pytest.approx(2 * len(single), rel=0.15)
    assert scaled(trace, 2.0).span_s == pytest.approx(trace.span_s / 2)


def test_days_drawn_again_depend_on_the_dice_alone():
    trace = read_trace(shared("traces", "bench_b1_lingjun.csv"))

    one, same, other = (resampled(trace, dice) for dice in ("1", "1", "2"))

    assert (one.submit == same.submit).all()
    assert list(one.ids) == list(same.ids)
    assert len(one) != len(other) or (one.submit != other.submit).any()
    assert one.span_s == pytest.approx(trace.span_s, abs=2 * 86_400)
