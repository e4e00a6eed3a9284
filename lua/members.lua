-- Keeps the list of running members: each says that it lives, and hears how many do.
--
-- All members of the list have the same schema: of the keys, the news and the arguments of the scripts. A member of another
-- schema stays out while one of them lives. So this script, its keys and its arguments are the same in every schema.
--
-- KEYS  1 members, each as `name/schema`
-- ARGV  1 member  2 how long it counts without news (us; 0 = it leaves)  3 its schema
-- Reply members, whether this one is new (1), the schema of the others where it is another (else empty)
local now, own, new = read_clock(), ARGV[1] .. '/' .. ARGV[3], 0
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now))
local other = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
local schema = other and (string.match(other, '/(.*)$') or 'none') or ARGV[3]
if schema ~= ARGV[3] then return { redis.call('ZCARD', KEYS[1]), 0, schema } end
if ARGV[2] == '0' then
  redis.call('ZREM', KEYS[1], own)
else
  new = redis.call('ZADD', KEYS[1], whole(now + tonumber(ARGV[2])), own)
end
keep(KEYS[1], tonumber(ARGV[2]))
return { redis.call('ZCARD', KEYS[1]), new, '' }
