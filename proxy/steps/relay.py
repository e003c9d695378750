"""What the client is handed: an upstream's reply byte for byte, or an answer of our own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from proxy.errors import Answer
from proxy.message import Outgoing, own
from proxy.steps.report import Report
from proxy.upstream import Outcome, UpstreamError
from proxy.upstream.reply import Reply

__all__ = ["outgoing", "refusal", "unreached"]


def outgoing(
    outcome: Outcome,
    report: Report,
    *,
    ended: Callable[[Reply], None] | None = None,
    cut: Callable[[Reply], None] | None = None,
) -> Outgoing:
    """Hand on the upstream's reply, our headers beside its own; `ended` is called once it was relayed whole.

    `cut` is called instead when it is closed before that: the upstream broke off, or the client left. Neither may
    raise. The request's line is logged when the reply is closed, relayed or not.
    """
    reply = outcome.reply

    async def close() -> None:
        try:
            await reply.aclose()
        finally:
            if not reply.finished:
                report.left()
                if cut is not None:
                    cut(reply)
            report.log(reply.status)

    return Outgoing(
        status=reply.status,
        reason=reply.reason,
        headers=(*reply.headers, *report.headers()),
        body=_relayed(reply, ended),
        aclose=close,
    )


def refusal(answer: Answer, report: Report, dialect: str | None = None) -> Outgoing:
    """Give an answer of our own, in the dialect's error shape, and log the request's line with its code."""
    report.log(answer.status, error=answer.code)
    return own(answer, dialect)


def unreached(error: UpstreamError) -> Answer:
    """Tell a client of an upstream that could not be reached or was too slow: 502 or 504."""
    return Answer(status=error.status, code=f"PROXY_UPSTREAM_{error.kind.upper()}", message=str(error))


async def _relayed(reply: Reply, ended: Callable[[Reply], None] | None) -> AsyncIterator[bytes]:
    async for chunk in reply:
        yield chunk
    if ended is not None and reply.finished:
        ended(reply)
