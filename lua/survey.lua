-- What the store knows of one scope, for a look at a whole fleet from outside; changes nothing.
--
-- KEYS  1 bucket  2 cooldown  3 waiting members
-- Reply now, epoch, end of the cooldown (us, 0 = open), end of the probe's lease (us, 0 = none), streak, streak that
--       tripped last, why, letters of its blocks, learned rate (tokens per second, 0 = none), members that wait for the
--       bucket
local now = read_clock()
local scope = load_cooldown(KEYS[2])
local learned = load_learned(redis.call('HGET', KEYS[1], 'learn') or '')
return { now, scope.ep, scope.till, scope.probe > 0 and scope.lease or 0, exact(scope.streak), exact(scope.peak),
  scope.cause, scope.blamed, exact(learned.rate), redis.call('ZCOUNT', KEYS[3], whole(now), '+inf') }
