"""Asks the proxy every second which scopes cool down, and when requests could be sent."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured

from scrapy_tidegate import loop
from scrapy_tidegate.api import Api, ApiError
from scrapy_tidegate.pauses import pauses_of
from scrapy_tidegate.turns import turns_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from typing_extensions import Self

logger = logging.getLogger(__name__)

#: Seconds between two reads of the status.
INTERVAL = 1.0


class StatusExtension:
    """Keeps the pauses up to date while the spider is open."""

    def __init__(self, crawler: Crawler) -> None:
        """Read the settings; without an admin port there is nothing to do."""
        settings = crawler.settings
        if not settings["TIDEGATE_ADMIN"] or crawler.stats is None:
            raise NotConfigured
        self._api = Api(settings["TIDEGATE_ADMIN"], settings["TIDEGATE_ADMIN_TOKEN"])
        self._stats = crawler.stats
        self._pauses = pauses_of(crawler)
        self._turns = turns_of(crawler)
        self._is_open = False
        self._counted: dict[tuple[str, str], int] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Follow the spider's signals."""
        extension = cls(crawler)
        crawler.signals.connect(extension.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(extension.spider_closed, signal=signals.spider_closed)
        return extension

    def spider_opened(self) -> None:
        """Start reading the status."""
        self._is_open = True
        loop.start(self._follow())

    def spider_closed(self) -> None:
        """Stop."""
        self._is_open = False

    async def _follow(self) -> None:
        has_failed = False
        while self._is_open:
            try:
                status = await loop.in_thread(self._api.status)
            except ApiError as error:
                self._stats.inc_value("tidegate/api_errors")
                if not has_failed:
                    logger.warning("Tidegate's admin port: %s", error)
                has_failed = True
            else:
                has_failed = False
                self._take(status["scopes"])
                await self._turns.ask()
            await loop.sleep(INTERVAL)

    def _take(self, scopes: list[dict[str, object]]) -> None:
        self._pauses.set_cooling(scopes)
        for scope in scopes:
            rule, key, epoch = str(scope["rule"]), str(scope["key"]), scope["epoch"]
            if scope["state"] != "cooling" or not isinstance(epoch, int):
                continue
            if self._counted.get((rule, key)) != epoch and self._pauses.knows(rule, key):
                self._counted[rule, key] = epoch
                self._stats.inc_value("tidegate/cooldowns")
