"""One Scrapy spider: the index page, then every link on it. The proxy comes from HTTP_PROXY.

Arguments and output: see README.md in this folder. `AUTOTHROTTLE=1` switches Scrapy's own throttle on;
`DELAY` (seconds) is the least time between requests, `FIRST_DELAY` the throttle's first. With `SLOTS`
it gets only the page, so many at a time, until it is ended.
"""
import json
import os
import sys

import scrapy
from scrapy.crawler import CrawlerProcess

answers, errors = [], []


class Spider(scrapy.Spider):
    name = "harbour"
    custom_settings = {
        "AUTOTHROTTLE_ENABLED": os.environ.get("AUTOTHROTTLE") == "1",
        "AUTOTHROTTLE_START_DELAY": float(os.environ.get("FIRST_DELAY", "0.05")),
        "CONCURRENT_REQUESTS": 64,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 64,
        "DOWNLOAD_DELAY": float(os.environ.get("DELAY", "0")),
        "DOWNLOAD_TIMEOUT": float(os.environ.get("TIMEOUT", "60")),
        "HTTPERROR_ALLOW_ALL": True,
        "LOG_LEVEL": "CRITICAL",
        "ROBOTSTXT_OBEY": False,
        "TELNETCONSOLE_ENABLED": False,
    }
    if os.environ.get("ADVISED") == "1":
        custom_settings["RETRY_HTTP_CODES"] = [500, 502, 504, 522, 524, 408]

    async def start(self):
        if "SLOTS" in os.environ:
            for _ in range(int(os.environ["SLOTS"])):
                yield scrapy.Request(sys.argv[1], self.again, dont_filter=True)
            return
        yield scrapy.Request(sys.argv[1], self.index, errback=self.failed)

    def index(self, response):
        self.note(response)
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, self.note, errback=self.failed)

    def again(self, response):
        yield scrapy.Request(sys.argv[1], self.again, dont_filter=True)

    def note(self, response):
        answers.append((response.status, response.headers))

    def failed(self, failure):
        errors.append(failure.type.__name__)


def field(name):
    values = (headers.get(name) for _, headers in answers)
    return [value.decode() if value else None for value in values]


process = CrawlerProcess()
process.crawl(Spider)
process.start()
print(
    json.dumps(
        {
            "statuses": [status for status, _ in answers],
            "verdicts": field("Tidegate-Verdict"),
            "refused": field("Tidegate-Refused"),
            "error": errors[0] if errors else None,
        }
    )
)
