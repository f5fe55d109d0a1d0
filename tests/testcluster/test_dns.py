"""Names for Kubernetes that is too old for CoreDNS: questions as resolvers write them."""

import asyncio
import socket
import struct
from typing import Any

from deploy.testcluster.dns import Book, Server, answer


def question(name: str, sort: int = 1, number: int = 7) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    head = struct.pack("!HHHHHH", number, 0x0100, 1, 0, 0, 0)
    return head + labels + b"\0" + struct.pack("!HH", sort, 1)


def resolved(book: Book, name: str, sort: int = 1) -> tuple[int, list[str]]:
    """The code of an answer, and its addresses."""
    asked = question(name, sort)
    reply = answer(asked, book)
    assert reply is not None
    number, flags, questions, answers = struct.unpack("!HHHH", reply[:8])
    assert (number, questions, flags & 0x8000) == (7, 1, 0x8000)
    assert reply[12 : len(asked)] == asked[12:]
    records = [reply[at : at + 16] for at in range(len(asked), len(reply), 16)]
    assert len(records) == answers
    return flags & 0xF, [".".join(map(str, record[12:])) for record in records]


def named(name: str, **parts: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, **parts}


def test_services_and_the_pods_behind_them_have_names() -> None:
    book = Book()
    book.put("services", "ADDED", named("kubernetes", spec={"clusterIP": "10.0.0.1"}))
    book.put("services", "ADDED", named("train", spec={"clusterIP": "None"}))
    pods = [{"ip": "10.1.0.2", "hostname": "worker-0"}, {"ip": "10.1.0.3", "hostname": "worker-1"}]
    book.put("endpoints", "ADDED", named("train", subsets=[{"addresses": pods}]))
    home = "default.svc.cluster.local"
    assert resolved(book, f"kubernetes.{home}") == (0, ["10.0.0.1"])
    assert resolved(book, f"Train.{home}") == (0, ["10.1.0.2", "10.1.0.3"])
    assert resolved(book, f"worker-1.train.{home}") == (0, ["10.1.0.3"])
    # It has that name, but no address of version 6.
    assert resolved(book, f"train.{home}", sort=28) == (0, [])
    assert resolved(book, f"missing.{home}") == (3, [])
    assert resolved(book, "example.com") == (5, [])
    book.put("endpoints", "MODIFIED", named("train"))
    assert resolved(book, f"train.{home}") == (3, [])
    book.clear("services")
    assert resolved(book, f"kubernetes.{home}") == (3, [])


def test_what_is_no_question_gets_no_answer() -> None:
    whole = question("a.cluster.local")
    for cut in range(len(whole)):
        assert answer(whole[:cut], Book()) is None
    assert answer(whole[:2] + b"\x81\x80" + whole[4:], Book()) is None


async def test_questions_are_answered_over_the_wire() -> None:
    book, loop = Book(), asyncio.get_running_loop()
    book.put("services", "ADDED", named("kubernetes", spec={"clusterIP": "10.0.0.1"}))
    serving, _ = await loop.create_datagram_endpoint(
        lambda: Server(book), local_addr=("127.0.0.1", 0)
    )
    where = serving.get_extra_info("sockname")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.setblocking(False)
        await loop.sock_sendto(resolver, question("kubernetes.default.svc.cluster.local"), where)
        async with asyncio.timeout(5):
            reply = await loop.sock_recv(resolver, 512)
    serving.close()
    assert reply.endswith(bytes([10, 0, 0, 1]))
