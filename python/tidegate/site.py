"""A site on loopback that records its requests and may have a wall."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar, get_args

from tidegate import documented
from tidegate.documented import DocumentedWall
from tidegate.walls import Block, Wall, WallName

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

#: Each site gets an address of its own, so that rules can tell them apart: 127.77.0.1, ...
_addresses = itertools.count(1)

_TEXT = (
    "<p>The harbour of this small town has been in use for four hundred years. Fishing boats leave"
    " before sunrise and come back at noon, when the market opens on the quay.</p>"
) * 3
_CAPTCHA = (
    "<!doctype html><html><head><title>Access to this page has been denied</title></head><body>"
    "<h1>Press &amp; Hold to confirm you are a human (and not a bot).</h1>"
    "<div id=\"px-captcha\"></div><script>window._pxAppId='PXtest';</script>"
    '<script src="https://captcha.px-cdn.net/PXtest/captcha.js"></script></body></html>'
)


@dataclass(frozen=True)
class Request:
    """A request as the site received it."""

    #: Seconds since the site started.
    at: float
    method: str
    path: str
    #: Names in lower case.
    headers: Mapping[str, str]
    #: The site's answer; 0 if it closed the connection without one.
    status: int
    #: Whether the wall refused it.
    blocked: bool


@dataclass(frozen=True)
class Page:
    """What a site answers for one path."""

    body: str | bytes = ""
    status: int = 200
    headers: Mapping[str, str] | None = None


class Site:
    """An HTTP server on a loopback address of its own. Every path is a page.

    `pages` replaces the page of a path. `/` links to `links` pages.
    """

    def __init__(
        self,
        name: str,
        wall: str | Wall | DocumentedWall | None = None,
        *,
        links: int = 20,
        tls: ssl.SSLContext | None = None,
        **wall_settings: float,
    ) -> None:
        """Start the site. `wall_settings` are those of the wall's class, such as `rate`.

        `wall` names one of `tidegate.walls` or of `tidegate.documented`.
        """
        if isinstance(wall, str):
            wall = _named(wall, wall_settings)
        self.name = name
        self.wall = wall
        self.links = links
        self.pages: dict[str, Page] = {}
        self._requests: list[Request] = []
        self._lock = threading.Lock()
        self._started = time.monotonic()
        number = next(_addresses)
        self.host = f"127.77.{number // 250}.{number % 250 + 1}"
        handler = type("Handler", (_Handler,), {"site": self})
        self._server = _Server((self.host, 0), handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port: int = self._server.server_address[1]
        self.url = f"{'https' if tls else 'http'}://{self.host}:{self.port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.daemon = True
        self._thread.start()

    @property
    def requests(self) -> list[Request]:
        """The requests so far, in the order of their arrival."""
        with self._lock:
            return list(self._requests)

    def max_rate(self, window: float = 1.0) -> float:
        """Return the highest rate, in requests per second, over any `window` seconds.

        n requests are n - 1 intervals, so a crawler that keeps to 3 requests per second has a
        maximum of 3.
        """
        return max_rate([request.at for request in self.requests], window)

    def stop(self) -> None:
        """Stop the site. Its requests stay readable."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, method: str, path: str, headers: Mapping[str, str]) -> Page:
        with self._lock:
            now = time.monotonic()
            block = self.wall.answer(now) if self.wall else None
            page = _blocked(block) if block else self._page(path)
            if self.wall:
                page = replace(page, headers={**(page.headers or {}), **self.wall.fields(now)})
            self._requests.append(
                Request(now - self._started, method, path, headers, page.status, block is not None)
            )
        return page

    def _page(self, path: str) -> Page:
        page = self.pages.get(path)
        if page is not None:
            return page
        links = ""
        if path == "/":
            links = "".join(f'<a href="/page/{n}">{n}</a> ' for n in range(1, self.links + 1))
        return Page(
            f"<!doctype html><html><head><title>{self.name}</title></head>"
            f"<body><h1>{path}</h1>{_TEXT}{links}</body></html>"
        )


def max_rate(times: list[float], window: float = 1.0) -> float:
    """Return the highest rate of `times` (seconds, ascending) over any `window` seconds."""
    most = start = 0
    for end, time_ in enumerate(times):
        while time_ - times[start] > window:
            start += 1
        most = max(most, end - start)
    return most / window


def _named(name: str, settings: Mapping[str, float]) -> Wall | DocumentedWall:
    kinds = get_args(WallName)
    if name in kinds:
        return Wall(name, **settings)  # type: ignore[arg-type]
    if name in documented.names():
        return DocumentedWall(name, **settings)  # type: ignore[arg-type]
    raise ValueError(f"{name!r} is not a wall: {', '.join((*kinds, *documented.names()))}")


def _blocked(block: Block) -> Page:
    headers = {"Retry-After": str(block.retry_after)} if block.retry_after else {}
    body = _CAPTCHA if block.captcha else f"<html><body>{_TEXT}</body></html>"
    return Page(body, block.status, headers)


class _Server(ThreadingHTTPServer):
    request_queue_size = 256

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore it: a client that leaves is no error of a test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    #: Without it, Nagle's algorithm delays each answer by the client's delayed acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1
    site: ClassVar[Site]

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length:
            self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        page = self.site._answer(self.command, self.path, headers)  # noqa: SLF001
        if page.status == 0:
            self.close_connection = True
            return
        body = page.body.encode() if isinstance(page.body, str) else page.body
        fields = {"Content-Type": "text/html; charset=utf-8", **(page.headers or {})}
        self.send_response(page.status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _serve  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing: requests are recorded."""
