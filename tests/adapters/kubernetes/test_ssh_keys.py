"""Key pairs as OpenSSH reads them."""

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)

from adapters.kubernetes.render.ssh_keys import make_key_pair


async def test_the_halves_of_a_pair_belong_together() -> None:
    private, public = await make_key_pair()
    assert private.startswith("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert private.endswith("-----END OPENSSH PRIVATE KEY-----\n")
    kind, half, remark = public.split()
    assert (kind, remark) == ("ecdsa-sha2-nistp521", "muster")
    read = load_ssh_private_key(private.encode(), password=None)
    again = read.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    assert again.decode() == f"{kind} {half}"


async def test_every_pair_is_another_one() -> None:
    assert await make_key_pair() != await make_key_pair()
