"""The scheduler's queue: requests to a paused site stay in it, and Scrapy crawls other sites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.pqueues import DownloaderAwarePriorityQueue, DownloaderInterface

from scrapy_tidegate.pauses import pauses_of
from scrapy_tidegate.turns import turns_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy.crawler import Crawler
    from scrapy.http import Request


class _OpenSlots(DownloaderInterface):
    """Offers only slots that are not paused and have room."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._pauses = pauses_of(crawler)
        self._turns = turns_of(crawler)

    def stats(self, possible_slots: Iterable[str]) -> list[tuple[int, str]]:
        return [
            (active, slot)
            for active, slot in super().stats(possible_slots)
            if active < self._room(slot) and not self._is_paused(slot)
        ]

    def _is_paused(self, slot: str) -> bool:
        return self._turns.is_awaited(slot) or self._pauses.remaining(slot) > 0

    def _room(self, slot: str) -> int:
        """Return how many requests fill a site's connections; more would only take slots."""
        known = self.downloader.slots.get(slot)
        room: int = known.concurrency if known else self.downloader.domain_concurrency
        return room


class TidegateQueue(DownloaderAwarePriorityQueue):
    """A `DownloaderAwarePriorityQueue` that skips paused sites."""

    def __init__(self, crawler: Crawler, *args: Any, **kwargs: Any) -> None:
        """Create the queue of a crawl."""
        super().__init__(crawler, *args, **kwargs)
        self._downloader_interface = _OpenSlots(crawler)
        self._queued = pauses_of(crawler).queued
        self._turns = turns_of(crawler)
        self._turns.sites = self.pqueues

    def push(self, request: Request) -> None:
        """Keep a request until it is its turn."""
        super().push(request)
        self._turns.queued(request)

    def pop(self) -> Request | None:
        """Return the next request to a site that is not paused."""
        request: Request | None = super().pop()
        if request is not None:
            self._queued.add(request)
        return request
