"""`carryon export`: a record as it is stored, and a request as Carryon would send it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.boot import secret_of
from proxy.commands.export import credential, described, exported, projected, rows, tenants, whose
from proxy.core.identity import tenant as tenant_of
from proxy.dialects import Dialect
from proxy.dialects.chat import CHAT
from proxy.dialects.messages import MESSAGES
from proxy.dialects.responses import RESPONSES
from proxy.errors import ConfigError, WrongError
from proxy.settings import Settings
from tests.commands.conftest import Store
from tests.shelf import SAID, SUMMARY, body

HERE = f"{'a' * 32}.{'1' * 32}"
OTHER = f"{'b' * 32}.{'2' * 32}"
OPENAI = ("authorization", "Bearer sk-a")


def responses_body(turns: int) -> bytes:
    """The same conversation as `body`, in Responses."""
    made = json.loads(body(turns))
    return json.dumps({"model": made["model"], "input": made["messages"][1:]}).encode()


def messages_body(turns: int) -> bytes:
    """The same in Messages."""
    made = json.loads(body(turns))
    return json.dumps({"model": "claude", "system": "You help.", "messages": made["messages"][1:]}).encode()


def test_a_record_is_printed_with_all_that_its_surfaces_hold(store: Store) -> None:
    """The conversation first, then a line for each surface; the client's own items are not in the store."""
    store.shelve(HERE, body(4))
    store.shelve(HERE, body(6), covered=6)
    first, *rest = rows(exported(store.settings(), "1"))
    assert first["conversation"]["id"] == "1" * 32
    assert [row["surface"]["generation"] for row in rest] == [1, 2]
    assert rest[0]["surface"]["parts"] == [{"put": json.loads(CHAT.user(SUMMARY))}, {"keep": [3, 4]}]
    with pytest.raises(WrongError):
        exported(store.settings(), "2")
    with pytest.raises(WrongError):
        exported(Settings.model_validate({"state_dir": f"{store.server.directory}/nowhere"}), "2")


@pytest.mark.parametrize(
    ("dialect", "make"),
    [(CHAT, body), (RESPONSES, responses_body), (MESSAGES, messages_body)],
    ids=["chat", "responses", "messages"],
)
def test_a_request_is_laid_under_the_surface_that_is_bound_to_it(store: Store, dialect: Dialect, make: object) -> None:
    """In whichever dialect: the summary, then the client's own items; all else of the body stays."""
    content: bytes = make(6)  # type: ignore[operator]
    store.shelve(HERE, content, dialect=dialect)
    found = projected(store.settings(), content)
    assert (found.conversation, found.entry is not None) == (HERE, True)
    was, now = json.loads(content), json.loads(found.body)
    items = dialect.form.items  # type: ignore[attr-defined]
    assert {key: value for key, value in was.items() if key != items} == {
        key: value for key, value in now.items() if key != items
    }
    assert SUMMARY in json.dumps(now[items])
    assert f"{SAID} 0" not in json.dumps(now[items])
    assert now[items][-1] == was[items][-1]
    assert "stands for 4 of 13 items" in str(found)


def test_the_deepest_surface_of_all_records_applies(store: Store) -> None:
    """Whoever made it; one that is bound to other items does not, nor one that was retired."""
    store.shelve(HERE, body(6), covered=4, text="shallow")
    store.shelve(OTHER, body(6), covered=8, text="deep")
    store.shelve(
        f"{'c' * 32}.{'3' * 32}", body(6, model="m").replace(SAID.encode(), b"another"), covered=10, text="foreign"
    )
    assert b"deep" in projected(store.settings(), body(6)).body
    assert b"shallow" in projected(store.settings(), body(6), whose=("a" * 32,)).body
    assert b"deep" in projected(store.settings(), body(6), whose=("a" * 32, "b" * 32)).body
    nothing = projected(store.settings(), body(6), whose=("c" * 32,))
    assert (nothing.body, nothing.entry, "printed as it came" in str(nothing)) == (body(6), None, True)
    assert described(nothing)["conversation"] is None
    assert described(projected(store.settings(), body(6)))["conversation"] == "2" * 32


def test_a_surface_that_no_upstream_would_take_is_passed_over(store: Store) -> None:
    """A result without its call: the next one serves, else the body as it came."""
    lone = b'{"role":"tool","tool_call_id":"x","content":"y"}'
    store.shelve(HERE, body(6), covered=8, item=lone)
    assert projected(store.settings(), body(6)).body == body(6)
    store.shelve(OTHER, body(6), covered=4)
    assert projected(store.settings(), body(6)).conversation == OTHER


def test_where_no_store_was_ever_made_the_request_is_as_it_came(tmp_path: Path) -> None:
    """Nothing applies."""
    settings = Settings.model_validate({"state_dir": str(tmp_path / "nowhere")})
    assert projected(settings, body(6)).body == body(6)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"not json", b'{"messages": 1, "model": "m"}', b'{"prompt": "x"}', b"\xff"]
)
def test_what_is_no_request_is_refused(store: Store, content: bytes) -> None:
    """Exit code 2."""
    with pytest.raises(ConfigError, match="--request: holds no request of a known dialect"):
        projected(store.settings(), content)


def test_a_dialect_may_be_named_and_must_be_one(store: Store) -> None:
    """Where a body could be of two."""
    store.shelve(HERE, body(6))
    assert projected(store.settings(), body(6), dialect="chat").entry is not None
    with pytest.raises(ConfigError, match="--request: holds no request of responses"):
        projected(store.settings(), body(6), dialect="responses")
    with pytest.raises(ConfigError, match="--dialect: is not known here"):
        projected(store.settings(), body(6), dialect="smoke")


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({}, ("authorization", "Bearer sk-a")),
        ({}, ("x-api-key", "sk-a")),
        ({}, ("api-key", "sk-a")),
        ({}, ("key", "sk-a")),
        ({"tenant": {"by": "header", "header": "X-Team"}}, ("header", "sk-a")),
        ({"tenant": {"by": "none"}}, ("none",)),
    ],
)
def test_a_credential_is_looked_for_in_every_header_that_may_carry_it(
    store: Store, settings: dict[str, object], fields: tuple[str, ...]
) -> None:
    """As the proxy would name its tenant."""
    made = store.settings(**settings)
    assert tenant_of(secret_of(made), fields) in tenants(made, "sk-a")
    assert tenant_of(secret_of(made), ("authorization", "Bearer sk-b")) not in tenants(made, "sk-a")


def test_a_credential_is_named_and_never_typed(tmp_path: Path, store: Store) -> None:
    """A variable or a file; no message holds it."""
    file = tmp_path / "key"
    file.write_text("sk-file\n")
    assert credential("env:KEY", {"KEY": "sk-env"}) == "sk-env"
    assert credential(f"file:{file}", {}) == "sk-file"
    for reference in ("sk-typed", "env:", "env:NO", "file:", f"file:{tmp_path}/none", f"file:{tmp_path}", ""):
        with pytest.raises(ConfigError) as refused:
            credential(reference, {})
        assert "sk-typed" not in str(refused.value)
    assert whose(store.settings(), "", "", {}) == ("",)
    assert whose(store.settings(), "a" * 32, "", {}) == ("a" * 32,)
    with pytest.raises(ConfigError, match="both say whose"):
        whose(store.settings(), "a" * 32, "env:KEY", {})
    assert whose(store.settings(), "", "env:KEY", {"KEY": "sk-a"}) == tenants(store.settings(), "sk-a")
