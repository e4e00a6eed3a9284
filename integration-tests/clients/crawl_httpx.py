"""Crawls a site with httpx: the index page, then every link on it. The proxy comes from HTTP_PROXY.

Prints one JSON object: {"statuses": [...], "verdicts": [...]}, the index page first.
"""
import json
import re
import sys

import httpx

index = sys.argv[1]
with httpx.Client(timeout=60) as client:
    answers = [client.get(index)]
    for link in re.findall(r'href="(/item/\d+)"', answers[0].text):
        answers.append(client.get(httpx.URL(index).join(link)))
print(
    json.dumps(
        {
            "statuses": [answer.status_code for answer in answers],
            "verdicts": [answer.headers.get("Tidegate-Verdict") for answer in answers],
        }
    )
)
