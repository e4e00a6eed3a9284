"""How hostile sites react to a crawler that asks too fast: five kinds of walls.

They are the walls of `docs/learned-rate.md`, which Tidegate's own figures are measured against.

| name | what it does |
|---|---|
| `window` | a limit in a sliding window, then a ban that every further request renews |
| `bucket` | a token bucket that answers 429 with a `Retry-After` |
| `day` | a sliding window whose limit falls by half and recovers, as by day and by night |
| `double` | a sliding window with bans that double each time; answers a plain 403 |
| `soft` | no fixed limit: the further above a threshold, the more answers are captchas |
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

WallName = Literal["window", "bucket", "day", "double", "soft"]

#: A ban that doubles starts at its first length again after this time without a ban.
FORGIVES_AFTER = 1800.0
#: The longest ban that doubles.
LONGEST_BAN = 600.0


@dataclass(frozen=True)
class Block:
    """A site's refusal: its status (0: none, the connection closes), and the wait that it names."""

    status: int
    captcha: bool = False
    retry_after: int | None = None


@dataclass
class Wall:
    """One wall. Times are seconds on any clock that only moves forward."""

    #: Which of the five.
    kind: WallName
    #: Requests per second that the site accepts.
    rate: float = 3.0
    #: Length of the sliding window.
    window: float = 20.0
    #: Length of a ban.
    ban: float = 10.0
    #: Size of the token bucket.
    burst: float = 5.0
    #: Length of a day.
    day: float = 1200.0
    #: Seed of the `soft` wall's draws.
    seed: int = 1

    _hits: deque[float] = field(default_factory=deque, init=False, repr=False)
    _until: float = field(default=-math.inf, init=False, repr=False)
    _last_ban: float = field(default=-math.inf, init=False, repr=False)
    _next_ban: float = field(default=0.0, init=False, repr=False)
    _tokens: float = field(default=0.0, init=False, repr=False)
    _at: float | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the name: a typing mistake must not be a site without a wall."""
        if self.kind not in ("window", "bucket", "day", "double", "soft"):
            raise ValueError(f"{self.kind!r} is not a wall: window, bucket, day, double or soft")
        self._draw = random.Random(self.seed)  # noqa: S311
        self._next_ban = self.ban
        self._tokens = self.burst

    def limit(self, now: float) -> float:
        """Return the requests per second that the site accepts at `now`."""
        if self.kind != "day":
            return self.rate
        turn = (now % self.day) / self.day * math.tau
        return self.rate * (0.75 + 0.25 * math.cos(turn))

    def answer(self, now: float) -> Block | None:
        """Judge a request at `now`: `None` is a page."""
        if self.kind == "bucket":
            return self._bucket(now)
        if self.kind == "soft":
            return self._soft(now)
        return self._window(now)

    def fields(self, now: float) -> dict[str, str]:  # noqa: ARG002
        """Return what each answer says of the limit: nothing."""
        return {}

    def _bucket(self, now: float) -> Block | None:
        since = now - self._at if self._at is not None else 0.0
        self._tokens = min(self._tokens + since * self.rate, self.burst)
        self._at = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return None
        return Block(429, retry_after=math.ceil(1.0 / self.rate))

    def _soft(self, now: float) -> Block | None:
        self._forget(now - self.window)
        excess = len(self._hits) / self.window / self.rate - 1.0
        self._hits.append(now)
        share = min(max(excess * 1.5, 0.0), 0.9)
        return Block(403, captcha=True) if self._draw.random() < share else None

    def _window(self, now: float) -> Block | None:
        block = Block(403 if self.kind == "double" else 429)
        if now < self._until:
            if self.kind == "window":
                self._until = now + self.ban
            return block
        self._forget(now - self.window)
        if len(self._hits) < self.limit(now) * self.window:
            self._hits.append(now)
            return None
        if self.kind == "double":
            if now - self._last_ban > FORGIVES_AFTER:
                self._next_ban = self.ban
            self._until = now + self._next_ban
            self._last_ban = now
            self._next_ban = min(self._next_ban * 2, LONGEST_BAN)
            self._hits.clear()
        else:
            self._until = now + self.ban
        return block

    def _forget(self, before: float) -> None:
        while self._hits and self._hits[0] <= before:
            self._hits.popleft()
