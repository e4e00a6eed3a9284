"""What the proxy and its admin port answer themselves, as raw bytes, and what httplint says about it."""

import base64
import json
import socket

from common import HERE, Tidegate, free_port, run, site

# Accepted notes, with the reason. They are compared by the beginning of their line.
KNOWN = {
    "STATUS_BAD_REQUEST": "says what the status means",
    "STATUS_VERSION_NOT_SUPPORTED": "says what the status means",
    "FRESHNESS_HEURISTIC": "the site's own fields, relayed as they are",
}

RULES = [
    "{name: denied, match: {hosts: [denied.test]}, action: deny}",
    "{name: slow, match: {hosts: [slow.test]}, rate: 1/h, burst: 1, max_wait: 1s}",
    '{name: default, match: "*"}',
]


def ask(port, text):
    """The whole answer to one request on a connection of its own."""
    with socket.create_connection(("127.0.0.1", port), 10) as stream:
        stream.sendall(text.replace("\n", "\r\n").encode("latin-1"))
        answer = b""
        try:
            while piece := stream.recv(65536):
                answer += piece
        except TimeoutError:
            raise RuntimeError(f"no end of the answer to {text[:60]!r}: {answer[:200]!r}") from None
        return answer


def requests(port, admin, site_port):
    """Name, port and text of each request."""
    close = "Connection: close\n"

    def through(url, more="", method="GET"):
        host = url.split("/")[2]
        return f"{method} {url} HTTP/1.1\nHost: {host}\n{more}{close}\n"

    def direct(path, method="GET", more="", body=""):
        return f"{method} {path} HTTP/1.1\nHost: 127.0.0.1:{admin}\n{more}{close}\n{body}"

    as_json = "Content-Type: application/json\nContent-Length: 2\n"
    return [
        ("200 relayed", port, through(f"http://127.0.0.1:{site_port}/")),
        ("200 relayed, HEAD", port, through(f"http://127.0.0.1:{site_port}/", method="HEAD")),
        ("403 denied", port, through("http://denied.test/")),
        ("403 denied, HEAD", port, through("http://denied.test/", method="HEAD")),
        ("403 egress", port, through("http://10.0.0.1/")),
        ("403 port", port, through("http://127.0.0.1:6667/")),
        ("429 limit, first", port, through("http://slow.test/")),
        ("429 limit", port, through("http://slow.test/")),
        ("502 dns", port, through("http://nowhere.invalid/")),
        ("502 refused", port, through(f"http://127.0.0.1:{free_port()}/")),
        ("400 malformed", port, "GET http://a b/ HTTP/1.1\nHost: a\n\n"),
        ("400 lengths", port, through(f"http://127.0.0.1:{site_port}/", "Content-Length: 1\nContent-Length: 2\n")),
        ("431 head", port, through(f"http://127.0.0.1:{site_port}/", f"X: {'x' * 70000}\n")),
        ("400 coding", port, through(f"http://127.0.0.1:{site_port}/", "Transfer-Encoding: gzip\n", "POST")),
        ("505 version", port, "GET http://denied.test/ HTTP/2.0\nHost: denied.test\n\n"),
        ("CONNECT denied", port, "CONNECT denied.test:443 HTTP/1.1\nHost: denied.test:443\n\n"),
        ("own page", port, through("http://tidegate.local/")),
        ("own 404", port, through("http://tidegate.local/none")),
        ("admin /", admin, direct("/")),
        ("admin /script.js", admin, direct("/script.js")),
        ("admin /healthz", admin, direct("/healthz")),
        ("admin /healthz, HEAD", admin, direct("/healthz", "HEAD")),
        ("admin /readyz", admin, direct("/readyz")),
        ("admin /metrics", admin, direct("/metrics")),
        ("admin /api/v1/status", admin, direct("/api/v1/status")),
        ("admin 404", admin, direct("/none")),
        ("admin 405", admin, direct("/api/v1/report")),
        ("admin 400", admin, direct("/api/v1/report", "POST", as_json, "{}")),
        ("admin 415", admin, direct("/api/v1/report", "POST", "Content-Length: 2\n", "{}")),
        ("admin 403", admin, direct("/api/v1/report", "POST", as_json + "Origin: http://evil.test\n", "{}")),
    ]


def lint(python):
    """Passed and failed answers, and the notes on those that failed."""
    with site() as site_port, Tidegate(RULES, "egress: {allow: [loopback]}", admin=True) as proxy:
        asked = requests(proxy.port, proxy.admin, site_port)
        with Tidegate(RULES, "auth: {users: {a: b}}") as other:
            unknown = "GET http://denied.test/ HTTP/1.1\nHost: denied.test\nConnection: close\n\n"
            asked.append(("407", other.port, unknown))
            answers = {name: (text, ask(port, text)) for name, port, text in asked}
        file = proxy.folder / "answers.json"
        file.write_text(json.dumps({name: (coded(text), coded(answer)) for name, (text, answer) in answers.items()}))
        code, output = run([python, HERE / "notes.py", file], 120)
    if code:
        return 0, 1, output
    found = json.loads(output)
    report, wrong = [], 0
    for name, notes in found.items():
        bad = [note for note in notes if not note.startswith(tuple(KNOWN))]
        wrong += bool(bad)
        report += [f"{name}: {note}\n" for note in bad]
    return len(found) - wrong, wrong, "".join(report)


def coded(text):
    """Bytes as JSON can hold them."""
    if isinstance(text, str):
        text = text.replace("\n", "\r\n").encode("latin-1")
    return base64.b64encode(text).decode()
