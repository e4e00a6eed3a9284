"""One running proxy, for tests: starts on free ports, ends with its `with` block."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tidegate._binary import find_binary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self

#: How long the proxy may take to start on a busy machine.
START_TIMEOUT = 30.0
#: How long it may take to stop.
STOP_TIMEOUT = 10.0
#: Another process may take a free port before the proxy does.
ATTEMPTS = 3


class StartError(RuntimeError):
    """The proxy did not start; the message has its output."""


class Member:
    """A running proxy with its rule file.

    `rules` are the entries of the rule file's `rules`, `settings` its other keys.
    """

    def __init__(self, rules: Sequence[Mapping[str, Any]], **settings: Any) -> None:
        """Start the proxy and wait until it is ready."""
        self._folder = tempfile.TemporaryDirectory(prefix="tidegate-")
        folder = Path(self._folder.name)
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        for attempt in range(1, ATTEMPTS + 1):
            self.proxy, self.admin = (f"http://127.0.0.1:{port}" for port in _free_ports(2))
            try:
                self._start(folder, rules, settings)
            except StartError as error:
                self.stop()
                if attempt == ATTEMPTS or "in use" not in str(error):
                    raise
            else:
                return

    def __enter__(self) -> Self:
        """Return the running proxy."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the proxy."""
        self.stop()

    @property
    def log(self) -> str:
        """What the proxy has logged so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def status(self) -> dict[str, Any]:
        """Return `GET /api/v1/status`."""
        status, body = self._get("/api/v1/status")
        if status != http.client.OK:
            raise RuntimeError(f"the admin port answered {status}: {body!r}")
        parsed: dict[str, Any] = json.loads(body)
        return parsed

    def stop(self) -> None:
        """Stop the proxy; a second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(
        self, folder: Path, rules: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
    ) -> None:
        tree = {
            "listen": self.proxy.removeprefix("http://"),
            "admin": self.admin.removeprefix("http://"),
            "egress": {"allow": ["loopback"]},
            "ca_dir": str(folder / "ca"),
            "timeouts": {"drain": "1s"},
            **settings,
            "rules": list(rules),
        }
        # JSON is YAML.
        rule_file = folder / "tidegate.yaml"
        rule_file.write_text(json.dumps(tree, indent=1))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(find_binary()), "--config", str(rule_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_TIMEOUT
        while not self._is_ready():
            code = self._process.poll()
            if code is not None:
                raise StartError(f"tidegate ended with exit code {code}:\n{self.log}")
            if time.monotonic() > deadline:
                self.stop()
                raise StartError(f"tidegate is not ready after {START_TIMEOUT} s:\n{self.log}")
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        try:
            return self._get("/readyz")[0] == http.client.OK
        except OSError:
            return False

    def _get(self, path: str) -> tuple[int, bytes]:
        address = urlsplit(self.admin)
        connection = http.client.HTTPConnection(
            address.hostname or "", address.port, timeout=START_TIMEOUT
        )
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def _free_ports(count: int) -> list[int]:
    """Return ports that are free now; all are open at once, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
