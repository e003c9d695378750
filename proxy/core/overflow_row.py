"""A reported answer as one line of JSON, classified: the shape of the fixture and of `carryon classify --jsonl`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.core.overflow import Verdict, classify

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["classify_row"]


def classify_row(row: Mapping[str, object]) -> Verdict:
    """Classify one line shaped like the fixture; never raises.

    Read are `status`, `delivery`, `body`, `event`, `endpoint` and `headers`; odd types count as absent.
    """
    status = _integer(row.get("status"))
    delivery = row.get("delivery")
    in_band = delivery != "http" if isinstance(delivery, str) else 200 <= status < 300
    event, endpoint, headers = row.get("event"), row.get("endpoint"), row.get("headers")
    return classify(
        status=status,
        body=row.get("body"),
        event=event if isinstance(event, str) else None,
        endpoint=endpoint if isinstance(endpoint, str) else None,
        in_band=in_band,
        headers={str(name): str(value) for name, value in headers.items()} if isinstance(headers, dict) else None,
    )


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return 0
    try:
        return int(value)
    except (ValueError, OverflowError):
        return 0
