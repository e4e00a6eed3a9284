-- Returns the store's memory of a shard, and records that a member has reported what it knew of the previous memory.
-- Fields: `Memory` in src/store/scripts.
--
-- The news `lost` asks the members for reports, and the news `told` says that all reports are in.
local now = read_clock()
local memory = load_memory(KEY.memory, tonumber(ARG.memory), tonumber(ARG.fleet), now)
local function notify(what)
  push({ whole(memory.since), what, ARG.member })
end
if hold_of(memory, now) > 0 then
  if memory.said == 0 then
    memory.said = 1
    notify('lost')
  end
  if tonumber(ARG.memory) == memory.since and tonumber(ARG.reported) == memory.before then
    redis.call('HSET', KEY.memory, ARG.member, '1')
  end
  if redis.call('HLEN', KEY.memory) - FIELDS >= memory.fleet then
    memory.till = now
    notify('told')
  end
  save_memory(KEY.memory, memory)
end
return REPLY { memory = memory.since }
