from __future__ import annotations

import json

import aiohttp

from proxy.commands.demo.agent import Agent, Answered
from tests.sockets import raw_upstream, reply


def words(text: str) -> int:
    """Count tokens as words."""
    return len(text.split())


def test_what_carryon_told_is_read_as_numbers() -> None:
    """Tokens of the history and of what was sent; zeros where Carryon did not measure."""
    told = Answered(status=200, told={"tokens": "raw=10, sent=7"}, body=b"")
    assert told.tokens == (10, 7)
    assert told.generation == 0
    assert Answered(status=200, told={"generation": "3"}, body=b"").tokens == (0, 0)


async def test_a_turn_reads_a_file_and_sends_the_whole_history() -> None:
    """Call and result belong together, the file has the size asked for, the answer joins the history."""
    answer = {"choices": [{"message": {"role": "assistant", "content": "done"}}]}
    script = reply(json.dumps(answer).encode(), headers=b"X-Carryon-Action: pass\r\n")
    async with raw_upstream(script, keep=True) as up, aiohttp.ClientSession() as session:
        agent = Agent(f"{up.url}/v1", session, words)
        first = await agent.turn(200)
        await agent.turn(50)
    assert (first.status, first.told["action"]) == (200, "pass")
    before, messages = (json.loads(request.body)["messages"] for request in up.requests)
    roles = ["system", "user", "assistant", "tool", "assistant", "assistant", "tool"]
    assert [message["role"] for message in messages] == roles
    assert messages[2]["tool_calls"][0]["id"] == messages[3]["tool_call_id"]
    assert messages[2]["tool_calls"][0]["id"] != messages[5]["tool_calls"][0]["id"]
    assert 200 <= words(messages[3]["content"]) < 220
    assert messages[:4] == before
