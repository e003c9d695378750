"""What the error fields of an answer hold: codes, texts, numbers; nothing that was only echoed."""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass, field

from proxy.core.counts import count_of

__all__ = ["Evidence", "bounded", "clauses", "fold", "gather", "is_empty_or_html", "parse"]

_MOST_DEPTH = 6
_MOST_TEXTS = 12
_MOST_TEXT = 8_192
_TEXT_TAIL = 2_048
_MOST_CHILDREN = 24


@dataclass(slots=True)
class Evidence:
    """What the error fields of an answer hold."""

    codes: list[tuple[str, str]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    object_error: bool = False
    inner_status: int = 0


# fmt: off
_ECHO_KEYS = frozenset({
    "body", "candidates", "choices", "content", "contents", "ctx", "failed_generation", "generations", "headers",
    "input", "instructions", "loc", "messages", "model", "output", "parameters", "params", "payload", "prompt",
    "query", "request", "system", "text", "tools", "url", "usage", "user",
})
_TEXT_KEYS = frozenset({
    "cause", "description", "detail", "details", "err", "error", "error_description", "error_message", "error_msg",
    "errormessage", "errormsg", "errors", "exception", "faultstring", "info", "message", "msg", "raw", "reason",
    "reasons", "status_message", "status_msg", "title",
})
_CODE_KEYS = frozenset({
    "__type", "code", "err_code", "error_code", "error_type", "errorcode", "errortype", "name", "reason", "status",
    "status_code", "statuscode", "type",
})
# fmt: on
_STATUS_KEYS = frozenset({"code", "status", "status_code", "statuscode"})
_HTTP_STATUS = re.compile(r"[1-5]\d\d")
_NUMBER_KEYS = {"n_ctx": "limit", "n_prompt_tokens": "requested"}
_ECHO_TEXT = re.compile(
    r"input_value\s*=.*?(?:, input_type=|$)"
    r"|[\"'](?:content|input|text|arguments|prompt|instructions|body|ctx|input_value"
    r"|input_text)\\?[\"']\s*:\s*(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(?:\bgot|received|found|invalid value|unexpected(?: value)?|provided)(?: value)?:? ?(?:\"(?:[^\"\\]"
    r"|\\.){20,}\"|'(?:[^'\\]|\\.){20,}')",
    re.DOTALL | re.IGNORECASE,
)
_JSON_START = re.compile(r"[{\[](?=\s*[\"'{])")
_DECODER = json.JSONDecoder(strict=False)


def parse(body: object) -> object:
    """Turn what came into a JSON value where it is one."""
    if isinstance(body, (bytes, bytearray, memoryview)):
        body = bytes(body).decode("utf-8", "replace")
    if not isinstance(body, str):
        return body
    text = body.lstrip("\ufeff \t\r\n")
    if text[:1] in ("{", "[", '"'):
        try:
            return _DECODER.decode(text.rstrip())
        except (ValueError, RecursionError):
            pass
    return text


def gather(value: object, into: Evidence, depth: int) -> None:
    """Collect codes, texts and numbers from the error fields of a value, at most six levels deep."""
    if depth > _MOST_DEPTH or len(into.texts) >= _MOST_TEXTS:
        return
    if isinstance(value, str):
        _gather_text(value, into, depth)
    elif isinstance(value, list):
        for child in value[:_MOST_CHILDREN]:
            gather(child, into, depth + 1)
    elif isinstance(value, dict):
        into.object_error = into.object_error or value.get("object") == "error"
        for key, child in list(value.items())[: 4 * _MOST_CHILDREN]:
            _gather_field(str(key).lower(), child, into, depth)


def _gather_field(key: str, child: object, into: Evidence, depth: int) -> None:
    if key in _ECHO_KEYS:
        return
    if isinstance(child, (str, int)) and not isinstance(child, bool):
        if key in _CODE_KEYS:
            into.codes.append((key, str(child)[:200]))
            if key in _STATUS_KEYS and _HTTP_STATUS.fullmatch(str(child)[:4]):
                into.inner_status = int(child)
        if key in _NUMBER_KEYS and (count := count_of(child)):
            into.numbers[_NUMBER_KEYS[key]] = count
    if isinstance(child, (dict, list)) or (isinstance(child, str) and key in _TEXT_KEYS):
        gather(child, into, depth + 1)


def _gather_text(text: str, into: Evidence, depth: int) -> None:
    """Take a text, the JSON inside it apart and what it echoes away."""
    text = _ECHO_TEXT.sub(" ", bounded(text))
    for start in list(_JSON_START.finditer(text))[:4]:
        inner, end = _embedded(text, start.start())
        if inner is not None:
            gather(inner, into, depth)  # what is wrapped in text is no level of its own
            text = f"{text[: start.start()]} {text[end:]}"
            break
    if text.strip():
        into.texts.append(text)


def _embedded(text: str, start: int) -> tuple[object, int]:
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        pass
    end = text.rfind("}") + 1  # a Python literal, as clients print it
    try:
        with warnings.catch_warnings(action="ignore"):  # they would quote the text on standard error
            return ast.literal_eval(text[start:end]), end
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None, start


def bounded(text: str) -> str:
    """Cut a long text down to its beginning and its end."""
    if len(text) <= _MOST_TEXT:
        return text
    return f"{text[: _MOST_TEXT - _TEXT_TAIL]} ... {text[-_TEXT_TAIL:]}"


_THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:[,_']\d{3})+(?!\d|,\d)|(?<![\d.])\d{1,3}(?:\.\d{3}){2,}(?![\d.])")
_RATIO = re.compile(r"(?<![\w./])(\d{3,9}) ?(?:/|(?:out )?of\b) ?(\d{3,9})(?![\w/]|\.\d)")
_NOISE = re.compile(
    r"input validation errors?:?|invalid (?:input|prompt|request)\b:?|input should be\b"
    r"|\binput_type\b"
)
#: No wording has a word so long; what is behind it would only make every `\w*` and `\d+` slow (quadratic).
_RUN = re.compile(r"(\w{100})\w+")
_QUOTES = re.compile(r"[\"`*“”]|(?<!\w)'|'(?!\w)|\\(?=[\"'nrt])")


_KANA = re.compile(r"[\u3041-\u30ff]")
#: Traditional spellings in the words of the tables; Japanese, which shares some of them, is told by its kana.
_SIMPLIFIED = str.maketrans(
    "請輸內對話詞過長數併發頻鐘後餘額賬帳戶圖節違規訊會歷問題當達時",
    "请输内对话词过长数并发频钟后余额账账户图节违规讯会历问题当达时",
)


def fold(text: str) -> str:
    """Bring a text into the form the patterns are written for: see `overflow_rules`."""
    text = bounded(text).lower().replace("\u2019", "'").replace("\\n", " ").replace("\\u003e", ">").replace("&gt;", ">")
    text = text if _KANA.search(text) else text.translate(_SIMPLIFIED)
    text = _THOUSANDS.sub(lambda match: re.sub(r"\D", "", match[0]), text)
    text = _RATIO.sub(lambda match: f"{match[1]} > {match[2]}" if int(match[1]) > int(match[2]) else match[0], text)
    text = _NOISE.sub(" ", _QUOTES.sub("", _RUN.sub(r"\1", text)))
    return " ".join(text.split())


_SENTENCE_END = re.compile(r"[.!?;](?= |$)|[。\uff01\uff1f\uff1b|]")


def clauses(text: str) -> str:
    """Mark the ends of sentences with `|`, which no gap of the grammar crosses."""
    return _SENTENCE_END.sub(" | ", text)


def is_empty_or_html(value: object) -> bool:
    """Whether there is nothing to read: no body, or a page made for people."""
    if isinstance(value, str):
        return not value.strip() or bool(
            re.match(r"\s*<(?:!doctype|\?xml|html|head|body|center|h1)", value[:200].lower())
        )
    return value is None or value in ({}, [])
