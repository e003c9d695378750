"""What the door to the models promises."""

from __future__ import annotations

from typing import get_args

import pytest

from proxy.errors import STATUSES
from proxy.upstream import ErrorKind, UpstreamError


@pytest.mark.parametrize("kind", get_args(ErrorKind))
def test_a_failure_is_504_where_the_upstream_was_too_slow_and_502_otherwise(kind: ErrorKind) -> None:
    """Both are among the statuses that Carryon may answer itself."""
    status = UpstreamError(kind, "m").status
    assert status == (504 if kind in {"connect_timeout", "first_byte", "stream_idle"} else 502)
    assert status in STATUSES
