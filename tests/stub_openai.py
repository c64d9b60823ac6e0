"""A stub of an OpenAI-compatible endpoint on loopback, for tests.

``StubOpenAI`` answers ``POST /v1/chat/completions`` in a thread of its own, so that tests, Ray
replicas and drivers can all call it. ``answer`` decides each reply from the parsed request and its
number (from 0): a ``Reply`` says text, status, headers, delay, or a raw body. ``per_second`` puts a
rate limit (429 with Retry-After) in front of it. Every request is recorded with its time.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the stub answers to one request."""

    text: str | None = ""
    status: int = 200
    finish_reason: str = "stop"
    refusal: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    error: dict[str, Any] | None = None
    """Body of an error, as the ``error`` object."""
    raw: bytes | None = None
    """Sent as the body, whatever it is."""
    hang_up: bool = False
    """Close the connection without an answer."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request as it came in."""

    at: float
    body: dict[str, Any]
    authorization: str
    status: int
    """What it was answered with; 0 for a connection that was closed."""


Answer = Callable[[dict[str, Any], int], Reply]


class StubOpenAI:
    """The endpoint; use as a context manager."""

    def __init__(
        self,
        answer: Answer = lambda body, number: Reply(text="ok"),
        *,
        per_second: int | None = None,
        retry_after: Literal["seconds", "date", "none"] = "seconds",
    ) -> None:
        self.seen: list[Seen] = []
        self.most_in_flight = 0
        self._in_flight = 0
        self._answer = answer
        self._per_second = per_second
        self._retry_after = retry_after
        self._passed: deque[float] = deque()
        self._lock = threading.Lock()
        self._number = 0
        self._stopping = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def base_url(self) -> str:
        """What a client's ``base_url`` must be."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)

    @property
    def num_ok(self) -> int:
        """How many requests were answered with 200."""
        return sum(s.status == 200 for s in self.seen)

    def handle(self, body: dict[str, Any], authorization: str) -> Reply:
        """Decide the reply to one request, record it, and wait as long as it says."""
        with self._lock:
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
            reply = self._limited()
            if reply is None:
                reply = self._answer(body, self._number)
                self._number += 1
            status = 0 if reply.hang_up else reply.status
            self.seen.append(
                Seen(at=time.monotonic(), body=body, authorization=authorization, status=status)
            )
        self._stopping.wait(reply.delay_s)
        with self._lock:
            self._in_flight -= 1
        return reply

    def _limited(self) -> Reply | None:
        """Return the 429 when the last second is full."""
        if self._per_second is None:
            return None
        now = time.monotonic()
        while self._passed and now - self._passed[0] >= 1.0:
            self._passed.popleft()
        if len(self._passed) < self._per_second:
            self._passed.append(now)
            return None
        headers = {
            "seconds": {"Retry-After": "1"},
            "date": {"Retry-After": formatdate(time.time() + 1.999, usegmt=True)},
            "none": {},
        }[self._retry_after]
        return Reply(status=429, headers=headers, error={"message": "slow down"})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about clients that went away."""


def _handler(stub: StubOpenAI) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(length))
            reply = stub.handle(body, self.headers.get("Authorization", ""))
            if reply.hang_up:
                self.close_connection = True
                return
            data = reply.raw if reply.raw is not None else json.dumps(_body(body, reply)).encode()
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Keep the test output clean."""

    return Handler


def _body(request: dict[str, Any], reply: Reply) -> dict[str, Any]:
    if reply.error is not None or reply.status != 200:
        return {"error": reply.error or {"message": f"status {reply.status}"}}
    message = {"role": "assistant", "content": reply.text, "refusal": reply.refusal}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }
