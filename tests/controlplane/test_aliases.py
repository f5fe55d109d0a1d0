"""Numbered names, and where they stand in for others in a text."""

import ast
import re
from pathlib import Path

import pytest

from controlplane.aliases import OUR_WORDS, Aliases

ROOT = Path(__file__).parents[2] / "controlplane"
# Where the messages come from that events carry.
TELLING = [
    *sorted((ROOT / "scheduling").glob("*.py")),
    *(ROOT / f"{name}.py" for name in ("decider", "enactment", "reports", "restart", "settling")),
]


def aliases() -> Aliases:
    names = Aliases()
    for kind, name in (
        ("job", "needs"),
        ("job", "bert"),
        ("user", "ann@x.org"),
        ("image", "r/i:1"),
    ):
        names.of(kind, name)
    names.know("nlp/needs", "team-1/job-1")
    return names


def test_a_name_has_one_alias_of_its_kind():
    names = aliases()
    assert names.of("job", "bert") == names.of("job", "bert") == "job-2"
    assert names.of("team", "bert") == "team-1"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("bert failed.", "job-2 failed."),
        (
            "bert-0 and bert_x are others, bert: is not",
            "bert-0 and bert_x are others, job-2: is not",
        ),
        ("it needs 8 GPUs", "it needs 8 GPUs"),
        ("gave way to nlp/needs, which needs 8", "gave way to team-1/job-1, which needs 8"),
        ('pulling image "r/i:1": no', 'pulling image "image-1": no'),
        ("asked by (ann@x.org)", "asked by (user-1)"),
        ("run=bert", "run=job-2"),
        ("", ""),
    ],
)
def test_names_are_replaced_where_they_are_meant(text: str, told: str):
    assert aliases().mentions({"needs"})(text) == told


def test_every_word_of_our_messages_is_known_as_such():
    """Or a job of that name would change what the messages of a history without names say."""
    found = set()
    for path in TELLING:
        tree = ast.parse(path.read_text())
        sentences = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
        pieces = [piece for sentence in sentences for piece in sentence.values]
        for piece in pieces:
            if isinstance(piece, ast.Constant):
                found |= set(re.findall(r"(?<![\w-])[a-z][a-z0-9-]*(?![\w-])", str(piece.value)))
    assert found - OUR_WORDS == set()
    assert len(found) > 100
