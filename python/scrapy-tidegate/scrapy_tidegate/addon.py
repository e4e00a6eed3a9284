"""The add-on: one line in `settings.py` configures a crawl through Tidegate."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from scrapy.settings import SETTINGS_PRIORITIES

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

#: Above a project's settings (20), because the project template sets a delay and a concurrency of
#: 1; below a spider's `custom_settings` (30) and the command line (40).
ABOVE_PROJECT = 25

#: `max_wait` of the rule file, unless `TIDEGATE_MAX_WAIT` says otherwise: 2 minutes.
MAX_WAIT = 120
#: The time for the site's response, in addition to the longest hold.
SITE_TIME = 60


class Addon:
    """Points a crawl at Tidegate. The settings are listed in the package's README."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Set the values for the proxy, unless a spider or the command line set them."""
        default = settings.setdefault
        default("TIDEGATE_PROXY", os.environ.get("TIDEGATE_PROXY", "http://127.0.0.1:3128"))
        default("TIDEGATE_ADMIN", os.environ.get("TIDEGATE_ADMIN", "http://127.0.0.1:9128"))
        default("TIDEGATE_ADMIN_TOKEN", os.environ.get("TIDEGATE_ADMIN_TOKEN", ""))
        default("TIDEGATE_MAX_WAIT", MAX_WAIT)
        default("TIDEGATE_HOLD", 10)
        default("TIDEGATE_MAX_PAUSE", 3600)
        default("TIDEGATE_JUDGE", True)
        timeout = settings.getfloat("TIDEGATE_MAX_WAIT") + SITE_TIME
        overrides: dict[str, Any] = {
            "AUTOTHROTTLE_ENABLED": False,
            "DOWNLOAD_DELAY": 0,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
            "DOWNLOAD_TIMEOUT": max(timeout, settings.getfloat("DOWNLOAD_TIMEOUT")),
        }
        # No queue that uses the downloader's state works with a limit by address.
        if not settings.getint("CONCURRENT_REQUESTS_PER_IP"):
            overrides["SCHEDULER_PRIORITY_QUEUE"] = "scrapy_tidegate.queue.TidegateQueue"
        for name, value in overrides.items():
            _override(settings, name, value)
        settings.set("CONCURRENT_REQUESTS", 64, "addon")
        # A 429 or 503 of the proxy is scheduled again by the add-on; one of a site is a verdict.
        settings.set("RETRY_HTTP_CODES", [500, 502, 504, 522, 524, 408], "addon")
        middlewares = settings["DOWNLOADER_MIDDLEWARES"]
        # Before HttpProxyMiddleware (750) reads the proxy from the request.
        middlewares.set("scrapy_tidegate.middlewares.ProxyMiddleware", 740, "addon")
        # Nearest to the site, so that a refusal of the proxy is not cached, counted or retried.
        middlewares.set("scrapy_tidegate.middlewares.VerdictMiddleware", 950, "addon")
        settings["EXTENSIONS"].set("scrapy_tidegate.extension.StatusExtension", 0, "addon")


def _override(settings: BaseSettings, name: str, value: Any) -> None:
    """Set a value over the project's, and say so."""
    if settings.getpriority(name) == SETTINGS_PRIORITIES["project"] and settings[name] != value:
        logger.info("Tidegate sets %s to %r (the project: %r)", name, value, settings[name])
    settings.set(name, value, ABOVE_PROJECT)
