"""Walls as sites and products document them, by name: how each counts, bans and answers.

`walls.tsv` has them: `cloudflare`, `fail2ban`, `github` and others. `names()` lists them.
Tidegate's own figures in `docs/learned-rate.md` are measured against the same table.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from dataclasses import dataclass
from importlib import resources

from tidegate.walls import Block

#: A ban that doubles starts at its first length again after this time without a ban.
FORGIVES_AFTER = 3600.0
#: The longest ban that doubles.
LONGEST_BAN = 7200.0
#: The short one of two windows accepts this share more.
SHORT_WINDOW = 1.5


@dataclass(frozen=True)
class _Row:
    name: str
    shape: str
    window: float
    extra: float
    ban: float
    #: What a ban does with further requests (`+`: renewed by each) and offences (`x`: doubles).
    ban_grows: str
    answer: str
    counts_refused: bool


def _read() -> dict[str, _Row]:
    table = resources.files("tidegate").joinpath("walls.tsv").read_text(encoding="utf-8")
    rows = {}
    for line in table.splitlines():
        if line.startswith("#"):
            continue
        family, name, shape, window, extra, ban, answer, counts = line.split("\t")
        if family == "none":
            continue  # a site without a limit
        length = 0.0 if ban == "-" else float(ban.rstrip("+x"))
        rows[name] = _Row(
            name, shape, float(window), float(extra), length, ban[-1], answer, counts == "yes"
        )
    return rows


_ROWS = _read()


def names() -> list[str]:
    """Return the names of all documented walls."""
    return list(_ROWS)


class DocumentedWall:
    """One wall of the table. Times are seconds on any clock that only moves forward."""

    def __init__(
        self,
        name: str,
        rate: float = 3.0,
        *,
        window: float | None = None,
        ban: float | None = None,
        seed: int = 1,
    ) -> None:
        """Take the wall of this name at `rate` requests per second.

        `window` and `ban` replace its own lengths, which may be longer than a test.
        """
        row = _ROWS.get(name)
        if row is None:
            raise ValueError(f"{name!r} is not a documented wall: {', '.join(_ROWS)}")
        self.name = name
        self.rate = rate
        self.window = row.window if window is None else window
        self.ban = row.ban if ban is None else ban
        self._row = row
        self._most = rate * self.window
        # Several edge servers count apart.
        nodes = int(row.extra) if row.shape == "split" else 1
        self._hits: list[deque[float]] = [deque() for _ in range(nodes)]
        self._draw = random.Random(seed)  # noqa: S311
        self._start = -math.inf
        self._count = 0
        self._tokens = self._most
        self._tokens_at: float | None = None
        self._looked = -math.inf
        self._over = False
        self._until = -math.inf
        self._next_ban = self.ban
        self._last_ban = -math.inf

    def answer(self, now: float) -> Block | None:
        """Judge a request at `now`: `None` is a page."""
        if now < self._until:
            if self._row.ban_grows == "+":
                self._until = now + self.ban
            return self._block(self._until - now)
        wait = self._wait(now)
        if wait is None:
            return None
        ban = self._ban(now)
        if ban:
            self._until = now + ban
            for hits in self._hits:
                hits.clear()
        return self._block(max(ban, wait))

    def fields(self, now: float) -> dict[str, str]:
        """Return what each answer says of the limit, at a wall that says anything."""
        if self._row.answer != "says":
            return {}
        left = max(math.floor(self._most - self._count), 0)
        reset = max(math.ceil(self._start + self.window - now), 0)
        return {"X-RateLimit-Remaining": str(left), "X-RateLimit-Reset": str(reset)}

    def _ban(self, now: float) -> float:
        if self._row.ban_grows != "x":
            return self.ban
        if now - self._last_ban > FORGIVES_AFTER:
            self._next_ban = self.ban
        self._last_ban = now
        length = self._next_ban
        self._next_ban = min(length * 2, LONGEST_BAN)
        return length

    def _wait(self, now: float) -> float | None:
        """Return how long to wait for room, if there is none. What is let through is counted."""
        shape = self._row.shape
        if shape == "bucket":
            return self._bucket(now)
        if shape in ("clock", "own"):
            return self._fixed_window(now)
        if shape == "two":
            return self._two_windows(now)
        if shape == "late":
            return self._late(now)
        node = self._draw.choice(self._hits)
        return self._sliding(node, now, self._most / len(self._hits))

    def _bucket(self, now: float) -> float | None:
        since = 0.0 if self._tokens_at is None else now - self._tokens_at
        self._tokens = min(self._tokens + since * self.rate, self._most)
        self._tokens_at = now
        if self._tokens < 1.0:
            return 1.0
        self._tokens -= 1.0
        return None

    def _fixed_window(self, now: float) -> float | None:
        if now >= self._start + self.window:
            self._start = now if self._row.shape == "own" else now - now % self.window
            self._count = 0
        if self._count + 1 > self._most:
            return self._start + self.window - now
        self._count += 1
        return None

    def _two_windows(self, now: float) -> float | None:
        hits = self._hits[0]
        short = self._row.extra
        recent = itertools.takewhile(lambda hit: hit > now - short, reversed(hits))
        if sum(1 for _ in recent) + 1 > self.rate * SHORT_WINDOW * short:
            if self._row.counts_refused:
                hits.append(now)
            return short
        return self._sliding(hits, now, self._most)

    def _late(self, now: float) -> float | None:
        """Count all requests, but look at the count only every so often."""
        hits = self._hits[0]
        hits.append(now)
        if now - self._looked >= self._row.extra:
            self._looked = now
            while hits[0] <= now - self.window:
                hits.popleft()
            self._over = len(hits) > self._most
        return self._row.extra if self._over else None

    def _sliding(self, hits: deque[float], now: float, most: float) -> float | None:
        while hits and hits[0] <= now - self.window:
            hits.popleft()
        full = len(hits) + 1 > most
        wait = hits[0] + self.window - now if hits else self.window
        if not full or self._row.counts_refused:
            hits.append(now)
        return wait if full else None

    def _block(self, wait: float) -> Block:
        answer = self._row.answer
        if answer == "wait":
            return Block(429, retry_after=math.ceil(max(wait, 1.0)))
        if answer == "drop":
            return Block(0)
        return Block(429 if answer == "says" else int(answer))
