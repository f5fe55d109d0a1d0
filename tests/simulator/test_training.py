"""Steps: what hides, what shows, and the published headline case."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.hardware.constants import FITTED, NAMES
from simulator.hardware.gpus import find_gpu
from simulator.hardware.hosts import Host
from simulator.hardware.links import find_link
from simulator.hardware.networks import Fabric, find_network
from simulator.training.input_pipeline import input_rates
from simulator.training.layers import Layers, alexnet, inception_v3, resnet, vgg16
from simulator.training.llm import Llm, Parallel, iteration
from simulator.training.models import MODELS, find_model, samples_per_s
from simulator.training.pace import pace
from simulator.training.placement import Place
from simulator.training.plans import SCHEMES, Scheme
from simulator.training.recipes import BadRecipe, Recipe
from simulator.training.served_exchange import incast_s
from simulator.training.step import compute_from, step
from simulator.training.stragglers import SIGMA, slowest, slowest_on_nodes

ALIBABA = Place(find_gpu("P100"), find_link("pcie3"), 64, 8, find_network("25GbE"))
RING = Recipe("resnet50", compression="fp16")


def _efficiency(recipe: Recipe, place: Place) -> float:
    alone = pace(recipe, replace(place, ranks=1, nodes=1)).step().total_s
    return alone / pace(recipe, place).step().total_s


def test_the_alibaba_case_ring_at_about_ninety_percent_and_ahead_of_parameter_servers() -> None:
    ring = _efficiency(RING, ALIBABA)
    assert 0.87 < ring < 0.93
    # TensorFlow was measured at 62 %, between a client for each GPU and one for each node.
    by_gpu, by_node = (
        _efficiency(Recipe("resnet50", scheme=scheme, servers=8), ALIBABA)
        for scheme in (Scheme.PS_GPU, Scheme.PS_NODE)
    )
    assert by_gpu < 0.62 < by_node
    assert ring > 1.1 * by_node
    assert ring > 2 * by_gpu


def test_there_are_ten_fitted_constants_at_most() -> None:
    assert len(NAMES) <= 10


@pytest.mark.parametrize(
    ("layers", "millions", "gigamacs"),
    [
        (resnet(3, 4, 6, 3), 25.56, 3.86),
        (resnet(3, 4, 23, 3), 44.55, 7.57),
        (resnet(3, 8, 36, 3), 60.19, 11.28),
        (vgg16(), 138.36, 15.47),
        (alexnet(), 61.1, 0.714),
        (inception_v3(), 23.83, 5.71),
    ],
)
def test_architectures_have_the_published_number_of_parameters(
    layers: Layers, millions: float, gigamacs: float
) -> None:
    assert sum(layer.params for layer in layers) / 1e6 == pytest.approx(millions, rel=0.001)
    assert sum(layer.macs for layer in layers) / 1e9 == pytest.approx(gigamacs, rel=0.01)


def test_every_spelling_of_a_model_is_recognised() -> None:
    assert find_model("ResNet-50") is MODELS["resnet50"]
    assert find_model("gpt_175.0B") is MODELS["gpt_175b"]
    assert find_model("inception_v3") is find_model("Inception v3")


def test_an_unmeasured_gpu_gets_a_rate_between_those_of_its_neighbours() -> None:
    model = MODELS["resnet50"]
    rates = [samples_per_s(model, find_gpu(name), "fp16", 256) for name in ("V100", "A100", "H100")]
    assert rates == sorted(rates)
    assert samples_per_s(model, find_gpu("P100"), "fp32", 8) < samples_per_s(
        model, find_gpu("P100"), "fp32", 64
    )


@given(
    compute=st.floats(1e-3, 10.0),
    gbps=st.sampled_from(["10GbE", "25GbE", "100GbE"]),
    share=st.floats(0.05, 1.0),
)
def test_less_bandwidth_never_makes_a_step_faster(compute: float, gbps: str, share: float) -> None:
    place = replace(ALIBABA, network=find_network(gbps))
    one = pace(Recipe("vgg16", compute_s=compute), place)
    assert one.step_s(share) >= one.step_s(1.0) - 1e-12
    taken = one.step(share)
    parts = taken.compute_s + taken.straggler_s + taken.exchange_s + taken.input_s
    assert taken.total_s == pytest.approx(parts)


@given(measured=st.floats(1e-2, 100.0), accumulate=st.integers(1, 8))
def test_the_compute_time_is_recovered_from_a_measured_step(
    measured: float, accumulate: int
) -> None:
    one = pace(Recipe("resnet50"), ALIBABA)
    compute_s = compute_from(measured, one.plan, one.lag, micro_batches=accumulate)
    again = step(compute_s, one.plan, one.lag, micro_batches=accumulate).total_s
    # A step shorter than its exchange alone cannot be explained by any compute time.
    floor = step(0.0, one.plan, one.lag, micro_batches=accumulate).total_s
    assert again == pytest.approx(max(measured, floor), rel=1e-6)


def test_asynchronous_clients_do_not_wait_for_each_other_but_for_the_hottest_server() -> None:
    few = replace(ALIBABA, ranks=16, nodes=2)
    sync, alone = (
        Recipe("resnet50", scheme=scheme, servers=2) for scheme in (Scheme.PS_GPU, Scheme.PS_ASYNC)
    )
    assert pace(alone, few).step().total_s < pace(sync, few).step().total_s
    # The whole model through one server's link, both ways, for every client in turn.
    hot = Recipe("vgg16", scheme=Scheme.PS_ASYNC, servers=1)
    floor = 64 * 7 / 8 * MODELS["vgg16"].params * 4 / (FITTED.ps_server_gbs * 1e9)
    assert pace(hot, ALIBABA).step().total_s == pytest.approx(floor, rel=0.02)


def test_a_hierarchical_exchange_takes_its_phases_one_after_the_other() -> None:
    place = Place(find_gpu("V100"), find_link("nvlink2"), 64, 8, find_network("100Gb EDR IB"))
    taken = pace(Recipe("vgg16", scheme=Scheme.HIERARCHICAL), place).step().exchange_busy_s
    size = MODELS["vgg16"].params * 4.0
    inside = 2.0 * 7.0 / 8.0 * size / (6 * 21.0e9)
    across = 2.0 * 7.0 / 8.0 * size / (0.96 * 12.5e9)
    assert inside + across < taken < 1.05 * (inside + across)
    # At half of the network only that phase takes twice as long.
    plan = pace(Recipe("vgg16", scheme=Scheme.HIERARCHICAL), place).plan
    more = (plan.s_per_byte(0.5) - plan.s_per_byte(1.0)) * size
    assert more == pytest.approx(across)


def test_many_flows_at_once_beat_one_ring_where_a_flow_is_capped() -> None:
    place = Place(
        find_gpu("V100"), find_link("nvlink2"), 64, 8, find_network("100GbE", flow_gbps_max=5.0)
    )
    ring, hierarchical = (
        pace(Recipe("vgg16", scheme=scheme), place).step().exchange_busy_s
        for scheme in (Scheme.ALL_REDUCE, Scheme.HIERARCHICAL)
    )
    assert hierarchical < 0.3 * ring


def test_a_torus_of_many_nodes_has_few_hops() -> None:
    place = Place(find_gpu("V100"), find_link("nvlink2"), 1024, 256, find_network("2x100Gb EDR IB"))
    small = Recipe("lenet5", compute_s=1e-3)
    rows, torus = (
        pace(replace(small, scheme=scheme), place).step().exchange_busy_s
        for scheme in (Scheme.HIERARCHICAL, Scheme.TORUS)
    )
    # Rows of 4 and columns of 256 against about 32 by 32.
    assert torus < 0.5 * rows


def test_every_scheme_that_people_may_name_has_a_pace() -> None:
    for scheme in SCHEMES.values():
        for ranks, nodes in ((1, 1), (8, 1), (8, 8), (64, 8)):
            place = Place(find_gpu("P100"), find_link("pcie3"), ranks, nodes, find_network("25GbE"))
            assert pace(Recipe("resnet50", scheme=scheme), place).step_s() > 0.0


def test_a_burst_that_no_port_holds_costs_a_synchronous_step_a_time_out() -> None:
    """Ten segments of each client against a megabyte and what 25 Gb/s hold in flight."""
    few, many = (
        Place(find_gpu("P100"), find_link("pcie3"), ranks, ranks // 8, find_network("25GbE"))
        for ranks in (64, 512)
    )
    assert incast_s(few, 64) == 0.0
    held = 1e6 + 25e9 / 8 * 100e-6
    assert incast_s(many, 512) == pytest.approx(0.2 * (1 - held / (512 * 14480)))
    deep = replace(many, fabric=Fabric(port_buffer_kb=10_000))
    servers = Recipe("resnet50", scheme=Scheme.PS_GPU, servers=64)
    lost, held_all = (pace(servers, place).step().total_s for place in (many, deep))
    assert lost - held_all == pytest.approx(incast_s(many, 512))
    # Credits between switches, or no rank that waits for another: no such burst.
    by_rdma = replace(many, network=find_network("25GbE RoCE"))
    assert incast_s(by_rdma, 512) == 0.0
    alone = replace(servers, scheme=Scheme.PS_ASYNC)
    assert pace(alone, many).step() == pace(alone, deep).step()


def test_evaluation_adds_its_part_to_every_step() -> None:
    plain = pace(Recipe("resnet50"), ALIBABA).step_s()
    seen = pace(Recipe("resnet50", evaluate_steps=500, evaluate_s=60.0), ALIBABA).step_s()
    assert seen == pytest.approx(plain + 60.0 / 500)


def test_large_late_layers_hide_better_than_evenly_spread_ones() -> None:
    """VGG's gradients are nearly all ready when the backward pass begins."""
    place = replace(ALIBABA, network=find_network("100Gb IB"))
    vgg = pace(Recipe("vgg16", compute_s=0.5), place).step()
    assert vgg.exchange_busy_s > 0.1
    assert vgg.exchange_s < 0.1 * vgg.exchange_busy_s


def test_without_overlap_the_whole_exchange_shows() -> None:
    hidden = pace(Recipe("resnet50"), ALIBABA).step()
    shown = pace(Recipe("resnet50", overlap=False), ALIBABA).step()
    assert shown.exchange_s == pytest.approx(shown.exchange_busy_s)
    assert shown.total_s > hidden.total_s


def test_a_slow_host_starves_the_gpus() -> None:
    place = replace(ALIBABA, host=Host(cpus=4, storage_gbs=10))
    taken = pace(Recipe("resnet50", real_data=True), place).step()
    assert taken.input_s > 0
    assert taken.total_s == pytest.approx(8 * 64 / (4 * 137.5))
    assert input_rates(MODELS["resnet50"], Host(cpus=4, storage_gbs=0.01), 8).limit == "storage"


def test_the_slowest_of_many_is_slower() -> None:
    # Exact expectations of the largest of n normal draws.
    for n, exact in ((2, 0.5642), (10, 1.5388), (100, 2.5076)):
        assert slowest(n) == pytest.approx(exact, rel=0.05)
    assert slowest(64, spare=4) < slowest(64)


@pytest.mark.parametrize(("ranks", "nodes", "micro"), [(16, 2, 1), (64, 8, 4), (512, 128, 1)])
def test_the_slowest_rank_is_seldom_on_the_slowest_node(ranks: int, nodes: int, micro: int) -> None:
    """The formula is what drawing ranks and nodes gives, which is less than both extremes."""
    dice = np.random.default_rng(7)
    of_ranks = dice.standard_normal((4000, nodes, ranks // nodes)) / np.sqrt(micro)
    of_nodes = dice.standard_normal((4000, nodes, 1))
    drawn = float((of_ranks + of_nodes).max(axis=(1, 2)).mean())
    assert slowest_on_nodes(ranks, nodes, micro) == pytest.approx(drawn, rel=0.03)
    assert drawn < 0.95 * (slowest(ranks) / np.sqrt(micro) + slowest(nodes))


def test_replicas_of_a_language_model_wait_for_the_slowest_of_them() -> None:
    place = Place(find_gpu("A100"), find_link("nvlink3"), 512, 64, find_network("8x100Gb HDR IB"))
    llm = Llm(8192, 48, 64, 2048)
    one, many = (iteration(llm, Parallel(8, 8, n, 1, 64 * n), place, FITTED) for n in (1, 8))
    assert one.straggler_s == 0.0
    working = many.total_s - many.straggler_s - many.data_s - many.update_s
    assert many.straggler_s == pytest.approx(SIGMA * slowest(8) * working)


def test_a_pipeline_bubble_shrinks_with_more_micro_batches() -> None:
    place = Place(find_gpu("A100"), find_link("nvlink3"), 64, 8, find_network("8x100Gb HDR IB"))
    llm = Llm(8192, 48, 64, 2048)
    few, many = (iteration(llm, Parallel(8, 8, 1, 1, batch), place, FITTED) for batch in (8, 64))
    assert few.bubble_s == pytest.approx(many.bubble_s)
    assert few.bubble_s / few.total_s > 4 * many.bubble_s / many.total_s
    parts = sum(many[1:-1])
    assert many.total_s == pytest.approx(parts)


def test_tensor_parallelism_across_nodes_is_dear() -> None:
    place = Place(find_gpu("A100"), find_link("nvlink3"), 64, 8, find_network("8x100Gb HDR IB"))
    llm = Llm(3072, 30, 32, 2048)
    inside = iteration(llm, Parallel(8, 1, 8, 8, 512), place, FITTED)
    across = iteration(llm, Parallel(16, 1, 4, 8, 512), place, FITTED)
    assert across.tensor_s > 2 * inside.tensor_s


def test_reduces_of_the_backward_pass_hide_behind_the_gradients_of_weights() -> None:
    """Inside a node four of six are seen; over a slow network the last two stick out as well."""
    llm = Llm(12288, 96, 96, 2048)
    fast = Place(find_gpu("A100"), find_link("nvlink3"), 8)
    slow = Place(find_gpu("A100"), find_link("nvlink3"), 16, 2, find_network("10GbE"))
    seen = {}
    for place in (fast, slow):
        tp = place.ranks
        full, plain = (
            iteration(llm, Parallel(tp, 1, 1, 1, 1, recompute=again), place, FITTED).tensor_s
            for again in (True, False)
        )
        # What a repeated forward pass adds is two all-reduces in the open.
        seen[tp] = full / ((full - plain) / 2.0)
    assert seen[8] == pytest.approx(4.0)
    assert 5.5 < seen[16] < 6.0


def test_stages_pass_on_what_every_micro_batch_makes() -> None:
    place = Place(find_gpu("A100"), find_link("nvlink3"), 64, 8, find_network("8x100Gb EDR IB"))
    few, many = (
        iteration(Llm(8192, 48, 64, 2048), Parallel(8, 8, 1, 1, batch), place, FITTED)
        for batch in (8, 64)
    )
    assert many.send_s == pytest.approx(8 * few.send_s)
    # Two bytes an element, both ways, an eighth from each GPU through its 12 GB/s.
    assert few.send_s == pytest.approx(8 * 2 * 2 * 2048 * 8192 / 8 / 12e9)


def test_every_gpu_updates_its_part_of_a_language_model() -> None:
    llm, net = Llm(8192, 48, 64, 2048), find_network("8x100Gb EDR IB")
    place = Place(find_gpu("A100"), find_link("nvlink3"), 64, 8, net)
    whole = iteration(llm, Parallel(8, 1, 8, 1, 64), place, FITTED)
    # 38 bytes a parameter through 1,555 GB/s, an eighth on each of the eight.
    assert whole.update_s == pytest.approx(38 * llm.params / 8 / 1555e9)
    cut = iteration(llm, Parallel(8, 8, 1, 1, 64), place, FITTED)
    assert cut.update_s == pytest.approx(whole.update_s / 8)
    assert sum(whole[1:-1]) == pytest.approx(whole.total_s)


@pytest.mark.parametrize(
    ("recipe", "field"),
    [
        (Recipe("nonesuch"), "model"),
        (Recipe("resnet50", compression="zip"), "compression"),
        (Recipe("resnet50", precision="int4"), "precision"),
        (Recipe("resnet50", tensor=2), "tensor"),
        (Recipe("gpt_175b", tensor=48), "tensor"),
        (Recipe("resnet50", evaluate_s=-1.0), "evaluate_s"),
        (Recipe("gpt_175b", tensor=8, global_batch=4), "global_batch"),
    ],
)
def test_a_recipe_that_cannot_be_followed_names_its_field(recipe: Recipe, field: str) -> None:
    with pytest.raises(BadRecipe) as refused:
        pace(recipe, ALIBABA)
    assert refused.value.field == field
