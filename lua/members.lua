-- Heartbeat of a member: keeps the list of running members, and returns their number.
-- Fields: `Members` in src/store/scripts.
--
-- All members in the list have the same schema of keys, news and script arguments. A member with another schema stays
-- out while one of them lives. So this script, its keys and its arguments are the same in every schema.
local now, life, own, new = read_clock(), tonumber(ARG.life), ARG.member .. '/' .. ARG.schema, 0
redis.call('ZREMRANGEBYSCORE', KEY.members, '-inf', whole(now))
local other = redis.call('ZRANGE', KEY.members, 0, 0)[1]
local schema = other and (string.match(other, '/(.*)$') or 'none') or ARG.schema
if schema ~= ARG.schema then
  return REPLY { count = redis.call('ZCARD', KEY.members), is_new = 0, other_schema = schema }
end
if life == 0 then
  redis.call('ZREM', KEY.members, own)
else
  new = redis.call('ZADD', KEY.members, whole(now + life), own)
end
keep(KEY.members, life)
return REPLY { count = redis.call('ZCARD', KEY.members), is_new = new, other_schema = '' }
