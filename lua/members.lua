-- Keeps the list of running members: each says that it lives, and hears how many do.
--
-- KEYS  1 members
-- ARGV  1 member  2 how long it counts without news (us; 0 = it leaves)
-- Reply members, whether this one is new (1)
local now, new = read_clock(), 0
if ARGV[2] == '0' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  new = redis.call('ZADD', KEYS[1], whole(now + tonumber(ARGV[2])), ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now))
keep(KEYS[1], tonumber(ARGV[2]))
return { redis.call('ZCARD', KEYS[1]), new }
