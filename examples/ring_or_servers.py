"""ResNet-50 on 64 P100 in 8 nodes with 25 Gb Ethernet: ring all-reduce or parameter servers?

The headline case of Alibaba's Perseus: ring, gradients in half precision and overlap reach about
90 % of 64 times one GPU, clearly ahead of TensorFlow's parameter servers. Those were measured at
62 %, between the two ways in which TensorFlow uses them.
The same from the terminal: muster sim step --model resnet50 --gpu P100 --link pcie3 --gpus 64
--nodes 8 --net 25GbE --compression fp16
"""

from simulator.hardware.gpus import find_gpu
from simulator.hardware.links import find_link
from simulator.hardware.networks import find_network
from simulator.training.pace import Recipe, pace
from simulator.training.placement import Place
from simulator.training.plans import Scheme


def place(gpus: int) -> Place:
    nodes = -(-gpus // 8)
    return Place(find_gpu("P100"), find_link("pcie3"), gpus, nodes, find_network("25GbE"))


def efficiency(recipe: Recipe, gpus: int) -> float:
    return pace(recipe, place(1)).step().total_s / pace(recipe, place(gpus)).step().total_s


def main() -> None:
    ring = Recipe("resnet50", compression="fp16")
    print("GPUs   ring, fp16   servers, each node a client   servers, each GPU a client")
    for gpus in (1, 8, 16, 32, 64):
        count = max(1, gpus // 8)
        by_node = Recipe("resnet50", scheme=Scheme.PS_NODE, servers=count)
        by_gpu = Recipe("resnet50", scheme=Scheme.PS_GPU, servers=count)
        shares = [f"{efficiency(recipe, gpus):.1%}" for recipe in (ring, by_node, by_gpu)]
        print(f"{gpus:4}   {shares[0]:>10}   {shares[1]:>26}   {shares[2]:>25}")


if __name__ == "__main__":
    main()
