"""Crawls a site with httpx: the index page, then every link on it. The proxy comes from HTTP_PROXY.
`HTTP2=1` in the environment offers HTTP/2 where the site is https.

Arguments and output: see README.md in this folder.
"""
import json
import os
import re
import sys
from urllib.parse import urljoin

import httpx

index = sys.argv[1]
timeout = httpx.Timeout(10, read=float(os.environ.get("TIMEOUT", "60")))
answers, error = [], None
with httpx.Client(timeout=timeout, http2=os.environ.get("HTTP2") == "1") as client:
    try:
        answers.append(client.get(index))
        for link in re.findall(r'href="(/item/\d+)"', answers[0].text):
            answers.append(client.get(urljoin(index, link)))
    except httpx.HTTPError as failure:
        error = type(failure).__name__
print(
    json.dumps(
        {
            "statuses": [answer.status_code for answer in answers],
            "verdicts": [answer.headers.get("Tidegate-Verdict") for answer in answers],
            "refused": [answer.headers.get("Tidegate-Refused") for answer in answers],
            "error": error,
        }
    )
)
