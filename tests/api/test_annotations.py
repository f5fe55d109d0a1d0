"""Annotations are kept beside the log, and the analysis of an incident is put in sentences."""

import os
from pathlib import Path

import pytest

from api.history.annotations import Annotation, AnnotationBook, beside
from controlplane.model.errors import Rejected
from tests.api.stand_in import Server, native

WANTED = {"at": 1_700_000_000.5, "text": "a bad cable", "about": "node-0"}


def annotation(text: str, at: float = 5.0) -> Annotation:
    return Annotation(id=text, at=at, text=text, author="ann", written_at=9.0)


async def test_annotations_are_listed_and_removed_over_http(server: Server) -> None:
    status, made = await server.call("POST", "/v1/annotations", WANTED)
    assert (status, made["author"], made["at"]) == (201, "local", WANTED["at"])
    _, listed = await server.call("GET", "/v1/annotations")
    assert listed == {"annotations": [made], "kept_in": ""}
    assert (await server.call("DELETE", f"/v1/annotations/{made['id']}"))[0] == 204
    assert (await server.call("DELETE", f"/v1/annotations/{made['id']}"))[0] == 404
    assert (await server.call("POST", "/v1/annotations", {**WANTED, "text": ""}))[0] == 422


async def test_annotations_survive_a_restart_beside_the_log(tmp_path: Path) -> None:
    place = beside(tmp_path / "muster.db")
    book = AnnotationBook(place)
    for at, text in ((7.0, "later"), (5.0, "earlier")):
        await book.add(annotation(text, at))
    again = AnnotationBook(place)
    assert [each.text for each in again.all()] == ["earlier", "later"]
    await again.remove("later")
    assert [each.text for each in AnnotationBook(place).all()] == ["earlier"]
    assert os.listdir(tmp_path) == [place.name]


async def test_an_annotation_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    book = AnnotationBook(tmp_path / "gone" / "muster.db.json")
    with pytest.raises(Rejected, match="nothing was kept"):
        await book.add(annotation("lost"))
    assert book.all() == []


def test_a_file_that_is_no_list_of_annotations_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "muster.db.annotations.json"
    place.write_text('{"a": 1}')
    with pytest.raises(ValueError, match="no annotations that can be read"):
        AnnotationBook(place)
    assert place.read_text() == '{"a": 1}'


async def test_an_incident_says_what_failed_and_what_it_cost(server: Server) -> None:
    _, quiet = await server.call("GET", "/v1/incident")
    assert quiet["sentences"] == ["Nothing failed: 0 jobs, and no attempt was lost."]
    _, job = await server.call("POST", "/v1/jobs", native("one", gpus=8))
    await server.settled()
    server.cluster.finish(job["job"]["id"], code=3)
    await server.settled()
    _, incident = await server.call("GET", "/v1/incident")
    assert incident["sentences"][0] == "1 attempt failed, and 0 jobs of 1 ended as failed."
    status, page = await server.call("GET", "/v1/incident/page")
    assert (status, "1 attempt failed" in page) == (200, True)
    assert (await server.call("GET", "/v1/incident?from=5&to=6"))[1]["code"] == "no_such_position"
