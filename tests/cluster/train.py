"""A real distributed training of a few seconds, for a pod: numpy, sockets, and what Muster injected.

Linear regression by data parallelism: every rank has its own samples, gradients are summed over all
ranks in every step through rank 0, and all must end with the same weights, near the true ones. The
ranks know each other by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE alone.
"""

import os
import socket
import time

import numpy

STEPS, SAMPLES, FEATURES = 60, 256, 8
RATE = 0.1
PATIENCE_S = 60


def connect(address, port):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((address, port), timeout=PATIENCE_S)
        except OSError as error:
            if time.monotonic() > deadline:
                raise
            print(f"waiting for {address}: {error}", flush=True)
            time.sleep(0.2)


def receive(peer, size):
    kept = b""
    while len(kept) < size:
        chunk = peer.recv(size - len(kept))
        if not chunk:
            raise ConnectionError("a peer has gone")
        kept += chunk
    return numpy.frombuffer(kept)


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        server = socket.create_server(("", port))
        server.settimeout(PATIENCE_S)
        peers = [server.accept()[0] for _ in range(size - 1)]
    else:
        peers = [connect(address, port)]

    def sum_over_all(array):
        if rank == 0:
            total = array + sum(receive(peer, array.nbytes) for peer in peers)
            for peer in peers:
                peer.sendall(total.tobytes())
            return total
        peers[0].sendall(array.tobytes())
        return receive(peers[0], array.nbytes)

    dice = numpy.random.default_rng(rank)
    true = numpy.arange(1.0, FEATURES + 1)
    inputs = dice.normal(size=(SAMPLES, FEATURES))
    wanted = inputs @ true + dice.normal(scale=0.01, size=SAMPLES)
    weights = numpy.zeros(FEATURES)
    for _ in range(STEPS):
        gradient = inputs.T @ (inputs @ weights - wanted) / SAMPLES
        weights = weights - RATE * sum_over_all(gradient) / size
    error = float(numpy.abs(weights - true).max())
    print(
        f"trained rank={rank} of={size} host={socket.gethostname()} error={error:.4f}", flush=True
    )
    assert numpy.allclose(sum_over_all(weights), weights * size), "the ranks disagree"
    assert error < 0.05


main()
