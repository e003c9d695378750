"""`carryon demo`: one conversation meets three fates on the real proxy.

Everything is real but the model: the embedded store, the server, the exchange, the compactor. The
model is `model` (a small window, and it counts more than our meter), the agent is `agent`, the
story and its checks are `story`.
"""
