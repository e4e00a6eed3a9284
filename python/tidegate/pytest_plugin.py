"""A pytest plugin: test that your crawler is polite.

```python
def test_the_crawler_keeps_to_three_requests_per_second(tidegate):
    shop = tidegate.site("shop", wall="window", rate=5)
    tidegate.rule("shop", rate="3/s", burst=1)
    crawl(shop.url, proxy=tidegate.proxy)
    assert tidegate.max_rate("shop") <= 3
    assert tidegate.blocked("shop") == 0
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tidegate.member import Member
from tidegate.site import Request, Site

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping

    from tidegate.documented import DocumentedWall
    from tidegate.walls import Wall


class Tidegate:
    """The `tidegate` fixture: a proxy on free ports, and sites that record what reaches them.

    The proxy starts when `proxy`, `admin` or `member` is first read; name sites and rules before.
    """

    def __init__(self, rules: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Prepare a proxy with these rules, by name."""
        self._rules: dict[str, dict[str, Any]] = {}
        self._settings: dict[str, Any] = {}
        self._sites: dict[str, Site] = {}
        self._member: Member | None = None
        for name, keys in (rules or {}).items():
            self.rule(name, **keys)

    def site(
        self,
        name: str,
        wall: str | Wall | DocumentedWall | None = None,
        *,
        links: int = 20,
        tls: ssl.SSLContext | None = None,
        **wall_settings: float,
    ) -> Site:
        """Start a site.

        `wall` is one of `window`, `bucket`, `day`, `double` and `soft`, or a documented one such as
        `cloudflare` or `fail2ban`: see `tidegate.documented`.
        """
        self._not_started("a site")
        if name in self._sites:
            raise ValueError(f"there is a site {name!r} already")
        site = Site(name, wall, links=links, tls=tls, **wall_settings)
        self._sites[name] = site
        return site

    def rule(self, name: str, **keys: Any) -> None:
        """Add a rule. Without `match` it applies to the site of the same name."""
        self._not_started("a rule")
        self._rules[name] = keys

    def settings(self, **keys: Any) -> None:
        """Set other keys of the rule file, such as `refuse={"limit": 503}`."""
        self._not_started("a setting")
        self._settings.update(keys)

    @property
    def member(self) -> Member:
        """The running proxy."""
        if self._member is None:
            self._member = Member(self._rule_list(), **self._settings)
        return self._member

    @property
    def proxy(self) -> str:
        """The proxy's URL."""
        return self.member.proxy

    @property
    def admin(self) -> str:
        """URL of the admin port."""
        return self.member.admin

    @property
    def env(self) -> dict[str, str]:
        """The environment variables that point a crawler's process at the proxy."""
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
        return {**dict.fromkeys(names, self.proxy), "no_proxy": "", "NO_PROXY": ""}

    def requests(self, site: str) -> list[Request]:
        """Return the requests that reached a site, past the proxy or around it."""
        return self._site(site).requests

    def max_rate(self, site: str, window: float = 1.0) -> float:
        """Return the highest rate at which requests reached a site; see `Site.max_rate`."""
        return self._site(site).max_rate(window)

    def blocked(self, site: str) -> int:
        """Return how many requests the site's wall refused."""
        return sum(request.blocked for request in self.requests(site))

    def around(self, site: str) -> list[Request]:
        """Return the requests that reached a site (`http://`) without passing the proxy."""
        return [
            request
            for request in self.requests(site)
            if "tidegate" not in request.headers.get("via", "")
        ]

    def scopes(self, rule: str) -> list[dict[str, Any]]:
        """Return the scopes of a rule as `GET /api/v1/status` reports them."""
        return [scope for scope in self.member.status()["scopes"] if scope["rule"] == rule]

    def verdicts(self, rule: str) -> dict[str, int]:
        """Return how many responses of a rule got each verdict."""
        counts: dict[str, int] = {}
        for scope in self.scopes(rule):
            for verdict, count in scope["verdicts"].items():
                counts[verdict] = counts.get(verdict, 0) + count
        return counts

    def is_cooling(self, rule: str) -> bool:
        """Return whether a scope of the rule is in a cooldown."""
        return any(scope["state"] in ("cooling", "probing") for scope in self.scopes(rule))

    def stop(self) -> None:
        """Stop the proxy and the sites."""
        if self._member is not None:
            self._member.stop()
        for site in self._sites.values():
            site.stop()

    def _rule_list(self) -> list[dict[str, Any]]:
        rules = []
        for name, keys in self._rules.items():
            rule = {"name": name, **keys}
            if "match" not in rule:
                rule["match"] = {"hosts": [self._site(name).host]}
            rules.append(rule)
        if not any(rule["match"] == "*" for rule in rules):
            rules.append({"name": "everything-else", "match": "*"})
        return rules

    def _site(self, name: str) -> Site:
        try:
            return self._sites[name]
        except KeyError:
            known = ", ".join(self._sites) or "none"
            raise KeyError(f"no site {name!r}; there are: {known}") from None

    def _not_started(self, what: str) -> None:
        if self._member is not None:
            raise RuntimeError(f"add {what} before the proxy starts (before `.proxy` is read)")


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line(
        "markers", "tidegate(**rules): rules of the `tidegate` fixture, by name, each a dict"
    )


@pytest.fixture
def tidegate(request: pytest.FixtureRequest) -> Iterator[Tidegate]:
    """Provide a proxy on free ports with sites to crawl; both end with the test."""
    marker = request.node.get_closest_marker("tidegate")
    fixture = Tidegate(marker.kwargs if marker else None)
    try:
        yield fixture
    finally:
        fixture.stop()
