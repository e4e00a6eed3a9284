-- Reads a scope without changing it: after a lost subscription, and for the status page.
--
-- KEYS  1 bucket  2 cooldown
-- Reply now, epoch, end of the cooldown (us, 0 = open), end of the probe's lease (us, 0 = none), streak, streak that
--       tripped last, why, letters of its blocks, rate that the site names (tokens per second, 0 = none), moment and tokens of the bucket (us; empty where there is none)
local now = read_clock()
local scope = load_cooldown(KEYS[2])
local bucket = redis.call('HMGET', KEYS[1], 'at', 'tok')
return { now, scope.ep, scope.till, scope.probe > 0 and scope.lease or 0, exact(scope.streak), exact(scope.peak),
  scope.cause, scope.blamed, exact(named_at(scope, now) or 0), bucket[1] or '', bucket[2] or '' }
