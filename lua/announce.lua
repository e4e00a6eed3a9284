-- A member publishes its figures for whoever looks at the fleet; once it is silent, they are kept for a while.
--
-- KEYS  1 members by the time they were last heard  2 their figures
-- ARGV  1 member  2 figures (JSON; empty: it leaves)  3 how long they are kept without news (us)
-- Reply members whose figures are kept
local FORGET_AT_ONCE = 10
local now = read_clock()
if ARGV[2] == '' then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
else
  redis.call('ZADD', KEYS[1], whole(now), ARGV[1])
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
end
local old = whole(now - tonumber(ARGV[3]))
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', old, 'LIMIT', 0, FORGET_AT_ONCE)) do
  redis.call('ZREM', KEYS[1], member)
  redis.call('HDEL', KEYS[2], member)
end
keep(KEYS[1], tonumber(ARGV[3]))
keep(KEYS[2], tonumber(ARGV[3]))
return redis.call('ZCARD', KEYS[1])
