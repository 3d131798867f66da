#!/usr/bin/env python3
"""A lock in Python that `redlock chaos` tests. Nothing has to be installed but Python 3.

    redlock chaos run --scenario failover --subject-command "python3 examples/chaos-python/lock.py"

It is the quorum algorithm of the Redis documentation, and two mistakes to choose from:

    lock.py single        only the first node: two owners after a failover
    lock.py no-validity   a holder never looks at the clock: two owners after a pause of the process

Below the line is what a program needs to be tested. docs/failover.md describes the messages.
"""
import json
import os
import random
import socket
import sys
import threading
import time
import urllib.parse
import uuid
from concurrent.futures import ThreadPoolExecutor

UNLOCK = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class Node:
    """One server: a command at a time, on one connection."""

    def __init__(self, url, timeout):
        self.url, self.timeout = urllib.parse.urlsplit(url), timeout
        self.busy, self.file = threading.Lock(), None

    def call(self, *words):
        with self.busy:
            try:
                if self.file is None:
                    self.connect()
                return self.command(*words)
            except (OSError, ValueError):
                self.file = None  # what comes later would be the reply to this command
                raise

    def connect(self):
        connection = socket.create_connection((self.url.hostname, self.url.port), self.timeout)
        self.file = connection.makefile("rwb")
        if self.url.password:
            self.command("AUTH", urllib.parse.unquote(self.url.password))

    def command(self, *words):
        self.file.write(b"*%d\r\n" % len(words))
        for word in words:
            word = str(word).encode()
            self.file.write(b"$%d\r\n%s\r\n" % (len(word), word))
        self.file.flush()
        line = self.file.readline()
        kind, rest = line[:1], line[1:].strip()
        if kind not in b"+:$-" or not line.endswith(b"\n"):
            raise OSError("the server closed the connection")
        if kind == b"-":
            raise ValueError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2].decode()
        return int(rest) if kind == b":" else rest.decode()


class Held(Exception):
    """Somebody else holds the lock."""


class Lock:
    def __init__(self, urls, ttl, single):
        self.ttl = ttl  # seconds
        self.nodes = [Node(url, ttl / 5) for url in (urls[:1] if single else urls)]
        self.quorum = len(self.nodes) // 2 + 1
        self.pool = ThreadPoolExecutor(4 * len(self.nodes))
        self.closing = False  # nobody acquires any more

    def everywhere(self, *words):
        """Sends a command to all nodes at once: a list of replies, an exception where there is none."""

        def call(node):
            try:
                return node.call(*words)
            except (OSError, ValueError) as failed:
                return failed

        return list(self.pool.map(call, self.nodes))

    def acquire(self, name, timeout):
        """Returns (token, until): the lock is held until that moment of time.monotonic()."""
        deadline = time.monotonic() + timeout
        while True:
            token, began = uuid.uuid4().hex, time.monotonic()
            replies = self.everywhere("SET", name, token, "NX", "PX", int(self.ttl * 1000))
            until = began + self.ttl * 0.99 - 0.002  # for clocks that run at different speeds
            in_time = time.monotonic() < min(until, deadline) and not self.closing
            if replies.count("OK") >= self.quorum and in_time:
                return token, until
            self.release(name, token)
            pause = random.uniform(0.005, 0.05)
            if time.monotonic() + pause >= deadline or self.closing:
                failed = [r for r in replies if isinstance(r, Exception)]
                if len(self.nodes) - len(failed) < self.quorum:
                    raise OSError("no quorum: %s" % failed[0])
                raise Held()
            time.sleep(pause)

    def release(self, name, token):
        replies = self.everywhere("EVAL", UNLOCK, 1, name, token)
        return replies.count(1) >= self.quorum


# ---------------------------------------------------------------------------------------------------------------------


class Client:
    """Reads requests and writes replies, a line of JSON each."""

    def __init__(self, lock, single, believes):
        self.lock, self.single, self.believes = lock, single, believes
        self.leases = {}  # lease: (name, token, until)
        self.writing = threading.Lock()

    def reply(self, **fields):
        with self.writing:
            print(json.dumps(fields), flush=True)

    def acquire(self, id, name, timeout_ms):
        try:
            token, until = self.lock.acquire(name, timeout_ms / 1000)
        except Held:
            return self.reply(id=id, refused=True)
        except OSError as failed:
            return self.reply(id=id, error=str(failed))
        self.leases[token] = (name, token, until)
        # "fence" would be the fencing token, but this lock has none. The owner token is on the nodes, in the key `name`.
        shown = {} if self.single else {"token": token}
        self.reply(id=id, ok=True, lease=token, **shown)

    def valid(self, id, lease):
        held = self.leases.get(lease)
        self.reply(id=id, ok=held is not None and (self.believes or time.monotonic() < held[2]))

    def release(self, id, lease):
        name, token, _ = self.leases.pop(lease)
        self.reply(id=id, ok=self.lock.release(name, token))

    def serve(self):
        threads = []
        for line in sys.stdin:
            request = json.loads(line)
            op = {"acquire": self.acquire, "valid": self.valid, "release": self.release}[request.pop("op")]
            if op == self.valid:
                op(**request)  # at once, whatever the others wait for
            else:
                threads = [t for t in threads if t.is_alive()]
                threads.append(threading.Thread(target=op, kwargs=request, daemon=True))
                threads[-1].start()
        self.lock.closing = True  # the input has ended
        for thread in threads:
            thread.join(1)
        for name, token, _ in list(self.leases.values()):
            self.lock.release(name, token)


def main():
    single = "single" in sys.argv
    urls = os.environ["REDLOCK_CHAOS_URLS"].split(",")
    lock = Lock(urls, int(os.environ["REDLOCK_CHAOS_TTL_MS"]) / 1000, single)
    Client(lock, single, "no-validity" in sys.argv).serve()
    sys.stdout.flush()
    os._exit(0)  # whatever threads still wait for


if __name__ == "__main__":
    main()
