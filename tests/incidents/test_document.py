"""The worked incident shows what its commands print."""

from pathlib import Path

from docs.run_commands import BLOCK, with_outputs

DOCUMENT = Path(__file__).parents[2] / "docs" / "incidents.md"


def test_the_document_shows_what_the_commands_print() -> None:
    """`make docs` writes it anew."""
    text = DOCUMENT.read_text()
    assert len(BLOCK.findall(text)) >= 8
    assert with_outputs(text) == text
