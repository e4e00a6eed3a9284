"""A crawl in a process of its own: settings and start URLs as JSON in, items and stats as JSON out.

It follows every link of a start page. With `stop_after` it ends at once when that many pages of the
last start URL's site have come; Scrapy itself would wait for what the proxy holds.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import scrapy
from scrapy.crawler import CrawlerProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy.crawler import Crawler
    from scrapy.http import Response

ASKED: dict[str, Any] = json.load(sys.stdin)
PAGES: list[dict[str, Any]] = []
FAILURES: list[str] = []


class Spider(scrapy.Spider):
    name = "crawl"
    custom_settings = {
        "LOG_LEVEL": "INFO",
        "LOGSTATS_INTERVAL": 0,
        "TELNETCONSOLE_ENABLED": False,
        **ASKED.get("spider_settings", {}),
    }

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for request in self.start_requests():
            yield request

    def start_requests(self) -> Iterator[scrapy.Request]:
        for url in ASKED["urls"]:
            yield scrapy.Request(
                url, self.index, errback=self.failed, dont_filter=True, meta=ASKED.get("meta")
            )

    def index(self, response: Response) -> Iterator[scrapy.Request]:
        self.page(response)
        for link in response.css("a::attr(href)").getall():
            meta = response.meta if ASKED.get("copy_meta") else None
            yield response.follow(link, self.page, errback=self.failed, meta=meta)

    def page(self, response: Response) -> None:
        verdict = response.headers.get("Tidegate-Verdict")
        url = response.url
        PAGES.append(
            {
                "url": url,
                "status": response.status,
                "verdict": verdict.decode() if verdict else None,
            }
        )
        last = urlsplit(ASKED["urls"][-1]).netloc
        got = sum(urlsplit(page["url"]).netloc == last for page in PAGES)
        if urlsplit(url).netloc == last and got == ASKED.get("stop_after"):
            tell(self.crawler)
            os._exit(0)

    def failed(self, failure: Any) -> None:
        FAILURES.append(repr(failure.value))


def tell(crawler: Crawler) -> None:
    answer = {
        "pages": PAGES,
        "failures": FAILURES,
        "stats": crawler.stats.get_stats() if crawler.stats else {},
        "settings": {name: crawler.settings[name] for name in ASKED.get("show", [])},
    }
    json.dump(answer, sys.stdout, default=str)
    sys.stdout.flush()


if __name__ == "__main__":
    process = CrawlerProcess(
        {
            "ADDONS": {"scrapy_tidegate.Addon": 500},
            "HTTPERROR_ALLOW_ALL": True,
            "ROBOTSTXT_OBEY": False,
            **ASKED["settings"],
        }
    )
    only = process.create_crawler(Spider)
    process.crawl(only)
    process.start()
    tell(only)
