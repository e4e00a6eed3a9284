-- Repairs a bucket that lost its memory (a flush, a failover) from the members' copies.

-- Attaches the bucket to the store's memory of its rule. If a memory was lost or may lack the latest writes, the bucket
-- is empty when the next memory begins. It grants nothing until each member has reported its latest ticket (the bucket
-- continues from the latest of all) and what was taken of the quotas. A missing bucket counts as empty since the memory
-- began for a minute (until `unknown_until`; nil = a member knows it), and then as full.
local function note_memory(bucket, key, known, fleet, now)
  local since, held = bucket.since, bucket.hold > now
  bucket.recovers = held
  if since > 0 and since == known and bucket.server == SERVER and not held then
    bucket.hold = 0
    keep(key, REMEMBERED)
    return
  end
  local memory = load_memory(key, known, fleet, now)
  bucket.since, bucket.hold, bucket.server = memory.since, hold_of(memory, now), SERVER
  bucket.recovers = bucket.hold > 0
  if bucket.since == since or memory.before == 0 then return end
  if bucket.fresh then
    bucket.unknown_until = unknown_until(memory, now)
    if not bucket.unknown_until then return end
    bucket.at = 0
  end
  bucket.at, bucket.tokens = math.max(bucket.at, math.min(memory.since, now)), math.min(bucket.tokens, 0)
  bucket.born = now
  for _, window in ipairs(bucket.windows) do window.known = window.taken end
end

-- A lost bucket continues from a member's latest ticket. `latest` is that ticket, the time of the reply that contained
-- it, and how many members waited then. If only this bucket is gone (an eviction), it grants nothing for as long as
-- other members may hold tickets. A bucket that was used after that reply has lost nothing. Neither has one whose clock
-- was set back.
local function recover_bucket(bucket, latest, fleet, now, limits)
  local moment, heard, members = string.match(latest, '^(%d+):(%d+):(%d+)$')
  if not moment or not limits.rate then return end
  moment, heard = tonumber(moment), tonumber(heard)
  if heard > now then return end
  if bucket.recovers then
    if moment > bucket.at then bucket.at, bucket.tokens = moment, math.min(bucket.tokens, 0) end
  elseif bucket.fresh then
    local ahead = fleet > 1 and CONST.HORIZON + ceil(members * limits.cost / limits.rate) or 0
    bucket.at, bucket.tokens = bucket.unknown_until and math.max(bucket.at, moment) or moment, 0
    if moment + ahead > now then bucket.at = math.max(moment, now + ahead) end
  elseif bucket.was_seen < heard and bucket.at < moment then
    bucket.at, bucket.tokens = moment, 0
  end
end

-- Recovers what was taken in the quota windows that still run, as a member knew it at `heard`. If the bucket began
-- later, its own count is added. Of several reports about the same window the largest counts. Once the next window has
-- begun with a ticket ahead, the previous one no longer matters. If only the latest writes were lost, the larger count
-- is right.
local function recover_windows(bucket, known, now, limits)
  local heard, list = string.match(known, '^(%d+);(.*)$')
  heard = tonumber(heard)
  if not heard or heard > now then return end
  local lost, late = heard < bucket.born, bucket.was_seen < heard
  if not lost and not late then return end
  for length, start, taken in string.gmatch(list, '(%d+):(-?%d+):(%d+)') do
    length, start, taken = tonumber(length), tonumber(start), tonumber(taken)
    if start + length > now then
      local window = window_for(bucket, length)
      -- No ticket comes before a window that began with a ticket ahead, because the previous window was full.
      bucket.not_before = math.max(bucket.not_before or 0, start)
      -- The first member to report may know only the previous window.
      if window.start + length <= math.max(now, start) then
        window.start, window.taken, window.known = start, taken, lost and taken or 0
      elseif lost and window.start - start < length then
        local more = math.max(taken - window.known, 0)
        window.start = math.min(window.start, start)
        window.taken, window.known = window.taken + more, window.known + more
      elseif window.start == start then
        window.taken = math.max(window.taken, taken)
      end
    end
  end
end
