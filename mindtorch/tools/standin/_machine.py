"""The simulator's compute process: computes launched kernels, with one child for each MindSpore
process that connects.

When its standard input ends, it waits for its children's current work and exits. A child maps the
memory of its process and computes launches in order. It replies only to a drain request: with the
shapes that kernels determined, and the first failure. A failure that a process did not live to
query is written to its log. MINDTORCH_STANDIN_ENGINE selects what computes (kernels/_engine.py).
MINDTORCH_STANDIN_KERNELS names Python files that are executed after the table has been filled, with
KERNELS, OPS, kernel, op and torch as globals: they inject faults, or add kernels.
"""
import json
import os
import socket
import struct
import sys
import threading
import time
import traceback

_LENGTH = struct.Struct("<I")
PATIENCE = 10  # seconds to wait for the children's current work


def serve(connection, compute):
    """Serves one process's device until the process disconnects."""
    _, files, _, _ = socket.recv_fds(connection, 1, 2)
    launcher, stream = compute.Launcher(compute.Memory(files[0])), connection.makefile("rb", buffering=1 << 16)
    os.close(files[0])

    def answer(lines):
        data = "\n".join(lines).encode()
        connection.sendall(_LENGTH.pack(len(data)) + data)
    failed = None
    try:
        answer([f"kernel {n}" for n in compute.names()])
        while len(head := stream.read(4)) == 4:
            text = stream.read(_LENGTH.unpack(head)[0])
            if text == b"drain":
                answer([" ".join(map(str, ("shape", at, *shape))) for at, shape in launcher.found] + ([f"failed {failed}"] if failed else []))
                launcher.found.clear()
                failed = None  # (the process has received it and reports it from now on)
            elif not failed:  # (as on a chip: nothing is computed after a failure)
                message = json.loads(text)
                try:
                    launcher.compute(message)
                # (any exception of a kernel is a failed launch, reported when the process
                # synchronizes)
                except Exception as e:
                    name = f"aclop {message[0][3:]}" if message[0].startswith("op:") else "aclnn" + message[0]
                    failed = f"{name} failed: {type(e).__name__}: {e}".replace("\n", " ")[:2000]
                    if os.environ.get("MINDTORCH_STANDIN_TRACE"):
                        traceback.print_exc()
                        print(text.decode(), file=sys.stderr, flush=True)
    except ConnectionError:  # the process ended in mid-message
        pass
    if failed and len(files) > 1:
        os.write(files[1], json.dumps({"failed": failed}).encode() + b"\n")


def at_work():
    """True if children are running; reaps those that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def main(number):
    """Accepts MindSpore processes on a listening socket, given by its file descriptor, until
    standard input ends."""
    server = socket.socket(fileno=number)
    # (imported after the socket exists: clients that connect meanwhile wait for the reply)
    from mindtorch.tools.standin import _compute as compute
    compute.plant()
    compute.isolate()

    def end():
        while os.read(0, 1):
            pass
        patience = time.monotonic() + PATIENCE
        while at_work() and time.monotonic() < patience:
            time.sleep(0.01)
        os._exit(0)
    threading.Thread(target=end, daemon=True).start()
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            server.close()
            try:
                serve(connection, compute)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        connection.close()
        at_work()

