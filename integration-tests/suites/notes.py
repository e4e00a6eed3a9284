"""Runs in httplint's environment: reads requests with their answers, writes its notes that are a warning or worse."""

import base64
import json
import sys

from httplint.message import HttpRequestLinter, HttpResponseLinter
from httplint.note import levels


def fields(lines):
    """Names and values of header lines."""
    pairs = (line.split(b":", 1) for line in lines if line)
    return [(name, value.strip()) for name, value in pairs]


def unchunked(body):
    """The content of a chunked body."""
    content = b""
    while body:
        size, body = body.split(b"\r\n", 1)
        length = int(size.split(b";")[0], 16)
        content, body = content + body[:length], body[length + 2 :]
        if not length:
            break
    return content


def notes(asked, answer):
    """httplint's notes on one answer."""
    request = HttpRequestLinter()
    method, target, _ = asked.split(b"\r\n")[0].split(b" ")[:3]
    request.process_request_topline(method, target, b"1.1")
    response = HttpResponseLinter()
    response.request, response.is_head_response = request, method == b"HEAD"
    head, body = answer.split(b"\r\n\r\n", 1)
    status, *lines = head.split(b"\r\n")
    version, code, *phrase = status.split(b" ", 2)
    response.process_response_topline(version[5:], code, b" ".join(phrase))
    response.process_headers(fields(lines))
    if b"\r\ntransfer-encoding: chunked" in head.lower():
        body = unchunked(body)
    response.feed_content(body)
    response.finish_content(True, [])
    found = []
    for note in response.notes:
        found += [one for one in (note, *note.subnotes) if one.level in (levels.WARN, levels.BAD)]
    return [f"{type(one).__name__}: {one.summary}" for one in found]


with open(sys.argv[1], encoding="utf-8") as file:
    pairs = json.load(file)
decode = base64.b64decode
print(json.dumps({name: notes(decode(asked), decode(answer)) for name, (asked, answer) in pairs.items()}))
