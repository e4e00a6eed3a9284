-- Tells a member which memory the store has of a rule, and hears that the member has told what it knew of the one before.
--
-- KEYS  1 memory (lib/memory.lua)
-- ARGV  1 member  2 the memory that it knows of (us, 0 = none)  3 members that it knows of  4 the memory of which it has told
--       all it knew (us, 0 = none)  5 command (PUBLISH SPUBLISH) and 6 channel of the news  7 name of the rule
-- Reply the memory (us)
-- The news `lost` goes out when members are first waited for, `told` when they are not any more.
local now = read_clock()
local memory = load_memory(KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), now)
local function tell(what)
  push(ARGV[5], ARGV[6], { ARGV[7], whole(memory.since), what, ARGV[1] })
end
if hold_of(memory, now) > 0 then
  if memory.said == 0 then
    memory.said = 1
    tell('lost')
  end
  if tonumber(ARGV[2]) == memory.since and tonumber(ARGV[4]) == memory.before then
    redis.call('HSET', KEYS[1], ARGV[1], '1')
  end
  if redis.call('HLEN', KEYS[1]) - FIELDS >= memory.fleet then
    memory.till = now
    tell('told')
  end
  save_memory(KEYS[1], memory)
end
return { memory.since }
