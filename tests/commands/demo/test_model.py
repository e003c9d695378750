from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from proxy.commands.demo.model import COUNTS_MORE, ScriptedModel
from proxy.core.meter import Meter
from proxy.core.overflow import Kind, classify
from proxy.dialects.chat import CHAT
from proxy.tokens import count_with

SHORT = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
LONG = {"model": "demo", "messages": [{"role": "user", "content": "word " * 400}]}


@asynccontextmanager
async def asked(model: ScriptedModel) -> AsyncIterator[TestClient[Any, Any]]:
    """A client of the model."""
    async with TestClient(TestServer(model.app())) as client:
        yield client


async def test_it_counts_more_than_our_meter_and_reports_no_usage() -> None:
    """By the factor the story tells; Carryon has only its own estimate."""
    model = ScriptedModel()
    async with asked(model) as client:
        answer = await client.post("/v1/chat/completions", json=LONG)
        body = await answer.json()
    transcript = CHAT.split(json.dumps(LONG).encode())
    assert transcript is not None
    estimate = Meter(CHAT.weigh, count_with("o200k_base")).total(transcript.envelope, transcript.items)
    assert answer.status == 200
    assert "usage" not in body
    assert model.counts[0] == pytest.approx(estimate * COUNTS_MORE, abs=1)


async def test_it_refuses_what_is_over_its_window_as_real_ones_do() -> None:
    """The refusal is one that Carryon's own table knows, with both numbers; it is remembered byte for byte."""
    model = ScriptedModel(window=100)
    async with asked(model) as client:
        answer = await client.post("/v1/chat/completions", json=LONG)
        body = await answer.read()
    verdict = classify(status=answer.status, body=body)
    assert (verdict.kind, verdict.limit) == (Kind.CONTEXT_WINDOW_EXCEEDED, 100)
    assert [verdict.requested] == model.counts
    assert body == model.refusal


async def test_one_that_does_not_defend_its_window_answers() -> None:
    """So that the story can be seen to fail."""
    model = ScriptedModel(window=100, defends=False)
    async with asked(model) as client:
        assert (await client.post("/v1/chat/completions", json=LONG)).status == 200


async def test_summaries_are_written_and_not_counted() -> None:
    """A request that forbids tools is a summary, whatever its size."""
    model = ScriptedModel(window=100)
    async with asked(model) as client:
        answer = await client.post("/v1/chat/completions", json={**LONG, "tool_choice": "none"})
        body = await answer.json()
    assert "## Objective" in body["choices"][0]["message"]["content"]
    assert model.counts == []


async def test_it_lists_itself_and_names_no_window() -> None:
    """`/v1/models` answers; what it does not tell, Carryon cannot learn there."""
    async with asked(ScriptedModel()) as client:
        listed = await (await client.get("/v1/models")).json()
        odd = await client.post("/v1/chat/completions", data=b"[]")
    assert listed == {"object": "list", "data": [{"id": "demo", "object": "model"}]}
    assert odd.status == 400
