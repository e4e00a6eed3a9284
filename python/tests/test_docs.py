"""The Python blocks of the pages run as they are written, through a real proxy.

Only what a reader replaces too is replaced: `shop.example` by a site on loopback, and the ports of
the proxy. The blocks that name a module of `PARSED` are only parsed.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_scrapy import crawl
from tidegate.site import Site

if TYPE_CHECKING:
    import ssl

    from tidegate.pytest_plugin import Tidegate

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "python/README.md", "python/scrapy-tidegate/README.md", "docs/*.md"]
#: Needs a browser; `make test-clients` crawls with it.
PARSED = "playwright"
#: The limits of the shipped rule file.
RULES = "rules: [{name: default, match: '*', rate: 3/s, burst: 5}]"
#: Your crawler.
CRAWL = """
from urllib.request import ProxyHandler, build_opener

def crawl(url, proxy):
    opener = build_opener(ProxyHandler({"http": proxy}))
    for page in range(1, 7):
        opener.open(f"{url}page/{page}", timeout=60).close()
"""
#: A line of a test without its test.
FRAGMENT = """
from tidegate.site import Page

def test_it(tidegate):
    shop = tidegate.site({name!r})
    {block}
    assert shop.url
"""


def blocks(language: str) -> list[tuple[str, str]]:
    """Return place and text of the fenced blocks in a language."""
    found = []
    for page in (page for pattern in PAGES for page in sorted(ROOT.glob(pattern))):
        text = page.read_text()
        for block in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, block.start()) + 2
            found.append((f"{page.relative_to(ROOT)}:{line}", block[1]))
    return found


def kind(block: str) -> str:
    if PARSED in block:
        return "parsed"
    if "def test_" in block:
        return "test"
    if re.search(r"^[A-Z_]+ = ", block, re.MULTILINE):
        return "settings"
    return "script" if re.search(r"^import (?!tidegate.site)", block, re.MULTILINE) else "fragment"


def of_kind(wanted: str) -> pytest.MarkDecorator:
    found = [(place, block) for place, block in blocks("python") if kind(block) == wanted]
    assert found, f"no page has a block that is a {wanted}"
    return pytest.mark.parametrize(
        "block", [block for _, block in found], ids=[p for p, _ in found]
    )


@of_kind("parsed")
def test_a_block_that_is_not_run_is_python(block: str) -> None:
    ast.parse(block)


@of_kind("script")
def test_a_script_gets_its_page_with_a_verdict(
    tidegate: Tidegate, tls: ssl.SSLContext, certificate: Path, block: str
) -> None:
    shop = tidegate.site("shop", tls=tls if "https://shop" in block else None)
    tidegate.rule("shop", rate="10/s")
    text = re.sub(r"https?://shop\.example/", shop.url, block)
    # The admin port that the clients of the package use by default.
    ports = f'"{tidegate.proxy}", "{tidegate.admin}"'
    ours = r"(tidegate\.(?:requests\.session|httpx\.client))\((?:\"http://127.0.0.1:3128\")?\)"
    text = re.sub(ours, rf"\1({ports})", text).replace("http://127.0.0.1:3128", tidegate.proxy)
    trusted = {"REQUESTS_CA_BUNDLE": str(certificate), "SSL_CERT_FILE": str(certificate)}
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", text],
        env={**os.environ, **tidegate.env, **trusted},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout == ("ok\n" if "print(" in block else "")
    assert [request.path for request in shop.requests] == ["/"]
    # A tunnel has a verdict of its own.
    assert tidegate.verdicts("shop") == {"ok": 2 if "https://shop" in block else 1}


@of_kind("test")
def test_a_test_of_the_pages_passes(pytester: pytest.Pytester, block: str) -> None:
    pytester.makepyfile(CRAWL + block)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


@of_kind("fragment")
def test_a_line_of_a_test_is_right(pytester: pytest.Pytester, block: str) -> None:
    name = "other" if "tidegate.site(" in block else "shop"
    indented = block.strip().replace("\n", "\n    ")
    pytester.makepyfile(FRAGMENT.format(name=name, block=indented))
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


@of_kind("settings")
def test_settings_of_scrapy_give_all_pages(
    tidegate: Tidegate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, block: str
) -> None:
    (tmp_path / "settings.py").write_text(block)
    read = runpy.run_path(str(tmp_path / "settings.py"))
    settings = {name: value for name, value in read.items() if name.isupper()}
    shop = tidegate.site("shop", links=5)
    tidegate.rule("shop", rate="50/s")
    for name, value in tidegate.env.items():
        monkeypatch.setenv(name, value)
    done = crawl(tidegate, shop.url, settings={"ADDONS": {}, **settings})
    assert done["failures"] == []
    assert [page["verdict"] for page in done["pages"]] == ["ok"] * 6
    assert not tidegate.around("shop")


def test_the_first_commands_give_six_pages(tmp_path: Path) -> None:
    """From a wheel to a sixth page that waits."""
    (commands,) = (text for _, text in blocks("sh") if "venv/bin/tidegate &" in text)
    wheels = os.environ.get("TIDEGATE_WHEELS", str(ROOT / "target/python-test"))
    shop = Site("shop")
    with socket.socket() as one, socket.socket() as other:
        for port in (one, other):
            port.bind(("127.0.0.1", 0))
        listen, admin = ("{}:{}".format(*port.getsockname()) for port in (one, other))
    rule_file = tmp_path / "rules.yaml"
    lines = [f"listen: {listen}", f"admin: {admin}", "egress: {allow: [loopback]}", RULES]
    rule_file.write_text("\n".join(lines))
    text = commands.replace("target/wheels", wheels).replace("http://example.com/", shop.url)
    text = text.replace("127.0.0.1:3128", listen)
    started = f"venv/bin/tidegate --config {rule_file} & trap 'kill $!' EXIT"
    text = text.replace("venv/bin/tidegate &", started)
    done = subprocess.run(
        ["/bin/sh", "-euc", text], cwd=tmp_path, capture_output=True, timeout=110, check=False
    )
    shop.stop()
    assert done.returncode == 0, done.stderr.decode()
    assert [request.path for request in shop.requests] == [f"/?page={n}" for n in range(1, 7)]
