-- The members of the fleet with their figures, the latest first. Changes nothing.
-- Fields: `Roster` in src/store/scripts.
local now, found = read_clock(), {}
local members = redis.call('ZREVRANGE', KEY.members, 0, tonumber(ARG.most) - 1, 'WITHSCORES')
for i = 1, #members, 2 do
  local figures = redis.call('HGET', KEY.figures, members[i]) or ''
  found[#found + 1] = REPLY { member = members[i], ago = math.max(now - tonumber(members[i + 1]), 0), figures = figures }
end
return found
