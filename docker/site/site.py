"""A site for compose.yaml: 5 pages a second with a little credit, and 429 for whoever asks faster."""

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RATE, BURST = 5.0, 20.0
PAGE = ("<!doctype html><title>A page</title><h1>A page</h1><p>" + "Some words to read. " * 20).encode()
NO = b"<!doctype html><title>Too many requests</title><p>Please slow down."

lock = threading.Lock()
credit, seen = BURST, time.monotonic()


def is_too_fast():
    global credit, seen
    with lock:
        now = time.monotonic()
        credit, seen = min(BURST, credit + RATE * (now - seen)), now
        if credit < 1:
            return True
        credit -= 1
        return False


class Site(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        status, body = (429, NO) if is_too_fast() else (200, PAGE)
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


ThreadingHTTPServer(("", int(sys.argv[1])), Site).serve_forever()
