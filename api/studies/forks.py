"""Forks over HTTP, in the background: the past continued otherwise, with both futures on one axis.

A fork is a study: its progress and its result are at `/v1/studies/{id}`.
"""

import uuid

from aiohttp import web

from api.history.incidents import FORK_S_MAX, ForkWanted, change_of
from api.history.past import PAST
from api.requests.bodies import BODIES, BODY_PROBLEMS, convert
from api.requests.instants import seconds
from api.routes import NoQuery, Route, answer, route
from api.studies.studies import StudyView, view
from api.studies.study_runner import FORK, STUDY_RUNNER, Study
from controlplane.model.errors import Rejected
from controlplane.ports import LogReader
from studies.fork import ForkError
from studies.fork.futures import ForkQuestion
from studies.fork.past import look_back


async def post_fork(request: web.Request, query: NoQuery) -> web.Response:
    wanted = convert(await request.app[BODIES].document(request), ForkWanted)
    try:
        question = await request.app[PAST].look(lambda log: _question(log, wanted))
    except ForkError as error:
        raise Rejected("invalid_fork", str(error)) from None
    runner, name = request.app[STUDY_RUNNER], uuid.uuid4().hex
    title = "; ".join(question.change.describe()) or "nothing changed"
    at = question.origin.at
    study = Study(name, question, runner.folder_for(name), kind=FORK, title=title, at=at)
    runner.take(study)
    return answer(view(study), status=202, headers={"Location": f"/v1/studies/{name}"})


async def _question(log: LogReader, wanted: ForkWanted) -> ForkQuestion:
    """Read the past that the fork begins with, and check the change; raise ForkError."""
    at = seconds(wanted.at)
    until = None if wanted.until is None else seconds(wanted.until)
    assert at is not None
    if until is not None and until - at > FORK_S_MAX:
        raise ForkError(f"until: it is longer than {FORK_S_MAX:.0f} s")
    origin = await look_back(log, at=at, until=until)
    if origin.snapshot.position == 0:
        raise ForkError("at: the log begins later, so there is no past to fork from")
    if origin.until <= at:
        raise ForkError("until: the end does not lie behind the fork; name a later one")
    question = ForkQuestion(
        origin=origin, change=change_of(wanted), gpu_hour_price=wanted.gpu_hour_price
    )
    question.check()
    return question


ROUTES: tuple[Route, ...] = (
    route(
        "POST", "/v1/forks", post_fork,
        "Continue the past otherwise, in the background; the result has both futures",
        query=NoQuery, body=ForkWanted, answers={202: StudyView},
        problems=("invalid_body", "invalid_fork", "busy", *BODY_PROBLEMS),
    ),
)  # fmt: skip
