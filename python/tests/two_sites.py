"""Two sites in one crawl, one of which cools down: what the other's pages per minute lose by that.

`make bench-scrapy` runs it, for Scrapy as `docs/clients.md` set it up by hand and with the add-on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tidegate.pytest_plugin import Tidegate
from tidegate.site import Page

#: Pages of the site that stays open: at its rate of 20/s they take half a minute.
PAGES = 600
BY_HAND = {
    "ADDONS": {},
    "DOWNLOAD_TIMEOUT": 180,
    "DOWNLOAD_DELAY": 0,
    "CONCURRENT_REQUESTS": 64,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 64,
    "AUTOTHROTTLE_ENABLED": False,
    "RETRY_HTTP_CODES": [500, 502, 504, 522, 524, 408],
}


def pages_per_minute(settings: dict[str, object], *, with_cooling: bool) -> float:
    """Crawl, and return how fast the open site was crawled."""
    tidegate = Tidegate()
    try:
        cooling = tidegate.site("cooling", links=PAGES)
        cooling.pages.update({f"/page/{n}": Page("no", 429) for n in range(1, PAGES + 1)})
        other = tidegate.site("other", links=PAGES)
        cooldown = {"after": 3, "for": "5m-5m"}
        tidegate.rule("cooling", rate="20/s", burst=1, cooldown=cooldown, max_wait="10m")
        tidegate.rule("other", rate="20/s", burst=1)
        urls = [cooling.url, other.url] if with_cooling else [other.url]
        settings = {
            "TIDEGATE_PROXY": tidegate.proxy,
            "TIDEGATE_ADMIN": tidegate.admin,
            **settings,
        }
        asked = {"urls": urls, "settings": settings, "stop_after": PAGES + 1}
        try:
            subprocess.run(
                [sys.executable, str(Path(__file__).with_name("crawl.py"))],
                input=json.dumps(asked),
                capture_output=True,
                text=True,
                timeout=PAGES / 20 * 2,
                check=True,
                env=tidegate.env,
            )
        except subprocess.TimeoutExpired:
            print("  (not finished in twice its time)")
        times = [request.at for request in tidegate.requests("other")]
        length = max(times[-1] - times[0], PAGES / 20)
        return (len(times) - 1) / length * 60
    finally:
        tidegate.stop()


for name, settings in (("by hand", BY_HAND), ("scrapy_tidegate.Addon", {})):
    alone = pages_per_minute(settings, with_cooling=False)
    beside = pages_per_minute(settings, with_cooling=True)
    share = beside / alone
    print(
        f"{name}: alone {alone:.0f}, beside a site that cools {beside:.0f} pages/min: {share:.1%}"
    )
