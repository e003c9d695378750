"""What the commands do; `proxy.cli` is how they are called."""
