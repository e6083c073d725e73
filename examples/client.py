#!/usr/bin/env python3
"""Put, get, and add to a list by compare-and-set, with the standard library alone.

    examples/client.py http://127.0.0.1:8080 apples

DENDRA_TOKEN_FILE or DENDRA_TOKEN has a token, and DENDRA_CA names the CA of https://.
"""
import http.client
import os
import ssl
import sys
import time
from urllib.parse import quote, urlsplit

ATTEMPTS = 20


class Unknown(Exception):
    """The write may have been applied, or may still be."""


class Refused(Exception):
    """The node said no."""


def token():
    if path := os.environ.get("DENDRA_TOKEN_FILE"):
        with open(path) as file:
            return file.read().strip()
    return os.environ.get("DENDRA_TOKEN", "")


def connect(url):
    place = urlsplit(url)
    if place.scheme == "https":
        trusted = ssl.create_default_context(cafile=os.environ.get("DENDRA_CA"))
        return http.client.HTTPSConnection(place.netloc, timeout=10, context=trusted)
    return http.client.HTTPConnection(place.netloc, timeout=10)


def request(url, method, key, body=None, headers=None):
    """Sends a refusal that changed nothing again, after the pause that the node asks for."""
    bearer = token()
    headers = (headers or {}) | ({"Authorization": "Bearer " + bearer} if bearer else {})
    for _ in range(ATTEMPTS):
        connection = connect(url)
        try:
            connection.request(method, "/v0/entity?id=" + quote(key, safe=""), body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unknown(f"no answer: {error}") from error
        finally:
            connection.close()
        if answer.status not in (503, 504, 507):
            return answer.status, answer.headers.get("ETag"), content
        if "outcome=not-applied" not in answer.headers.get("Dendra-Receipt", ""):
            raise Unknown(content.decode())
        time.sleep(int(answer.headers.get("Retry-After", "1")))
    raise Refused(content.decode())


def add(url, key, line):
    """The key's value is a list of lines, and `line` is in it once when this returns."""
    for _ in range(ATTEMPTS):
        try:
            status, etag, content = request(url, "GET", key)
            lines = content.decode().splitlines() if status == 200 else []
            if line in lines:
                return
            if status not in (200, 404):
                raise Refused(content.decode())
            condition = {"If-Match": etag} if status == 200 else {"If-None-Match": "*"}
            body = "".join(each + "\n" for each in lines + [line])
            status, _, content = request(url, "PUT", key, body.encode(), condition)
        except Unknown:
            continue  # Read again. Both writes have the condition, so only one can apply.
        if status == 201:
            return
        if status != 412:  # 412: another client was faster, so read again.
            raise Refused(content.decode())
    raise Refused(f"{ATTEMPTS} attempts were not enough")


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: examples/client.py URL ITEM, as in http://127.0.0.1:8080 apples")
    url, item = sys.argv[1:]
    status, _, content = request(url, "PUT", "greeting", b"hello")
    if status != 201:
        raise Refused(content.decode())
    print("greeting:", request(url, "GET", "greeting")[2].decode())

    add(url, "cart", item)
    print("cart:", *request(url, "GET", "cart")[2].decode().splitlines())


if __name__ == "__main__":
    main()
