"""Small word lists in several languages: standing orders of users, refusals of models, what an outline keeps.

Small on purpose. An order that is missed is still among the users' words; a refusal that is missed is one
bad summary; a sentence that is missed is one the outline does without.
"""

# ruff: noqa: RUF001 - apostrophes and punctuation of other languages are meant

from __future__ import annotations

import re

__all__ = ["IDENTIFIER", "POINTER", "REFUSAL", "SENTENCE", "STANCE", "TROUBLE", "is_order", "weight"]

_ORDERS = {
    "English": "always|never|must(?:n['’]t)?|do not|don['’]?t|shall not|should(?:n['’]t)?|only|make sure|ensure|avoid"
    "|prefer|from now on|remember to|under no circumstances|no matter what|required to|not allowed|forbidden|refrain",
    "German": "immer|nie|niemals|keinesfalls|auf keinen fall|darfst? nicht|dürfen nicht|musst?|müssen|sollst?|sollen"
    "|nur noch|ab jetzt|ab sofort|bitte nicht|verwende|achte darauf|vermeide|stets|unbedingt|ausschließlich|verboten",
    "French": "toujours|jamais|il faut|tu dois|vous devez|doit|évitez?|assure-toi|assurez-vous|désormais|uniquement"
    r"|interdit|à partir de maintenant|n['’](?:utilise|ajoute|écris)[a-z]*|ne \w+ pas",
    "Spanish": "siempre|nunca|jamás|debes?|deben|asegúrate|evitar?|solamente|únicamente|a partir de ahora|prohibido"
    "|no (?:uses|toques|hagas)",
    "Portuguese": "sempre|deve[ms]?|certifique-se|evite|apenas|a partir de agora|proibido|não (?:use|toque|faça)",
    "Italian": "mai|devi|assicurati|soltanto|d['’]ora in poi|vietato|non (?:usare|toccare|fare)",
    "Dutch": "altijd|nooit|moet(?:en)?|zorg ervoor|voortaan",
    "Polish": "zawsze|nigdy|musisz|nie wolno",
    "Turkish": "her zaman|asla|mutlaka|sakın",
    "Russian": "всегда|никогда|нельзя|обязательно|должен|должна|должны|запрещено|только|не надо|отныне",
    "Ukrainian": "завжди|ніколи|не можна",
}
#: Languages that write words without spaces, or glue endings on.
_ORDERS_INSIDE = {
    "Chinese": "总是|必须|不要|不得|禁止|务必|永远|始终|只能|请勿|一定要|必須|總是|不能",
    "Japanese": "必ず|決して|絶対|常に|しないで|してはいけない|べき",
    "Korean": "항상|절대|반드시|하지 ?마|금지",
    "Arabic": "دائما|دائمًا|أبدا|أبدًا|يجب|ممنوع",
    "Hindi": "हमेशा|कभी|ज़रूर|अवश्य",
}
#: "No new dependencies." orders, "No luck so far." and "No tests failed." tell: what follows the word decides.
_TOLD = (
    "problems?|worr(?:y|ies)|ideas?|luck|need|doubt|thanks?|way|one|matter|clue|rush|hurry|difference|longer|such|errors?"
    "|failures?|output|response|answer|result|reason|surprise|wonder|big|i|it|that|this|the|we|you|they|there|but|and"
    "|not|still|what|why|how"
)
_TOLD_OF = r"\w+ed|\w+en|found|left|made|was|were|is|are|has|have|had|do|does|did|can|could|will|would"
_WHERE = (
    "in|into|on|inside|outside|without|to|from|for|at|by|before|after|between|unless|except|or|and|anywhere|please|ever"
    "|allowed|whatsoever"
)
_NOTHING = re.compile(
    rf"\Ano (?!(?:{_TOLD})\b)[\w'’-]+(?: (?!(?:{_TOLD_OF})\b)[\w'’-]+)?,?(?: (?:{_WHERE})\b.*)?[.!]?\Z"
)
_LONGEST_NO = 400
#: Words by which a sentence speaks of the one before.
_POINTERS = {
    "English": "it|its|this|that|these|those|them|they|otherwise|instead|there|both|either|neither",
    "German": "es|das|dies|diese[nmrs]?|davon|damit|dort|sonst|stattdessen|beide",
    "French": "cela|ça|celui-ci|celle-ci|sinon|y|les deux",
    "Spanish": "esto|eso|ello|ambos",
    "Russian": "это|этого|его|её|их|иначе|там",
}
_POINTERS_INSIDE = "它|这|那|该|其|否则|這|それ|これ|あれ|그것|이것|저것"
_REFUSALS = {
    "English": r"(?:i['’]?m|i am) (?:(?:very|so|really) )?(?:sorry|unable|not able)|sorry\b|i (?:can['’]?t|can ?not"
    "|won['’]?t|will not|must decline)|as an ai\\b|unfortunately,? i|i apologi[sz]e",
    "German": "es tut mir leid|tut mir leid|leider kann ich|ich kann (?:das |dies |dir |ihnen )?(?:leider |nicht)"
    "|entschuldigung",
    "French": "(?:je suis )?désolée?|je (?:ne peux|ne suis) pas",
    "Spanish": "lo siento|no puedo|perdón",
    "Portuguese": "desculpe|sinto muito|não posso",
    "Italian": "mi dispiace|non posso|spiacente",
    "Dutch": "het spijt me|ik kan niet",
    "Polish": "przykro mi|nie mogę",
    "Russian": "извините|к сожалению|простите|я не могу",
    "Chinese": "抱歉|对不起|很抱歉|我无法|我不能|無法|對不起",
    "Japanese": "申し訳|すみません|ごめんなさい",
    "Korean": "죄송|미안",
    "Arabic": "آسف|عذرا|لا أستطيع",
    "Hindi": "क्षमा|माफ़",
}
_WEIGHTY = {
    "English": r"must|never|always|decid\w*|because|instead|root cause|fix\w*|fail\w*|errors?|bugs?|works?|done"
    r"|verified|pass(?:es|ed)?|todo|next|cho(?:se|ice)|conclu\w*",
    "German": r"muss|nie|entschieden|weil|statt|fehler\w*|behoben|erledigt|geprüft",
    "French, Spanish": "donc|parce que|erreur|décidé|corrigé|porque|decidid[oa]|hecho|corregid[oa]",
}
_WEIGHTY_INSIDE = "因为|决定|错误|完成|必须|原因|決定|エラー|完了|修正|결정|오류|완료"


def _whole_words(alternatives: str) -> re.Pattern[str]:
    """Whole words in lower case. The first letters stand in front: that makes the search ten times faster."""
    letters = "".join(sorted({word.removeprefix("(?:")[0] for word in alternatives.split("|")}))
    return re.compile(rf"\b(?=[{letters}])(?:{alternatives})\b")


_ORDER = _whole_words("|".join(_ORDERS.values()))
#: Whether a sentence speaks of the one before it.
POINTER = re.compile(rf"\b(?:{'|'.join(_POINTERS.values())})\b|{_POINTERS_INSIDE}", re.IGNORECASE)
_ORDER_INSIDE = re.compile("|".join(_ORDERS_INSIDE.values()))
_WEIGHTY_WORD = _whole_words("|".join(_WEIGHTY.values()))
_WEIGHTY_PART = re.compile(_WEIGHTY_INSIDE)
#: Words of an order that do not say what it is about.
STANCE = frozenset(
    [
        "again",
        "always",
        "do",
        "don",
        "dont",
        "from",
        "must",
        "never",
        "not",
        "now",
        "on",
        "only",
        "please",
        "should",
        "t",
    ]
)
#: How a model begins that declines; matched at the start of a text.
REFUSAL = re.compile(rf"\W*(?:{'|'.join(_REFUSALS.values())})", re.IGNORECASE)
#: Where one sentence ends and the next begins.
SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
#: A line of output that speaks of a failure.
TROUBLE = re.compile(
    r"\b(?:errors?|failed|failures?|fatal|exception|panic|traceback|denied|not found|undefined|E\d{3,4})\b|\wError:",
    re.IGNORECASE,
)
#: A name, path, hash or issue number: what a summary must not paraphrase.
IDENTIFIER = re.compile(r"`[^`\n]+`|\b\w+(?:[_./:]\w+)+\b|\b[0-9a-f]{7,40}\b|#\d+")


def is_order(sentence: str) -> bool:
    """Whether a sentence of a user orders something for good."""
    lower = sentence.lower()
    return bool(_ORDER.search(lower) or _ORDER_INSIDE.search(sentence) or _NOTHING.match(lower[:_LONGEST_NO]))


def weight(sentence: str) -> int:
    """How many words of a sentence decide, find or finish something, and how many names and paths it holds."""
    words = len(_WEIGHTY_WORD.findall(sentence.lower())) + len(_WEIGHTY_PART.findall(sentence))
    return words + len(IDENTIFIER.findall(sentence))
