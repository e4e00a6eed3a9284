"""Shared by the Python clients: the admin port's API, and when to retry a refused request."""

from __future__ import annotations

import base64
import http.client
import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PROXY = "http://127.0.0.1:3128"
ADMIN = "http://127.0.0.1:9128"
#: `max_wait` of a rule file that does not set it.
MAX_WAIT = 120.0
#: The time for the site's response, in addition to the longest hold.
SITE_TIME = 60.0
#: A refusal with a longer wait goes to the caller.
MAX_PAUSE = 3600.0
#: Refusals that end by themselves.
PASSING = frozenset({"limit", "cooldown", "hours", "queue", "store"})
#: The wait if a refusal names none. Clients do not see the fields of a refused CONNECT.
DEFAULT_PAUSE = 5.0
#: Start of a body that is judged: `inspect.bytes`; for 4xx, 5xx and 202 `inspect.error_bytes`.
PAGE_BYTES, ERROR_BYTES = 16 * 1024, 128 * 1024
#: Longest wait for the admin port, and the pause after a failure.
TIMEOUT = BACK_OFF = 5.0


class ApiError(Exception):
    """The admin port is unreachable, or refuses the request."""


def refusal_wait(headers: Mapping[str, str], max_pause: float) -> float | None:
    """Return the seconds after which a refused request may be retried.

    `None` if it was not refused, or if the wait is longer than `max_pause`.
    """
    if headers.get("Tidegate-Refused") not in PASSING:
        return None
    field = headers.get("Retry-After", "")
    wait = max(float(field), 1.0) if field.isdigit() else DEFAULT_PAUSE
    return wait if wait <= max_pause else None


def is_unjudged(url: str, headers: Mapping[str, str]) -> bool:
    """Return whether a response came through a tunnel, so that it has no verdict yet."""
    return url.startswith("https://") and "Tidegate-Verdict" not in headers


def is_refused_tunnel(error: Exception) -> bool:
    """Return whether the proxy refused a CONNECT for a while (429 or 503)."""
    text = str(error)
    return any(f"{status} " in text for status in ("429", "503"))


class Api:
    """The admin port of one member."""

    def __init__(self, url: str = ADMIN, token: str = "") -> None:
        """Store the address of the port; nothing is sent yet."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not a URL such as {ADMIN}")
        secure = parts.scheme == "https"
        self._connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._host, self._port = parts.hostname, parts.port
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._silent_until = 0.0

    def judge(  # noqa: PLR0913
        self,
        url: str,
        status: int,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        *,
        method: str = "GET",
        report: bool = True,
    ) -> dict[str, Any]:
        """Have a response judged by the rules of the proxy (`POST /api/v1/judge`).

        `headers` are those of the response, without `Content-Encoding` if `body` is decoded. With
        `report` the verdict counts towards the cooldown.
        """
        is_error = status >= http.client.BAD_REQUEST or status == http.client.ACCEPTED
        most = ERROR_BYTES if is_error else PAGE_BYTES
        fields: dict[str, list[str]] = {}
        for name, value in headers:
            fields.setdefault(name.lower(), []).append(value)
        asked = {
            "url": url,
            "method": method,
            "status": status,
            "headers": fields,
            "body_base64": base64.b64encode(body[:most]).decode(),
            "complete": len(body) <= most,
            "report": report,
        }
        return self._post("/api/v1/judge", asked)

    def verdict(
        self, url: str, status: int, headers: Iterable[tuple[str, str]], body: bytes, method: str
    ) -> dict[str, str]:
        """Judge and report a response that was decoded; return the proxy's header fields.

        There are none if the admin port is away: a crawl goes on without it.
        """
        if time.monotonic() < self._silent_until:
            return {}
        decoded = [(name, value) for name, value in headers if name.lower() != "content-encoding"]
        try:
            judged = self.judge(url, status, decoded, body, method=method)
        except ApiError:
            self._silent_until = time.monotonic() + BACK_OFF
            return {}
        return {"Tidegate-Verdict": judged["verdict"], "Tidegate-Rule": judged["rule"] or ""}

    def _post(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        connection = self._connect(self._host, self._port, timeout=TIMEOUT)
        try:
            connection.request("POST", path, json.dumps(asked), self._headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(f"{path}: {error}") from error
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise ApiError(f"{path}: {answer.status} {content[:500].decode(errors='replace')}")
        parsed: dict[str, Any] = json.loads(content)
        return parsed
