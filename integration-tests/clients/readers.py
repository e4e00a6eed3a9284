"""Web servers that tell how they read each request, for the differential test.

Starts those that are installed on ports of loopback, prints `{"servers": {NAME: PORT}, "missing": {NAME: WHY}}`, and ends
them when its standard input ends. Each answer has a field `X-Seen: METHOD TARGET HOST LENGTH`; LENGTH is `-` if the
server does not tell.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE = 20  # seconds until a server must accept connections


def seen(method, target, host, length):
    """One line, whatever is in it."""
    text = f"{method} {target} {host} {length}"
    return text.encode("utf-8", "surrogateescape").decode("latin-1").encode("ascii", "backslashreplace").decode()


def wsgi(environ, start_response):
    length = 0
    while piece := environ["wsgi.input"].read(65536):
        length += len(piece)
    target = environ.get("RAW_URI") or environ.get("REQUEST_URI") or environ["PATH_INFO"]
    told = seen(environ["REQUEST_METHOD"], target, environ.get("HTTP_HOST", ""), length)
    start_response("200 OK", [("X-Seen", told), ("Content-Length", "0")])
    return [b""]


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    length, more = 0, True
    while more:
        message = await receive()
        length += len(message.get("body", b""))
        more = message.get("more_body", False)
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    told = seen(scope["method"], target.decode("latin-1"), host, length)
    headers = [(b"x-seen", told.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def serve_aiohttp(port):
    from aiohttp import web

    async def handle(request):
        length = len(await request.read())
        told = seen(request.method, request.raw_path, request.headers.get("Host", ""), length)
        return web.Response(headers={"X-Seen": told})

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


async def serve_tornado(port):
    from tornado.httpserver import HTTPServer
    from tornado.httputil import HTTPHeaders, ResponseStartLine

    def handle(request):
        told = seen(request.method, request.uri, request.headers.get("Host", ""), len(request.body))
        fields = HTTPHeaders({"X-Seen": told, "Content-Length": "0"})
        request.connection.write_headers(ResponseStartLine("HTTP/1.1", 200, "OK"), fields)
        request.connection.finish()

    HTTPServer(handle).listen(port, "127.0.0.1")
    await asyncio.Event().wait()


NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log /dev/null;
events {{ worker_connections 256; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port}; merge_slashes off;
    location / {{ add_header X-Seen "$request_method $request_uri $http_host -" always; return 200; }} }}
}}
"""

APACHE = """
ServerRoot {folder}
PidFile {folder}/apache.pid
Listen 127.0.0.1:{port}
ServerName localhost
ErrorLog /dev/null
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule headers_module {modules}/mod_headers.so
LoadModule authz_core_module {modules}/mod_authz_core.so
DocumentRoot {folder}
Header always set X-Seen "expr=%{{REQUEST_METHOD}} %{{THE_REQUEST}} %{{HTTP_HOST}} -"
"""


def command(name, port, folder):
    """How a server is started; a text says why it cannot be."""
    python, here = sys.executable, os.path.abspath(__file__)
    at = f"127.0.0.1:{port}"
    match name:
        case "gunicorn":
            return [python, "-m", "gunicorn", "-b", at, "-w", "1", "-k", "gthread", "--threads", "16",
                    "--keep-alive", "5", "--log-level", "critical", "readers:wsgi"]
        case "waitress":
            return [python, "-m", "waitress", f"--listen={at}", "readers:wsgi"]
        case "uvicorn-h11" | "uvicorn-httptools":
            return [python, "-m", "uvicorn", "--port", str(port), "--http", name.removeprefix("uvicorn-"),
                    "--log-level", "critical", "readers:asgi"]
        case "hypercorn":
            return [python, "-m", "hypercorn", "-b", at, "--log-level", "critical", "readers:asgi"]
        case "aiohttp" | "tornado":
            return [python, here, name, str(port)]
        case "nginx":
            program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
            if program is None:
                return "no nginx on this machine"
            with open(f"{folder}/nginx.conf", "w") as file:
                file.write(NGINX.format(folder=folder, port=port))
            return [program, "-c", f"{folder}/nginx.conf", "-p", folder]
        case "apache":
            program = shutil.which("apache2", path=os.environ.get("PATH", "") + ":/usr/sbin")
            modules = "/usr/lib/apache2/modules"
            if program is None or not os.path.isdir(modules):
                return "no apache2 on this machine"
            with open(f"{folder}/apache.conf", "w") as file:
                file.write(APACHE.format(folder=folder, port=port, modules=modules))
            return [program, "-X", "-f", f"{folder}/apache.conf"]
    raise ValueError(name)


NAMES = ["aiohttp", "tornado", "gunicorn", "waitress", "uvicorn-h11", "uvicorn-httptools", "hypercorn", "nginx", "apache"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def main():
    servers, missing, running = {}, {}, []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name in NAMES:
                port = free_port()
                start = command(name, port, folder)
                if isinstance(start, str):
                    missing[name] = start
                    continue
                process = subprocess.Popen(start, cwd=os.path.dirname(os.path.abspath(__file__)),
                                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                           stderr=subprocess.DEVNULL, start_new_session=True,
                                           env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
                running.append(process)
                servers[name] = (port, process)
            deadline = time.monotonic() + PATIENCE
            for name, (port, process) in list(servers.items()):
                while not accepts(port):
                    if process.poll() is not None or time.monotonic() > deadline:
                        missing[name] = "it does not start"
                        del servers[name]
                        break
                    time.sleep(0.05)
            print(json.dumps({"servers": {n: p for n, (p, _) in servers.items()}, "missing": missing}), flush=True)
            sys.stdin.read()
        finally:
            for process in running:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run({"aiohttp": serve_aiohttp, "tornado": serve_tornado}[sys.argv[1]](int(sys.argv[2])))
    else:
        main()
