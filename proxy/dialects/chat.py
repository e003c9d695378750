"""The `chat` dialect: `…/chat/completions`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from proxy.core.counts import count_of
from proxy.core.meter import Weight
from proxy.core.transcript import Facts, Item
from proxy.dialects import Call, Completion, Result, Said, Usage, flaws, order, stream
from proxy.dialects import chat_items as items_
from proxy.dialects.body import Body
from proxy.dialects.chat_digest import facts
from proxy.dialects.form import Form, Wire
from proxy.dialects.parts import Message, changed, dumps, loads, mapping, respelled, says_error

__all__ = ["CHAT", "Chat"]

_FORM = Form(
    items="messages",
    read_by_model=("tools", "functions", "response_format"),
    limits=("max_completion_tokens", "max_tokens"),
    kept_for_summary=(
        "model",
        "tools",
        "functions",
        "parallel_tool_calls",
        "reasoning_effort",
        "reasoning",
        "thinking",
        "enable_thinking",
        "chat_template_kwargs",
        "prompt_cache_key",
        "cache_prompt",
        "user",
        "safety_identifier",
        "service_tier",
    ),
    gather=stream.chat,
    flaws=flaws.chat,
    sealed=flaws.marks,
)
#: Models that refuse `max_tokens` and want the newer name, by how they begin.
_NEWER_LIMIT = ("o1", "o3", "o4", "gpt-5")
_FINISH = {"stop": "stop", "length": "length", "tool_calls": "tool", "function_call": "tool"}


class Chat(Wire):
    """Chat completions, by whoever speaks them."""

    name = "chat"
    form = _FORM

    def facts(self, raw: bytes) -> Facts | None:
        """Read one message; None where it is none."""
        return facts(raw)

    def said(self, raw: bytes) -> Said:
        """What the message says to a reader: no reasoning, media as markers."""
        message = loads(raw)
        role = str(message.get("role", ""))
        text = items_.visible_text(message)
        if role in items_.RESULT_ROLES:
            result = Result(id=items_.answered(message), text=text, error=says_error(text))
            return Said(role="tool", text="", results=(result,))
        calls = tuple(Call(id=c.id, name=c.name, arguments=c.arguments) for c in items_.calls(message))
        return Said(role=role, text=text, calls=calls)

    def weigh(self, raw: bytes) -> Weight:
        """Texts and fixed tokens of a message, or the raw text of anything else."""
        return items_.weigh(raw)

    def shrink(self, raw: bytes, change: Callable[[str], str]) -> bytes | None:
        """Apply `change` to the texts of a tool result; None when nothing changes or it is no tool result."""
        message = loads(raw)
        if message.get("role") not in items_.RESULT_ROLES:
            return None
        return respelled(message, "content", changed(message.get("content"), change))

    def user(self, text: str) -> bytes:
        """A user message."""
        return dumps({"role": "user", "content": text})

    def assistant(self, text: str) -> bytes:
        """An assistant message."""
        return dumps({"role": "assistant", "content": text})

    def faults(self, items: Sequence[Item]) -> Iterator[str]:
        """What an upstream would reject in this order of messages."""
        return order.faults(items)

    def limit_field(self, body: Body, model: str) -> str:
        """The client's own limit field; without one, the name that the model takes."""
        if any(key in body for key in self.form.limits):
            return super().limit_field(body, model)
        return "max_completion_tokens" if model.startswith(_NEWER_LIMIT) else "max_tokens"

    def completed(self, reply: Message) -> Completion | None:
        """Read a reply; None where it has no choice with a message."""
        choices = reply.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        message = first.get("message") if isinstance(first, dict) else None
        if not isinstance(first, dict) or not isinstance(message, dict):
            return None
        finish = "tool" if items_.calls(message) else _FINISH.get(str(first.get("finish_reason")), "other")
        model = reply.get("model")
        return Completion(
            text=items_.visible_text({**message, "role": "assistant"}),
            finish=finish,
            model=model if isinstance(model, str) else "",
            usage=self.counted(reply.get("usage")),
        )

    def counted(self, usage: object) -> Usage | None:
        """Tokens of a `usage` object."""
        found = mapping(usage)
        prompt, completion = count_of(found.get("prompt_tokens")), count_of(found.get("completion_tokens"))
        return Usage(prompt=prompt, completion=completion or 0) if prompt else None


CHAT = Chat()
