"""The general grammar: subject x verb x bound, for wordings no row knows yet (step 11).

The patterns are searched in folded text whose sentences end in `|`, which no gap crosses. It runs
after the vetoes: output caps, other units, rates and money are gone by then.
"""

from __future__ import annotations

from proxy.core.overflow_wording import Phrase, compile_phrase

__all__ = ["GRAMMAR"]

_SUBJECT = r"\b(?:prompts?|inputs?|messages?|conversation|context|(?:chat )?history|tokens?|dialog(?:ue)?)\b"
_THING = r"\b(?:requests?|query|text|content|chat|sequence|documents?|payload|session|thread|body)\b"
_OVER = (
    r"(?:exceed(?:s|ed|ing)?\b|surpass(?:es|ed)?\b|overflow(?:s|ed)?\b|overr[au]ns?\b|(?:longer|larger|greater"
    r"|bigger|higher) than"
    r"|more (?:tokens )?than (?:the |max|this|your|model|\d)|goes? (?:over|beyond)|\b(?:over|above|beyond"
    r"|past) (?:the|its|your|this|what|max|model|\d)"
    r"|too (?:long|large|big|many)\b|(?:must|should|can) (?:be|have|contain) (?:less|smaller|shorter|fewer|at most"
    r"|no more|below|under|<)"
    r"|(?:does not|doesn't|do not|don't|cannot|can't|won't|will not) fit|no more than \d|>=? ?\d|outside (?:the|of))"
)
_WINDOW = (
    r"(?:context\b|window\b|n_ctx\w*|max_(?:model|seq|context|input|prompt|num|total|position)\w*"
    r"|(?:model|sequence|token|tokens) (?:limit|maximum|length|capacity))"
)
_BOUND = (
    rf"(?:{_WINDOW}|\blimits?\b|\bmax(?:imum)?\b|\ballowed\b|\bcapacity\b|\bsupport(?:s|ed)?\b"
    r"|\bmodel can (?:handle|take|process|accept|hold)\b|\b(?:model|input|prompt) (?:length|size)\b|\d+ tokens"
    r"|\b\d{4,}\b|\b\d+ ?k\b)"
)
_LENGTHY = r"(?=[^|]{0,400}(?:token|length|\blong|context|window|prompt|sequence|n_ctx|max_|model|\d{3}))"
_CUT = r"(?:reduce|shorten|decrease|trim|truncate|compress|cut|lower)"


def _rule(name: str, pattern: str) -> Phrase:
    return Phrase(name=name, provider="", pattern=compile_phrase(pattern))


GRAMMAR = (
    _rule("exceeds", rf"{_SUBJECT}{_LENGTHY}[^|]{{0,70}}?{_OVER}[^|]{{0,60}}?{_BOUND}"),
    _rule("request-exceeds", rf"{_THING}[^|]{{0,70}}?{_OVER}[^|]{{0,60}}?{_WINDOW}"),
    _rule(
        "exceeded",
        r"(?:context|prompt|input|sequence)[ _-](?:[a-z_]+[ _-]){0,3}?(?:length|window|size|limit|maximum"
        r"|tokens?|count|capacity)\b[^|]{0,30}?"
        r"(?:exceed(?:ed|s)\b|reached\b|overflow\w*|is full\b|exhausted\b|surpassed\b)",
    ),
    _rule(
        "model-exceeded",
        r"(?:max(?:imum)?|model)(?: \w+){0,2} (?:context|input|prompt|sequence|token) (?:length|limit|size"
        r"|window|tokens)[^|]{0,20}?(?:exceed(?:ed|s)\b|reached\b)",
    ),
    _rule("max-length-exceeded", r"\bmodel(?:'s)? max(?:imum)?(?: \w+)? (?:length|tokens) (?:is |was )?exceeded"),
    _rule(
        "exceeded-first",
        r"\bexceed(?:ed|s|ing)? (?:the |this |its )?(?:model(?:'s)? )?(?:max(?:imum)? |allowed |configured )+"
        r"(?:allowed )?(?:input|prompt|context|token|sequence)s?\b",
    ),
    _rule(
        "context-full", r"\bcontext (?:\w+ )?is full\b|\b(?:hit|reached|reaches) (?:the|its) context (?:limit|window)"
    ),
    _rule("context-left", r"\b(?:not enough|no|insufficient) context (?:left|remaining|space|available)"),
    _rule("context-overflow", r"\bcontext ?(?:\w+ )?overflow(?:s|ed)?\b"),
    _rule(
        "too-long",
        r"\b(?:prompts?|inputs?|messages?|conversation|context|history|dialog(?:ue)?|query)\b[^"
        r"|]{0,40}?\b(?:too|overly) (?:long|large|big)\b",
    ),
    _rule(
        "too-long-a",
        r"\btoo (?:long|large) (?:a |an |of a )?(?:prompt|input|context|conversation|message)"
        r"|too (?:long|large) for (?:the |this |your )?(?:requested |selected )?(?:model|context)|request (?:is "
        r"|was )?too long\b",
    ),
    _rule(
        "too-many",
        r"\btoo many (?:tokens (?:in|for|requested|were|provided|sent)|(?:input|prompt"
        r"|context) tokens)",
    ),
    _rule(
        "no-room",
        r"(?:ran|run|running|runs|is|are) out of (?:room|space)?[^|]{0,20}?context|(?:not enough|no"
        r"|insufficient) (?:room|space|tokens)(?: left)? (?:in|left in|for)[^|]{0,30}?(?:context|window|prompt)",
    ),
    _rule(
        "cannot-fit",
        rf"(?:could not|couldn't|cannot|can't|can not|unable to|failed to) fit\b[^|]{{0,40}}?{_SUBJECT}"
        rf"[^|]{{0,40}}?{_WINDOW}",
    ),
    _rule(
        "advice",
        rf"{_CUT} (?:the )?(?:length|size|number of tokens) (?:of|in) (?:the |your )?(?:input )?(?:messages?"
        rf"|prompt|input|conversation|context)",
    ),
    _rule(
        "advice-your",
        rf"{_CUT} (?:your|the) (?:prompt|input|messages|conversation|chat history)(?: length| size)?\b[^"
        rf"|]{{0,40}}?\b(?:context|tokens?|window|fit)\b",
    ),
    _rule(
        "at-most-context",
        r"\b(?:supports?|accepts?|allows?|handles?) (?:only|at most|up to|a maximum of) {limit} (?:tokens"
        r"|context)",
    ),
    _rule(
        "input-range",
        r"range of (?:input|prompt|context)|(?:input|prompt|context|token)\w* (?:length|count|size|number)s?"
        r" (?:should|must) be (?:in|within|between)",
    ),
    _rule(
        "zh",
        r"(?:输入|输出|提示词?|上下文|对话|[消讯]息|请求|会话|prompt|tokens?|文本|内容|问题|历史|模型)[^|]{0,24}?(?:超过|超出|大于|超长|过长|太长|超限|溢出|长于"
        r"|过大|不能超过|达到)"
        r"(?:了)?(?=[^|]{0,24}?(?:最大|上限|限制|长度|上下文|窗口|模型|支持|允许|token|\d{3})|(?:$|[^\w]))",
    ),
    _rule("zh-limit", r"(?:超过|超出|达到)(?:了)?[^|]{0,12}?(?:上下文|输入)[^|]{0,12}?(?:长度|窗口|限制|上限|token)"),
    _rule(
        "ja",
        r"(?:入力|プロンプト|コンテキスト|トークン|メッセージ|会話)[^|]{0,30}?(?:超え|超過|上回|オーバー|長すぎ|大きすぎ)",
    ),
    _rule("ko", r"(?:입력|프롬프트|컨텍스트|토큰|메시지|대화|문맥)[^|]{0,30}?(?:초과|넘었|넘습|너무 (?:깁|길|김|큽))"),
    _rule(
        "de",
        r"(?:eingabe|prompt|anfrage|nachrichten?|kontext|tokens?|konversation)\w{0,24}[^|]{0,50}?(?:überschreite\w*"
        r"|übersteig\w*|zu (?:lang|groß)\b|(?:länger|größer) als|überschritten)",
    ),
    _rule(
        "fr",
        r"(?:entrée|invite|prompt|requête|messages?|contexte|conversation|tokens?|jetons)\b[^"
        r"|]{0,50}?(?:dépass\w+|excèd\w+|trop (?:longue?s?|grande?s?)|supérieure?s? )",
    ),
    _rule(
        "es-pt-it",
        r"(?:entrada|prompt|solicitud|solicitação|mensajes?|mensage(?:m|ns)|contexto|contesto|input|messaggi"
        r"|richiesta|conversaci[oó]n|conversa|tokens?)\b[^|]{0,50}?"
        r"(?:exced\w+|super[aáo]\w*|sobrepasa\w*|ultrapass\w+|ecced\w+|demasiado larg\w+|muito long\w+|longo"
        r" demais|troppo lung\w+)",
    ),
    _rule(
        "ru",
        r"(?:запрос|контекст|промпт|сообщени|ввод|входн|токен|диалог)\w{0,24}[^|]{0,50}?(?:превы[шс]\w+|слишком"
        r" (?:длин|больш)\w+|больше (?:максимальн|допустим)\w+)",
    ),
    _rule(
        "nl",
        r"(?:prompt|invoer|verzoek|bericht|context|gesprek|tokens?)\w{0,24}[^|]{0,50}?(?:overschr[ie]\w+"
        r"|te (?:lang|groot)\b|(?:langer|groter) dan)",
    ),
    _rule(
        "pl",
        r"(?:zapytani|prompt|wejści|kontekst|wiadomo|token|rozmow)\w{0,24}[^|]{0,50}?(?:przekr[ao]cz\w+"
        r"|(?:zbyt|za) (?:dług|duż)\w+|(?:dłuż|więk)sz\w+ niż)",
    ),
    _rule(
        "tr",
        r"(?:i\u0307?stem\b|girdi|bağlam|prompt|mesaj|sohbet|token)\w{0,24}[^|]{0,60}?(?:\baş(?:[^\W_a-z]|an|t|m)"
        r"|çok (?:uzun|büyük))",
    ),
    _rule(
        "id",
        r"(?:prompt|masukan|input|konteks|pesan|percakapan|token)\w{0,24}[^|]{0,50}?(?:melebihi|melampaui"
        r"|terlalu (?:panjang|besar))",
    ),
    _rule(
        "verb-first",
        r"(?:dépass\w+|exced\w+|excès|super(?:[aó]|ad[ao]|at[ao]|ou)\b|sobrepas\w+|ultrapass\w+|ecced\w+|überschr\w+"
        r"|превы[шс]\w+|przekr[ao]cz\w+|overschr\w+)[^|]{0,40}?(?:context|contest|kont(?:ext|ekst)|контекст)",
    ),
    _rule("vi", r"(?:lời nhắc|đầu vào|ngữ cảnh|tin nhắn|prompt|token)[^|]{0,50}?(?:vượt quá|quá (?:dài|lớn))"),
)
