-- The token bucket with its quotas: the same operations as src/limiter/bucket.rs, with the same doubles and results.
--
-- Hash: at, tok (tokens at `at`), win (`length:start:taken:known,...`, one per length, ascending, lib/recover.lua),
-- ramp (start of the ramp), ret (returned tickets, ascending), seen (latest reading of the clock), learn
-- (lib/learn.lua), lim (limits for which its tickets were voided), fill (`rate:burst` of the filling since `at`), born
-- (when it began), gap and away (lib/away.lua), mem (`since:hold:server`: the memory of its rule that it belongs to,
-- the end of its hold, and the process of that memory, lib/memory.lua).

local function read_limits(rate, burst, cost, quotas, ramp)
  local limits = { burst = tonumber(burst), cost = tonumber(cost), quotas = {}, ramp = tonumber(ramp) }
  if rate ~= '' then
    limits.ceiling = tonumber(rate)
    limits.per_second = limits.ceiling
    limits.rate = limits.per_second / 1e6
  end
  for tokens, window in string.gmatch(quotas, '(%d+):(%d+)') do
    limits.quotas[#limits.quotas + 1] = { tokens = tonumber(tokens), window = tonumber(window) }
  end
  return limits
end

-- How the rate is learned; nil if it is fixed.
local function read_learn()
  if ARG.learn_start == '' then return nil end
  return {
    start = tonumber(ARG.learn_start),
    floor = tonumber(ARG.learn_floor),
    back_off = tonumber(ARG.learn_back_off),
    patience = tonumber(ARG.learn_patience),
  }
end

local BUCKET_FIELDS = { 'at', 'tok', 'win', 'ramp', 'ret', 'seen', 'learn', 'lim', 'fill', 'born', 'gap', 'away', 'mem', 'w' }

local function load_bucket(key, now, limits)
  local fields = redis.call('HMGET', key, unpack(BUCKET_FIELDS))
  local bucket = { windows = {}, returned = {}, stored = {}, limits = fields[8] or '' }
  bucket.learned = load_learned(fields[7], fields[14])
  bucket.gap, bucket.away, bucket.kept = fields[11] or '', fields[12] or '', 0
  local since, hold, server = string.match(fields[13] or '', '^(%d+):(%d+):(%x*)$')
  bucket.since, bucket.hold, bucket.server = tonumber(since or 0), tonumber(hold or 0), server or ''
  if not fields[1] then
    bucket.at, bucket.tokens, bucket.ramp_from, bucket.seen = now, limits.burst, 0, now
    bucket.fresh, bucket.born = true, now
  else
    bucket.at, bucket.tokens = tonumber(fields[1]), tonumber(fields[2])
    bucket.ramp_from, bucket.seen = tonumber(fields[4] or '') or 0, tonumber(fields[6])
    bucket.born = tonumber(fields[10] or 0)
    for length, start, taken, known in string.gmatch(fields[3] or '', '(%d+):(-?%d+):(%d+):(%d+)') do
      bucket.windows[#bucket.windows + 1] =
        { length = tonumber(length), start = tonumber(start), taken = tonumber(taken), known = tonumber(known) }
    end
    for moment in string.gmatch(fields[5] or '', '%d+') do
      bucket.returned[#bucket.returned + 1] = tonumber(moment)
    end
  end
  local rate, burst = string.match(fields[9] or '', '^(.+):(.+)$')
  bucket.fill_rate, bucket.fill_burst = tonumber(rate), tonumber(burst)
  bucket.was_seen = bucket.seen
  for i, field in ipairs(BUCKET_FIELDS) do bucket.stored[field] = fields[i] or '' end
  return bucket
end

-- The window of this length; nil = there is none.
local function window_of(bucket, length)
  for _, window in ipairs(bucket.windows) do
    if window.length == length then return window end
  end
end

-- The same; creates the window if there is none.
local function window_for(bucket, length)
  local window = window_of(bucket, length)
  if not window then
    window = { length = length, start = CONST.LONG_AGO, taken = 0, known = 0 }
    bucket.windows[#bucket.windows + 1] = window
    table.sort(bucket.windows, function(one, other) return one.length < other.length end)
  end
  return window
end

-- Keeps the windows of the quotas, and those of other limits (another member's, or before a reload) that still run.
local function observe_windows(bucket, now, limits)
  local all, kept = bucket.windows, {}
  for _, quota in ipairs(limits.quotas) do window_for(bucket, quota.window).own = true end
  for _, window in ipairs(all) do
    if window.own or window.start + window.length > now then kept[#kept + 1] = window end
  end
  bucket.windows = kept
end

-- Refunds the unused ticket for `moment` to its windows that still run.
local function refund(bucket, moment, limits)
  for _, window in ipairs(bucket.windows) do
    if moment >= window.start and moment < window.start + window.length then
      window.taken = math.max(window.taken - limits.cost, 0)
    end
  end
end

-- Refunds unused tickets. The tickets themselves are void.
local function refund_all(bucket, moments, limits)
  for moment in string.gmatch(moments, '%d+') do refund(bucket, tonumber(moment), limits) end
end

-- Returned tickets that were not used in time give their tokens back to the quotas.
local function drop_returned(bucket, now, limits)
  local left = {}
  for _, moment in ipairs(bucket.returned) do
    if moment >= now then left[#left + 1] = moment else refund(bucket, moment, limits) end
  end
  bucket.returned = left
end

local function observe_bucket(bucket, now, limits)
  local back = bucket.seen - now
  if back > 0 then
    bucket.at = bucket.at - back
    bucket.born = bucket.born - back
    if bucket.ramp_from > 0 then bucket.ramp_from = bucket.ramp_from - back end
    for _, window in ipairs(bucket.windows) do window.start = window.start - back end
    for i, moment in ipairs(bucket.returned) do bucket.returned[i] = moment - back end
    set_back_learned(bucket.learned, back)
  end
  bucket.seen = now
  observe_windows(bucket, now, limits)
  drop_returned(bucket, now, limits)
end

-- A debt (lib/away.lua) remains.
local function drain_bucket(bucket, moment, limits)
  for _, returned in ipairs(bucket.returned) do refund(bucket, returned, limits) end
  bucket.at, bucket.tokens, bucket.returned = moment, math.min(bucket.tokens, 0), {}
end

-- After a change of the limits, voids the tickets handed out after `from`, once. Each member calls this at its own reload.
-- Tickets under the new limits stay valid. What a returned ticket cost under the old limits is unknown. A bucket without
-- such tickets keeps its tokens.
local function void_bucket(bucket, from, limits, all)
  if bucket.limits == all then return end
  bucket.limits, bucket.returned = all, {}
  if bucket.at > from then drain_bucket(bucket, from, limits) end
end

local function restart_bucket(bucket, opened, limits)
  if opened > bucket.ramp_from then
    drain_bucket(bucket, opened, limits)
    bucket.ramp_from = opened
  end
end

-- The ramp back to the full rate after a cooldown: linear from zero over `ramp`.
local function climb_is_over(bucket, limits, moment)
  return bucket.ramp_from == 0 or limits.ramp == 0 or moment >= bucket.ramp_from + limits.ramp
end

local function since_start(bucket, limits, moment)
  local elapsed = moment - bucket.ramp_from
  if elapsed <= 0 then
    return 0
  elseif elapsed < limits.ramp then
    return elapsed * elapsed * limits.rate / (2 * limits.ramp)
  end
  return (elapsed - limits.ramp / 2) * limits.rate
end

local function tokens_at(bucket, limits, moment)
  local accrued
  if climb_is_over(bucket, limits, bucket.at) then
    accrued = (moment - bucket.at) * limits.rate
  else
    accrued = since_start(bucket, limits, moment) - since_start(bucket, limits, bucket.at)
  end
  return math.min(bucket.tokens + accrued, limits.burst)
end

local function when_accrued(bucket, limits, tokens)
  if climb_is_over(bucket, limits, bucket.at) then
    return bucket.at + ceil(tokens / limits.rate)
  end
  local total = since_start(bucket, limits, bucket.at) + tokens
  local climb = limits.rate * limits.ramp / 2
  local elapsed
  if total <= climb then
    elapsed = math.sqrt(2 * limits.ramp * total / limits.rate)
  else
    elapsed = total / limits.rate + limits.ramp / 2
  end
  return bucket.ramp_from + ceil(elapsed)
end

local function use_learned(bucket, limits, learn)
  limits.learns, limits.taught = true, has_taught(bucket.learned, limits.ceiling, learn)
  limits.per_second = bucket.learned.rate
  limits.rate = bucket.learned.rate / 1e6
end

-- The rate in force from now on.
local function set_pace(bucket, now, limits, learn, news, known, shares)
  if limits.rate and learn then
    local learned = bucket.learned
    -- A probe changes nothing before its response.
    if not limits.probes or learned.rate <= 0 then
      observe_learned(learned, now, bucket.at, news, known, shares, limits.ceiling, learn)
    end
    use_learned(bucket, limits, learn)
  else
    shares.tested = false
  end
  if limits.rate and news.named then
    limits.per_second = math.min(limits.per_second, news.named)
    limits.rate = limits.per_second / 1e6
    limits.burst = math.min(limits.burst, math.max(limits.cost, ceil(news.named)))
  end
end

-- If the rate or burst has changed (learned, or a reload), the time until now counts at the old ones.
local function fill_by(bucket, now, limits)
  local rate, burst = bucket.fill_rate, bucket.fill_burst
  if rate and limits.rate and (rate ~= limits.per_second or burst ~= limits.burst) and bucket.at < now then
    bucket.tokens = tokens_at(bucket, { rate = rate / 1e6, burst = burst, ramp = limits.ramp }, now)
    bucket.at = now
  end
  if limits.rate then bucket.tokens = math.min(bucket.tokens, limits.burst) end
  bucket.fill_rate, bucket.fill_burst = limits.per_second, limits.burst
end

local function next_moment(bucket, now, limits)
  if bucket.returned[1] then return bucket.returned[1] end
  local moment = math.max(bucket.at, now)
  if limits.rate and tokens_at(bucket, limits, moment) < limits.cost then
    moment = math.max(moment, when_accrued(bucket, limits, limits.cost - bucket.tokens))
  end
  for _, quota in ipairs(limits.quotas) do
    local window = window_of(bucket, quota.window)
    local ends = window.start + quota.window
    if moment < ends and window.taken + limits.cost > quota.tokens then moment = ends end
  end
  return moment
end

local function take_ticket(bucket, moment, limits)
  if bucket.returned[1] == moment then
    table.remove(bucket.returned, 1)
    return
  end
  if limits.rate then
    bucket.tokens = math.max(tokens_at(bucket, limits, moment) - limits.cost, 0)
  end
  if limits.learns and not limits.probes then count_learned(bucket.learned, moment, limits.cost) end
  bucket.at = moment
  for _, window in ipairs(bucket.windows) do
    local over = moment >= window.start + window.length
    if over and window.own then
      window.start, window.taken, window.known, over = moment, 0, 0, false
    end
    if not over then window.taken = window.taken + limits.cost end
  end
end

-- Takes up to `most` more tickets for the moment of the latest one. Equivalent to repeated take_ticket, but reads the
-- limits once, because a busy member with plenty of tokens takes hundreds in a call. Returns the number of tickets.
local function take_more(bucket, moment, limits, most)
  if not limits.rate or #bucket.windows > 0 or bucket.returned[1] or bucket.at ~= moment then return 0 end
  local count, tokens, cost = 0, bucket.tokens, limits.cost
  while count < most and tokens >= cost do
    tokens, count = tokens - cost, count + 1
  end
  bucket.tokens = tokens
  if limits.learns and not limits.probes then count_learned(bucket.learned, moment, count * cost) end
  return count
end

-- A returned ticket in the past is used up, but its quotas get their tokens back.
local function return_tickets(bucket, moments, now, limits)
  local returned = bucket.returned
  for moment in string.gmatch(moments, '%d+') do returned[#returned + 1] = tonumber(moment) end
  table.sort(returned)
  drop_returned(bucket, now, limits)
  returned = bucket.returned
  for i = #returned, CONST.RETURNED + 1, -1 do
    refund(bucket, returned[i], limits)
    returned[i] = nil
  end
end

local function save_bucket(key, bucket, now, limits)
  local windows, returned = {}, {}
  local longest = 0
  for i, window in ipairs(bucket.windows) do
    windows[i] = whole(window.length) .. ':' .. whole(window.start) .. ':' .. whole(window.taken) .. ':'
      .. whole(window.known)
    longest = math.max(longest, window.length)
  end
  for i, moment in ipairs(bucket.returned) do returned[i] = whole(moment) end
  local values = {
    at = whole(bucket.at), tok = exact(bucket.tokens), win = table.concat(windows, ','),
    ramp = bucket.ramp_from ~= 0 and whole(bucket.ramp_from) or '', ret = table.concat(returned, ','),
    seen = whole(bucket.seen), learn = limits.learns and pack_learned(bucket.learned) or '', lim = bucket.limits,
    fill = limits.rate and exact(limits.per_second) .. ':' .. whole(limits.burst) or '', born = whole(bucket.born),
    gap = bucket.gap, away = bucket.away, w = limits.learns and WALL.pack(bucket.learned) or '',
    mem = whole(bucket.since) .. ':' .. whole(bucket.hold) .. ':' .. bucket.server,
  }
  -- Unchanged fields are not written.
  local changed = {}
  for _, field in ipairs(BUCKET_FIELDS) do
    if values[field] ~= bucket.stored[field] then
      changed[#changed + 1], changed[#changed + 2] = field, values[field]
    end
  end
  if changed[1] then redis.call('HSET', key, unpack(changed)) end
  local fill = limits.rate and ceil(limits.burst / limits.per_second * 1e6) or 0
  -- A trip changes the learned rate only when the scope opens again.
  local learned = limits.learns and (limits.taught and CONST.LEARNED_FOR or limits.closed) or 0
  keep(key, math.max(bucket.at, now) - now + math.max(fill + limits.ramp, longest, learned, bucket.kept))
end

-- The windows for a member.
local function list_windows(bucket)
  local windows = {}
  for i, window in ipairs(bucket.windows) do
    windows[i] = whole(window.length) .. ':' .. whole(window.start) .. ':' .. whole(window.taken)
  end
  return table.concat(windows, ',')
end
