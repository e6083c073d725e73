#!/usr/bin/env python3
"""CPU of the nodes for 100 puts of 100 bytes: one batch, beside 100 requests on one connection.

    scripts/batch-cost.py target/release/dendra [members [pairs]]

It starts a node, or so many members, with the usual durability. Windows of both kinds alternate.
"""
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

BINARY = sys.argv[1]
MEMBERS = int(sys.argv[2]) if len(sys.argv) > 2 else 1
PAIRS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
VALUE = "v" * 100


def ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


def cpu_s(pids):
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.came = b""

    def send(self, text):
        self.socket.sendall(text.encode())

    def until(self, mark):
        while mark not in self.came:
            more = self.socket.recv(1 << 16)
            if not more:
                raise OSError("the connection ended")
            self.came += more
        end = self.came.index(mark) + len(mark)
        found, self.came = self.came[:end], self.came[end:]
        return found


def alone(connection, window):
    for n in range(100):
        head = f"PUT /v0/entity?id=key-{window}-{n} HTTP/1.1\r\nHost: localhost\r\n"
        connection.send(f"{head}Content-Length: {len(VALUE)}\r\n\r\n{VALUE}")
        answer = connection.until(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 201"), answer


def together(connection, window):
    lines = (f'{{"key":"key-{window}-{n}","value":"{VALUE}"}}\n' for n in range(100))
    body = "".join(lines)
    head = "POST /v0/batch HTTP/1.1\r\nHost: localhost\r\n"
    connection.send(f"{head}Content-Length: {len(body)}\r\n\r\n{body}")
    connection.until(b"\r\n\r\n")
    answer = connection.until(b"Dendra-Batch: complete; items=100\r\n\r\n")
    assert answer.count(b'"status":201') == 100, answer


# So many times a window, so that each is some tenths of a second.
TIMES = {alone: 40, together: 800}


def measure(pids, port):
    until = time.monotonic() + 60
    while True:
        try:
            connection = Connection(port)
            together(connection, "warm")
            break
        except (OSError, AssertionError):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
    costs = {alone: [], together: []}
    for pair in range(PAIRS + 1):
        for kind in (alone, together) if pair % 2 else (together, alone):
            before = cpu_s(pids)
            for window in range(TIMES[kind]):
                kind(connection, window)
            cost_ms = (cpu_s(pids) - before) / TIMES[kind] * 1000
            if pair > 0:
                costs[kind].append(cost_ms)
    for kind, found in costs.items():
        shown = " ".join(f"{cost:.2f}" for cost in found)
        print(f"{kind.__name__}: {shown}; median {statistics.median(found):.2f} ms")
    ratios = [one / other for one, other in zip(costs[together], costs[alone])]
    print(f"ratio: {statistics.median(ratios):.3f}")


with tempfile.TemporaryDirectory() as folder:
    addresses = [f"127.0.0.1:{port}" for port in ports(MEMBERS)]
    nodes = []
    for at, address in enumerate(addresses):
        flags = ["--data", f"{folder}/{at}", "--listen", address, "--admin", "off"]
        if MEMBERS > 1:
            flags += ["--self", address, "--cluster", ",".join(addresses)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        nodes.append(subprocess.Popen([BINARY, "serve", *flags], **quiet))
    try:
        measure([node.pid for node in nodes], int(addresses[0].rsplit(":", 1)[1]))
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait()
