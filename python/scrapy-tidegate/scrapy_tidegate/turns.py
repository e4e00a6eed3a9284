"""Asks the proxy when queued requests could be sent, before they take a slot."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy_tidegate import loop
from scrapy_tidegate.api import MOST_URLS, Api, ApiError
from scrapy_tidegate.pauses import pauses_of

if TYPE_CHECKING:
    from collections.abc import Container

    from scrapy.crawler import Crawler
    from scrapy.http import Request

logger = logging.getLogger(__name__)

_of_crawlers: WeakKeyDictionary[Crawler, Turns] = WeakKeyDictionary()

#: A request that could be sent within this time may take a slot, so that the proxy stays busy.
NEAR = 2.0
#: How long a site waits for its first answer. A slow proxy must not stop the crawl.
FIRST = 1.0
#: Most scopes of one site in a call. A site has few, by path.
SCOPES = 4
#: The scope of a URL that the proxy has not answered yet.
UNKNOWN = "?"


def turns_of(crawler: Crawler) -> Turns:
    """Return the turns of a crawl."""
    turns = _of_crawlers.get(crawler)
    if turns is None:
        turns = _of_crawlers[crawler] = Turns(crawler)
    return turns


class Turns:
    """The proxy's answers for the sites in the scheduler.

    One call asks for all sites that have queued requests, once a second and at once for a site that
    is new. A site with no request that could go soon is paused until one could.
    """

    def __init__(self, crawler: Crawler) -> None:
        """Read the settings; without an admin port there are no calls."""
        settings = crawler.settings
        self._api: Api | None = None
        if settings["TIDEGATE_ADMIN"]:
            self._api = Api(settings["TIDEGATE_ADMIN"], settings["TIDEGATE_ADMIN_TOKEN"])
        self._proxy: str = settings["TIDEGATE_PROXY"]
        self._max_pause = settings.getfloat("TIDEGATE_MAX_PAUSE")
        self._stats = crawler.stats
        self._pauses = pauses_of(crawler)
        #: By site: one URL of each scope that is known, and the latest URL.
        self._urls: dict[str, dict[str, str]] = {}
        #: Sites that wait for their first answer, and until when.
        self._new: dict[str, float] = {}
        self._is_asking = False
        #: The sites that have requests in the scheduler, if our queue is in use.
        self.sites: Container[str] | None = None

    def queued(self, request: Request) -> None:
        """Record a request that went into the scheduler."""
        if self._api is None or request.meta.get("proxy", self._proxy) is None:
            return
        slot = self._pauses.slot(request)
        urls = self._urls.get(slot)
        if urls is None:
            urls = self._urls[slot] = {}
            self._new[slot] = time.monotonic() + FIRST
            loop.start(self._ask_about_new())
        urls[UNKNOWN] = request.url

    def is_awaited(self, slot: str) -> bool:
        """Return whether the first answer for a site is still pending."""
        until = self._new.get(slot)
        return until is not None and time.monotonic() < until

    async def ask(self) -> None:
        """Ask about all sites with queued requests, and forget the others."""
        for slot in [slot for slot in self._urls if not self._is_queued(slot)]:
            del self._urls[slot]
            self._new.pop(slot, None)
        await self._ask(list(self._urls))

    async def _ask_about_new(self) -> None:
        # Requests that are queued at the same time share one call.
        await loop.sleep(0)
        if self._new and not self._is_asking:
            await self._ask(list(self._new))

    async def _ask(self, slots: list[str]) -> None:
        api = self._api
        if api is None or api.is_silent or self._is_asking:
            return
        asked = [(slot, url) for slot in slots for url in self._urls[slot].values()]
        self._is_asking = True
        try:
            for start in range(0, len(asked), MOST_URLS):
                await self._ask_part(api, asked[start : start + MOST_URLS])
        except ApiError as error:
            self._count("tidegate/api_errors", 1)
            logger.warning("Tidegate's admin port: %s", error)
            self._new.clear()
        finally:
            self._is_asking = False
        if self._new:
            loop.start(self._ask_about_new())

    async def _ask_part(self, api: Api, asked: list[tuple[str, str]]) -> None:
        urls = [url for _, url in asked]
        results = await loop.in_thread(lambda: api.when(urls))
        self._count("tidegate/asked", len(urls))
        waits: dict[str, list[float]] = {}
        for (slot, url), result in zip(asked, results):
            waits.setdefault(slot, []).append(self._wait(result))
            known = self._urls.get(slot)
            if known is not None and result.get("scope") and len(known) <= SCOPES:
                known[result["scope"]] = url
        for slot, all_waits in waits.items():
            self._new.pop(slot, None)
            # Another scope of the site may be open.
            wait = min(all_waits)
            if wait:
                self._count("tidegate/put_off", 1)
            self._pauses.put_off(slot, wait)

    def _wait(self, result: dict[str, Any]) -> float:
        """Return for how long a request should stay in the scheduler."""
        if result.get("in_ms") is None:
            return 0.0
        wait = float(result["in_ms"]) / 1000
        # The spider decides about a longer one, after the proxy has refused it.
        if wait > self._max_pause:
            return 0.0
        # Requests wait in the proxy for a token, but not for the end of a cooldown.
        return wait if result["reason"] == "cooldown" else max(wait - NEAR, 0.0)

    def _is_queued(self, slot: str) -> bool:
        return self.sites is None or slot in self.sites

    def _count(self, name: str, by: int) -> None:
        if self._stats is not None:
            self._stats.inc_value(name, by)
