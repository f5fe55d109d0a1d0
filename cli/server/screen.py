"""Whether to open a browser window."""

import os
import sys


def has_screen() -> bool:
    """Whether a person is likely to see a window that is opened here."""
    if "CI" in os.environ or not sys.stdout.isatty() or "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform != "linux" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
