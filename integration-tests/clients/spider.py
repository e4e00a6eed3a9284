"""One Scrapy spider: the index page, then every link on it. The proxy comes from HTTP_PROXY.

Prints one JSON object: {"statuses": [...], "verdicts": [...]}, the index page first.
`AUTOTHROTTLE=1` in the environment switches Scrapy's own throttle on.
"""
import json
import os
import sys

import scrapy
from scrapy.crawler import CrawlerProcess

statuses, verdicts = [], []


class Spider(scrapy.Spider):
    name = "harbour"
    start_urls = [sys.argv[1]]
    custom_settings = {
        "AUTOTHROTTLE_ENABLED": os.environ.get("AUTOTHROTTLE") == "1",
        "AUTOTHROTTLE_START_DELAY": 0.05,
        "CONCURRENT_REQUESTS": 8,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
        "DOWNLOAD_DELAY": 0,
        "DOWNLOAD_TIMEOUT": 60,
        "HTTPERROR_ALLOW_ALL": True,
        "LOG_LEVEL": "WARNING",
        "RETRY_ENABLED": False,
        "ROBOTSTXT_OBEY": False,
        "TELNETCONSOLE_ENABLED": False,
    }

    def parse(self, response):
        self.note(response)
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, self.note)

    def note(self, response):
        verdict = response.headers.get("Tidegate-Verdict")
        statuses.append(response.status)
        verdicts.append(verdict.decode() if verdict else None)


process = CrawlerProcess()
process.crawl(Spider)
process.start()
print(json.dumps({"statuses": statuses, "verdicts": verdicts}))
