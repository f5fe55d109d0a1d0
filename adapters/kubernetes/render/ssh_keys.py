"""Fresh SSH key pairs for jobs whose launcher connects to the other ranks by SSH."""

import asyncio

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


async def make_key_pair() -> tuple[str, str]:
    """Return (private, public), each as the text of its file; made in a thread."""
    return await asyncio.to_thread(_make)


def _make() -> tuple[str, str]:
    # The curve that the MPI operator uses.
    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return private.decode("ascii"), f"{public.decode('ascii')} muster\n"
