-- Whether the store still has its memory of a rule. Where it has lost it (a flush, a failover to a server that knows
-- nothing), nothing of the rule is granted until all members have told what they know, or must have done so (the hold).
--
-- Hash: since (when this memory began: its name), before (the one before it, which is lost; 0 = nobody knew of any), till
-- (until when members are waited for), fleet (how many), said (whether they have been told), and the members that have
-- told all they knew of the one before.

-- What a member may need to find a store that is back: to connect, to knock, to wait for a call that hangs.
local GRACE = 3000000
-- Fields of the hash that are no members.
local FIELDS = 5
-- Who comes back later than that has nothing to tell.
local REMEMBERED = 30 * 24 * 3600 * 1000000

local function save_memory(key, memory)
  redis.call('HSET', key, 'since', whole(memory.since), 'before', whole(memory.before), 'till', whole(memory.till),
    'fleet', whole(memory.fleet), 'said', whole(memory.said))
end

-- `known`: the memory of which a member knows, 0 = of none; `fleet`: how many members it knows of. Alone, it knows all that
-- there is to know.
local function load_memory(key, known, fleet, now)
  local fields = redis.call('HMGET', key, 'since', 'before', 'till', 'fleet', 'said')
  for i = 1, FIELDS do fields[i] = tonumber(fields[i] or 0) end
  local memory = { since = fields[1], before = fields[2], till = fields[3], fleet = fields[4], said = fields[5] }
  -- Who knows of an older one comes late, but where this one began with somebody who knew of none.
  local lost = known > 0 and known ~= memory.since and (memory.before == 0 or known > memory.since)
  if lost then
    forget(key)
    memory = { since = now, before = known, till = fleet > 1 and now + GRACE or now, fleet = fleet, said = 0 }
  elseif memory.since == 0 then
    memory.since = now
  end
  if memory.since == now then save_memory(key, memory) end
  keep(key, REMEMBERED)
  return memory
end

-- Until when nothing is granted; 0 = nobody is waited for. A clock that was set back makes nobody wait for longer.
local function hold_of(memory, now)
  return memory.till > now and memory.till <= now + GRACE and memory.till or 0
end
