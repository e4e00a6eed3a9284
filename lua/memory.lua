-- Tells a member which memory the store has of a rule, and hears that the member has told what it knew of the one before.
-- Fields: `Memory` in src/store/scripts.
--
-- The news `lost` goes out when members are first waited for, `told` when they are not any more.
local now = read_clock()
local memory = load_memory(KEY.memory, tonumber(ARG.memory), tonumber(ARG.fleet), now)
local function tell(what)
  push({ whole(memory.since), what, ARG.member })
end
if hold_of(memory, now) > 0 then
  if memory.said == 0 then
    memory.said = 1
    tell('lost')
  end
  if tonumber(ARG.memory) == memory.since and tonumber(ARG.reported) == memory.before then
    redis.call('HSET', KEY.memory, ARG.member, '1')
  end
  if redis.call('HLEN', KEY.memory) - FIELDS >= memory.fleet then
    memory.till = now
    tell('told')
  end
  save_memory(KEY.memory, memory)
end
return REPLY { memory = memory.since }
