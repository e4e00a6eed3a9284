"""A Scrapy add-on for Tidegate: `ADDONS = {"scrapy_tidegate.Addon": 500}`."""

from scrapy_tidegate.addon import Addon

__all__ = ["Addon"]
