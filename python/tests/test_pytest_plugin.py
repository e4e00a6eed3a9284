"""The pytest plugin: a real proxy, real sites, and a user's test file run by pytest itself."""

from __future__ import annotations

import http.client
import socket
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from tidegate import documented
from tidegate.documented import DocumentedWall
from tidegate.member import Member, StartError
from tidegate.site import Page, Site, max_rate
from tidegate.walls import Wall

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.pytest_plugin import Tidegate


def fetch(url: str, proxy: str | None = None) -> int:
    handler = urllib.request.ProxyHandler({"http": proxy} if proxy else {})
    try:
        with urllib.request.build_opener(handler).open(url, timeout=60) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def fetch_all(urls: Iterable[str], proxy: str | None = None) -> list[int]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda url: fetch(url, proxy), urls))


def test_a_crawler_behind_the_proxy_keeps_to_the_rate_and_one_around_it_is_found(
    tidegate: Tidegate,
) -> None:
    shop = tidegate.site("shop")
    tidegate.rule("shop", rate="5/s", burst=1)
    statuses = fetch_all((f"{shop.url}page/{n}" for n in range(12)), tidegate.proxy)
    assert statuses == [200] * 12
    assert tidegate.max_rate("shop") <= 5
    assert not tidegate.around("shop")
    assert tidegate.verdicts("shop") == {"ok": 12}
    assert fetch(shop.url) == 200
    assert [request.path for request in tidegate.around("shop")] == ["/"]


@pytest.mark.parametrize("wall", ["window", "bucket", "day", "double", "soft"])
def test_an_impolite_crawler_meets_each_wall_by_its_name(tidegate: Tidegate, wall: str) -> None:
    shop = tidegate.site("shop", wall=wall, rate=2, window=5, burst=5)
    tidegate.rule("shop", cooldown="off")
    fetch_all((shop.url for _ in range(60)), tidegate.proxy)
    assert tidegate.blocked("shop") > 0
    expected = {"double": "403_forbidden", "soft": "captcha"}.get(wall, "429_rate_limited")
    assert set(tidegate.verdicts("shop")) == {"ok", expected}


def test_a_polite_crawler_never_meets_the_wall(tidegate: Tidegate) -> None:
    shop = tidegate.site("shop", wall="window", rate=20, window=1)
    tidegate.rule("shop", rate="8/s", burst=1)
    fetch_all((shop.url for _ in range(16)), tidegate.proxy)
    assert tidegate.blocked("shop") == 0
    assert not tidegate.is_cooling("shop")


def test_a_block_trips_the_cooldown_that_the_fixture_reports(tidegate: Tidegate) -> None:
    shop = tidegate.site("shop")
    shop.pages["/sold"] = Page("too fast", 429, {"Retry-After": "30"})
    tidegate.rule("shop", rate="50/s")
    assert fetch(shop.url + "sold", tidegate.proxy) == 429
    assert tidegate.is_cooling("shop")


@pytest.mark.tidegate(shop={"rate": "5/s", "match": "*"})
def test_rules_may_stand_in_the_marker(tidegate: Tidegate) -> None:
    assert fetch(tidegate.site("shop").url, tidegate.proxy) == 200
    assert tidegate.verdicts("shop") == {"ok": 1}


def test_a_mistake_in_a_rule_is_shown_with_its_place(tidegate: Tidegate) -> None:
    tidegate.rule("shop", match="*", rate="3")
    with pytest.raises(StartError, match=r"rules\[0\]\.rate"):
        _ = tidegate.proxy


def test_sites_and_rules_come_before_the_proxy(tidegate: Tidegate) -> None:
    tidegate.site("shop")
    assert tidegate.proxy
    with pytest.raises(RuntimeError, match="before the proxy starts"):
        tidegate.rule("shop", rate="3/s")
    with pytest.raises(KeyError, match="there are: shop"):
        tidegate.requests("shops")


def test_a_member_ends_with_its_block() -> None:
    with Member([{"name": "all", "match": "*"}]) as member:
        address = urlsplit(member.admin)
        assert address.hostname
        assert address.port
        connection = http.client.HTTPConnection(address.hostname, address.port)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port))


def test_max_rate_counts_intervals_in_any_window() -> None:
    assert max_rate([]) == 0
    assert max_rate([0.0]) == 0
    assert max_rate([n / 4 for n in range(9)]) == 4
    assert max_rate([0.0, 10.0, 10.1, 10.2, 20.0]) == 2
    assert max_rate([0.0, 1.0, 2.0, 3.0], window=10) == 0.3


@pytest.mark.parametrize("kind", ["window", "bucket", "day", "double", "soft"])
def test_half_of_a_walls_rate_is_never_blocked_and_twice_is(kind: str) -> None:
    def blocked(share: float) -> float:
        wall = Wall(kind, rate=3, window=30, ban=20)  # type: ignore[arg-type]
        step = 1 / (3 * share)
        answers = [wall.answer(n * step) for n in range(int(3600 / step))]
        return sum(answer is not None for answer in answers) / len(answers)

    assert blocked(0.45) == 0
    assert blocked(2) > 0.3


@pytest.mark.parametrize("name", documented.names())
def test_half_of_a_documented_walls_rate_is_never_blocked_and_twice_is(name: str) -> None:
    def blocked(share: float) -> float:
        wall = DocumentedWall(name, 3, seed=7)
        step = 1 / (3 * share)
        answers = [wall.answer(n * step) for n in range(int(3600 / step))]
        return sum(answer is not None for answer in answers) / len(answers)

    # At several edge servers that count apart, one may be full while the others have room.
    assert blocked(0.5) < (0.01 if name == "front-door" else 0.001)
    assert blocked(2) > 0.3


def test_documented_walls_answer_as_documented(tidegate: Tidegate) -> None:
    github = tidegate.site("github", wall="github", rate=4.5 / 3600)
    jail = tidegate.site("jail", wall="fail2ban", rate=1)
    tidegate.rule("github", cooldown="off", site_limits="ignore")
    tidegate.rule("jail", cooldown="off")
    with urllib.request.urlopen(github.url, timeout=60) as response:
        assert response.headers["X-RateLimit-Remaining"] == "3"
    assert fetch_all((github.url for _ in range(8)), tidegate.proxy).count(429) == 5
    fetch_all((jail.url for _ in range(20)), tidegate.proxy)
    assert tidegate.verdicts("jail").keys() == {"ok", "connection_error"}
    assert {request.status for request in tidegate.requests("jail")} == {200, 0}


def test_a_misspelt_wall_is_refused() -> None:
    with pytest.raises(ValueError, match="bukket"):
        Site("shop", wall="bukket")


def test_the_example_of_the_documentation_runs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import urllib.request

        def crawl(url, proxy):
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy}))
            for n in range(8):
                opener.open(f"{url}page/{n}", timeout=30).read()

        def test_the_crawler_keeps_to_three_requests_per_second(tidegate):
            shop = tidegate.site("shop", wall="window", rate=5)
            tidegate.rule("shop", rate="3/s", burst=1)
            crawl(shop.url, proxy=tidegate.proxy)
            assert len(tidegate.requests("shop")) == 8
            assert tidegate.max_rate("shop") <= 3
            assert tidegate.blocked("shop") == 0

        def test_a_crawler_that_goes_around_fails(tidegate):
            shop = tidegate.site("shop")
            tidegate.rule("shop", rate="3/s", burst=1)
            crawl(shop.url, proxy="")
            assert tidegate.max_rate("shop") <= 3
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1, failed=1)
