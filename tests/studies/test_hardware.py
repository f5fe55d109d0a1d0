"""Other GPUs and links: jobs whose model is known run at the speed that the physics gives them."""

import pytest

from studies.simulation.run import run
from studies.whatif.clusters import equal_nodes, parse_nodes
from studies.whatif.policies import policy_named
from studies.workloads.trace import make_trace

HOUR = 3_600.0


def jobs(*models):
    count = len(models)
    ids = [str(i) for i in range(count)]
    at = [i * 100 * HOUR for i in range(count)]
    return make_trace("t", ids, at, [16] * count, [HOUR] * count, labels={"model": models})


def lengths(cluster, trace, recorded_on=""):
    result = run(
        trace, equal_nodes(*parse_nodes(cluster)), policy_named("fifo"), recorded_on=recorded_on
    )
    return (result.finished - result.started).tolist()


def test_on_the_machines_of_the_trace_a_job_takes_as_long_as_it_did():
    seconds = lengths("4x8:V100-32:25GbE", jobs("resnet50", "vgg16"), "V100-32:25GbE")

    assert seconds == pytest.approx([HOUR, HOUR], rel=0.02)


def test_a_faster_gpu_helps_what_computes_and_a_faster_link_what_communicates():
    trace = jobs("resnet50", "vgg16")
    slow = lengths("4x8:V100-32:10GbE", trace, "V100-32:10GbE")

    links = lengths("4x8:V100-32:100GbE", trace, "V100-32:10GbE")
    gpus = lengths("4x8:H100:10GbE", trace, "V100-32:10GbE")

    gained = [before / after for before, after in zip(slow, links, strict=True)]
    # VGG has five times the parameters of ResNet, so its gradients wait for the wire.
    assert gained[1] > gained[0] >= 1.0
    assert gained[1] > 1.3
    assert gpus[0] < slow[0]


def test_a_job_with_an_unknown_model_keeps_its_length():
    trace = jobs("something of our own", "")

    assert lengths("4x8:H100:400GbE", trace, "V100-32:10GbE") == [HOUR, HOUR]
    assert lengths("4x8:H100:400GbE", jobs("resnet50")) == [HOUR]


def test_a_model_that_does_not_fit_the_studied_gpus_is_refused_and_counted():
    trace = jobs("gpt_1.7b", "resnet50")
    result = run(
        trace,
        equal_nodes(*parse_nodes("4x8:V100:25GbE")),
        policy_named("fifo"),
        recorded_on="A100-80:25GbE",
    )
    assert list(result.refused) == [0]
    assert "gpt_1.7b needs at least" in result.refused[0]
    assert result.finished[1] > result.started[1]
