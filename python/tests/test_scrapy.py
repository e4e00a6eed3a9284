"""The Scrapy add-on: real Scrapy, a real proxy, real sites."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tidegate.site import Page

if TYPE_CHECKING:
    import ssl

    from tidegate.pytest_plugin import Tidegate

#: A crawl of these tests takes seconds.
TIMEOUT = 90


def crawl(tidegate: Tidegate, *urls: str, **asked: Any) -> dict[str, Any]:
    settings = {
        "TIDEGATE_PROXY": tidegate.proxy,
        "TIDEGATE_ADMIN": tidegate.admin,
        **asked.pop("settings", {}),
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("crawl.py"))],
        input=json.dumps({"urls": urls, "settings": settings, **asked}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    print(done.stderr)
    assert done.returncode == 0
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def pause(tidegate: Tidegate, scope: str, seconds: int) -> None:
    asked = urllib.request.Request(
        f"{tidegate.admin}/api/v1/scopes/{scope}/cooldown",
        data=json.dumps({"seconds": seconds}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked) as answer:
        assert answer.status == 200


def of_site(pages: list[dict[str, Any]], url: str) -> list[dict[str, Any]]:
    return [page for page in pages if urlsplit(page["url"]).netloc == urlsplit(url).netloc]


def test_one_line_sets_what_suits_the_proxy_over_the_project_template(tidegate: Tidegate) -> None:
    shop = tidegate.site("shop", links=3)
    tidegate.rule("shop", rate="50/s")
    template = {"DOWNLOAD_DELAY": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 1, "ROBOTSTXT_OBEY": True}
    show = ["DOWNLOAD_DELAY", "CONCURRENT_REQUESTS_PER_DOMAIN", "DOWNLOAD_TIMEOUT"]
    done = crawl(tidegate, shop.url, settings=template, show=show)
    assert done["settings"] == {
        "DOWNLOAD_DELAY": 0,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        "DOWNLOAD_TIMEOUT": 180.0,
    }
    assert [page["verdict"] for page in done["pages"]] == ["ok"] * 4
    assert done["stats"]["tidegate/verdict/ok"] == 5, "robots.txt too"
    assert not tidegate.around("shop")
    assert all("prefer" not in request.headers for request in tidegate.requests("shop"))


def test_a_refusal_is_scheduled_again_after_its_time_and_is_no_error(tidegate: Tidegate) -> None:
    shop = tidegate.site("shop", links=5)
    # Nothing may be held, so a request without a token is refused at once.
    tidegate.rule("shop", rate="3/s", burst=1, max_wait="0s")
    done = crawl(tidegate, shop.url)
    assert len(done["pages"]) == 6
    assert {page["status"] for page in done["pages"]} == {200}
    assert not done["failures"]
    stats = done["stats"]
    assert stats["tidegate/refused/limit"] >= 1
    assert stats["tidegate/rescheduled"] == stats["tidegate/refused/limit"]
    assert not [name for name in stats if name.startswith(("retry/", "httperror/"))]
    assert "downloader/response_status_count/429" not in stats
    assert len(tidegate.requests("shop")) == 6


def test_a_refused_tunnel_is_opened_again_later(tidegate: Tidegate, tls: ssl.SSLContext) -> None:
    shop = tidegate.site("shop", links=3, tls=tls)
    tidegate.rule("shop", rate="1/s", burst=1, max_wait="0s", tunnel="connect")
    done = crawl(tidegate, shop.url)
    assert len(done["pages"]) == 4
    assert not done["failures"]
    stats = done["stats"]
    assert stats["tidegate/refused/tunnel"] >= 1
    assert not [name for name in stats if name.startswith("retry/")]


@pytest.mark.parametrize(
    "settings",
    [
        {"TWISTED_REACTOR": "twisted.internet.epollreactor.EPollReactor"},
        {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue"},
    ],
    ids=["without asyncio", "with another queue"],
)
def test_a_refusal_is_scheduled_again_under_other_settings(
    tidegate: Tidegate, settings: dict[str, Any]
) -> None:
    shop = tidegate.site("shop", links=2)
    tidegate.rule("shop", rate="2/s", burst=1, max_wait="0s")
    done = crawl(tidegate, shop.url, spider_settings=settings)
    assert [page["status"] for page in done["pages"]] == [200] * 3
    assert not done["failures"]
    assert done["stats"]["tidegate/rescheduled"] >= 1
    assert "tidegate/api_errors" not in done["stats"]


def test_a_robots_file_that_is_refused_is_waited_for(tidegate: Tidegate) -> None:
    shop = tidegate.site("shop", links=0)
    shop.pages["/robots.txt"] = Page(
        "User-agent: *\nDisallow: /page", headers={"Content-Type": "text/plain"}
    )
    other = tidegate.site("other", links=1)
    hosts = {"hosts": [shop.host, other.host]}
    tidegate.rule("both", match=hosts, rate="1/s", burst=1, max_wait="0s")
    done = crawl(tidegate, other.url, shop.url, settings={"ROBOTSTXT_OBEY": True})
    assert len(done["pages"]) == 3, "two index pages and a link"
    assert len(tidegate.requests("shop")) == 2, "robots.txt and the index, once each"


def test_a_refusal_that_does_not_pass_goes_to_the_spider(tidegate: Tidegate) -> None:
    shop = tidegate.site("shop")
    tidegate.rule("shop", action="deny")
    done = crawl(tidegate, shop.url)
    assert [page["status"] for page in done["pages"]] == [403]
    assert done["stats"]["tidegate/refused/denied"] == 1
    assert not tidegate.requests("shop")


def test_a_pause_longer_than_the_crawl_wants_to_wait_goes_to_the_spider(tidegate: Tidegate) -> None:
    shop = tidegate.site("shop", links=1)
    tidegate.rule("shop", quota="1/d")
    done = crawl(tidegate, shop.url, settings={"TIDEGATE_MAX_PAUSE": 60})
    assert [page["status"] for page in done["pages"]] == [200, 429]


def test_https_gets_verdicts_and_a_cooldown_without_any_ca(
    tidegate: Tidegate, tls: ssl.SSLContext
) -> None:
    shop = tidegate.site("shop", links=10, tls=tls)
    check = Page("<html><title>Robot Check</title><p>Type the characters you see.</p></html>")
    for n in range(1, 11):
        shop.pages[f"/page/{n}"] = check
    other = tidegate.site("other", links=40, tls=tls)
    tidegate.rule(
        "shop",
        rate="20/s",
        burst=1,
        cooldown={"after": 3, "for": "60s-60s", "ratio": "off"},
        detect=[{"name": "shop-check", "verdict": "captcha", "title": "Robot Check"}],
    )
    tidegate.rule("other", rate="20/s", burst=1)
    done = crawl(tidegate, shop.url, other.url, stop_after=41)
    assert tidegate.is_cooling("shop")
    assert tidegate.verdicts("shop")["captcha"] >= 3
    captchas = [page for page in done["pages"] if page["verdict"] == "captcha"]
    assert len(captchas) >= 3, "the spider sees the verdict too"
    assert {page["verdict"] for page in of_site(done["pages"], other.url)} == {"ok"}
    assert done["stats"]["tidegate/cooldowns"] == 1
    assert done["stats"]["tidegate/judged"] == len(done["pages"])


@pytest.mark.parametrize("slots", [2, 16])
def test_a_site_that_cools_holds_no_slot_of_another(tidegate: Tidegate, slots: int) -> None:
    cooling = tidegate.site("cooling", links=200)
    for n in range(1, 201):
        cooling.pages[f"/page/{n}"] = Page("too fast", 429)
    other = tidegate.site("other", links=60)
    cooldown = {"after": 3, "for": "120s-120s"}
    tidegate.rule("cooling", rate="20/s", burst=1, cooldown=cooldown, max_wait="5m")
    tidegate.rule("other", rate="20/s", burst=1)
    settings = {"CONCURRENT_REQUESTS": slots}
    done = crawl(tidegate, cooling.url, other.url, stop_after=61, settings=settings)
    assert len(of_site(done["pages"], other.url)) == 61
    assert tidegate.is_cooling("cooling"), "the other site was crawled while this one cooled"
    assert len(tidegate.requests("cooling")) < 10
    assert done["stats"]["tidegate/refused/cooldown"] >= 1
    assert done["stats"]["tidegate/verdict/429_rate_limited"] >= 3


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_a_site_that_cools_before_the_crawl_begins_gets_no_request(
    tidegate: Tidegate, tls: ssl.SSLContext, *, secure: bool
) -> None:
    context = tls if secure else None
    cooling = tidegate.site("cooling", links=5, tls=context)
    other = tidegate.site("other", links=40, tls=context)
    tidegate.rule("cooling", rate="20/s", cooldown={"after": 3}, max_wait="5m")
    tidegate.rule("other", rate="20/s", burst=1)
    pause(tidegate, "cooling", 120)
    done = crawl(tidegate, cooling.url, other.url, stop_after=41)
    assert {page["verdict"] for page in done["pages"]} == {"ok"}
    assert not tidegate.requests("cooling")
    stats = done["stats"]
    assert not [name for name in stats if name.startswith("tidegate/refused/")], "nobody waited"
    assert "tidegate/held" not in stats or stats["tidegate/hold_ms_max"] < 10_000
    assert stats["tidegate/put_off"] >= 1
    # One call for all sites, once a second, and not one for each request.
    assert stats["tidegate/asked"] < 60


def test_a_site_far_from_its_turn_holds_no_slot_of_another(
    tidegate: Tidegate, tls: ssl.SSLContext
) -> None:
    slow = tidegate.site("slow", links=30, tls=tls)
    other = tidegate.site("other", links=60, tls=tls)
    tidegate.rule("slow", rate="4/m", burst=1, tunnel="flights", max_wait="5m")
    tidegate.rule("other", rate="20/s", burst=1)
    settings = {"CONCURRENT_REQUESTS": 17}
    done = crawl(tidegate, slow.url, other.url, stop_after=61, settings=settings)
    assert len(of_site(done["pages"], other.url)) == 61
    assert done["stats"]["tidegate/put_off"] >= 1


def test_a_crawl_goes_on_when_the_cooldown_ends(tidegate: Tidegate) -> None:
    shop = tidegate.site("shop", wall="bucket", rate=5, burst=8, links=20)
    cooldown = {"after": 3, "for": "3s-3s", "ramp": "0s", "respect_retry_after": False}
    tidegate.rule("shop", rate="100/s", burst=1, learn=False, cooldown=cooldown)
    done = crawl(tidegate, shop.url, settings={"TIDEGATE_HOLD": 1})
    assert len(done["pages"]) == 21
    assert not done["failures"]
    assert done["stats"]["tidegate/refused/cooldown"] >= 1
    assert done["stats"]["finish_reason"] == "finished"


def test_without_the_admin_port_the_crawl_goes_on(tidegate: Tidegate) -> None:
    shop = tidegate.site("shop", links=3)
    done = crawl(tidegate, shop.url, settings={"TIDEGATE_ADMIN": "http://127.0.0.1:1"})
    assert len(done["pages"]) == 4
    assert done["stats"]["tidegate/api_errors"] >= 1


def test_a_request_with_the_meta_of_a_response_is_treated_like_any_other(
    tidegate: Tidegate,
) -> None:
    shop = tidegate.site("shop", links=3)
    tidegate.rule("shop", rate="2/s", burst=1, max_wait="0s")
    done = crawl(tidegate, shop.url, copy_meta=True, settings={"ROBOTSTXT_OBEY": True})
    assert len(done["pages"]) == 4
    assert done["stats"]["tidegate/verdict/ok"] == 5


def test_requests_may_go_around_the_proxy_or_be_out_of_its_way(tidegate: Tidegate) -> None:
    shop = tidegate.site("shop", links=2)
    done = crawl(tidegate, shop.url, settings={"TIDEGATE_ADMIN": ""})
    assert len(done["pages"]) == 3
    assert "tidegate/api_errors" not in done["stats"]
    direct = crawl(tidegate, shop.url, meta={"proxy": None}, copy_meta=True)
    assert [page["verdict"] for page in direct["pages"]] == [None] * 3
    assert len(tidegate.around("shop")) == 3
