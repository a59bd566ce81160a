"""Serves one GGUF file on loopback through the OpenAI-compatible HTTP server inside the package `xllamacpp` (llama.cpp).

Started by local-server.sh with the interpreter of its venv: serve_gguf.py FILE ALIAS PORT CONTEXT THREADS
"""

import signal
import socket
import sys

import xllamacpp


def refuse_busy_port(port):
    """The server only says that it could not start; whether the port is the reason is found out here."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            sys.exit(f"error: cannot listen on 127.0.0.1:{port}: {error.strerror}; choose another one with --port")


def main(path, alias, port, context, threads):
    refuse_busy_port(int(port))
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.model_alias = {alias}
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.n_ctx = int(context)
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    params.ui = False
    signals = {signal.SIGINT, signal.SIGTERM}
    # Blocked before the server starts its threads, so that only the wait below receives them.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    server = xllamacpp.Server(params)
    print(f"serving {alias} at {server.listening_address}/v1; stop it with Ctrl-C", flush=True)
    signal.sigwait(signals)


main(*sys.argv[1:])
