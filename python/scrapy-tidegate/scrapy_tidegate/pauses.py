"""Which sites are paused, and until when. One instance per crawl."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from scrapy_tidegate import loop

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy.crawler import Crawler
    from scrapy.http import Request

_of_crawlers: WeakKeyDictionary[Crawler, Pauses] = WeakKeyDictionary()

#: Added to each wait, so that a request is not slightly early and refused again.
MARGIN = 0.05


def pauses_of(crawler: Crawler) -> Pauses:
    """Return the pauses of a crawl."""
    pauses = _of_crawlers.get(crawler)
    if pauses is None:
        pauses = _of_crawlers[crawler] = Pauses(crawler)
    return pauses


class Pauses:
    """Pauses of download slots, that is, of sites.

    A slot is paused by a refusal of the proxy, which names its wait, because none of its requests
    could go soon, or because all scopes that its responses came from are in a cooldown.
    """

    def __init__(self, crawler: Crawler) -> None:
        """Start without any pause."""
        #: Requests that go through the proxy.
        self.routed: WeakSet[Request] = WeakSet()
        #: Requests from our queue. They may go back to it; others would return at once.
        self.queued: WeakSet[Request] = WeakSet()
        self._crawler = crawler
        self._refused: dict[str, float] = {}
        self._cooling: dict[tuple[str, str], float] = {}
        self._put_off: dict[str, float] = {}
        self._rules: dict[str, set[str]] = {}
        self._wakes_at: float | None = None

    def slot(self, request: Request) -> str:
        """Return the download slot of a request."""
        engine = self._crawler.engine
        if engine is None:
            raise RuntimeError("a request before the engine has started")
        key: str = engine.downloader.get_slot_key(request)
        return key

    def refused(self, slot: str, wait: float) -> None:
        """Pause a slot for `wait` seconds, because the proxy said so."""
        until = time.monotonic() + wait + MARGIN
        if until > self._refused.get(slot, 0.0):
            self._refused[slot] = until
            self._wake_at(until)

    def put_off(self, slot: str, wait: float) -> None:
        """Pause a slot for `wait` seconds, because none of its requests could be sent earlier.

        0 ends such a pause. The engine looks at the queue in either case.
        """
        now = time.monotonic()
        if wait:
            self._put_off[slot] = now + wait
        else:
            self._put_off.pop(slot, None)
        self._wake_at(now + wait)

    def came_from(self, slot: str, rule: str) -> None:
        """Learn that responses of a slot fall under a rule."""
        self._rules.setdefault(slot, set()).add(rule)

    def set_cooling(self, scopes: Iterable[Mapping[str, Any]]) -> None:
        """Take over the scopes of a status; those that are cooling pause their sites."""
        now = time.monotonic()
        self._cooling = {
            (scope["rule"], scope["key"]): now + scope["remaining_ms"] / 1000 + MARGIN
            for scope in scopes
            if scope["state"] == "cooling"
        }
        if self._cooling:
            self._wake_at(min(self._cooling.values()))

    def knows(self, rule: str, key: str) -> bool:
        """Return whether this crawl has had a response from the scope."""
        return any(rule in rules and _covers(key, slot) for slot, rules in self._rules.items())

    def remaining(self, slot: str) -> float:
        """Return for how many seconds a slot is paused; 0 if it is not."""
        now = time.monotonic()
        refused = self._refused.get(slot, 0.0) - now
        if refused <= 0.0:
            self._refused.pop(slot, None)
        put_off = self._put_off.get(slot, 0.0) - now
        if put_off <= 0.0:
            self._put_off.pop(slot, None)
        return max(refused, put_off, self._cooling_until(slot) - now, 0.0)

    def _cooling_until(self, slot: str) -> float:
        if not self._cooling:
            return 0.0
        ends: dict[str, float] = {}
        for (rule, key), until in self._cooling.items():
            if _covers(key, slot):
                ends[rule] = max(until, ends.get(rule, 0.0))
        rules = self._rules.get(slot)
        # One rule of a site may cool while another, for other paths, is open.
        if not rules or not rules <= ends.keys():
            return 0.0
        return min(ends[rule] for rule in rules)

    def _wake_at(self, until: float) -> None:
        """Have the engine look at the queue when a pause ends; by itself it does so every 5 s."""
        if self._wakes_at is None or until < self._wakes_at:
            self._wakes_at = until
            loop.start(self._wake(until))

    async def _wake(self, until: float) -> None:
        await loop.sleep(max(until - time.monotonic(), 0.0))
        if self._wakes_at != until:
            return
        self._wakes_at = None
        now = time.monotonic()
        ends = (*self._refused.values(), *self._put_off.values(), *self._cooling.values())
        later = [end for end in ends if end > now]
        if later:
            self._wake_at(min(later))
        engine: Any = self._crawler.engine
        # Private in Scrapy; without it the engine's heartbeat notices a little later.
        slot = getattr(engine, "_slot", None) or getattr(engine, "slot", None)
        nextcall = getattr(slot, "nextcall", None)
        if nextcall is not None and not getattr(slot, "closing", None):
            nextcall.schedule()


def _covers(key: str, slot: str) -> bool:
    return key in ("", slot) or slot.endswith("." + key)
