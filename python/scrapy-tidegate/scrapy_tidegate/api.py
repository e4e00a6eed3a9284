"""Calls to Tidegate's admin port. They block, so they run in a thread."""

from __future__ import annotations

import base64
import http.client
import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from scrapy.http import Request, Response

#: Start of a body that is judged, as `inspect.bytes` of the rule file.
PAGE_BYTES = 16 * 1024
#: The same for 4xx, 5xx and 202, as `inspect.error_bytes`.
ERROR_BYTES = 128 * 1024
#: Most URLs in one call.
MOST_URLS = 1000
#: Longest wait for a response. The port is near, and a crawl must not wait for it.
TIMEOUT = 5.0
#: After a failure no call is made for this time.
BACK_OFF = 5.0


class ApiError(Exception):
    """The admin port is unreachable, or refuses the request."""


class Api:
    """The admin port of one member."""

    def __init__(self, url: str, token: str = "") -> None:
        """Store the address of the port; nothing is sent yet."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"TIDEGATE_ADMIN: {url!r} is not a URL such as http://127.0.0.1:9128")
        secure = parts.scheme == "https"
        self._connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._host, self._port = parts.hostname, parts.port
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._silent_until = 0.0

    @property
    def is_silent(self) -> bool:
        """Whether a call has failed recently, so that the next one is skipped."""
        return time.monotonic() < self._silent_until

    def status(self) -> dict[str, Any]:
        """Return `GET /api/v1/status`."""
        return self._call("GET", "/api/v1/status", None)

    def when(self, urls: list[str]) -> list[dict[str, Any]]:
        """Return when requests for these URLs could be sent (`POST /api/v1/when`)."""
        results: list[dict[str, Any]] = self._call("POST", "/api/v1/when", {"urls": urls})[
            "results"
        ]
        return results

    def judge(self, request: Request, response: Response) -> dict[str, Any]:
        """Have a response judged and its verdict counted (`POST /api/v1/judge`)."""
        is_error = (
            response.status >= http.client.BAD_REQUEST or response.status == http.client.ACCEPTED
        )
        most = ERROR_BYTES if is_error else PAGE_BYTES
        headers = {
            name.decode("latin-1"): [value.decode("latin-1") for value in values]
            for name, values in response.headers.items()
        }
        return self._call(
            "POST",
            "/api/v1/judge",
            {
                "url": request.url,
                "method": request.method,
                "status": response.status,
                "headers": headers,
                "body_base64": base64.b64encode(response.body[:most]).decode(),
                "complete": len(response.body) <= most,
                "report": True,
            },
        )

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        connection = self._connect(self._host, self._port, timeout=TIMEOUT)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, self._headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._silent_until = time.monotonic() + BACK_OFF
            raise ApiError(f"{path}: {error}") from error
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise ApiError(f"{path}: {answer.status} {content[:500].decode(errors='replace')}")
        parsed: dict[str, Any] = json.loads(content)
        return parsed
