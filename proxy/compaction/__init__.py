"""Shrinking a conversation: `job` is the one door, `builtin` the compactor that comes with Carryon.

Read `builtin.py` first: prune, range, summarise, propose. Around it `prune`, `pins`, `files` and `outline`
need no model, `summarise` asks one, `carrier` writes what the next model sees.
"""
