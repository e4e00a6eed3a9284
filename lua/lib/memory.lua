-- Whether the store still has its memory of a rule. Where it has lost it (a flush, a failover to a server that knows
-- nothing), or may have lost the latest of it (another process has it now: a replica that lagged behind, a start from what
-- was on the disk), nothing of the rule is granted until all members have told what they know, or must have done so (the
-- hold).
--
-- Hash: since (when this memory began: its name), before (the one before it, which is lost; 0 = nobody knew of any), till
-- (until when members are waited for), fleet (how many), said (whether they have been told), server and run (the process
-- whose memory it is), and the members that have told all they knew of the one before.

-- A bucket that is not there this long after the store came back was full before, or nobody is left who knows better.
local SETTLED = 60000000 - CONST.GRACE
-- Fields of the hash that are no members.
local FIELDS = 7
-- Who comes back later than that has nothing to tell.
local REMEMBERED = 30 * 24 * 3600 * 1000000
-- Tells one process from another, as nothing does that is written to disk or to replicas, and costs nothing: where the
-- interpreter keeps a table of its own.
local SERVER = string.sub(tostring(math), -12)

local function save_memory(key, memory)
  redis.call('HSET', key, 'since', whole(memory.since), 'before', whole(memory.before), 'till', whole(memory.till),
    'fleet', whole(memory.fleet), 'said', whole(memory.said), 'server', SERVER, 'run', memory.run)
end

-- The name of this process, asked for where the interpreter is another: a SCRIPT FLUSH makes one too. Empty where the user
-- may not ask.
local function run_id()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
end

-- `known`: the memory of which a member knows, 0 = of none; `fleet`: how many members it knows of. Alone, it knows all that
-- there is to know.
local function load_memory(key, known, fleet, now)
  local fields = redis.call('HMGET', key, 'since', 'before', 'till', 'fleet', 'said', 'server', 'run')
  for i = 1, 5 do fields[i] = tonumber(fields[i] or 0) end
  local memory = { since = fields[1], before = fields[2], till = fields[3], fleet = fields[4], said = fields[5] }
  memory.run = fields[7] or ''
  -- Who knows of an older one comes late, but where this one began with somebody who knew of none.
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
    -- Another name than the one before, also by a clock that is behind.
    memory.since = math.max(now, memory.before + 1)
    memory.till, memory.fleet, memory.said = fleet > 1 and now + CONST.GRACE or now, fleet, 0
  elseif memory.since == 0 then
    memory.since = now
  end
  if lost or other then save_memory(key, memory) end
  keep(key, REMEMBERED)
  return memory
end

-- Until when a member may still report a bucket that the store does not have; nil = none will.
local function doubt_of(memory, now)
  local till = memory.till + SETTLED
  return till > now and memory.till <= now + CONST.GRACE and till or nil
end

-- Until when nothing is granted; 0 = nobody is waited for. A clock that was set back makes nobody wait for longer.
local function hold_of(memory, now)
  return memory.till > now and memory.till <= now + CONST.GRACE and memory.till or 0
end
