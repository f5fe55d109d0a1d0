"""Many requests made up from the OpenAPI document, and every limit of every parameter on purpose.

What schemathesis tries on purpose is worked out when tests are collected, which takes a minute. So
this file is not even looked at where the slow tests are left out (see conftest.py).
"""

import pytest
import schemathesis
from hypothesis import settings

from tests.api.test_openapi_fuzz import CHECKS, check, document, url

__all__ = ["url"]

# A manifest can be of thirty forms with hundreds of fields each; those are tried at random alone.
MANIFESTS = ["/v1/jobs", "/v1/convert", "/v1/studies/forecast"]
limits = document(coverage=True).exclude(path=MANIFESTS, method="POST")
manifests = document().include(path=MANIFESTS, method="POST")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@limits.parametrize()
@settings(max_examples=200, derandomize=True, suppress_health_check=CHECKS)
def test_many_made_up_requests_get_documented_answers(case: schemathesis.Case, url: str) -> None:
    check(case, url)


@manifests.parametrize()
@settings(max_examples=1_000, derandomize=True, suppress_health_check=CHECKS)
def test_many_made_up_manifests_get_documented_answers(case: schemathesis.Case, url: str) -> None:
    check(case, url)
