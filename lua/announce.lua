-- Publishes the figures of a member for the fleet view. They outlive its last heartbeat for a while.
-- Fields: `Announce` in src/store/scripts.
local FORGET_AT_ONCE = 10
local now, kept = read_clock(), tonumber(ARG.kept)
if ARG.figures == '' then
  redis.call('ZREM', KEY.members, ARG.member)
  redis.call('HDEL', KEY.figures, ARG.member)
else
  redis.call('ZADD', KEY.members, whole(now), ARG.member)
  redis.call('HSET', KEY.figures, ARG.member, ARG.figures)
end
local old = whole(now - kept)
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEY.members, '-inf', old, 'LIMIT', 0, FORGET_AT_ONCE)) do
  redis.call('ZREM', KEY.members, member)
  redis.call('HDEL', KEY.figures, member)
end
keep(KEY.members, kept)
keep(KEY.figures, kept)
return {}
