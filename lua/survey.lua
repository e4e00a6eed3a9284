-- What the store knows of some scopes of one rule, for a look at a whole fleet; changes nothing.
--
-- KEYS  for each scope: bucket, cooldown, waiting members
-- Reply for each scope: now, epoch, end of the cooldown (us, 0 = open), end of the probe's lease (us, 0 = none), streak,
--       streak that tripped last, why, letters of its blocks, rate that the site names (tokens per second, 0 = none), what has been learned (turn, 0 = nothing; rate; mark;
--       frozen; why), members that wait for the bucket
local now, found = read_clock(), {}
for i = 1, #KEYS, 3 do
  local scope = load_cooldown(KEYS[i + 1])
  local learned = load_learned(redis.call('HGET', KEYS[i], 'learn') or '')
  found[#found + 1] = { now, scope.ep, scope.till, scope.probe > 0 and scope.lease or 0, exact(scope.streak),
    exact(scope.peak), scope.cause, scope.blamed, exact(named_at(scope, now) or 0), learned.turn, exact(learned.rate), exact(learned.mark), learned.frozen, learned.why,
    redis.call('ZCOUNT', KEYS[i + 2], whole(now), '+inf') }
end
return found
