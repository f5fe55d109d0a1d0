"""The worked incident says what its commands print."""

from pathlib import Path

from docs.tell import BLOCK, told

DOCUMENT = Path(__file__).parents[2] / "docs" / "incidents.md"


def test_what_the_document_says_is_what_the_commands_print() -> None:
    """`make docs` writes it anew."""
    text = DOCUMENT.read_text()
    assert len(BLOCK.findall(text)) >= 8
    assert told(text) == text
