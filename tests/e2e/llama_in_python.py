"""Run llama.cpp's own HTTP server out of the `xllamacpp` package until terminated.

Arguments: model file, port, context size, threads. It is the server of `llama-server`, compiled so that it runs on any
x86-64 processor.
"""

from __future__ import annotations

import signal
import sys

import xllamacpp


def main(model: str, port: str, context: str, threads: str) -> None:
    """Serve on loopback; ready when `/health` answers 200."""
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"smollm2"}
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.n_ctx = int(context)
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main(*sys.argv[1:])
