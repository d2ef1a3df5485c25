"""The machine of the stand-in: a process that computes what is launched, one child for each process of MindSpore that connects.

When its standard input ends, it waits for what its children are at, and ends. A child maps the memory of its process, takes launches in their order, and
answers only when it is asked to drain: with the shapes that kernels found out and the first failure. A failure that a process did not live to ask for is
written to its log. MINDTORCH_STANDIN_ENGINE says what computes (kernels/_engine.py); MINDTORCH_STANDIN_KERNELS names Python files that are run after the table
has been filled, with KERNELS, OPS, kernel, op and torch as globals: they plant faults, or add kernels.
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
PATIENCE = 10       # seconds for what children are at


def serve(connection, compute):
    """One process's device, until it goes."""
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
                failed = None           # (from now on it is the process that remembers it)
            elif not failed:            # (as on a chip: behind a failure nothing is computed)
                message = json.loads(text)
                try:
                    launcher.compute(message)
                except Exception as e:          # (whatever a kernel raises is its launch's failure, and is said where the process synchronises)
                    name = f"aclop {message[0][3:]}" if message[0].startswith("op:") else "aclnn" + message[0]
                    failed = f"{name} failed: {type(e).__name__}: {e}".replace("\n", " ")[:2000]
                    if os.environ.get("MINDTORCH_STANDIN_TRACE"):
                        traceback.print_exc()
                        print(text.decode(), file=sys.stderr, flush=True)
    except ConnectionError:             # the process ended in the middle
        pass
    if failed and len(files) > 1:
        os.write(files[1], json.dumps({"failed": failed}).encode() + b"\n")


def at_work():
    """Whether children are; those that have ended are taken off the system's list."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def main(number):
    """Accepts processes of MindSpore at a listening socket, a file's number, until standard input ends."""
    server = socket.socket(fileno=number)
    from mindtorch.tools.standin import _compute as compute         # (after the socket is there: who connects waits for the answer)
    compute.plant()
    compute.alone()

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

