"""Crawls a site with requests: the index page, then every link on it. The proxy comes from HTTP_PROXY.

Prints one JSON object: {"statuses": [...], "verdicts": [...]}, the index page first.
"""
import json
import re
import sys

import requests

index = sys.argv[1]
session = requests.Session()
answers = [session.get(index, timeout=60)]
for link in re.findall(r'href="(/item/\d+)"', answers[0].text):
    answers.append(session.get(requests.compat.urljoin(index, link), timeout=60))
print(
    json.dumps(
        {
            "statuses": [answer.status_code for answer in answers],
            "verdicts": [answer.headers.get("Tidegate-Verdict") for answer in answers],
        }
    )
)
