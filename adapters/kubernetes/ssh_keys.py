"""Fresh SSH key pairs for jobs whose launcher reaches the others by SSH, made by `ssh-keygen`."""

import asyncio
import tempfile
from pathlib import Path

from adapters.kubernetes.errors import Refused


async def make_key_pair() -> tuple[str, str]:
    """(private, public), each as the text of its file."""
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        place = Path(folder) / "key"
        asked = ("ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-N", "", "-C", "muster", "-f")
        try:
            made = await asyncio.create_subprocess_exec(*asked, str(place))
        except OSError as error:
            told = f"a key pair is needed, and ssh-keygen cannot be run: {error}"
            raise Refused(told) from None
        if await made.wait():
            raise Refused(f"a key pair is needed, and ssh-keygen ended with {made.returncode}")
        return place.read_text("ascii"), place.with_suffix(".pub").read_text("ascii")
