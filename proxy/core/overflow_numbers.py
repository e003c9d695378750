"""Which number in a refusal is the limit, and which is what was sent: the words around it tell.

The text is cut at its numbers. What stands before a number, back to the previous number or to the
last comparison or clause, and a few words behind it, tell its role. What no cue names is nothing:
error codes, model names, HTTP statuses, "256K".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Numbers", "combine", "read_numbers"]

_LOOK_BACK = 70
_LOOK_AHEAD = 34
_MOST_NUMBERS = 24

# Chinese and Japanese set no space beside a number: only Latin letters make it part of a word.
_NUMBER = re.compile(
    r"(?<![a-z0-9_.\-/])(\d{2,9})(?:\.0+)?(?![a-z0-9_%]|\.\d|-(?!token)\w| ?[kmg]b?(?![a-z0-9_]))", re.IGNORECASE
)
_UP_TO = r"(?<!add )(?<!adds )(?<!adding )\bup to"  # what messages add up to is no bound
_COMPARISON = (
    r"exceed(?:s|ed|ing)?|surpass(?:es|ed)?"
    r"|(?:longer|larger|greater|bigger|higher|more|less|smaller|shorter|fewer) than|at most|no more than"
    rf"|{_UP_TO}|over|above|beyond|fit(?:s)?(?: in(?:to)?)?|outside|>=?|<=?"
    r"|超过|超出|大于|超え|초과|über(?:schr|steig)\w*|dépass\w*|exced\w*|ecced\w*|super[aó]\w*|ultrapass\w*|превы[шс]\w*"
    r"|przekr[ao]cz\w*|overschr\w*|melebihi|melampaui"
)
_BREAK = re.compile(
    rf"(?:\b|(?<=[\s(]))(?:{_COMPARISON}|too (?:long|large|big))(?=[\s:(,]|$)"
    r"|[,;|\uff0c]|\b(?:but|however|while|whereas|and|when)\b|\+",
)
_COMPARED = re.compile(rf"(?:{_COMPARISON})[\s:(,]*$")
_TOO = re.compile(r"too (?:long|large|big)[^|\d]{0,40}$")
_LIMIT = re.compile(
    r"\bmax(?:imum|\b|_)|\blimit|\ballowed\b|\bcapacity\b|\bcontext(?:[ _](?:length|window|size|limit)|:| is\b| of\b)"
    r"|\bwindow\b|\bn_ctx|\bonly\b|\bsupport(?:s|ed)?\b|\bat most\b|\b(?:allow|accept|hold)s?\b"
    rf"|{_UP_TO}\b"
    r"|最多|支持|最大|上限|限制|上下文长度|窗口|最大値|최대"
    r"|\bm[aá]x[ií]m|\bmaks|\bmassim|максим|erlaubt|zulässig|höchst|permitid|autorisé|допустим|toegestaan|fazla"
    r"|kontext|kontekst|contexte\b|contexto|contesto|контекст|fenêtre|ventana|finestra|janela",
)
_SENT = re.compile(
    r"prompt|input|request|messages?\b|conversation|history|contain|\bha(?:s|ve|d)\b|result|\bgiven\b|\bgot\b|received"
    r"|supplied|provided|\bsent\b|\btotal|would be|current|\byour?\b|n_keep|\bkeep\b|\bused\b|\bactual|tokens?\b"
    r"|输入|实际|当前|请求|入力|입력|요청",
)
_SENT_AFTER = re.compile(
    r"^\)? ?(?:(?:input |prompt )?tokens? )?(?:exceed|\+ ?\d|(?:is|are|was|were) (?:longer|larger|greater|more|over"
    r"|above|too)|used|sent\b|requested|given)",
)

# What decides without a look at the clause: (role, where, pattern), first match wins.
_CUES = tuple(
    (role, where, re.compile(pattern))
    for role, where, pattern in (
        ("", "before", r"\b(?:pos(?:ition)?|slot|index|line|code|id|status|error|port|version|http|at|seed)[: #(]*$"),
        ("", "before", r"(?:错误码|错误|状态码|代码|编号|コード|코드)[:\uff1a #(]*$"),
        ("sent", "before", r"\b(?:prompt|input)(?:[_ ](?:tokens|length|size))?\s*=\s*$"),
        ("sent", "before", r"\b(?:got|received|needs?|needed|actually)\s*$"),
        ("sent", "before", r"\b(?:requested|given|got|actual|received|current)\s*[=:]\s*$"),
        ("limit", "before", r"\b(?:limit|max|maximum|allowed|n_ctx|context_window|window)\s*[=:]\s*$"),
        ("excess", "before", r"\b(?:by|excess(?: of)?)[: (]*(?:about |at least )?$"),
        (
            "output",
            "after",
            (
                r"^\)? ?(?:tokens? )?(?:for|in|of|from|as)? ?(?:the |your )?(?:requested )?"
                r"(?:output|completion|response|generation|generated|new tokens|max_\w*tokens|reserved)"
            ),
        ),
        (
            "output",
            "before",
            (
                r"max_(?:new_|completion_|output_)?tokens\W{0,3}(?:of|=|is(?: too (?:large|high|big))?)?\W{0,3}$"
                r"|(?<!and )\boutput(?: tokens?)?\W{0,3}$|generat(?:e|ing) $"
            ),
        ),
        (
            "sent",
            "after",
            r"^\)? ?(?:(?:input |prompt )?tokens? )(?:used|sent\b|requested|given|provided)|^ ?(?:tokens? )?> ?\d",
        ),
        (
            "limit",
            "after",
            (
                r"^\)? ?(?:-?tokens? )?(?:max(?:imum)?\b|context\b|window\b|(?:token )?limit\b"
                r"|(?:(?:is|are) )?(?:allowed|available|supported|permitted))"
            ),
        ),
    )
)

_INPUT_KIND = re.compile(
    r"configured limit|prompt is too long|input token count|maximum prompt length|prompt token count|range of input"
    r"|inputs must have|max(?:imum)?(?: allowed)?(?: number of)? (?:input|prompt)\b|max_input|max_prompt",
)
_TOTAL_KIND = re.compile(
    r"context[ _](?:length|window|size|limit)|max_model_len|max_seq_len|n_ctx|max_\w*tokens|sequence length|上下文",
)
_COUNTS_TOKENS = re.compile(r"token|n_ctx|max_model_len|トークン|토큰|токен|jeton")
_ALONE = re.compile(r"[:(] ?$")
_UNIT = re.compile(r"\)? ?(?:input |prompt )?(?:tokens?\b|tokenów|jetons?\b|токен|トークン|토큰)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What a refusal reveals, in tokens. `output` is the requested output where the text states it."""

    limit: int | None = None
    requested: int | None = None
    output: int | None = None
    limit_kind: str = ""


def read_numbers(text: str) -> Numbers:
    """Read the numbers of a folded text by the roles its words give them."""
    roles: dict[str, list[int]] = {"limit": [], "sent": [], "output": [], "excess": [], "": []}
    last = 0
    alone = False  # the first limit stands behind a colon or a bracket, as what was sent may too
    for count, match in enumerate(_NUMBER.finditer(text)):
        if count == _MOST_NUMBERS:
            break
        before = text[max(last, match.start() - _LOOK_BACK) : match.start()]
        after = text[match.end() : match.end() + _LOOK_AHEAD]
        role = _role(before, after, sent=bool(roles["sent"]))
        value = int(match[1])
        if role == "limit" and not roles["limit"]:
            alone = bool(_ALONE.search(before))
        if value not in roles[role] and value not in roles["output"] and (role or _UNIT.match(after)):
            roles[role].append(value)
        last = match.end()
    _told_apart(roles, alone=alone)
    numbers = _settle(
        limit=next(iter(roles["limit"]), None),
        sent=roles["sent"],
        output=next(iter(roles["output"]), None),
        excess=roles["excess"],
        kind=_limit_kind(text),
    )
    if numbers.requested is None and not _COUNTS_TOKENS.search(text):
        # A lone number is a limit only where the text counts tokens: "exceeds limit (2013)" is an error code.
        return Numbers(output=numbers.output, limit_kind=numbers.limit_kind)
    return numbers


def _told_apart(roles: dict[str, list[int]], *, alone: bool) -> None:
    """Find what was sent where no word before it tells: the larger of two, beside a limit that is named."""
    if roles["sent"] or roles["output"] or roles["excess"] or not roles["limit"]:
        return
    first, *others = roles["limit"]
    if others and alone and first > others[0]:
        # as in: exceeds the maximum context length: 9000 tokens (max 8192)
        roles["limit"], roles["sent"] = others, [first]
    elif not others and len(roles[""]) == 1 and roles[""][0] > first:
        roles["sent"] = roles[""]


def combine(captured: Mapping[str, str | None], kind: str) -> Numbers:
    """Make numbers from the named groups of a phrase."""
    value = {name: int(text) for name, text in captured.items() if text}
    output = value.get("output")
    sent = [value["input"]] if "input" in value else []
    if "requested" in value:
        sent = [value["requested"], value["requested"] - (output or 0)]  # the sum is stated: not to be added again
    excess = [value["excess"]] if "excess" in value else []
    return _settle(limit=value.get("limit"), sent=sent, output=output, excess=excess, kind=kind)


def _limit_kind(text: str) -> str:
    # `input`: the limit counts the prompt; `total`: prompt and output; empty: the text does not tell.
    if _INPUT_KIND.search(text):
        return "input"
    return "total" if _TOTAL_KIND.search(text) else ""


def _role(before: str, after: str, *, sent: bool) -> str:
    for role, where, pattern in _CUES:
        if pattern.search(before if where == "before" else after):
            return role
    breaks = list(_BREAK.finditer(before))
    clause = before[breaks[-1].end() :] if breaks else before
    if _LIMIT.search(clause):
        return "limit"
    if _SENT_AFTER.search(after):
        return "sent"
    if _COMPARED.search(before):
        return "limit" if sent or "token" in after or "token" in before else ""
    carried = not clause.strip(" :(") or _TOO.search(before)  # "prompt is too long: 9000"
    return "sent" if _SENT.search(clause) or (carried and _SENT.search(before)) else ""


def _settle(*, limit: int | None, sent: list[int], output: int | None, excess: list[int], kind: str) -> Numbers:
    requested = max(sent, default=None)
    if requested is not None and output is not None and len(sent) == 1:
        requested += output  # the text gave the parts and left the sum to the reader
    if requested is None and limit is not None and excess:
        requested = limit + excess[0]
    if requested is not None and limit is not None and requested <= limit:
        requested = None  # not what was refused
    return Numbers(limit=limit, requested=requested, output=output, limit_kind=kind)
