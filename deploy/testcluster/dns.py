"""A DNS server for services and their pods, for Kubernetes releases too old for CoreDNS.

`python -m deploy.testcluster.dns KUBECONFIG ADDRESS` answers on port 53 of that address over UDP:
A records within `cluster.local`, as many as fit into one datagram.
"""

import asyncio
import ipaddress
import struct
import sys
from pathlib import Path
from typing import Any, cast

import aiohttp

from deploy.testcluster.api_client import Api, Refused

ZONE = "cluster.local"
PORT = 53
# The number of addresses that fit into 512 bytes with a name of usual length.
ANSWERS_MAX = 24
# Short, so that the new address of a restarted rank is visible soon.
TTL_S = 1
AGAIN_S = 0.5
A, ANY_CLASS_IN = 1, 1
NO_SUCH_NAME, NOT_OURS = 3, 5

# Name -> its addresses.
Names = dict[str, list[str]]


def service_names(document: dict[str, Any]) -> Names:
    """Return the names of a service that has a cluster address."""
    address = document["spec"].get("clusterIP") or "None"
    return {} if address == "None" else {_home(document): [address]}


def endpoint_names(document: dict[str, Any]) -> Names:
    """Return the names of the pods of a headless service: all together, and each by hostname."""
    home, names = _home(document), Names()
    for subset in document.get("subsets") or ():
        for each in subset.get("addresses") or ():
            names.setdefault(home, []).append(each["ip"])
            if hostname := each.get("hostname"):
                names.setdefault(f"{hostname}.{home}", []).append(each["ip"])
    return names


def _home(document: dict[str, Any]) -> str:
    metadata = document["metadata"]
    return f"{metadata['name']}.{metadata['namespace']}.svc.{ZONE}"


class Book:
    """All names by the object that they come from; a service's address takes precedence over its pods'."""

    def __init__(self) -> None:
        self._by_object: dict[tuple[str, str, str], Names] = {}

    def clear(self, kind: str) -> None:
        for key in [key for key in self._by_object if key[0] == kind]:
            del self._by_object[key]

    def put(self, kind: str, change: str, document: dict[str, Any]) -> None:
        metadata = document["metadata"]
        key = kind, metadata["namespace"], metadata["name"]
        if change == "DELETED":
            self._by_object.pop(key, None)
        else:
            self._by_object[key] = KINDS[kind](document)

    def find(self, name: str) -> list[str] | None:
        """Return the addresses of a name; None if the name is unknown."""
        for kind in KINDS:
            for (sort, _, _), names in self._by_object.items():
                if sort == kind and name in names:
                    return names[name]
        return None


KINDS = {"services": service_names, "endpoints": endpoint_names}


def answer(question: bytes, book: Book) -> bytes | None:
    """Return the answer to one query; None if it is malformed."""
    try:
        number, flags, count = struct.unpack("!HHH", question[:6])
        labels, at = [], 12
        while length := question[at]:
            labels.append(question[at + 1 : at + 1 + length].decode("ascii").lower())
            at += 1 + length
        sort, _ = struct.unpack("!HH", question[at + 1 : at + 5])
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    if count != 1 or flags & 0x8000:
        return None
    name, asked = ".".join(labels), question[12 : at + 5]
    known = book.find(name)
    code = 0 if known is not None else NO_SUCH_NAME
    if not name.endswith(f".{ZONE}"):
        code = NOT_OURS
    addresses = (known or [])[:ANSWERS_MAX] if sort == A else []
    # An authoritative answer; recursion desired is copied from the query, and is not available.
    head = struct.pack("!HHHHHH", number, 0x8400 | flags & 0x0100 | code, 1, len(addresses), 0, 0)
    records = [
        # 0xC00C: the name is a pointer to byte 12, the query's name.
        struct.pack("!HHHIH", 0xC00C, A, ANY_CLASS_IN, TTL_S, 4) + ipaddress.ip_address(each).packed
        for each in addresses
    ]
    return head + asked + b"".join(records)


class Server(asyncio.DatagramProtocol):
    def __init__(self, book: Book) -> None:
        self._book = book

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not every Python types this parameter as a DatagramTransport.
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: Any) -> None:
        reply = answer(data, self._book)
        if reply is not None:
            self._transport.sendto(reply, address)


async def _follow(api: Api, kind: str, book: Book) -> None:
    """List and watch, for ever."""
    while True:
        try:
            listed = await api.get(f"/api/v1/{kind}")
            book.clear(kind)
            for each in listed["items"]:
                book.put(kind, "ADDED", each)
            version = listed["metadata"]["resourceVersion"]
            async for change, document in api.watch(f"/api/v1/{kind}", version):
                book.put(kind, change, document)
        except (Refused, aiohttp.ClientError, TimeoutError):
            await asyncio.sleep(AGAIN_S)


async def serve(kubeconfig: Path, address: str) -> None:
    book, loop = Book(), asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: Server(book), local_addr=(address, PORT))
    async with Api(kubeconfig) as api, asyncio.TaskGroup() as group:
        for kind in KINDS:
            group.create_task(_follow(api, kind, book))


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
