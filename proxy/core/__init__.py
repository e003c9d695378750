"""The pure rooms: no socket, no Redis, no clock, no randomness, no logging."""
