"""The shape of the configuration (rule 11.7): names, types, defaults and what each value may be alone.

What keys may say together is `rules`; where they come from is `load`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from proxy.settings.patterns import regex
from proxy.settings.units import Duration, FilePath, HeaderName, Secret, Size, fault
from proxy.settings.urls import base_url, host, host_name, proxy_url, redis_url

__all__ = [
    "Admin",
    "ClientKey",
    "Hold",
    "Listen",
    "Log",
    "ModelPolicy",
    "Pins",
    "PolicyShape",
    "Pressure",
    "Prune",
    "Redis",
    "Settings",
    "Summary",
    "Tenant",
    "Timeouts",
    "UpstreamSettings",
]

_MIB = 1024 * 1024


def _off(value: object) -> object:
    """YAML 1.1 reads a bare `off` as false; here it is a word."""
    return "off" if value is False else value


def _kinds(annotation: Any) -> set[Any]:
    """Return the types that an annotation allows; none where it lists words."""
    if get_origin(annotation) is Literal:
        return {Literal}
    inner = get_args(annotation)
    return {kind for part in inner for kind in _kinds(part)} if inner else {annotation}


Port = Annotated[int, Field(ge=0, le=65535)]
Window = Annotated[int, Field(ge=1024, le=100_000_000)]
Ratio = Annotated[float, Field(ge=0.05, le=1.0)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Host = Annotated[str, BeforeValidator(host)]
Regex = Annotated[str, BeforeValidator(regex)]


class Shape(BaseModel):
    """A mapping of the file: unknown keys are mistakes, values do not change, inputs are not echoed."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_yes_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """YAML reads `yes` as true, which Python would count as 1; and 1 is not true."""
        field = cls.model_fields[str(info.field_name)]
        if any(isinstance(part, BeforeValidator) for part in field.metadata):
            return value  # it looks for itself
        kinds = _kinds(field.annotation)
        numbers = int in kinds or float in kinds
        if isinstance(value, bool) and numbers and not kinds & {bool, Literal}:
            raise fault("is yes or no where a number is wanted", "write a number")
        if isinstance(value, int | float) and not isinstance(value, bool) and bool in kinds:
            raise fault("is a number where yes or no is wanted", "write true or false")
        return value


class Listen(Shape):
    """The door for clients. `max_inflight_bytes` bounds the bodies held at one time (rule 10.5)."""

    host: Host = "127.0.0.1"
    port: Port = 8787
    workers: Count = 1
    max_body: Size = 64 * _MIB
    max_inflight_bytes: Size = 1024 * _MIB
    max_connections: Count = 4096


class Admin(Shape):
    """The door for operators (rule 13.4): probes, metrics, and what is stored. `hosts` are further names of it."""

    host: Host = "127.0.0.1"
    port: Port = 8788
    token: Secret | None = None
    hosts: tuple[Annotated[str, BeforeValidator(host_name)], ...] = ()
    show_text: bool = False


class Tenant(Shape):
    """Who a request belongs to (rule 4.1)."""

    by: Literal["credential", "jwt", "header", "none"] = "credential"
    header: HeaderName | None = None
    anonymous: bool = True


class Redis(Shape):
    """The ledger's server; without `url` Carryon starts its own (rule 5.10). The URL may hold a password."""

    url: Annotated[SecretStr, BeforeValidator(redis_url)] | None = None
    ttl: Duration = 7 * 86400.0
    durability: Literal["auto", "memory", "aof", "replica"] = "auto"
    timeout: Duration = 0.15
    connect_timeout: Duration = 1.0
    wait_timeout: Duration = 1.5


class UpstreamSettings(Shape):
    """One upstream. A plain URL stands for a mapping with `base_url` alone; `name` is its key in `upstreams`."""

    base_url: Annotated[str, BeforeValidator(base_url)]
    serves: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    api_key: Secret | None = None
    api_key_header: HeaderName = "auto"
    headers: dict[HeaderName, SecretStr] = Field(default_factory=dict)
    proxy: Annotated[SecretStr, BeforeValidator(proxy_url)] | None = None
    ca_file: FilePath | None = None
    overflow_patterns: tuple[Regex, ...] = ()
    inject_paths: tuple[Annotated[str, Field(pattern=r"^/[^?#\s]+$")], ...] = ()
    accept_client_credential: bool = False
    _name: str = PrivateAttr("")

    @model_validator(mode="before")
    @classmethod
    def _plain_url(cls, value: Any) -> Any:
        return {"base_url": value} if isinstance(value, str) else value

    @property
    def name(self) -> str:
        """The upstream's key in `upstreams`, as in `/u/<name>`."""
        return self._name


class ClientKey(Shape):
    """One key that clients may show; `name` is a label in metrics, `sha256` the hex digest of the key."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Pressure(Shape):
    """The proactive trigger. `after_reply`: summaries are made beside the requests; else each waits for its own."""

    after_reply: bool = True


class Summary(Shape):
    """The model call inside the built-in compactor. Tokens and seconds.

    `model` is another than the conversation's, `upstream` where it is asked (None: where the conversation is).
    """

    method: Annotated[Literal["model", "outline", "off"], BeforeValidator(_off)] = "model"
    upstream: str | None = Field(default=None, min_length=1)
    model: str | None = Field(default=None, min_length=1)
    max_tokens: int = Field(default=8192, ge=64)
    timeout: Duration = 30.0
    background_timeout: Duration = 180.0
    language: str = Field(default="conversation", pattern=r"^[\w -]{2,40}$")
    max_concurrent: Count = 4


class Prune(Shape):
    """How long tool results are cut, in code points."""

    threshold_chars: int = Field(default=8192, ge=256)
    head_chars: int = Field(default=4096, ge=0)
    tail_chars: int = Field(default=1024, ge=0)
    exempt_tools: tuple[str, ...] = ()


class Pins(Shape):
    """Regular expressions for sentences of users that no compaction may lose."""

    patterns: tuple[Regex, ...] = ()


class PolicyShape(Shape):
    """What may be said of every model; `None` means unset."""

    auto: bool = True
    threshold_ratio: Ratio = 0.8
    threshold_tokens: int | None = Field(default=None, ge=64)
    retain_ratio: float = Field(default=0.16, ge=0.001, lt=1.0)
    retain_tokens: int | None = Field(default=None, ge=1)
    max_overflow_retries: int = Field(default=1, ge=0, le=5)
    compaction_retries: int = Field(default=1, ge=0, le=5)
    reserve_output: Literal["auto", "off"] | int = "auto"
    dry_run: bool = False
    context_window: Window | None = None
    window_kind: Literal["input", "total"] | None = None
    like: str | None = Field(default=None, min_length=1)
    compact_on_payload_too_large: bool = False
    pressure: Pressure = Pressure()
    summary: Summary = Summary()
    prune: Prune = Prune()
    pins: Pins = Pins()

    @field_validator("reserve_output", mode="before")
    @classmethod
    def _reserve(cls, value: object) -> object:
        text = "off" if value is False else str(value)
        if text in {"auto", "off"}:
            return text
        if not re.fullmatch(r"[0-9]{1,9}", text):
            raise fault("is neither auto nor off nor a number of tokens", "write auto, off, or a number of tokens")
        return int(text)


class ModelPolicy(PolicyShape):
    """An entry of `models`: the keys it names, for what matches `upstream` and `model` (names or globs)."""

    upstream: str = Field(default="*", min_length=1)
    model: str = Field(default="*", min_length=1)


class Hold(Shape):
    """How much of a reply, and how long, may be held back before the retry decision (rule 9.2)."""

    bytes: Size = 16 * _MIB
    time: Duration = 30.0


class Timeouts(Shape):
    """Seconds (rule 10.5)."""

    header: Duration = 10.0
    body_idle: Duration = 30.0
    connect: Duration = 10.0
    first_byte: Duration = 600.0
    stream_idle: Duration = 300.0
    drain: Duration = 120.0


class Log(Shape):
    """`auto` is console on a terminal, else JSON."""

    format: Literal["auto", "json", "console"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


def _openai() -> dict[str, UpstreamSettings]:
    return {"openai": UpstreamSettings(base_url="https://api.openai.com/v1")}


class Settings(Shape):
    """The whole configuration. Build it with `load`, which also applies the rules between keys."""

    listen: Listen = Listen()
    admin: Admin = Admin()
    state_dir: FilePath | None = None
    secret: Secret | None = None
    encryption_keys: tuple[Secret, ...] = ()
    tenant: Tenant = Tenant()
    redis: Redis = Redis()
    upstreams: dict[str, UpstreamSettings] = Field(default_factory=_openai, min_length=1)
    client_keys: tuple[ClientKey, ...] = ()
    compactor: str = Field(default="builtin", pattern=r"^[\w.-]+$")
    defaults: PolicyShape = PolicyShape()
    models: tuple[ModelPolicy, ...] = ()
    hold: Hold = Hold()
    timeouts: Timeouts = Timeouts()
    response_headers: bool = True
    log: Log = Log()

    def model_post_init(self, _context: object, /) -> None:
        """Tell each upstream its name."""
        for name, upstream in self.upstreams.items():
            upstream._name = name  # noqa: SLF001 - the name is the key, known only here

    @property
    def default_upstream(self) -> UpstreamSettings:
        """The upstream listed first."""
        return next(iter(self.upstreams.values()))
