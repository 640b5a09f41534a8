"""A stand-in for the hub on this machine: what it answers for a path, and what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000}


class Hub(ThreadingHTTPServer):
    """`answers`: path -> (status, headers, body); the hub's own status and words for what is not there are those of huggingface.co."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        """For `HF_ENDPOINT`."""
        return f"http://127.0.0.1:{self.server_port}"

    def holds(self, model_id: str, config: Any = CONFIG, revision: str = "main") -> None:
        """A repository with this config.json."""
        body = config if isinstance(config, bytes) else json.dumps(config).encode()
        headers = {"X-Repo-Commit": "c" * 40, "ETag": f'"{len(body)}-{model_id}"'}
        self.answers[f"/{model_id}/resolve/{revision}/config.json"] = (200, headers, body)

    def refuses(self, model_id: str, status: int, code: str) -> None:
        """A repository whose config.json is not given; `code` is the hub's word for why."""
        self.answers[f"/{model_id}/resolve/main/config.json"] = (status, {"X-Error-Code": code}, b"{}")


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        """Answer and remember."""
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        missing = (401, {"X-Error-Code": "RepoNotFound"}, b"{}")
        status, headers, body = self.server.answers.get(self.path, missing)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@contextmanager
def hub() -> Iterator[Hub]:
    """The server while it is needed."""
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
