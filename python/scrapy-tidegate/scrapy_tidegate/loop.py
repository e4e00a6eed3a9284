"""Waiting and threads under either of Scrapy's event loops: asyncio, or Twisted's own reactor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Callable, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

#: asyncio itself keeps only weak references to tasks.
_tasks: set[asyncio.Task[Any]] = set()


async def in_thread(function: Callable[[], T]) -> T:
    """Run a function that blocks."""
    loop = _running_loop()
    if loop is not None:
        return await loop.run_in_executor(None, function)
    from twisted.internet.threads import deferToThread  # noqa: PLC0415

    result: T = await deferToThread(function)
    return result


async def sleep(seconds: float) -> None:
    """Wait without blocking the crawl."""
    if _running_loop() is not None:
        await asyncio.sleep(seconds)
        return
    from twisted.internet import reactor  # noqa: PLC0415
    from twisted.internet.task import deferLater  # noqa: PLC0415

    await deferLater(reactor, seconds, lambda: None)


def start(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in the background."""
    loop = _running_loop()
    if loop is not None:
        task = loop.create_task(coroutine)
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        return
    from twisted.internet.defer import Deferred  # noqa: PLC0415

    Deferred.fromCoroutine(coroutine)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
