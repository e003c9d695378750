"""Carryon: a reverse proxy that carries an agent's conversation past the context window.

Read `exchange.py` first: one request walks it from top to bottom. It looks into pure rooms
(`core`, `dialects`, `policy`) and does its input and output at three doors: `server` (clients),
`upstream` (models) and `store` (Redis). `compaction` shrinks; it is not trusted. A retry needs
proof from the store that what the model will see has really changed (`core.evidence`).

Five nouns: a *transcript* is the history a client sent; its *items* form *units* that are never
split; a *surface* is what the model sees instead of a transcript's prefix; a *conversation* is the
ledger record that holds surfaces; its *generation* counts how often one was really replaced.
"""

__version__ = "0.1.0"
