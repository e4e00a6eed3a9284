#!/usr/bin/env python3
"""Runs other people's test suites against the built proxy: `run.py [scrapy] [curl] [testssl] [httplint] [h2spec]`.

Each installs what it needs from package registries below target/peers, or says why it is skipped. No suite takes longer
than ten minutes. Ends with 1 if one of them found something that is not among its known exceptions."""

import json
import os
import pathlib
import re
import shutil
import sys
import time

from answers import lint
from common import FOLDER, HERE, Skip, Tidegate, counts, install, intercepted, need, program, run, venv

SCRAPY = "2.19.0"
# The oldest curl whose tests support proxies as used here.
CURL = (8, 10)
CURL_FILES = ["01_basic", "02_download", "07_upload", "10_proxy", "12_reuse", "14_auth", "18_methods"]
# Tests that do not concern a proxy: HTTP/3, names that only curl's own options resolve, HTTP/2 without TLS, the port of
# the site as seen by curl, programs of curl's own build.
CURL_NOT = (
    "not h3 and not 01_01 and not 01_02 and not 01_03 and not 01_04 and not 01_06 and not 01_07 and not 01_08 "
    "and not 01_09 and not 02_13 and not (02_14 and h2) and not (02_15 and h2) and not 02_27 and not 02_28 "
    "and not 02_30 and not 02_31 and not 07_35"
)
# Scrapy's proxies over TLS and SOCKS, which Tidegate does not offer.
SCRAPY_ONLY = "TestMitmProxy and dest-http and not dest-https"


def scrapy():
    """Scrapy's tests of proxies, with Tidegate in place of mitmproxy."""
    python = venv(
        "scrapy",
        f"scrapy=={SCRAPY}",
        "httpx[http2]",
        "aiohttp",
        "pytest",
        "pytest-timeout",
        "pytest-twisted",
        "pytest-rerunfailures",
        "pyftpdlib",
        "sybil",
        "pexpect",
        "psutil",
    )
    tests = FOLDER / f"scrapy-{SCRAPY}"
    if not tests.exists():
        pip = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        install([*pip, "--dest", FOLDER, f"scrapy=={SCRAPY}"], "Scrapy's sources")
        install(["tar", "-xzf", FOLDER / f"scrapy-{SCRAPY}.tar.gz", "-C", FOLDER], "Scrapy's sources")
        # Shows that a response came through the proxy.
        file = tests / "tests/utils/bases/download_handlers_http.py"
        file.write_text(re.sub(r"X-Via-Mitmproxy(-TLS)?", "Tidegate-Verdict", file.read_text()))
    environment = os.environ | {"MITMDUMP": str(HERE / "scrapy_proxy.sh"), "TIDEGATE": str(program())}
    handlers = ("twisted_http11", "twisted_http2", "httpx", "aiohttp")
    files = [f"tests/test_downloader_handler_{handler}.py" for handler in handlers]
    command = [python, "-m", "pytest", "-q", "--timeout", "60", "-k", SCRAPY_ONLY, *files]
    code, output = run(command, 300, cwd=tests, env=environment)
    return verdict(code, output)


def curl():
    """curl's own tests of HTTP, each request through Tidegate, and its tests of proxies."""
    apache, apxs = need("apache2", "apache2-bin"), need("apxs", "apache2-dev")
    sources, binary = curl_sources()
    python = venv("curl", "pytest", "cryptography", "filelock", "multipart", "websockets", "psutil", "pytest-xdist")
    tests = sources / "tests/http"
    lines = f"[global]\n[httpd]\napxs = {apxs}\nhttpd = {apache}\n[nghttpx]\nnghttpx =\n[caddy]\ncaddy =\n"
    (tests / "config.ini").write_text(lines + "[vsftpd]\nvsftpd =\n")
    everything = [f"test_{name}.py" for name in CURL_FILES]
    auth = "auth: {users: {proxy: proxy}}"
    passed, wrong, report = 0, 0, ""
    for keys, files, through in (("", everything, True), (auth, ["test_13_proxy_auth.py"], False)):
        rules = ['{name: default, match: "*"}']
        with Tidegate(rules, f"egress: {{allow: [loopback]}}\n{keys}") as proxy:
            environment = os.environ | {
                "CURL": str(binary),
                "TIDEGATE_PORT": str(proxy.port),
                "PYTHONPATH": f"{HERE}:{tests}",
                "USER": os.environ.get("USER", "root"),
            }
            if through:
                environment |= {"http_proxy": proxy.url, "https_proxy": proxy.url}
            command = [python, "-m", "pytest", "-q", "-p", "curl_through_proxy", "-k", CURL_NOT, *files]
            code, output = run(command, 400, cwd=tests, env=environment)
            more = verdict(code, output)
            passed, wrong, report = passed + more[0], wrong + more[1], report + more[2]
    return passed, wrong, report


def curl_sources():
    """The folder with curl's sources and a curl of that version, from Debian or its backports."""
    folder = FOLDER / "curl"
    wrapper = folder / "curl.sh"
    if not wrapper.exists():
        release = dict(re.findall(r'^(\w+)="?([^"\n]*)', pathlib.Path("/etc/os-release").read_text(), re.M))
        code, line = run(["curl", "-V"], 10)
        version = tuple(map(int, re.findall(r"\d+", line)[:2])) if code == 0 else (0, 0)
        suite = release.get("VERSION_CODENAME", "") + ("" if version >= CURL else "-backports")
        shutil.rmtree(folder, ignore_errors=True)
        apt = private_apt(folder, suite)
        install([need("apt-get", "apt"), *apt, "update"], f"Debian's list for {suite}", cwd=folder)
        packages = [f"curl/{suite}", f"libcurl4/{suite}"]
        install(["apt-get", *apt, "download", *packages], f"curl of {suite}", cwd=folder)
        # The mirror may no longer have Debian's patches; the tests are in curl's archive.
        _, said = run(["apt-get", *apt, "source", "--download-only", f"curl/{suite}"], 120, cwd=folder)
        for package in folder.glob("*.deb"):
            install(["dpkg", "-x", package, folder / "system"], package.name)
        (folder / "sources").mkdir()
        archive = next(folder.glob("curl_*.orig.tar.*z"), None)
        if not archive:
            raise Skip(f"curl's sources cannot be had: {said.strip().splitlines()[-1:]}")
        install(["tar", "-xf", archive, "-C", folder / "sources", "--strip-components=1"], "curl's sources")
        # The response to a CONNECT would count as one of the site's.
        wrapper.write_text(
            f'#!/bin/sh\nexport LD_LIBRARY_PATH="$(echo {folder}/system/usr/lib/*-linux-gnu)"\n'
            f'curl={folder}/system/usr/bin/curl\nif [ "$1" = -V ]; then exec "$curl" -V; fi\n'
            'exec "$curl" "$@" --suppress-connect-headers\n'
        )
        wrapper.chmod(0o755)
    return folder / "sources", wrapper


def private_apt(folder, suite):
    """Options that let apt read one suite without touching the system's own lists."""
    (folder / "lists/partial").mkdir(parents=True)
    (folder / "archives/partial").mkdir(parents=True)
    mirror = "http://deb.debian.org/debian"
    lines = "".join(f"{kind} {mirror} {suite} main\n" for kind in ("deb", "deb-src"))
    (folder / "sources.list").write_text(lines)
    options = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache::archives": folder / "archives",
        "APT::Sandbox::User": "root",
    }
    return ["-qq", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]


# Findings about the machine or a local CA.
TESTSSL_KNOWN = {
    "engine_problem": "of the scanner's own OpenSSL",
    "cert_expirationStatus": "leaves live 30 days on purpose",
    "cert_notAfter": "leaves live 30 days on purpose",
    "cert_revocation": "the CA is this machine's; nobody revokes what lives 30 days",
    "DNS_CAArecord": "of the site's name, not of the proxy",
}


def testssl():
    """testssl.sh on the TLS that clients see inside an intercepted CONNECT. Its own `--proxy` ends lines with a bare
    LF, which Tidegate refuses."""
    command = need("testssl", "testssl.sh")
    with intercepted() as (proxy, port):
        install(["curl", "-sk", f"https://localhost:{port}/"], "a first answer, with which the CA is made")
        found = proxy.folder / "found.json"
        options = ["--quiet", "--color", "0", "--warnings", "batch", "--add-ca", proxy.ca()]
        checks = ["-p", "-s", "-f", "-P", "-S", "-U", "--jsonfile", found]
        _, output = run([command, *options, *checks, "--ip", "127.0.0.1", f"localhost:{port}"], 600)
        if not found.exists():
            return 0, 1, output
        findings = json.loads(found.read_text())
    good = [one for one in findings if one["severity"] in ("OK", "INFO")]
    bad = [one for one in findings if one not in good and one["id"] not in TESTSSL_KNOWN]
    lines = [f"{one['id']}: {one['severity']}: {one['finding']}\n" for one in bad]
    return len(good), len(bad), "".join(lines)


def httplint():
    """httplint over what the proxy and its admin port answer themselves."""
    return lint(venv("httplint", "httplint==2026.10.4"))


def h2spec():
    """h2spec on HTTP/2 inside an intercepted CONNECT."""
    command = shutil.which("h2spec")
    if not command:
        raise Skip("h2spec is in no package registry; docs/security.md has the commands")
    with intercepted() as (_, port):
        _, output = run([command, "--strict", "-t", "-k", "-h", "127.0.0.1", "-p", port], 600)
    found = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", output)
    return (int(found[2]), int(found[4]), output) if found else (0, 1, output)


def verdict(code, output):
    """What pytest's output comes to; a run that passed nothing has failed."""
    passed, wrong = counts(output)
    if code and not wrong or not passed:
        wrong = max(wrong, 1)
    return passed, wrong, output if wrong else ""


def main():
    """Runs the suites that are named, or all of them."""
    suites = {"scrapy": scrapy, "curl": curl, "testssl": testssl, "httplint": httplint, "h2spec": h2spec}
    names = sys.argv[1:] or list(suites)
    FOLDER.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in names:
        start = time.monotonic()
        try:
            passed, wrong, report = suites[name]()
            failed += wrong
            print(report[-8000:] if wrong else "", end="")
            result = f"{passed} passed, {wrong} failed"
        except Skip as why:
            result = f"skipped: {why}"
        print(f"tidegate: {name}: {result} ({time.monotonic() - start:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
