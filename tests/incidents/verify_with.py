"""`python verify_with.py LOG`: re-decides an exported log with whichever control plane is on the path."""

import sys
from pathlib import Path

from controlplane.audit.redecide import DecisionVerifier, Differs
from controlplane.log.codec import from_line, from_row
from controlplane.state.world import World


def main(path: str) -> int:
    verifier = DecisionVerifier(World())
    lines = Path(path).read_bytes().splitlines()
    try:
        verifier.take(from_row(from_line(line)) for line in lines)
        verifier.finish()
    except Differs as differs:
        print(differs.difference.position, differs.difference.why)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
