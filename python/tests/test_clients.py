"""`requests` and `httpx` through a real proxy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Callable

import httpx
import pytest
import tidegate.httpx
import tidegate.requests
from tidegate.api import refusal_wait
from tidegate.site import Page

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from tidegate.pytest_plugin import Tidegate

#: Gets some URLs one after the other: statuses and verdicts.
Crawl = Callable[..., "list[tuple[int, str | None]]"]


def by_requests(proxy: str, admin: str | None, *urls: str) -> list[tuple[int, str | None]]:
    with tidegate.requests.session(proxy, admin) as session:
        session.verify = False
        answers = [session.get(url) for url in urls]
    return [(answer.status_code, answer.headers.get("Tidegate-Verdict")) for answer in answers]


def by_trusting_requests(proxy: str, url: str) -> int:
    with tidegate.requests.session(proxy, None) as session:
        return session.get(url).status_code


def by_trusting_httpx(proxy: str, url: str) -> int:
    with tidegate.httpx.client(proxy, None) as client:
        return client.get(url).status_code


def by_trusting_async_httpx(proxy: str, url: str) -> int:
    async def crawl() -> int:
        async with tidegate.httpx.async_client(proxy, None) as client:
            return (await client.get(url)).status_code

    return asyncio.run(crawl())


def by_httpx(proxy: str, admin: str | None, *urls: str) -> list[tuple[int, str | None]]:
    with tidegate.httpx.client(proxy, admin, verify=False) as client:
        return [seen(client.get(url)) for url in urls]


def by_async_httpx(proxy: str, admin: str | None, *urls: str) -> list[tuple[int, str | None]]:
    async def crawl() -> list[tuple[int, str | None]]:
        async with tidegate.httpx.async_client(proxy, admin, verify=False) as client:
            return [seen(await client.get(url)) for url in urls]

    return asyncio.run(crawl())


def seen(answer: httpx.Response) -> tuple[int, str | None]:
    return answer.status_code, answer.headers.get("Tidegate-Verdict")


clients = pytest.mark.parametrize("crawl", [by_requests, by_httpx, by_async_httpx])
pytestmark = pytest.mark.filterwarnings("ignore:Unverified HTTPS request")


@pytest.mark.parametrize("reason", ["limit", "cooldown", "hours", "queue", "store"])
def test_a_refusal_that_passes_says_when_to_come_back(reason: str) -> None:
    refused = {"Tidegate-Refused": reason, "Retry-After": "7"}
    assert refusal_wait(refused, 10.0) == 7.0
    assert refusal_wait(refused, 6.0) is None
    assert refusal_wait({"Tidegate-Refused": "denied", "Retry-After": "7"}, 10.0) is None


@clients
def test_a_refused_request_comes_back_when_it_may(tidegate: Tidegate, crawl: Crawl) -> None:
    shop = tidegate.site("shop")
    tidegate.rule("shop", rate="1/s", burst=1, max_wait="0s")
    assert crawl(tidegate.proxy, tidegate.admin, shop.url, shop.url) == [(200, "ok")] * 2
    assert len(tidegate.requests("shop")) == 2
    assert not tidegate.around("shop")


@clients
def test_a_refused_tunnel_comes_back_too(
    tidegate: Tidegate, tls: ssl.SSLContext, crawl: Crawl
) -> None:
    # Two sites, so that the second request needs a tunnel of its own.
    sites = [tidegate.site(name, tls=tls) for name in ("shop", "other")]
    match = {"hosts": [site.host for site in sites]}
    tidegate.rule("both", match=match, rate="1/s", burst=1, max_wait="0s", tunnel="connect")
    urls = [site.url for site in sites]
    assert crawl(tidegate.proxy, tidegate.admin, *urls) == [(200, "ok")] * 2


@clients
def test_https_gets_verdicts_and_a_cooldown_without_any_ca(
    tidegate: Tidegate, tls: ssl.SSLContext, crawl: Crawl
) -> None:
    shop = tidegate.site("shop", tls=tls)
    shop.pages["/limit"] = Page("too fast", 429, {"Retry-After": "60"})
    tidegate.rule("shop", rate="50/s")
    found = crawl(tidegate.proxy, tidegate.admin, shop.url, shop.url + "limit")
    assert found == [(200, "ok"), (429, "429_rate_limited")]
    assert tidegate.is_cooling("shop")


@clients
def test_without_the_admin_port_requests_go_on(
    tidegate: Tidegate, tls: ssl.SSLContext, crawl: Crawl
) -> None:
    shop = tidegate.site("shop", tls=tls)
    urls = [shop.url, shop.url]
    assert crawl(tidegate.proxy, "http://127.0.0.1:1", *urls) == [(200, None)] * 2
    assert crawl(tidegate.proxy, None, *urls) == [(200, None)] * 2


@clients
def test_a_refusal_that_does_not_pass_is_the_callers(tidegate: Tidegate, crawl: Crawl) -> None:
    shop = tidegate.site("shop")
    tidegate.rule("shop", action="deny")
    assert crawl(tidegate.proxy, tidegate.admin, shop.url) == [(403, None)]


@pytest.mark.parametrize(
    ("crawl", "variable"),
    [
        (by_trusting_requests, "REQUESTS_CA_BUNDLE"),
        (by_trusting_requests, "CURL_CA_BUNDLE"),
        (by_trusting_httpx, "SSL_CERT_FILE"),
        (by_trusting_async_httpx, "SSL_CERT_FILE"),
    ],
)
def test_clients_trust_what_the_environment_names(  # noqa: PLR0913, PLR0917
    tidegate: Tidegate,
    tls: ssl.SSLContext,
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    crawl: Callable[[str, str], int],
    variable: str,
) -> None:
    bank = tidegate.site("bank", tls=tls)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises((OSError, httpx.ConnectError), match="CERTIFICATE_VERIFY_FAILED"):
        crawl(tidegate.proxy, bank.url)
    monkeypatch.setenv(variable, str(certificate))
    assert crawl(tidegate.proxy, bank.url) == 200


def test_a_bundle_that_is_missing_is_named(
    tidegate: Tidegate, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bank = tidegate.site("bank", tls=tls)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "nobody.pem"))
    with pytest.raises(OSError, match=r"nobody\.pem"):
        by_trusting_requests(tidegate.proxy, bank.url)
