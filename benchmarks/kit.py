"""`compaction-conformance-kit` through the real proxy: what it planted, five compactions later, against truncation.

The kit compacts what a compactor gave it before. A proxy's client does not: it sends its whole history each time, and
the model sees what Carryon makes of it. So the adaptor sends the kit's turns, lets the session go on until it was
packed once more, and gives the kit what the upstream received. Only substrings are looked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from scripted import Scripted, Summarise, carried, clients, scripted
from sessions import Item, body, generated, spelled

try:
    import compaction_kit
except ImportError:  # part of the extra `dev`
    compaction_kit = None

ROUNDS = 5
#: The window, and whether the user talks on (27 tokens a step, at times a paste). The first is what is promised.
GROWTHS = ((16_384, False), (16_384, True), (8_192, False))
METHODS = {"S4": {"CARRYON_DEFAULTS__SUMMARY__METHOD": "outline"}, "good": {}}


def _text(items: Sequence[Item]) -> str:
    return "\n".join(f"[{one['role']}] {one.get('content') or ''}" for one in items)


def _growth(*, talks: bool) -> list[Item]:
    """How the session goes on: the agent works by itself, or its user has something to say after each step."""
    items = generated(120).items[2:]
    return items if talks else [one for one in items if one["role"] == "tool" or one.get("tool_calls")]


async def _seen(
    upstream: Scripted, url: str, opening: Sequence[Item], model: str, *, talks: bool
) -> list[tuple[str, str]]:
    """By round: what the model saw after it, and the whole history then, both as text."""
    items, found = [*opening, *_growth(talks=talks)], []
    sizes = [at for at in range(len(opening), len(items)) if items[at]["role"] == "assistant"]
    async with clients() as client:
        for size in sizes:
            sent = body(model, [spelled(one) for one in items[:size]])
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {model}"}
            async with client.post(f"{url}/chat/completions", data=sent, headers=headers) as reply:
                generation = int(reply.headers.get("x-carryon-generation", "0"))
            if generation > len(found):
                shown = next(one for one in reversed(upstream.heard) if not one.summary).json["messages"]
                found.append((_text(shown), _text(items[:size])))
            upstream.heard.clear()
            if len(found) == ROUNDS:
                break
    return found


def _survived(canaries: Sequence[object], text: str) -> int:
    probe = compaction_kit.BehaviorProbe()
    return sum(probe.probe(one, text).survived for one in canaries)


def _truncated(whole: str, size: int) -> str:
    """The kit's truncation, to the size of what Carryon sent."""
    cut = compaction_kit.LossyTruncationCompactor(keep_fraction=1.0)
    return str(cut.compact([compaction_kit.Turn("user", whole)], budget_chars=size).text)


async def conformance(summarise: Summarise, *, quick: bool) -> list[str]:
    """Survival by round; what is wrong."""
    if compaction_kit is None:
        print("\ncompaction-conformance-kit is not installed: skipped")
        return []
    print(f"\ncompaction-conformance-kit {compaction_kit.kit_version()}: canaries alive after each of {ROUNDS} rounds")
    wrong: list[str] = []
    sessions = [("seeded", (compaction_kit.build_seeded_session(), compaction_kit.seeded_canaries()))]
    sessions += [(f"random {seed}", compaction_kit.build_random_session(seed)) for seed in range(1, 1 if quick else 3)]
    for window, talks in GROWTHS[: 1 if quick else None]:
        for method, environment in METHODS.items():
            async with (
                scripted(summarise) as upstream,
                carried(upstream.url, "--window", str(window), **environment) as proxy,
            ):
                for name, (session, canaries) in sessions:
                    opening = [{"role": one.role, "content": one.text} for one in session.transcript()]
                    seen = await _seen(upstream, proxy.url, opening, f"{name}-{method}", talks=talks)
                    ours = [_survived(canaries, shown) for shown, _ in seen]
                    cut = [_survived(canaries, _truncated(whole, len(shown))) for shown, whole in seen]
                    grows = "user talks" if talks else "agent alone"
                    print(
                        f"{window:6,} {grows:11} {method:4} {name:8} carryon {ours} truncated {cut} of {len(canaries)}"
                    )
                    if (window, talks) == GROWTHS[0] and ours != [len(canaries)] * ROUNDS:
                        wrong.append(f"kit, {method}, {name}: {ours}")
    return wrong
