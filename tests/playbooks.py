"""The stories: one row for each branch of rules 7, 4.10, 5.9, 6, 9.3 and 10.8. Their language is `tests.playbook`."""

from __future__ import annotations

import gzip
import json
from typing import Any

from tests import acts
from tests.phrases import (
    BRANCH,
    EDITED,
    ERROR_FRAME,
    GOOD,
    HALF,
    HISTORY,
    LONG,
    NUMBERS,
    OK,
    OVER,
    RAW,
    SHORT,
    body,
    delta,
    message,
    note,
    overflow,
    packed,
    refuses,
    stream,
    text_of,
)
from tests.playbook import Ask, Copy, Playbook, Says


def ask(*copies: Copy, **fields: Any) -> Ask:
    """A request with the long history."""
    return Ask(body=fields.pop("body", LONG), copies=copies, **fields)


def _recovers(
    name: str, compactor: Any, *, sees: bytes = SHORT, generation: int = 1, commits: int = 1, **more: Any
) -> Playbook:
    """The upstream refuses, the retry is authorised, and the client never knows."""
    copies = (RAW, Copy(sees=sees, says=OK))
    fields = {
        "gets": 1,
        "action": "overflow-retry",
        "generation": generation,
        "commits": commits,
        "compactor": compactor,
    }
    return Playbook(name=name, asks=(ask(*copies, **fields),), **more)


def _denies(name: str, compactor: Any, reason: str, *, commits: int | None = 0, **more: Any) -> Playbook:
    """The upstream refuses, there is no evidence, and the original refusal goes out."""
    fields = {key: more.pop(key) for key in ("before", "within", "body", "headers") if key in more}
    copies, own = more.pop("copies", (RAW,)), more.pop("generation", None)
    asked = ask(
        *copies,
        action="overflow-refused",
        refused=reason,
        commits=commits,
        compactor=compactor,
        generation=own,
        **fields,
    )
    return Playbook(name=name, asks=(asked,), **more)


def _retry_gets(name: str, says: Says) -> Playbook:
    """The retry meets another failure, which the client gets as it came."""
    retried = ask(
        RAW,
        Copy(sees=SHORT, says=says),
        gets=1,
        action="overflow-retry",
        generation=1,
        commits=1,
        compactor=acts.honest,
    )
    return Playbook(name=name, asks=(retried,))


_CALL = message("assistant", "").replace(
    b'"content" :""',
    b'"content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"read","arguments":"{}"}}]',
)
_RESULT = b'{"role":"tool","tool_call_id":"c1","content":%s}' % json.dumps(text_of(3, 400)).encode()
TOOLS = (*HISTORY[:4], _CALL, _RESULT, *HISTORY[4:])
_QUICK = {"summary": {"timeout": "200ms"}}
_FAULTY = {"timeout": 0.15, "wait_timeout": 0.4}
_PROJECTED = {"action": "projected", "generation": 1}
_RECOVERED = {"gets": 1, "action": "overflow-retry", "generation": 1, "commits": 1, "compactor": acts.honest}
_NEXT = (*HISTORY, message("assistant", "aye"), message("user", "go on"))
_NEXT_SHORT = packed(note(), *_NEXT[12:])
_GZIP = (("Content-Encoding", "gzip"),)
_ZIPPED_OVER = Says(status=400, chunks=(gzip.compress(OVER.body),), headers=(*OVER.headers, *_GZIP))
_OWN = (("x-deepseek-harness-compact", "1"),)
_AS_SMALL = SHORT.replace(b'"m"', b'"small"')
_IN_BAND = stream(delta(role="assistant", content=""), ERROR_FRAME)
_REJECTED_IN_BAND = stream(json.dumps({"error": {"message": "roles must alternate user and assistant"}}))
_AFTER = stream(delta(role="assistant", content=""), delta(content="The tide"), ERROR_FRAME)

PLAYBOOKS = (
    # 2, 3.1: nothing to do
    Playbook(name="below the threshold", asks=(ask(Copy(sees=None, says=OK), skip="below"),)),
    Playbook(name="below by bytes alone", window=100_000, asks=(ask(Copy(sees=None, says=OK), skip="below"),)),
    Playbook(name="window unknown", window=None, asks=(ask(Copy(sees=None, says=OK), skip="no-window"),)),
    Playbook(
        name="another refusal", asks=(ask(Copy(sees=None, says=refuses(400))), ask(Copy(sees=None, says=refuses(429))))
    ),
    Playbook(name="upstream away", asks=(ask(Copy(sees=None, says=Says(fault="dropped")), gets=Says(status=502)),)),
    Playbook(
        name="upstream silent", asks=(ask(Copy(sees=None, says=Says(fault="first_byte")), gets=Says(status=504)),)
    ),
    # 7.3, 7.4: evidence, whatever the compactor says
    _recovers("recovered", acts.honest),
    Playbook(name="recovered, numbers told", asks=(ask(Copy(sees=None, says=NUMBERS), GOOD, **_RECOVERED),)),
    _recovers("recovered, window unknown", acts.honest, window=None),
    _recovers("recovered on pruning alone", acts.nothing_after_pruning, sees=HALF),
    _recovers("raise after a commit", acts.raises_after),
    _recovers("commit, then hang", acts.commits_then_hangs, policy=_QUICK),
    _recovers("another replica committed meanwhile", acts.other_replica),
    _recovers("race lost to another replica", acts.beaten),
    _recovers("another branch committed first", acts.moved_by_a_branch, generation=2, commits=2),
    _recovers("the commit's reply is lost", acts.commit_reply_lost, store="chaos"),
    _denies("lying", acts.lies, "no-advance"),
    _denies("raise before a commit", acts.raises, "no-advance"),
    _denies("exit", acts.exits, "no-advance"),
    _denies("hang", acts.hangs, "no-advance", policy=_QUICK),
    _denies("late commit", acts.too_late, "no-advance", policy=_QUICK),
    _denies("invalid cut", acts.splits_a_unit, "no-advance", body=body(*TOOLS)),
    _denies("empty surface", acts.empties, "no-advance"),
    _denies("garbage", acts.garbage, "no-advance"),
    _denies("shrinks too little", acts.hardly, "too-large", commits=1),
    _denies(
        "shrinks too little for the limit told",
        acts.half,
        "too-large",
        commits=1,
        copies=(
            Copy(sees=None, says=overflow("maximum context length is 1024 tokens, your messages have 2900 tokens")),
        ),
    ),
    _denies("another branch advanced", acts.other_branch, "no-advance", commits=1),
    _denies("nothing to cut", acts.lies, "no-cut", body=body(message("user", text_of(1, 2_500)))),
    _denies(
        "output asks for too much",
        None,
        "too-large",
        copies=(Copy(sees=None, says=NUMBERS),),
        body=body(*HISTORY, extra=b', "max_tokens": 3000'),
    ),
    Playbook(
        name="the same surface again",
        asks=(
            ask(RAW, GOOD, **_RECOVERED),
            ask(
                Copy(sees=SHORT, says=OVER),
                action="overflow-refused",
                refused="unchanged",
                generation=1,
                commits=1,
                compactor=acts.same_again,
            ),
        ),
    ),
    Playbook(
        name="the record is lost and begun anew",
        asks=(
            ask(RAW, GOOD, **_RECOVERED),
            ask(
                Copy(sees=SHORT, says=OVER),
                action="overflow-refused",
                refused="no-advance",
                generation=1,
                commits=1,
                compactor=acts.begun_anew,
            ),
        ),
    ),
    Playbook(
        name="a far lower limit needs a second sighting",  # the first is recovered by its own numbers all the same
        asks=(
            ask(Copy(sees=None, says=NUMBERS), GOOD, **_RECOVERED),
            ask(Copy(sees=None, says=OK), body=body(*EDITED), skip="below"),
        ),
    ),
    # 7.5, 7.6: the cap
    _denies("cap 0", None, "off", cap=0),
    _denies("auto is off", None, "off", policy={"auto": False}),
    Playbook(
        name="second overflow, cap 1",
        asks=(
            ask(
                RAW,
                Copy(sees=HALF, says=overflow("prompt is too long")),
                gets=1,
                action="overflow-refused",
                refused="too-large",
                generation=1,
                commits=1,
                compactor=acts.half_then_rest,
            ),
        ),
    ),
    Playbook(
        name="second overflow, cap 2",
        cap=2,
        asks=(
            ask(
                RAW,
                Copy(sees=HALF, says=overflow("prompt is too long")),
                GOOD,
                gets=2,
                action="overflow-retry",
                generation=2,
                commits=2,
                compactor=acts.half_then_rest,
            ),
        ),
    ),
    Playbook(
        name="cap 2, no second evidence",
        cap=2,
        asks=(
            ask(
                RAW,
                Copy(sees=HALF, says=overflow("prompt is too long")),
                gets=1,
                action="overflow-refused",
                refused="no-advance",
                generation=1,
                commits=1,
                compactor=acts.half_then_lies,
            ),
        ),
    ),
    Playbook(
        name="the cap is for one request",
        asks=(
            ask(RAW, action="overflow-refused", refused="no-advance", compactor=acts.lies),
            ask(RAW, GOOD, **_RECOVERED),
        ),
    ),
    _retry_gets("retry meets 429", refuses(429, "slow down")),
    _retry_gets("retry meets 503", refuses(503, "overloaded")),
    Playbook(
        name="retry times out",
        asks=(
            ask(
                RAW,
                Copy(sees=SHORT, says=Says(fault="first_byte")),
                gets=Says(status=504),
                commits=1,
                compactor=acts.honest,
            ),
        ),
    ),
    # 2.3, 4.3: what is stored applies
    Playbook(
        name="the next request is projected",
        asks=(
            ask(RAW, GOOD, **_RECOVERED),
            ask(Copy(sees=_NEXT_SHORT, says=OK), body=body(*_NEXT), **_PROJECTED),
            ask(Copy(sees=packed(note(), BRANCH[-1]), says=OK), body=body(*BRANCH), **_PROJECTED),
            ask(Copy(sees=None, says=OK), body=body(*EDITED), skip="below"),
        ),
    ),
    Playbook(name="no look-up, no surface yet", window=100_000, asks=(ask(RAW, GOOD, **_RECOVERED),)),
    Playbook(
        name="no look-up, surface stored",
        window=100_000,
        asks=(ask(RAW, GOOD, **_RECOVERED), ask(RAW, GOOD, gets=1, action="overflow-retry", generation=1)),
    ),
    # 5.9: the store is away
    Playbook(
        name="store refused at load",
        store="own",
        ledger=_FAULTY,
        asks=(ask(Copy(sees=None, says=OK), before=acts.kill, skip="redis", commits=None, within=0.6),),
    ),
    Playbook(
        name="store paused at load",
        store="own",
        ledger=_FAULTY,
        asks=(ask(Copy(sees=None, says=OK), before=acts.pause, skip="redis", commits=None, within=0.6),),
    ),
    _denies(
        "store paused, then an overflow",
        None,
        "redis",
        commits=None,
        store="own",
        ledger=_FAULTY,
        before=acts.pause,
        within=1.2,
    ),
    _denies(
        "store gone at the commit",
        acts.store_pauses_then_commits,
        "redis",
        commits=None,
        store="own",
        ledger=_FAULTY,
        within=2.0,
    ),
    _denies(
        "store gone at the evidence",
        acts.commits_then_store_pauses,
        "redis",
        commits=None,
        store="own",
        ledger=_FAULTY,
        within=1.5,
    ),
    _denies("durability unconfirmed", acts.honest, "unconfirmed", commits=1, ledger={"durability": "replica"}),
    Playbook(
        name="store away, surface in memory",
        store="own",
        ledger=_FAULTY,
        asks=(
            ask(RAW, GOOD, **_RECOVERED),
            ask(Copy(sees=SHORT, says=OK), before=acts.pause, commits=None, within=0.6, **_PROJECTED),
            ask(
                Copy(sees=SHORT, says=OVER),
                action="overflow-refused",
                refused="redis",
                commits=None,
                generation=1,
                within=1.2,
            ),
        ),
    ),
    Playbook(
        name="store gone under pressure",
        store="own",
        ledger=_FAULTY,
        window=3_000,
        asks=(ask(Copy(sees=None, says=OK), compactor=acts.store_pauses_then_commits, commits=None, within=0.3),),
    ),
    # 3.6, I11: the client leaves
    Playbook(name="client gone in compaction", asks=(ask(RAW, leaves=True, compactor=acts.hangs),)),
    Playbook(
        name="client gone after the commit", asks=(ask(RAW, leaves=True, commits=1, compactor=acts.commits_then_hangs),)
    ),
    Playbook(
        name="client gone while it commits",
        store="chaos",
        asks=(ask(RAW, leaves=True, commits=1, compactor=acts.commit_in_flight),),
    ),
    # 4.10: healing
    Playbook(
        name="retry rejected, healed",
        asks=(
            ask(
                RAW,
                Copy(sees=SHORT, says=refuses(400)),
                gets=0,
                action="overflow-refused",
                refused="invalid",
                commits=1,
                compactor=acts.honest,
            ),
            ask(Copy(sees=None, says=OK), before=acts.forgets),
        ),
    ),
    Playbook(
        name="pressure rejected, healed",
        window=3_000,
        asks=(
            ask(Copy(sees=SHORT, says=refuses(422)), action="pressure", generation=1, commits=1, compactor=acts.honest),
            ask(Copy(sees=None, says=OK), skip="paused"),
        ),
    ),
    Playbook(
        name="500 needs two",
        asks=(
            ask(
                RAW,
                Copy(sees=SHORT, says=refuses(500, "boom")),
                gets=1,
                action="overflow-retry",
                generation=1,
                commits=1,
                compactor=acts.honest,
            ),
            ask(Copy(sees=SHORT, says=refuses(500, "boom")), **_PROJECTED),
            ask(Copy(sees=None, says=OK)),
        ),
    ),
    Playbook(
        name="an error inside a 200 needs two",
        asks=(
            ask(
                RAW,
                Copy(sees=SHORT, says=_REJECTED_IN_BAND),
                gets=1,
                action="overflow-retry",
                generation=1,
                commits=1,
                compactor=acts.honest,
            ),
            ask(Copy(sees=SHORT, says=_REJECTED_IN_BAND), **_PROJECTED),
            ask(Copy(sees=None, says=OK)),
        ),
    ),
    Playbook(
        name="429 retires nothing",
        asks=(
            ask(
                RAW,
                Copy(sees=SHORT, says=refuses(429)),
                gets=1,
                action="overflow-retry",
                generation=1,
                commits=1,
                compactor=acts.honest,
            ),
            ask(Copy(sees=SHORT, says=OK), **_PROJECTED),
        ),
    ),
    Playbook(
        name="proven surfaces stay",
        asks=(
            ask(RAW, GOOD, **_RECOVERED),
            ask(Copy(sees=SHORT, says=refuses(400)), before=acts.forgets, **_PROJECTED),
            ask(Copy(sees=SHORT, says=OK), **_PROJECTED),
        ),
    ),
    Playbook(
        name="healed while the store is away",
        store="own",
        ledger=_FAULTY,
        asks=(
            ask(
                RAW,
                Copy(sees=SHORT, says=refuses(429)),
                gets=1,
                action="overflow-retry",
                generation=1,
                commits=1,
                compactor=acts.honest,
            ),
            ask(Copy(sees=SHORT, says=refuses(400)), before=acts.pause, commits=None, **_PROJECTED),
            ask(Copy(sees=None, says=OK), commits=None),
        ),
    ),
    # 6: pressure
    Playbook(
        name="pressure",
        window=3_000,
        asks=(
            ask(Copy(sees=SHORT, says=OK), action="pressure", generation=1, commits=1, compactor=acts.honest),
            ask(Copy(sees=_NEXT_SHORT, says=OK), body=body(*_NEXT), **_PROJECTED),
        ),
    ),
    Playbook(name="pressure fails", window=3_000, asks=(ask(Copy(sees=None, says=OK), compactor=acts.raises),)),
    Playbook(
        name="pressure, then overflow",
        window=3_000,
        asks=(
            ask(
                Copy(sees=HALF, says=OVER),
                GOOD,
                gets=1,
                action="overflow-retry",
                generation=2,
                commits=2,
                compactor=acts.half_then_rest,
            ),
        ),
    ),
    Playbook(
        name="pressure loses the race",
        window=3_000,
        asks=(ask(Copy(sees=SHORT, says=OK), action="projected", generation=1, commits=1, compactor=acts.beaten),),
    ),
    # 9.3: overflows inside a stream
    Playbook(
        name="overflow in a stream, before content",
        asks=(
            ask(
                Copy(sees=None, says=_IN_BAND),
                Copy(sees=SHORT, says=stream(delta(content="aye"), "[DONE]")),
                **_RECOVERED,
            ),
        ),
    ),
    Playbook(
        name="overflow in a stream, nothing helps",
        asks=(
            ask(Copy(sees=None, says=_IN_BAND), action="overflow-refused", refused="no-advance", compactor=acts.lies),
        ),
    ),
    Playbook(
        name="overflow in a stream, after content",
        asks=(
            ask(Copy(sees=None, says=_AFTER)),
            ask(
                Copy(sees=packed(note(), _NEXT[-1]), says=OK),
                body=body(*_NEXT),
                action="pressure",
                generation=1,
                commits=1,
                compactor=acts.honest,
            ),
            ask(Copy(sees=packed(note(), _NEXT[-1]), says=OK), body=body(*_NEXT), **_PROJECTED),
        ),
    ),
    # 4.7, 10.8, 11.6: may not
    _denies("x-carryon: off", None, "off", headers=(("X-Carryon", "off"),)),
    _denies("x-carryon: no-store", None, "off", headers=(("x-carryon", "no-store"),)),
    Playbook(
        name="no-store uses what is stored",
        asks=(
            ask(RAW, GOOD, **_RECOVERED),
            ask(Copy(sees=SHORT, says=OK), headers=(("x-carryon", "no-store"),), **_PROJECTED),
            ask(Copy(sees=None, says=OK), headers=(("x-carryon", "off"),), skip="off"),
        ),
    ),
    _denies(
        "history at the server", None, "server-history", body=body(HISTORY[0], extra=b', "previous_response_id": "r1"')
    ),
    Playbook(
        name="history at the server, large",
        window=3_000,
        asks=(
            ask(
                Copy(sees=None, says=OK),
                body=body(*HISTORY, extra=b', "previous_response_id": "r1"'),
                skip="server-history",
            ),
        ),
    ),
    _denies("a signed body", None, "server-history", headers=(("Digest", "sha-256=abc"),)),
    _denies("dry run, overflow", None, "off", policy={"dry_run": True}),
    Playbook(
        name="dry run, pressure",
        window=3_000,
        policy={"dry_run": True},
        asks=(ask(Copy(sees=None, says=OK), skip="dry-run"),),
    ),
    Playbook(
        name="dry run, surface stored",
        asks=(ask(RAW, GOOD, **_RECOVERED), ask(Copy(sees=None, says=OK), before=acts.goes_dry, skip="dry-run")),
    ),
    Playbook(
        name="a scope is a conversation of its own",
        asks=(ask(RAW, GOOD, **_RECOVERED), ask(Copy(sees=None, says=OK), headers=(("x-carryon-scope", "sub"),))),
    ),
    # 10.3: encodings
    Playbook(
        name="a compressed request",
        asks=(
            ask(Copy(sees=None, says=_ZIPPED_OVER), GOOD, body=gzip.compress(LONG), headers=_GZIP, **_RECOVERED),
            ask(
                Copy(sees=None, says=_ZIPPED_OVER),
                body=gzip.compress(body(*EDITED)),
                headers=_GZIP,
                compactor=acts.lies,
                action="overflow-refused",
                refused="no-advance",
            ),
            ask(
                Copy(sees=None, says=OVER),
                headers=(("Content-Encoding", "unheard-of"),),
                action="overflow-refused",
                refused="off",
            ),
        ),
    ),
    # 4.8: the client's own compaction starts no pressure, and is recovered like any other
    Playbook(
        name="the client's own compaction",
        window=3_000,
        asks=(ask(Copy(sees=None, says=OK), headers=_OWN), ask(RAW, GOOD, headers=_OWN, **_RECOVERED)),
    ),
    Playbook(
        name="the upstream is asked to compact",
        window=3_000,
        asks=(ask(Copy(sees=None, says=OK), body=body(*HISTORY, extra=b', "context_management": []')),),
    ),
    # 6.2: what no packing can cure
    Playbook(
        name="output asks for all of the window",
        window=3_000,
        asks=(ask(Copy(sees=None, says=OK), body=body(*HISTORY, extra=b', "max_tokens": 2999')),),
    ),
    # 4.9: another model
    Playbook(
        name="another model, small enough",
        asks=(ask(RAW, GOOD, **_RECOVERED), ask(Copy(sees=None, says=OK), body=LONG.replace(b'"m"', b'"n"'))),
    ),
    Playbook(
        name="another model, too large",
        asks=(
            ask(RAW, GOOD, **_RECOVERED),
            ask(Copy(sees=_AS_SMALL, says=OK), body=LONG.replace(b'"m"', b'"small"'), **_PROJECTED),
        ),
        models=({"model": "small", "context_window": 3_000},),
    ),
    # 2.11: our own fault
    Playbook(name="a fault of our own", asks=(ask(Copy(sees=None, says=OK), before=acts.breaks_windows, faults=1),)),
    Playbook(name="a fault in splitting", asks=(ask(Copy(sees=None, says=OK), before=acts.breaks("split"), faults=1),)),
    Playbook(
        name="a fault in reading", asks=(ask(Copy(sees=None, says=OK), before=acts.breaks("own_compaction"), faults=1),)
    ),
    Playbook(
        name="a fault in rendering",
        asks=(ask(RAW, GOOD, **_RECOVERED), ask(Copy(sees=None, says=OK), before=acts.breaks("render"), faults=1)),
    ),
    Playbook(name="a fault in learning", asks=(ask(Copy(sees=None, says=OK), before=acts.breaks("usage"), faults=1),)),
    Playbook(
        name="a fault in the recovery",
        asks=(
            ask(
                RAW,
                action="overflow-refused",
                refused="no-advance",
                commits=1,
                faults=1,
                compactor=acts.breaks_the_evidence,
            ),
        ),
    ),
)
