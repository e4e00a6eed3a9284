-- The members of the fleet with their figures; changes nothing.
--
-- KEYS  1 members by the time they were last heard  2 their figures
-- ARGV  1 most members
-- Reply for each, the latest first: member, how long ago it was heard (us), figures (JSON)
local now, found = read_clock(), {}
local members = redis.call('ZREVRANGE', KEYS[1], 0, tonumber(ARGV[1]) - 1, 'WITHSCORES')
for i = 1, #members, 2 do
  local figures = redis.call('HGET', KEYS[2], members[i]) or ''
  found[#found + 1] = { members[i], math.max(now - tonumber(members[i + 1]), 0), figures }
end
return found
