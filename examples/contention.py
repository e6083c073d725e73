#!/usr/bin/env python3
"""Clients that increment one counter by compare-and-set, on Dendra or on etcd.

    contention.py [--etcd] [--clients 16] [--seconds 6] [--pids PID,PID,PID] URL [URL ...]

Each client has one connection, to one URL. It writes the value that it knows plus one, under the condition that the
key still has the version that it knows. A refused write brings the value that is there. The last line compares the
counter with the number of writes that were acknowledged: they are equal when no outcome was unknown.
"""
import argparse
import base64
import collections
import http.client
import json
import os
import threading
import time
from urllib.parse import urlsplit

KEY = "contention"


class Dendra:
    def __init__(self, url):
        self.http = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)

    def ask(self, method, headers, body=None):
        self.http.request(method, "/v0/entity?id=" + KEY, body=body, headers=headers)
        answer = self.http.getresponse()
        return answer, answer.read()

    def set(self, value):
        answer, body = self.ask("PUT", {}, str(value))
        assert answer.status == 201, body

    def get(self):
        answer, body = self.ask("GET", {})
        return answer.headers["ETag"], int(body)

    def swap(self, version, value):
        """What happened, and what the key holds now if the server said it."""
        headers = {"If-Match": version, "Prefer": "return=representation"}
        answer, body = self.ask("PUT", headers, str(value))
        if answer.status == 201:
            return "stored", (answer.headers["ETag"], value)
        if answer.status == 412:
            told = answer.headers["Preference-Applied"] is not None
            return "refused", (answer.headers["ETag"], int(body)) if told else None
        is_unknown = "outcome=unknown" in answer.headers.get("Dendra-Receipt", "")
        return "unknown" if is_unknown else f"{answer.status}", None


class Etcd:
    """The gateway that speaks HTTP and JSON."""

    def __init__(self, url):
        self.http = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)

    def ask(self, path, body):
        self.http.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(self.http.getresponse().read())

    @staticmethod
    def encode(text):
        return base64.b64encode(str(text).encode()).decode()

    @staticmethod
    def known(answer):
        pair = answer["kvs"][0]
        return pair["mod_revision"], int(base64.b64decode(pair["value"]))

    def set(self, value):
        self.ask("/v3/kv/put", {"key": self.encode(KEY), "value": self.encode(value)})

    def get(self):
        return self.known(self.ask("/v3/kv/range", {"key": self.encode(KEY)}))

    def swap(self, version, value):
        key = self.encode(KEY)
        condition = {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": version}
        answer = self.ask("/v3/kv/txn", {
            "compare": [condition],
            "success": [{"request_put": {"key": key, "value": self.encode(value)}}],
            "failure": [{"request_range": {"key": key}}],
        })
        if answer.get("succeeded"):
            return "stored", (answer["header"]["revision"], value)
        if "responses" in answer:
            return "refused", self.known(answer["responses"][0]["response_range"])
        return "unknown", None


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("urls", nargs="+")
    parser.add_argument("--etcd", action="store_true")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--pids", default="", help="of the members, for their CPU time")
    options = parser.parse_args()
    store = Etcd if options.etcd else Dendra
    pids = [pid for pid in options.pids.split(",") if pid]

    store(options.urls[0]).set(0)
    counts = collections.Counter()
    lock = threading.Lock()
    end = time.monotonic() + options.seconds

    def increment(url):
        client, mine, known = store(url), collections.Counter(), None
        while time.monotonic() < end:
            if known is None:
                known = client.get()
                mine["reads"] += 1
            outcome, known = client.swap(known[0], known[1] + 1)
            mine[outcome] += 1
        with lock:
            counts.update(mine)

    began, used = time.monotonic(), cpu_seconds(pids)
    urls = [options.urls[at % len(options.urls)] for at in range(options.clients)]
    threads = [threading.Thread(target=increment, args=(url,)) for url in urls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, used = time.monotonic() - began, cpu_seconds(pids) - used

    stored = max(counts["stored"], 1)
    attempts = sum(counts.values()) - counts["reads"]
    print(f"{stored / took:.0f} increments a second, {attempts / stored:.1f} attempts and "
          f"{counts['reads'] / stored:.2f} reads each, {1e3 * used / stored:.2f} ms of CPU each")
    print(f"outcomes {dict(counts)}")
    print(f"the counter is {store(options.urls[0]).get()[1]}, {counts['stored']} were acknowledged")


if __name__ == "__main__":
    main()
