"""What the suites share: a running Tidegate, a site, downloads below target/peers, and a bound on every command."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target" / "peers"
HERE = pathlib.Path(__file__).resolve().parent


class Skip(Exception):
    """Why a suite cannot run here."""


def program():
    """The binary that is tested."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = target / "debug" / "tidegate"
    if not built.exists():
        raise SystemExit(f"{built} is missing: run `make build` first")
    return built


def need(command, package):
    """The path of a command; Debian keeps some in /usr/sbin."""
    found = shutil.which(command, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if not found:
        raise Skip(f"{command} is missing (Debian: {package})")
    return found


def free_port():
    """A port that nobody has taken yet."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(command, seconds, **more):
    """Runs a command to its end, with its whole group killed if it takes longer. Returns (exit code, output)."""
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        errors="replace",
        **more,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return 124, output + f"\nended after {seconds} s\n"
    return process.returncode, output


def install(command, what, seconds=300, **more):
    """Fetches something from a package registry, or skips the suite."""
    code, output = run(command, seconds, **more)
    if code:
        last = (output.strip().splitlines() or ["no output"])[-1]
        raise Skip(f"{what} cannot be had: {last}")


def venv(name, *packages):
    """A virtual environment with these packages of PyPI; returns its Python."""
    folder, wanted = FOLDER / f"venv-{name}", "\n".join(packages)
    done = folder / "installed.txt"
    python = folder / "bin" / "python"
    if not done.exists() or done.read_text() != wanted:
        install([sys.executable, "-m", "venv", "--clear", folder], "a virtual environment")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        install([*pip, *packages], " ".join(packages))
        done.write_text(wanted)
    return python


class Tidegate:
    """A running proxy. `keys` go to the top of its rule file, `rules` is the list of rules."""

    def __init__(self, rules, keys="", admin=False):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tidegate-suite-"))
        self.port, self.admin = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        shown = f"127.0.0.1:{self.admin}" if admin else "off"
        text = f"listen: 127.0.0.1:{self.port}\nadmin: {shown}\nca_dir: {self.folder}/ca\n{keys}\nrules:\n"
        file = self.folder / "tidegate.yaml"
        file.write_text(text + "".join(f"  - {rule}\n" for rule in rules))
        self.log = open(self.folder / "log", "w", encoding="utf-8")
        self.process = subprocess.Popen([program(), "--config", file], stdout=self.log, stderr=self.log)
        if not wait_for(self.port, self.process):
            self.close(keep=True)
            raise RuntimeError(f"the proxy did not start: {(self.folder / 'log').read_text()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def ca(self):
        """The file with the CA's certificate, once it is made."""
        return next((self.folder / "ca").glob("*.pem"))

    def close(self, keep=False):
        """Ends the proxy and removes its folder."""
        self.process.kill()
        self.process.wait()
        self.log.close()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


class Answers(BaseHTTPRequestHandler):
    """A site that answers everything alike."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """A small page."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", "3")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(b"hi\n")

    do_HEAD = do_GET

    def log_message(self, *_):
        """Says nothing."""


@contextlib.contextmanager
def site(tls=False):
    """A site on this machine; gives its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    if tls:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tidegate-site-"))
        key, certificate = folder / "key.pem", folder / "cert.pem"
        subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        files = ["-keyout", key, "-out", certificate]
        install(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files],
            "a certificate",
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        shutil.rmtree(folder)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def intercepted():
    """A port behind which a site's TLS is Tidegate's: what connects there is inside an intercepted CONNECT."""
    socat = need("socat", "socat")
    rules = ['{name: default, match: "*", intercept: true, verify: false}']
    with site(tls=True) as port, Tidegate(rules, "egress: {allow: [loopback]}") as proxy:
        front = free_port()
        way = f"PROXY:127.0.0.1:localhost:{port},proxyport={proxy.port}"
        listen = f"TCP-LISTEN:{front},fork,reuseaddr,bind=127.0.0.1"
        joining = subprocess.Popen([socat, listen, way], stderr=proxy.log, start_new_session=True)
        try:
            wait_for(front, joining)
            yield proxy, front
        finally:
            os.killpg(joining.pid, signal.SIGKILL)
            joining.wait()


def wait_for(port, process):
    """Whether a process that lives listens on a port within 20 seconds."""
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        time.sleep(0.02)
    return False


def counts(output):
    """`passed` and the rest of pytest's last line."""
    last = re.findall(r"^.*\b(?:passed|failed|error)\b.*$", output, re.M)[-1:]
    found = dict((word, int(n)) for n, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", " ".join(last)))
    wrong = found.get("failed", 0) + found.get("error", 0) + found.get("errors", 0)
    return found.get("passed", 0), wrong
