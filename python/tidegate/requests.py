"""Tidegate for `requests`: `session = tidegate.requests.session()`."""

from __future__ import annotations

import os
import time
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from tidegate.api import (
    ADMIN,
    DEFAULT_PAUSE,
    MAX_PAUSE,
    MAX_WAIT,
    PROXY,
    SITE_TIME,
    Api,
    is_refused_tunnel,
    is_unjudged,
    refusal_wait,
)


class TidegateAdapter(HTTPAdapter):
    """Sends requests through the proxy, waits after a refusal, and has HTTPS responses judged.

    A response over `https://` gets its verdict when its body is read, so a streamed one gets none.
    """

    def __init__(
        self,
        proxy: str = PROXY,
        admin: str | None = ADMIN,
        *,
        token: str = "",
        max_wait: float = MAX_WAIT,
        max_pause: float = MAX_PAUSE,
        **settings: Any,
    ) -> None:
        """Take the URLs, the rule file's `max_wait`, and the longest wait after a refusal."""
        super().__init__(**settings)
        self._proxies = {"http": proxy, "https": proxy}
        self._api = Api(admin, token) if admin else None
        self._timeout = (10.0, max_wait + SITE_TIME)
        self._max_pause = max_pause

    def send(  # noqa: PLR0913, PLR0917
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> requests.Response:
        """Send a request, as often as the proxy refuses it for a while."""
        _ = proxies
        if verify is True:
            verify = _trusted_certificates()
        while True:
            try:
                response = super().send(
                    request, stream, timeout or self._timeout, verify, cert, self._proxies
                )
            except requests.exceptions.ProxyError as error:
                if not is_refused_tunnel(error):
                    raise
                time.sleep(DEFAULT_PAUSE)
                continue
            wait = refusal_wait(response.headers, self._max_pause)
            if wait is None:
                return response if stream else self._judged(request, response)
            response.close()
            time.sleep(wait)

    def _judged(
        self, request: requests.PreparedRequest, response: requests.Response
    ) -> requests.Response:
        url = request.url or ""
        if self._api and is_unjudged(url, response.headers):
            fields = response.headers.items()
            response.headers.update(
                self._api.verdict(
                    url, response.status_code, fields, response.content, request.method or "GET"
                )
            )
        return response


def _trusted_certificates() -> str | bool:
    """Return the bundle that `requests` itself takes from the environment, or its own."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if os.environ.get(name):
            return os.environ[name]
    return True


def session(proxy: str = PROXY, admin: str | None = ADMIN, **settings: Any) -> requests.Session:
    """Return a session that sends everything through Tidegate; see `TidegateAdapter`."""
    made = requests.Session()
    # Proxies of the environment, and logins for them, are ignored.
    made.trust_env = False
    adapter = TidegateAdapter(proxy, admin, **settings)
    made.mount("http://", adapter)
    made.mount("https://", adapter)
    return made
