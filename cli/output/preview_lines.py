"""Previews as text: what a change would do, and to which jobs."""

from collections.abc import Iterator

from studies.forecast.views import Preview, PreviewedJob

JOBS_MAX = 10


def preview_lines(preview: Preview) -> Iterator[str]:
    """Yield the sentences of a preview, and a line for each of the first jobs of every kind."""
    yield from preview.summary
    kinds = {
        "start": preview.starts,
        "stop": preview.stops,
        "move": preview.moves,
        "end": preview.ends,
    }
    for verb, jobs in kinds.items():
        yield from (_line(verb, job) for job in jobs[:JOBS_MAX])
        if len(jobs) > JOBS_MAX:
            yield f"  {verb:<6} and {len(jobs) - JOBS_MAX} more"


def _line(verb: str, job: PreviewedJob) -> str:
    return f"  {verb:<6} {job.job}: {job.message}"
