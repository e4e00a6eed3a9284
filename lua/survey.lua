-- The state of some scopes of one rule, for a survey of the fleet. Changes nothing.
-- Fields: `Survey` in src/store/scripts.
local now, found = read_clock(), {}
for n = 1, #KEY.scope do
  local scope = load_cooldown(KEY.scope_cooldown[n])
  local learned = load_learned(unpack(redis.call('HMGET', KEY.scope_bucket[n], 'learn', 'w')))
  found[n] = REPLY {
    cooldown_now = now,
    cooldown_epoch = scope.ep,
    cooldown_till = scope.till,
    cooldown_probe_till = scope.probe > 0 and scope.lease or 0,
    cooldown_streak = exact(scope.streak),
    cooldown_peak = exact(scope.peak),
    cooldown_cause = scope.cause,
    cooldown_blamed = scope.blamed,
    cooldown_named = exact(named_at(scope, now) or 0),
    learned_turn = learned.turn,
    learned_rate = exact(learned.rate),
    learned_mark = exact(learned.mark),
    learned_frozen = learned.frozen,
    learned_why = learned.why,
    learned_wall = WALL.name(learned),
    waiting = redis.call('ZCOUNT', KEY.scope_waiting[n], whole(now), '+inf'),
  }
end
return found
