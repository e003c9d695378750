"""The tables behind `overflow.classify`: codes, vetoes, and all of them in the order they are asked.

Codes are compared as `normalise_code` spells them; vetoes are searched in folded text
(`overflow_evidence.fold`). The wordings are in `overflow_phrases` and `overflow_grammar`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.core.overflow_grammar import GRAMMAR
from proxy.core.overflow_phrases import FORBIDDEN, STRONG, WEAK

if TYPE_CHECKING:
    from re import Pattern

    from proxy.core.overflow_wording import Phrase

__all__ = ["RULES", "Code", "Rules", "Veto", "normalise_code"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A value of a code or type field that decides by itself. `only` restricts it to one field."""

    value: str
    kind: str = "CONTEXT_WINDOW_EXCEEDED"
    only: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Veto:
    """A wording that is no overflow, whatever else the text says, except where `unless` is found too."""

    name: str
    kind: str
    pattern: Pattern[str]
    unless: Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All tables in the order in which they are asked."""

    yes: tuple[Code, ...]
    yes_form: Pattern[str]
    yes_text: Pattern[str]
    no: tuple[Code, ...]
    vetoes: tuple[Veto, ...]
    forbidden: Phrase
    strong: tuple[Phrase, ...]
    weak: tuple[Phrase, ...]
    grammar: tuple[Phrase, ...]


def normalise_code(value: object) -> str:
    """Reduce `context_length_exceeded`, `ContextLengthExceeded` and `context-length-exceeded` to one spelling."""
    return re.sub(r"[^a-z0-9]", "", str(value)[:200].lower())


# --- 5, 6: codes ---------------------------------------------------------------------------------

_YES = tuple(
    Code(value=normalise_code(value))
    for value in (
        "context_length_exceeded",  # OpenAI, Azure, Groq, Cerebras
        "context_window_exceeded",  # gateways
        "model_context_window_exceeded",  # Anthropic and z.ai, as a finish reason
        "model_max_prompt_tokens_exceeded",  # Copilot
        "max_prompt_tokens_exceeded",  # Copilot
        "exceed_context_size_error",  # llama.cpp
        "context_exceeded",
        "tokens_limit_reached",  # GitHub Models
        "prompt_too_long",
        "input_too_long",
        "message_length_exceeds_limit",  # ChatGPT
        "ContextWindowExceededError",  # LiteLLM
        "1261",  # z.ai: prompt exceeds max length
    )
)

# What a gateway would call it: {context, prompt, input} x {length, window, ...} x {exceeded, too long, overflow}.
_YES_FORM = re.compile(
    r"^(?:err(?:or)?|model|max(?:imum)?)*(?:context|prompt|input)(?:length|window|size|limit|tokens?|max)*"
    r"(?:exceeded|exceeds|toolong|overflow(?:ed)?|overlimit)(?:error|exception)?$"
    r"|^exceed(?:ed|s)?(?:the)?(?:max(?:imum)?)?(?:model)?(?:context|prompt|input)(?:length|window|size|limit"
    r"|tokens?)+(?:error)?$",
)
_YES_TEXT = re.compile(r"\bcontextwindowexceedederror\b")

_RATE, _OUTPUT, _PAYLOAD, _OTHER = "RATE_LIMITED", "OUTPUT_TOO_LARGE", "PAYLOAD_TOO_LARGE", "OTHER"
_NO = (
    Code(value="tokens", kind=_RATE, only="type"),  # OpenAI and Groq: tokens per minute
    Code(value="requests", kind=_RATE, only="type"),
    *(
        Code(value=normalise_code(value), kind=kind)
        for kind, values in {
            _RATE: (
                "rate_limit_exceeded rate_limit_error rate_limited rate_limit too_many_requests "
                "too_many_requests_error insufficient_quota quota_exceeded token_quota_exceeded "
                "exceeded_current_quota_error too_many_tokens_error usage_limit_reached usage_limit_exceeded "
                "budget_exceeded insufficient_credits insufficient_balance insufficient_balance_error "
                "billing_hard_limit_reached billing_error billing_not_active payment_required RESOURCE_EXHAUSTED "
                "ThrottlingException throttling_error ThrottledException ServiceQuotaExceededException "
                "REQUEST_LIMIT_EXCEEDED tokens_per_minute_exceeded "
            ),
            _OUTPUT: ("integer_above_max_value integer_below_min_value max_tokens_exceeded "),
            _PAYLOAD: ("body_too_large payload_too_large request_entity_too_large image_too_large file_too_large "),
            _OTHER: (
                "overloaded_error server_is_overloaded engine_overloaded_error service_unavailable "
                "string_above_max_length array_above_max_length content_filter content_policy_violation "
                "ResponsibleAIPolicyViolation invalid_api_key model_not_found deployment_not_found "
                "unsupported_parameter unsupported_value unknown_parameter missing_required_parameter "
                "invalid_image invalid_image_url image_parse_error access_terminated_error literal_error "
            ),
        }.items()
        for value in values.split()
    ),
)

# --- 7: vetoes -----------------------------------------------------------------------------------

_TOKENS = re.compile(r"\btokens?\b|上下文|コンテキスト")
# An output cap says nothing about the prompt; a window shared by both names its share, or the sum.
_PROMPT_SHARE = re.compile(
    r"\d+ (?:tokens? )?(?:input|prompt|text)s?\b|\d+ tokens? (?:in|of|from) (?:the |your )?(?:prompt|input|messages"
    r"|text)"
    r"|\d+ in (?:the|your) (?:messages|prompt|input)|messages resulted in|got -\d"
    r"|(?:inputs?|prompts?|messages?)(?: \w+){0,2}(?: \(\d+(?: tokens?)?\))? ?(?:,|\+|and|plus|with|or) "
    r"(?:the |your |requested |estimated )*(?:max|output|completion|generat)"
    r"|max\w*(?: tokens)? ?(?:\+|and|plus) (?:the |your )*(?:input|prompt|messages)|\bsum of\b|\bin total\b"
    r"|prompt is \d+"
)
_MAX_TOKENS = r"max_?(?:new_?|completion_?|output_?|gen(?:erated)?_?)?tokens"
_VETOES = (
    Veto(
        name="rate",
        kind=_RATE,
        pattern=re.compile(
            r"(?:per|/|each|every) ?(?:second|minute|min|hour|day|week|month|sec)\b|\b(?:tpm|rpm|tpd|rpd|itpm|otpm"
            r"|tps|rps|qps|qpm)\b"
            r"|rate[ _-]?limit|too many (?:concurrent )?(?:requests|connections)|throttl|concurren(?:t|cy)"
            r"|try again (?:in \d|later|after|tomorrow)"
            r"|retry[ -]?(?:after|in) \d|please wait|slow down|\b(?:daily|hourly|weekly|monthly|per-minute)\b"
            r"|requests? limit|limit will reset|resets? (?:at|in)\b"
            r"|速率|频率|频繁|并发|每(?:分钟|秒|小时)|[每今当本][天日周月]|用量|稍后|限流"
            r"|レート|毎分|分あたり|1 ?日あたり|분당|요청이 너무 많"
            r"|\b(?:pro|par|por|al|na|per|ogni|в|mỗi) (?:minut|minuut|second|sekund|stund|uur|tag\b|dag\b|jour|heure"
            r"|d[ií]a|hora|giorno|godzin|dzie|menit|hari\b|jam\b|phút|ngày|giờ|час|день|сутки|секунд)"
            r"|\bdakika|\bgünlük|\bharian\b|\bdziennie|\btäglich|\bquotidien",
        ),
    ),
    Veto(
        name="money",
        kind=_RATE,
        pattern=re.compile(
            r"\bquotas?\b|\bcredits?\b|\bafford\b|\bbilling\b|\bbalance\b|top[ -]up|payment"
            r"|(?<!context )(?<!thinking )\bbudget\b|\bspend(?:ing)?\b"
            r"|\b(?:your|current|free|paid|subscription|pricing|service) (?:plan|tier)\b|\bplan (?:does|allows|limit"
            r"|includes?)|upgrade (?:your|to)\b|usage limit"
            r"|\bper (?:user|account|organization|key)\b"
            r"|余额|余量|充值|配额|额度|欠费|套餐|账户|クレジット|残高|할당량|크레딧|요금|guthaben|crédit|credito|кредит|квот|баланс"
            r"|\bsaldo\b|tegoed|kredyt|bakiye|\bkuota|kontingent|\bcuota|hạn mức",
        ),
    ),
    Veto(
        name="busy",
        kind=_OTHER,
        pattern=re.compile(
            r"overloaded|over capacity|at capacity|high demand|temporarily unavailable|context (?:deadline exceeded"
            r"|cancell?ed)|deadline exceeded"
            r"|\btimed out\b|connection (?:reset|refused)|过载|繁忙|超时"
        ),
    ),
    Veto(
        name="memory",
        kind=_OTHER,
        pattern=re.compile(
            r"(?:out of|available|insufficient|enough|sufficient|gpu|system|unified|host|device|video|physical|gb of"
            r"|mb of|gib of) memory"
            r"|memory (?:limit|ceiling|cap\b|guard|pressure|usage|alloc|error|exceed|is )|\boom\b|\bcuda\b|\bvram\b"
            r"|system resources|physical batch size"
            r"|kv[ _-]?cache (?:memory|block|is full|full|exhausted|space|capacity)|显存|内存|メモリ|메모리|speicher",
        ),
    ),
    Veto(
        name="output-cap",
        kind=_OUTPUT,
        pattern=re.compile(
            rf"{_MAX_TOKENS}\b[^.]{{0,80}}?(?:too (?:large|high|big|small|low|many)|must|should|cannot|can't"
            rf"|can ?not|may not|exceed|greater|larger|higher"
            r"|>|<|out of range|range|between|at most|above|below|invalid|not valid|maximum|limit|supported|超)"
            rf"|(?:range|value|values)(?: of| for) {_MAX_TOKENS}|invalid [^.]{{0,20}}{_MAX_TOKENS}"
            r"|max(?:imum)? (?:allowed )?(?:number of )?(?:output|completion|generated|generation|new)\b"
            r"|(?:output|completion|generation|generated|response)(?: tokens?)? (?:limit|length|cap|maximum|size"
            r"|budget)\b"
            r"|at most \d+ (?:output|completion|generated|new) tokens|number of (?:output|completion|generated"
            r"|new) tokens"
            r"|(?:output|completion) tokens? (?:exceed|too|is greater|are greater|above|over)"
            r"|maximum tokens you requested|(?:response|output|completion|generation) (?:has |was |would )?exceed"
            r"|requested output\b|max(?:imum)? of \d+ (?:output|completion|generated|new)"
            r"|tokens? (?:for|in|of) (?:(?:the|an?|any|each|your) )?(?:completion|output|response|generation|reply)s?\b"
            r"|max tokens must be|输出(?:长度|token|内容)|最大输出",
        ),
        unless=_PROMPT_SHARE,
    ),
    Veto(
        name="bytes",
        kind=_PAYLOAD,
        pattern=re.compile(
            r"\d+(?:\.\d+)? ?(?:bytes?|[kmg]i?b)\b|number of bytes|\bbytes? limit|(?:size|length)(?: in|,)? bytes"
            r"|payload (?:size|is too|too)"
            r"|request entity too large|content[- ]length|字节|バイト|바이트",
        ),
        unless=re.compile(r"\d+ (?:input |prompt )?tokens?\b"),
    ),
    Veto(
        name="characters",
        kind=_OTHER,
        pattern=re.compile(r"\bcharacters?\b|\bchars?\b|字符|文字数|글자|zeichen\b|caract[eè]res|символ"),
        unless=_TOKENS,
    ),
    Veto(
        name="media",
        kind=_PAYLOAD,
        pattern=re.compile(
            r"\bimages?\b|\bpixels?\b|\bpdfs?\b|\bvideos?\b|\baudio\b|\bfiles?\b|\bpages\b|\battachments?\b|图片|图像|文件"
            r"|画像"
        ),
        unless=_TOKENS,
    ),
    Veto(
        name="shape",
        kind=_OTHER,
        pattern=re.compile(
            r"(?:array|string|(?<!message )(?<!messages )list|field|url|name|id|value|description|schema)"
            r"(?: (?:of|in|at|for) [\w.\[\]]{1,60})? (?:is |was )?too (?:long|large|short)"
            r"|\w(?:\[\d+\]|\.\d+)(?:\.\w+){0,4}:? (?:is |was )?too (?:long|large|short)"
            r"|expected an? (?:array|string|list)"
            r"|(?:string|list|array) should have|\bmaxlength\b|max[ _]?items"
            r"|(?:number of|too many|count of) (?:messages|items|turns|tools|functions|images|files"
            r"|requests|stop|elements|choices|documents|texts|inputs|labels|candidates|values|entries|objects|keys"
            r"|properties|examples|records|variables|parameters|arguments|prompts)\b"
            r"|\d+ (?:messages|items|turns|tools|files|documents|elements)\b(?! tokens)|\b(?:tool|function|parameter"
            r"|metadata)s?'?s? (?:schema|name|description|key)"
            r"|stop sequences?|embeddings? (?:model|request|input)|failed to load|loading (?:was|the model)|tool_use"
            r"|tool_call_id|tool result",
        ),
        unless=re.compile(r"\d+ (?:input |prompt )?tokens?\b"),
    ),
    Veto(
        name="safety",
        kind=_OTHER,
        pattern=re.compile(
            r"\bsafety\b|usage polic|content (?:management |filter|filtering )?polic|content filter|\bflagged\b"
            r"|moderation|violat(?:e|es|ing) (?:our|the)|敏感|违规",
        ),
    ),
    Veto(
        name="entitlement",
        kind=_OTHER,
        pattern=re.compile(
            r"must be verified|not (?:yet )?available (?:for|to|in)|requires? (?:a |an )?(?:verif|subscription"
            r"|upgrade|access)"
            r"|extra usage|not entitled|not enabled for|do(?:es)? not have access"
        ),
    ),
    Veto(
        name="credential",
        kind=_OTHER,
        pattern=re.compile(
            r"\b(?:access|session|api|jwt|bearer|auth\w*|csrf|refresh) (?:key |id )?tokens?\b"
            r"|token (?:is |has )?expired"
        ),
    ),
    Veto(
        name="caching",
        kind=_OTHER,
        pattern=re.compile(r"cached content|minimum token count|to start caching"),
    ),
)

RULES = Rules(
    yes=_YES,
    yes_form=_YES_FORM,
    yes_text=_YES_TEXT,
    no=_NO,
    vetoes=_VETOES,
    forbidden=FORBIDDEN,
    strong=STRONG,
    weak=WEAK,
    grammar=GRAMMAR,
)
