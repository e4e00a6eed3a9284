"""Crawls a site with aiohttp, all links at once. The proxy comes from HTTP_PROXY (`trust_env`).

Arguments and output: see README.md in this folder.
"""
import asyncio
import json
import os
import re
import sys
from urllib.parse import urljoin

import aiohttp

index = sys.argv[1]
patience = float(os.environ.get("TIMEOUT", "60"))
timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=patience)
answers, errors = [], []


async def get(session, url):
    try:
        async with session.get(url) as response:
            text = await response.text()
            answers.append((response.status, response.headers))
            return text
    except (aiohttp.ClientError, asyncio.TimeoutError) as failure:
        errors.append(type(failure).__name__)
        return ""


async def crawl():
    async with aiohttp.ClientSession(trust_env=True, timeout=timeout) as session:
        links = re.findall(r'href="(/item/\d+)"', await get(session, index))
        await asyncio.gather(*(get(session, urljoin(index, link)) for link in links))


asyncio.run(crawl())
print(
    json.dumps(
        {
            "statuses": [status for status, _ in answers],
            "verdicts": [headers.get("Tidegate-Verdict") for _, headers in answers],
            "refused": [headers.get("Tidegate-Refused") for _, headers in answers],
            "error": errors[0] if errors else None,
        }
    )
)
