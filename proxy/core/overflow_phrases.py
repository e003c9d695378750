"""Wordings of overflows: one row per wording, with the provider it was seen at (steps 8, 9, 10).

Every pattern is searched in *folded* text (`overflow_evidence.fold`): lower case, white space
collapsed, no quotes, thousands separators gone, at most a few thousand characters. Gaps are bounded,
so that no text makes a search slow. `{limit}`, `{requested}`, `{input}`, `{output}` and `{excess}`
capture numbers, all in tokens. A new wording is one row here and one line in the fixture.
"""

from __future__ import annotations

from proxy.core.overflow_wording import phrase

__all__ = ["FORBIDDEN", "STRONG", "WEAK"]

_HOWEVER = r"maximum context length (?:is|of) {limit} tokens?[.,]? however,? "

# Name, provider, kind of the limit and pattern stay in one row.
# fmt: off

# The only wording that makes a 401 or 403 an overflow.
FORBIDDEN = phrase(
        "supports-only", "kimi-coding", "",
    r"supports? only \d+ ?[km]?\b(?:[ -]tokens?)?(?: of)? context",
    numbers=False,
)

# They name a violated bound with numbers, or are a sentence nothing else produces.
STRONG = (
    phrase(
        "window-output-input", "vllm", "total",
        _HOWEVER + r"you requested {output} output tokens and your prompt contains (?:at least )?{input}",
    ),
    phrase(
        "window-parts", "openai", "total",
        _HOWEVER + r"you requested (?:about )?{requested} tokens \(\d+ (?:in|of) (?:the"
        r"|your )?\w+(?: \w+)?[,;] {output}"
        r" (?:in|for) (?:the|your) completion",
    ),
    phrase(
        "window-requested", "openai", "total",
        _HOWEVER + r"(?:you requested|your (?:messages|prompt|request|input) \w+(?: in)?)(?: about| at least"
        r"| a total of)?"
        r" {requested}",
    ),
    phrase(
        "window-too-large", "vllm", "total",
        r"max_(?:completion_)?tokens is too large: {output}[^(]{0,60}maximum context length is {limit} tokens"
        r" and your request has {input} input tokens",
    ),
    phrase(
        "configured-limit", "openai", "input",
        r"input tokens exceed the configured limit of {limit} tokens[. ]{0,2}(?:your messages resulted in"
        r" {requested})?",
    ),
    phrase(
        "input-exceeds-window", "openai", "",
        r"input (?:exceeds|is too (?:long|large) for|is larger than) (?:the|this|your) ?(?:model's |models"
        r" )?context (?:window|length)",
    ),
    phrase(
        "tier-size", "github-models", "input",
        r"body too large for [\w./: -]{1,60}? model[. ]{1,3}max size: {limit} tokens",
    ),
    phrase(
        "prompt-count", "github-copilot", "input",
        r"prompt token count of {requested} exceeds the limit of {limit}",
    ),
    phrase("prompt-too-long", "anthropic", "input", r"prompt is too long: {requested} tokens > {limit} maximum"),
    phrase(
        "input-plus-max", "anthropic", "total",
        r"input length and max_tokens exceed context limit: {input} \+ {output} > {limit}",
    ),
    phrase(
        "input-count", "google-gemini", "input",
        r"input token count(?: \({requested}\))? exceeds the maximum number of tokens allowed (?:\(|of |is"
        r" )?{limit}",
    ),
    phrase(
        "input-count-supports", "google-vertex", "input",
        r"input token count is {requested} but (?:the )?model only supports up to {limit}",
    ),
    phrase("input-too-long-model", "aws-bedrock", "", r"input is too long for (?:the )?requested model"),
    phrase(
        "model-maximum", "aws-bedrock-mantle", "input",
        r"prompt tokens \({requested}\) exceed (?:customer )?model maximum \({limit}\)",
    ),
    phrase(
        "too-large-for-model", "mistral", "total",
        r"prompt contains {requested} tokens[^.]{0,40}, too large for model with {limit} maximum context length",
    ),
    phrase(
        "size-excess", "cohere", "",
        r"too many tokens: size limit exceeded by {excess} tokens(?:[^\d]{1,90}limit for this model is {limit})?",
    ),
    phrase(
        "total-exceeds", "cohere", "",
        r"too many tokens: total number of tokens [\w ()]{1,40} exceeds the limit of {limit}",
    ),
    phrase(
        "total-received", "cohere", "total",
        r"total number of tokens \(prompt and prediction\) cannot exceed {limit} - received {requested}",
    ),
    phrase(
        "prompt-maximum", "xai", "input",
        r"maximum prompt length is {limit} but the request contains"
        r" {requested}",
    ),
    phrase("length-while-limit", "cerebras", "", r"current length is {requested} while limit is {limit}"),
    phrase(
        "prompt-too-long-second", "fireworks", "total",
        r"prompt is too long: {requested}, model maximum context length: {limit}",
    ),
    phrase("supplied", "replicate", "input", r"max input length is {limit} tokens, but you supplied {requested}"),
    phrase(
        "longer-than-context", "sglang", "total",
        r"input \({requested} tokens\) is longer than the model's context length \({limit} tokens\)",
    ),
    phrase(
        "requested-count", "sglang", "total",
        r"requested token count exceeds the model's maximum context length of {limit} tokens(?:. you requested"
        r" a total of {requested} tokens: \d+ tokens from the input messages and {output} tokens)?",
    ),
    phrase(
        "allowed-length", "sglang", "input",
        r"input length \({requested} tokens\) exceeds the maximum allowed length \({limit} tokens\)",
    ),
    phrase(
        "allowed-input", "openrouter", "input",
        r"input length {requested} exceeds the maximum allowed input length of {limit}",
    ),
    phrase(
        "over-limit", "generic-gateway", "input",
        r"request too long: {requested} input tokens over the limit of {limit}",
    ),
    phrase("model-limit", "litellm-proxy", "", r"input length {requested} exceeds model limit"),
    phrase(
        "decoder-prompt", "vllm", "input",
        r"prompt \(length {requested}\) is longer than the maximum model length of {limit}",
    ),
    phrase("engine-prompt", "vllm", "total", r"prompt length {requested} exceeds the max_model_len {limit}"),
    phrase(
        "prompt-is", "vllm", "total",
        r"prompt is {requested} tokens, which exceeds the model's maximum context length of {limit}",
    ),
    phrase(
        "sum-of-prompt", "tensorrt-llm", "input",
        r"sum of prompt length \({requested}\), query length \({n}|\d\) should not exceed max_num_tokens"
        r" \({limit}\)",
    ),
    phrase(
        "max-input-len", "tensorrt-llm", "input",
        r"prompt length \({requested}\) exceeds maximum input length \({limit}\)",
    ),
    phrase("inputs-less", "tgi", "input", r"inputs must have less than {limit} tokens[. ]{1,2}given: {requested}"),
    phrase(
        "inputs-plus-new", "tgi", "total",
        r"inputs tokens \+ max_new_tokens must be <= {limit}[. ]{1,2}given: {input} inputs tokens and {output}"
        r" max_new_tokens",
    ),
    phrase(
        "must-be-smaller", "lmdeploy", "total",
        r"input length \({requested}\) must be smaller than the model context length \({limit}\)",
    ),
    phrase(
        "available-size", "llama.cpp", "total",
        r"request(?: \({requested} tokens\))? exceeds the available context size(?: \({limit} tokens\))?",
    ),
    phrase("size-exceeded", "llama.cpp", "total", r"context size has been exceeded"),
    phrase(
        "requested-window", "llama-cpp-python", "total",
        r"requested tokens \({requested}\) exceed context window of {limit}",
    ),
    phrase(
        "max-seq-len", "tabbyapi", "total",
        r"(?:prompt|context) length {requested} is greater than (?:the )?max_seq_len {limit}",
    ),
    phrase(
        "longer-than-available", "ollama", "total",
        r"prompt is longer than the context length currently available",
    ),
    phrase("excess", "ollama", "", r"prompt too long; exceeded (?:max )?context length by {excess} tokens"),
    phrase(
        "tokens-to-keep", "lmstudio", "total",
        r"number of tokens to keep from the initial prompt is greater than the context length(?: \(n_keep:"
        r" {requested} ?>= ?n_ctx: {limit}\))?",
    ),
    phrase(
        "keep-the-first", "lmstudio", "total",
        r"keep the first {requested} tokens when [\w ]{0,30}overflows[^\d]{0,80}context length of only {limit}"
        r" tokens",
    ),
    phrase("n-keep", "lmstudio", "total", r"n_keep \(?:?{requested}\)? >= n_ctx \(?:?{limit}\)?"),
    phrase("reached-context", "lmstudio", "total", r"reached context length of {limit} tokens"),
    phrase(
        "configured-size", "ds4", "total",
        r"prompt has {requested} tokens, but the configured context size is {limit}",
    ),
    phrase("window-full", "kronk", "", r"the context window is full"),
    phrase(
        "model-token-limit", "moonshot", "total",
        r"exceeded model token limit: {limit} \(requested: {requested}\)",
    ),
    phrase("input-range", "dashscope", "input", r"range of input length should be \[\d+, ?{limit}\]"),
    phrase(
        "message-total", "dashscope", "",
        r"total message token length exceed model limit(?: \({limit}"
        r" tokens\))?",
    ),
    phrase(
        "estimated", "cloudflare-workers-ai", "total",
        r"estimated number of input and maximum output tokens \({requested}\) exceeded this model context"
        r" window limit \({limit}\)",
    ),
    phrase(
        "total-limit", "watsonx", "",
        r"number of input tokens {requested} cannot exceed the total tokens limit {limit}",
    ),
    phrase(
        "sequence-length", "sambanova", "total",
        r"generating {output} tokens requires a sequence length of {requested}, but the maximum supported"
        r" sequence length is just {limit}",
    ),
    phrase(
        "max-input-tokens", "aws-bedrock", "input",
        r"too many input tokens. max input tokens: {limit}, request input token count: {requested}",
    ),
    phrase("max-tokens-exceeded", "snowflake", "", r"max tokens of {limit} exceeded"),
    phrase("room", "openai-codex", "", r"ran out of room in the model's context window"),
    phrase(
        "exceeds-the-window", "generic-gateway", "",
        r"\b(?:prompt|input|request|messages?|conversation|tokens?|count|length)\b[^.]{0,40}?"
        r" (?:exceeds?|exceeded|is longer than) (?:the |this |your |that )?(?:model(?:'s)? )?(?:max(?:imum)? )?"
        r"(?:allowed )?context (?:length|window|size|limit)",
    ),
    phrase(
        "code-in-text", "generic-gateway", "",
        r"\b(?:context_length_exceeded|context_window_exceeded|model_max_prompt_tokens_exceeded"
        r"|exceed_context_size_error)\b",
    ),
    # The wording counts prompt plus `max_tokens`; where it was seen the output alone filled the window.
    phrase(
        "model-max-length", "moonshot", "total",
        r"model max length exceeded, max length: ?{limit}",
        compactable=False,
    ),
)

# Sentences of vendors without numbers, and what other servers could say too: only where the status fits.
WEAK = (
    phrase("maximum-is", "generic-gateway", "", r"maximum context length (?:is|of) {limit} tokens"),
    phrase("reduce-length", "groq", "", r"please reduce the length of the (?:messages|prompt|input)"),
    phrase("all-messages", "perplexity", "", r"total length of all messages is too long"),
    phrase("token-length", "moonshot", "", r"input token length too long"),
    phrase("exceeds-model-context", "lmdeploy", "", r"request exceeds the model context length"),
    phrase("exceeds-max-context", "mlx-serve", "", r"prompt exceeds max(?:imum)? (?:context )?length"),
    phrase("more-than-max", "zai", "", r"tokens in request more than max tokens allowed"),
    phrase("image-and-text", "volcengine", "", r"total tokens of image and text exceed max message tokens"),
    phrase("tokens-too-long", "baidu", "", r"prompt tokens? too long"),
    phrase(
        "input-tokens-exceeded", "aws-bedrock", "",
        r"input tokens exceeded|number of input tokens exceeds maximum length",
    ),
    phrase("text-bytes", "aws-bedrock", "", r"too many total text bytes"),
    phrase(
        "negative-output", "azure-ai-serverless", "",
        r"max_(?:new_|completion_)?tokens must be (?:at least 1|greater than 0)[^.]{0,12}got -\d+",
    ),
    phrase(
        "too-many-tokens", "generic-gateway", "",
        r"^(?:error: )?too many (?:input |prompt )?tokens\b|\btoken limit exceeded\b",
    ),
    phrase("zh-super-long", "zai", "", r"prompt ?超长"),
    phrase("zh-token-limit", "spark", "", r"token数量超过上限"),
    phrase("zh-input-length", "hunyuan", "", r"输入(?:内容)?(?:长度)?(?:超限|过长)"),
    # "2013" behind this sentence is MiniMax's code for invalid parameters.
    phrase("window-exceeds-limit", "minimax", "", r"context window exceeds limit", numbers=False),
)
# fmt: on
