"""Tidegate for `httpx`: `client = tidegate.httpx.client()`, or `async_client()`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx

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


class _Settings:
    """The common part of both transports."""

    def __init__(self, admin: str | None, token: str, max_pause: float) -> None:
        self._api = Api(admin, token) if admin else None
        self._max_pause = max_pause

    def wait(self, response: httpx.Response) -> float | None:
        return refusal_wait(response.headers, self._max_pause)

    def needs_judging(self, request: httpx.Request, response: httpx.Response) -> bool:
        return self._api is not None and is_unjudged(str(request.url), response.headers)

    def judge(self, request: httpx.Request, response: httpx.Response) -> None:
        if self._api is not None:
            fields = response.headers.multi_items()
            url, status = str(request.url), response.status_code
            found = self._api.verdict(url, status, fields, response.content, request.method)
            response.headers.update(found)


class TidegateTransport(httpx.BaseTransport):
    """Sends requests through the proxy, waits after a refusal, and has HTTPS responses judged.

    A response over `https://` is read whole before the caller gets it.
    """

    def __init__(
        self,
        proxy: str = PROXY,
        admin: str | None = ADMIN,
        *,
        token: str = "",
        max_pause: float = MAX_PAUSE,
        **settings: Any,
    ) -> None:
        """Take the proxy's URLs; `max_pause` is the longest wait after a refusal."""
        self._inner = httpx.HTTPTransport(proxy=proxy, **settings)
        self._settings = _Settings(admin, token, max_pause)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, as often as the proxy refuses it for a while."""
        while True:
            try:
                response = self._inner.handle_request(request)
            except httpx.ProxyError as error:
                if not is_refused_tunnel(error):
                    raise
                time.sleep(DEFAULT_PAUSE)
                continue
            wait = self._settings.wait(response)
            if wait is None:
                break
            response.close()
            time.sleep(wait)
        if self._settings.needs_judging(request, response):
            response.read()
            self._settings.judge(request, response)
        return response

    def close(self) -> None:
        """Close all connections."""
        self._inner.close()


class AsyncTidegateTransport(httpx.AsyncBaseTransport):
    """`TidegateTransport` for `httpx.AsyncClient`."""

    def __init__(
        self,
        proxy: str = PROXY,
        admin: str | None = ADMIN,
        *,
        token: str = "",
        max_pause: float = MAX_PAUSE,
        **settings: Any,
    ) -> None:
        """Take the proxy's URLs; `max_pause` is the longest wait after a refusal."""
        self._inner = httpx.AsyncHTTPTransport(proxy=proxy, **settings)
        self._settings = _Settings(admin, token, max_pause)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, as often as the proxy refuses it for a while."""
        while True:
            try:
                response = await self._inner.handle_async_request(request)
            except httpx.ProxyError as error:
                if not is_refused_tunnel(error):
                    raise
                await asyncio.sleep(DEFAULT_PAUSE)
                continue
            wait = self._settings.wait(response)
            if wait is None:
                break
            await response.aclose()
            await asyncio.sleep(wait)
        if self._settings.needs_judging(request, response):
            await response.aread()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._settings.judge, request, response)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


def _timeout(max_wait: float) -> httpx.Timeout:
    # The pool is a second queue, which fills up while the proxy holds.
    return httpx.Timeout(10.0, read=max_wait + SITE_TIME, pool=None)


def client(
    proxy: str = PROXY, admin: str | None = ADMIN, *, max_wait: float = MAX_WAIT, **settings: Any
) -> httpx.Client:
    """Return a client that sends everything through Tidegate; see `TidegateTransport`."""
    transport = TidegateTransport(proxy, admin, **settings)
    return httpx.Client(transport=transport, timeout=_timeout(max_wait), trust_env=False)


def async_client(
    proxy: str = PROXY, admin: str | None = ADMIN, *, max_wait: float = MAX_WAIT, **settings: Any
) -> httpx.AsyncClient:
    """Return an asynchronous client that sends everything through Tidegate."""
    transport = AsyncTidegateTransport(proxy, admin, **settings)
    return httpx.AsyncClient(transport=transport, timeout=_timeout(max_wait), trust_env=False)
