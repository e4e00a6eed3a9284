"""The two downloader middlewares: one for requests to the proxy, one for its responses."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from scrapy_tidegate import loop
from scrapy_tidegate.api import Api, ApiError
from scrapy_tidegate.pauses import pauses_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Request, Response
    from typing_extensions import Self

logger = logging.getLogger(__name__)

#: Refusals that end by themselves. The others (denied, egress, dns, ...) go to the spider.
PASSING = frozenset({"limit", "cooldown", "hours", "queue", "store"})
#: Pause of a site if a refusal names no wait.
DEFAULT_PAUSE = 5.0
#: Statuses with which the proxy refuses a CONNECT for a while.
REFUSED_CONNECT = frozenset({"429", "503"})


class ProxyMiddleware:
    """Sends requests to the proxy."""

    def __init__(self, crawler: Crawler) -> None:
        """Read the settings."""
        self._proxy: str = crawler.settings["TIDEGATE_PROXY"]
        # HttpProxyMiddleware takes user and password out of the URL.
        self._names = {self._proxy, re.sub(r"://[^/@]*@", "://", self._proxy)}
        self._prefer = f"wait={crawler.settings.getint('TIDEGATE_HOLD')}".encode()
        self._routed = pauses_of(crawler).routed

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Create the middleware of a crawl."""
        return cls(crawler)

    def process_request(self, request: Request, spider: object = None) -> None:
        """Set the proxy, unless the request names one (or none: `meta={"proxy": None}`)."""
        _ = spider
        is_routed = request.meta.setdefault("proxy", self._proxy) in self._names
        if is_routed:
            self._routed.add(request)
        if is_routed and request.url.startswith("http://"):
            # Longer holds become a refusal with a `Retry-After`, so that the slot is free.
            request.headers.setdefault("Prefer", self._prefer)
        elif request.headers.get("Prefer") == self._prefer:
            # After a redirect to https:// it would reach the site.
            del request.headers["Prefer"]


class VerdictMiddleware:
    """Reads the proxy's verdict on a response, and schedules refused requests again."""

    def __init__(self, crawler: Crawler) -> None:
        """Read the settings."""
        settings = crawler.settings
        if crawler.stats is None:
            raise RuntimeError("Tidegate's add-on needs Scrapy's stats")
        self._stats = crawler.stats
        self._pauses = pauses_of(crawler)
        self._max_pause = settings.getfloat("TIDEGATE_MAX_PAUSE")
        self._api: Api | None = None
        if settings["TIDEGATE_ADMIN"] and settings.getbool("TIDEGATE_JUDGE"):
            self._api = Api(settings["TIDEGATE_ADMIN"], settings["TIDEGATE_ADMIN_TOKEN"])

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Create the middleware of a crawl."""
        return cls(crawler)

    async def process_request(self, request: Request, spider: object = None) -> Request | None:
        """Return a request to a paused site to the scheduler, where it occupies no slot."""
        _ = spider
        slot = self._pauses.slot(request)
        remaining = self._pauses.remaining(slot)
        if not remaining or request not in self._pauses.routed:
            return None
        if request in self._pauses.queued:
            return _again(request)
        # A robots.txt, or a scheduler of the project: it would return at once.
        while remaining:
            await loop.sleep(remaining)
            remaining = self._pauses.remaining(slot)
        return None

    async def process_response(
        self, request: Request, response: Response, spider: object = None
    ) -> Request | Response:
        """Count the verdict, or schedule a refused request again."""
        _ = spider
        if "cached" in response.flags or request not in self._pauses.routed:
            return response
        refused = _field(response, "Tidegate-Refused")
        if refused:
            self._stats.inc_value(f"tidegate/refused/{refused}")
            again = None
            if refused in PASSING:
                again = await self._again(request, _seconds(_field(response, "Retry-After")))
            return again or response
        verdict, rule = _field(response, "Tidegate-Verdict"), _field(response, "Tidegate-Rule")
        if not verdict and request.url.startswith("https://"):
            verdict, rule = await self._judge(request, response)
        if verdict:
            self._stats.inc_value(f"tidegate/verdict/{verdict}")
        if rule:
            self._pauses.came_from(self._pauses.slot(request), rule)
        self._count_hold(response)
        return response

    async def process_exception(
        self, request: Request, exception: Exception, spider: object = None
    ) -> Request | None:
        """Schedule a tunnel that the proxy refused for a while again."""
        _ = spider
        is_refused = type(exception).__name__ in ("TunnelError", "ProxyError")
        if not is_refused or request not in self._pauses.routed:
            return None
        statuses = re.findall(r"\b[45]\d\d\b", str(exception))
        if not REFUSED_CONNECT.intersection(statuses):
            return None
        self._stats.inc_value("tidegate/refused/tunnel")
        return await self._again(request, DEFAULT_PAUSE)

    async def _again(self, request: Request, wait: float) -> Request | None:
        """Pause the site and schedule the request again; `None` if that would take too long."""
        if wait > self._max_pause:
            return None
        slot = self._pauses.slot(request)
        self._pauses.refused(slot, wait)
        self._stats.inc_value("tidegate/rescheduled")
        if request not in self._pauses.queued:
            await loop.sleep(self._pauses.remaining(slot))
        return _again(request)

    async def _judge(self, request: Request, response: Response) -> tuple[str, str]:
        api = self._api
        if api is None or api.is_silent:
            return "", ""
        try:
            judged = await loop.in_thread(lambda: api.judge(request, response))
        except ApiError as error:
            self._stats.inc_value("tidegate/api_errors")
            logger.warning("Tidegate's admin port: %s", error)
            return "", ""
        self._stats.inc_value("tidegate/judged")
        verdict, rule = judged["verdict"], judged["rule"] or ""
        # As on a response over http://, where the proxy adds them.
        response.headers["Tidegate-Verdict"] = verdict
        response.headers["Tidegate-Rule"] = rule
        return verdict, rule

    def _count_hold(self, response: Response) -> None:
        match = re.search(r"\bhold;dur=([\d.]+)", _field(response, "Server-Timing"))
        held = round(float(match[1])) if match else 0
        if held:
            self._stats.inc_value("tidegate/held")
            self._stats.inc_value("tidegate/hold_ms", held)
            self._stats.max_value("tidegate/hold_ms_max", held)


def _again(request: Request) -> Request:
    return request.replace(dont_filter=True)


def _field(response: Response, name: str) -> str:
    value = response.headers.get(name)
    return value.decode("latin-1") if value else ""


def _seconds(field: str) -> float:
    # The proxy names whole seconds, 1 at least. A shorter wait could only come from a site.
    return max(float(field), 1.0) if field.isdigit() else DEFAULT_PAUSE
