-- What members know repairs a bucket that lost its memory (a flush, a failover).

-- The memory of its rule that the bucket is part of. Where one was lost, or the latest of it may be, the bucket is empty
-- when the next begins, and held until members have told what they know: each its latest ticket, the latest of which is
-- the bucket's, and what was taken of its quotas, of which the bucket may know a part. A bucket that is not there is taken
-- to be empty for a minute, as if it had begun with the memory (`doubt`: until when; nil = somebody knows), and then full.
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
    bucket.doubt = doubt_of(memory, now)
    if not bucket.doubt then return end
    bucket.at = 0
  end
  bucket.at, bucket.tokens = math.max(bucket.at, math.min(memory.since, now)), math.min(bucket.tokens, 0)
  bucket.born = now
  for _, window in ipairs(bucket.windows) do window.told = window.taken end
end

-- A bucket that lost its memory goes on where a member says that it was: `latest` is the member's latest ticket, the time
-- at which it was told, and how many members waited then. Where a bucket alone is gone (an eviction), it hands out nothing
-- for as long as tickets of others may be out. What has read the clock since then has lost nothing, and neither has a clock
-- that was set back.
local function recover_bucket(bucket, latest, fleet, now, limits)
  local moment, told, members = string.match(latest, '^(%d+):(%d+):(%d+)$')
  if not moment or not limits.rate then return end
  moment, told = tonumber(moment), tonumber(told)
  if told > now then return end
  if bucket.recovers then
    if moment > bucket.at then bucket.at, bucket.tokens = moment, math.min(bucket.tokens, 0) end
  elseif bucket.fresh then
    local ahead = fleet > 1 and CONST.HORIZON + ceil(members * limits.cost / limits.rate) or 0
    bucket.at, bucket.tokens = bucket.doubt and math.max(bucket.at, moment) or moment, 0
    if moment + ahead > now then bucket.at = math.max(moment, now + ahead) end
  elseif bucket.was_seen < told and bucket.at < moment then
    bucket.at, bucket.tokens = moment, 0
  end
end

-- What was taken in the windows of the quotas that are still running, as a member heard of them at `told`. Where the bucket
-- began since then, what was taken before comes on top of what was taken since; where several members tell of the same
-- window, the most that any of them heard. A bucket whose next window has begun, with a ticket ahead, has nothing to do with
-- the one before any more. Where it has lost its latest writes, the most of both.
local function recover_windows(bucket, known, now, limits)
  local told, list = string.match(known, '^(%d+);(.*)$')
  told = tonumber(told)
  if not told or told > now then return end
  local lost, late = told < bucket.born, bucket.was_seen < told
  if not lost and not late then return end
  for length, start, taken in string.gmatch(list, '(%d+):(-?%d+):(%d+)') do
    length, start, taken = tonumber(length), tonumber(start), tonumber(taken)
    if start + length > now then
      local window = window_for(bucket, length)
      -- Nothing goes before a window that has begun with a ticket ahead: the one before was full.
      bucket.not_before = math.max(bucket.not_before or 0, start)
      -- Whoever tells first may know of the one before only.
      if window.start + length <= math.max(now, start) then
        window.start, window.taken, window.told = start, taken, lost and taken or 0
      elseif lost and window.start - start < length then
        local more = math.max(taken - window.told, 0)
        window.start = math.min(window.start, start)
        window.taken, window.told = window.taken + more, window.told + more
      elseif window.start == start then
        window.taken = math.max(window.taken, taken)
      end
    end
  end
end
