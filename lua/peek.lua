-- Reads a scope without changing it: after a lost subscription, and for the status page.
-- Fields: `Peek` in src/store/scripts.
local now = read_clock()
local scope = load_cooldown(KEY.cooldown)
return REPLY {
  now = now,
  epoch = scope.ep,
  till = scope.till,
  probe_till = scope.probe > 0 and scope.lease or 0,
  streak = exact(scope.streak),
  peak = exact(scope.peak),
  cause = scope.cause,
  blamed = scope.blamed,
  named = exact(named_at(scope, now) or 0),
}
