-- Detects that the store has lost its memory of a shard (of a whole rule outside of a Cluster) by a flush or a failover
-- to an empty server. It may also lack only the latest writes, if another process now has the memory (a replica that
-- lagged, a restart from disk). Then the shard grants nothing until all members have reported what they know, or the
-- grace period is over: the hold.
--
-- Hash: since (when this memory began; its name), before (the lost memory before it; 0 = unknown), till (end of the
-- hold), fleet (members to wait for), said (whether they were notified), server and run (the process with this memory),
-- and the members that have reported everything they knew of the memory before.

-- If no member reports a bucket in this time after the store came back, the bucket counts as full.
local SETTLED = 60000000 - CONST.GRACE
-- Fields of the hash that are not members.
local FIELDS = 7
-- A member that was away for longer has nothing to report.
local REMEMBERED = 30 * 24 * 3600 * 1000000
-- Identifies the server process at no cost, by the address of a table of its interpreter. Stored data would be the same
-- in a replica or after a restart from disk.
local SERVER = string.sub(tostring(math), -12)

local function save_memory(key, memory)
  redis.call('HSET', key, 'since', whole(memory.since), 'before', whole(memory.before), 'till', whole(memory.till),
    'fleet', whole(memory.fleet), 'said', whole(memory.said), 'server', SERVER, 'run', memory.run)
end

-- The run id of this process. A new interpreter does not prove that the process is new, because SCRIPT FLUSH also
-- creates one. Empty if the ACL user may not call INFO.
local function run_id()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
end

-- `known`: the memory that the member knows, 0 = none. `fleet`: the number of members that it knows. A single member
-- knows everything.
local function load_memory(key, known, fleet, now)
  local fields = redis.call('HMGET', key, 'since', 'before', 'till', 'fleet', 'said', 'server', 'run')
  for i = 1, 5 do fields[i] = tonumber(fields[i] or 0) end
  local memory = { since = fields[1], before = fields[2], till = fields[3], fleet = fields[4], said = fields[5] }
  memory.run = fields[7] or ''
  -- A member that knows an older memory is late, unless a member that knew none started this one.
  local lost = known > 0 and known ~= memory.since and (memory.before == 0 or known > memory.since)
  local other, moved = fields[6] ~= SERVER, false
  if other then
    local run = run_id()
    moved = memory.since > 0 and (run == '' or run ~= memory.run)
    memory.run = run
  end
  if lost or moved then
    forget(key)
    memory.before = lost and known or memory.since
    -- The name differs from the previous one even if the clock is behind.
    memory.since = math.max(now, memory.before + 1)
    memory.till, memory.fleet, memory.said = fleet > 1 and now + CONST.GRACE or now, fleet, 0
  elseif memory.since == 0 then
    memory.since = now
  end
  if lost or other then save_memory(key, memory) end
  keep(key, REMEMBERED)
  return memory
end

-- Until when a member may report a bucket that the store does not have; nil = no member will.
local function unknown_until(memory, now)
  local till = memory.till + SETTLED
  return till > now and memory.till <= now + CONST.GRACE and till or nil
end

-- End of the hold; 0 = there is none. A clock that was set back does not make it longer.
local function hold_of(memory, now)
  return memory.till > now and memory.till <= now + CONST.GRACE and memory.till or 0
end
