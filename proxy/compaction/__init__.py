"""Shrinking a conversation: `job` is the one door, `builtin` the compactor that comes with Carryon.

Read `builtin.py` first: prune, range, summarise, propose. Around it `prune`, `pins`, `files` and `outline`
need no model, `rungs` asks one (`wording` and `flatten` are what it is sent, `summarise` judges it), `carrier`
writes what the next model sees.
"""
