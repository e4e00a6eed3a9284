-- Members rejoin a store that was away. During the outage each member keeps to its share of the limits. The bucket
-- counts what a returning member took, and reserves the shares of the others until they are back, at most for the grace
-- period (CONST.GRACE).
--
-- Members decide nothing without the store before OUTAGE_TIMEOUT (src/store/fallback/local.rs), so a shorter absence
-- changes nothing.
--
-- Bucket: gap (`from:to`, the longest recent time without a call), away (`till:from:members:share`: the grace period;
-- empty = none).
-- Hash of the returned members: `since;length:start:taken,...`, the report of each, so that a repeated report counts
-- once.

-- No member decides locally before this: OUTAGE_TIMEOUT less the time to connect again.
local AWAY = 2000000

local function note_gap(bucket, now)
  local from, to = string.match(bucket.gap, '^(%d+):(%d+)$')
  from, to = tonumber(from or 0), tonumber(to or 0)
  local seen = bucket.fresh and 0 or bucket.was_seen
  if now - seen >= CONST.HORIZON and (now - to > CONST.GRACE or to > now or now - seen > to - from) then from, to = seen, now end
  bucket.gap_from, bucket.gap_to = from, to
  bucket.gap = whole(from) .. ':' .. whole(to)
end

local function load_grace(bucket, now)
  local till, from, members, share = string.match(bucket.away, '^(%d+):(%d+):(%d+):(.+)$')
  bucket.away = ''
  till, from = tonumber(till or 0), tonumber(from or 0)
  -- The clock was set back, so the next member to return starts another grace period.
  if till <= now or from > now then return nil end
  return { till = till, from = from, members = tonumber(members), share = tonumber(share) }
end

local function save_grace(bucket, grace, now)
  if not grace then return end
  bucket.away = table.concat({ whole(grace.till), whole(grace.from), whole(grace.members), exact(grace.share) }, ':')
  bucket.kept = grace.till - now
end

-- If nobody has called since this member lost the store, the store was away for all members.
local function begin_grace(bucket, key, alone, members, share, now, limits)
  local period = limits.rate and ceil(limits.cost / (limits.rate * share)) or 0
  local lost = bucket.gap_from <= now - alone and now - bucket.gap_to <= CONST.GRACE
  if members < 2 or not lost or bucket.gap_to - bucket.gap_from < math.max(CONST.HORIZON + period, AWAY) then return nil end
  forget(key)
  return { till = now + CONST.GRACE + period, from = now, members = members, share = share }
end

-- Counts what a member took without the store in the windows that still run. A start of 0 means a window of its own,
-- whose tokens count in any window. Otherwise members have the same windows, apart from the latency of their calls.
local function count_local(bucket, list, known, back, now)
  local reported = {}
  for length, start, taken in string.gmatch(known, '(%d+):(%d+):(%d+)') do
    reported[length] = { start, tonumber(taken) }
  end
  for name, start, taken in string.gmatch(list, '(%d+):(%d+):(%d+)') do
    local length, before = tonumber(name), reported[name]
    taken = tonumber(taken)
    if before and before[1] == start then taken = math.max(taken - before[2], 0) end
    local began = start == '0' and now or math.min(now - (back - tonumber(start)), now)
    if taken > 0 and began + length > now then
      local window = window_for(bucket, length)
      local runs = window.start + length > now
      -- Once the next window has begun with a ticket ahead, nothing more counts in this one.
      if start == '0' or window.start - began < length or not runs then
        if not runs then window.start, window.taken, window.known = began, 0, 0 end
        if start ~= '0' then window.start = math.max(window.start, began) end
        window.taken = window.taken + taken
      end
    end
  end
end

-- Applies the report of a returning member. `since` and `alone` are its time without the store (on its own clock),
-- `members` and `share` its knowledge of the fleet, and `ahead` the tokens that it has handed out ahead. Returns the
-- grace period, whether it has just begun, and `ahead`.
local function rejoin(bucket, grace, key, member, away, now, limits)
  local since, alone, members, share, ahead, list = string.match(away, '^(%d+):(%d+):(%d+):([^:]+):(%d+);(.*)$')
  if not since then return grace, false, 0 end
  alone = tonumber(alone)
  local began = false
  if not grace then
    grace = begin_grace(bucket, key, alone, tonumber(members), tonumber(share), now, limits)
    began = grace ~= nil
  end
  local before, known = string.match(redis.call('HMGET', key, member)[1] or '', '^(%d+);(.*)$')
  count_local(bucket, list, before == since and known or '', tonumber(since) + alone, now)
  redis.call('HSET', key, member, since .. ';' .. list)
  local longest = grace and grace.till - now or 0
  for _, window in ipairs(bucket.windows) do longest = math.max(longest, window.length) end
  keep(key, longest)
  return grace, began, tonumber(ahead)
end

-- Reserves the shares of rate and burst of the members that are still away.
local function reserve_shares(grace, key, limits)
  if not grace then return end
  local others = (grace.members - redis.call('HLEN', key)) * grace.share
  if others <= 0 then return end
  local part = math.max(1 - others, grace.share)
  if limits.rate then
    limits.per_second = limits.per_second * part
    limits.rate = limits.rate * part
    limits.burst = math.max(math.floor(limits.burst * part), limits.cost)
  end
  grace.others = others
end

-- When quotas grant tokens again. Until then some members that used their shares have not reported yet; 0 = now.
local function quotas_pause(grace, limits, now)
  local ends = grace and grace.others and #limits.quotas > 0 and grace.from + CONST.GRACE or 0
  return ends > now and ends or 0
end
