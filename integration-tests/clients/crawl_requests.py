"""Crawls a site with requests: the index page, then every link on it. The proxy comes from HTTP_PROXY.

Arguments and output: see README.md in this folder.
"""
import json
import os
import re
import sys
from urllib.parse import urljoin

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

index = sys.argv[1]
timeout = (10, float(os.environ.get("TIMEOUT", "60")))
session = requests.Session()
if os.environ.get("ADVISED") == "1":
    retry = Retry(total=3, status_forcelist=[429, 503], respect_retry_after_header=True)
    session.mount("http://", HTTPAdapter(max_retries=retry))

answers, error = [], None
try:
    answers.append(session.get(index, timeout=timeout))
    for link in re.findall(r'href="(/item/\d+)"', answers[0].text):
        answers.append(session.get(urljoin(index, link), timeout=timeout))
except requests.RequestException as failure:
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
