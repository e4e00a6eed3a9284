-- The cooldown state machine: the same operations as src/limiter/cooldown.rs, which has the diagram.
--
-- Hash: ep (epoch: the moment of the latest trip or clear), till (end of the cooldown, 0 = open), probe (moment of the
-- probe's grant, 0 = none), lease (when the probe counts as lost), opened, streak, last (last block), sure (whether it
-- was a sure sign), peak (streak that tripped last), len (latest length), suf (length that worked), failed (probes in a
-- row), seen (latest reading of the clock), named (the rate that the site announces, tokens per second, 0 = none) and
-- truth (when that rate expires), since (when the cooldown with the failed probes began), enough (length of the
-- previous long ban, 0 = unknown), wary (how often the length that worked must work before a shorter one is tried),
-- repeats (how often it must still work), blocks (how many blocks tripped the latest cooldown), erring (when the latest
-- error leaves its window, 0 = there was none).
-- Texts: prober (the member that holds the probe, empty = unknown), recent (last verdicts, a block's letter or 0),
-- kinds (letters of the streak), cause (of the latest trip: streak ratio retry_after probe silence hopeless site_limit
-- errors hand), blamed (letters of the blocks that tripped it), shares (lib/shares.lua), errors (lib/errors.lua), load
-- (lib/load.lua).

-- The first COOLDOWN_NUMBERS fields are numbers; the others are texts.
local COOLDOWN_NUMBERS = 21
local COOLDOWN_FIELDS = {
  'ep', 'till', 'probe', 'lease', 'opened', 'streak', 'last', 'sure', 'peak', 'len', 'suf', 'failed', 'seen',
  'named', 'truth', 'erring', 'since', 'enough', 'wary', 'repeats', 'blocks',
  'prober', 'recent', 'kinds', 'cause', 'blamed', 'shares', 'errors', 'load',
}

local function fresh_cooldown()
  local scope = {}
  for i, field in ipairs(COOLDOWN_FIELDS) do scope[field] = i <= COOLDOWN_NUMBERS and 0 or '' end
  scope.shares = load_shares('')
  return scope
end

local function load_cooldown(key)
  local values = redis.call('HMGET', key, unpack(COOLDOWN_FIELDS))
  if not values[1] then return fresh_cooldown() end
  local scope = {}
  for i, field in ipairs(COOLDOWN_FIELDS) do
    if i <= COOLDOWN_NUMBERS then scope[field] = tonumber(values[i]) or 0 else scope[field] = values[i] or '' end
  end
  scope.shares = load_shares(scope.shares)
  return scope
end

local function save_cooldown(key, scope, now, policy)
  local pairs_ = {}
  for i, field in ipairs(COOLDOWN_FIELDS) do
    local value = scope[field]
    if field == 'streak' or field == 'peak' or field == 'named' then
      value = exact(value)
    elseif field == 'shares' then
      value = pack_shares(value)
    elseif i <= COOLDOWN_NUMBERS then
      value = whole(value)
    end
    pairs_[2 * i - 1], pairs_[2 * i] = field, value
  end
  redis.call('HSET', key, unpack(pairs_))
  keep(key, math.max(scope.till - now, scope.truth - now, scope.erring - now, 0) + math.max(policy.forget_after, policy.max) + policy.ramp)
end

local function observe_cooldown(scope, now)
  local back = scope.seen - now
  if back > 0 and scope.seen > 0 then
    for _, field in ipairs({ 'till', 'probe', 'lease', 'opened', 'last', 'truth', 'erring', 'since' }) do
      if scope[field] > 0 then scope[field] = scope[field] - back end
    end
    set_back_errors(scope, back)
    LOAD.set_back(scope, back)
  end
  scope.seen = now
end

-- A pause has a known end: it needs no probe, and it does not change the learned rate.
local function is_pause(cause)
  return cause == 'site_limit' or cause == 'errors'
end

local function end_probe(scope)
  scope.probe, scope.lease, scope.prober = 0, 0, ''
end

-- `phase`: `open`, `opened`, `cooling:US` or `probing:US`, as the member knows it. Returns true if the member knew more:
-- a later epoch, or that this one has opened.
local function restore_cooldown(scope, epoch, phase, now)
  local opened = phase == 'opened' and epoch == scope.ep and scope.till > 0
  if epoch <= scope.ep and not opened then return false end
  local word, left = string.match(phase, '^(%a+):?(%d*)$')
  left = tonumber(left) or 0
  scope.ep, scope.till = epoch, 0
  if is_pause(scope.cause) then scope.cause = '' end
  end_probe(scope)
  if word == 'cooling' then
    scope.till, scope.len, scope.since = now + left, left, now
  elseif word == 'probing' then
    scope.till = now
    if left > 0 then scope.probe, scope.lease = now, now + left end
  end
  return true
end

local function lend_probe(scope, member, moment, lease)
  scope.probe, scope.lease, scope.prober = moment, moment + lease, member
end

-- Grants the probe in flight to its member once more, and returns its moment.
local function lend_again(scope, now, lease)
  scope.lease = math.max(scope.probe, now) + lease
  return scope.probe
end

local function is_prober(scope, member)
  return scope.probe > 0 and scope.prober == member
end

local function next_epoch(scope, now)
  return math.max(scope.ep + 1, now)
end

local function forget_streak(scope)
  scope.streak, scope.kinds = 0, ''
end

local function open_cooldown(scope, moment)
  scope.till, scope.failed = 0, 0
  end_probe(scope)
  forget_streak(scope)
  if not is_pause(scope.cause) then scope.opened = moment end
  scope.recent = ''
end

local function trip_cooldown(scope, now, length, cause)
  scope.ep, scope.till, scope.len = next_epoch(scope, now), now + length, length
  end_probe(scope)
  scope.cause, scope.peak, scope.blamed = cause, scope.streak, string.gsub(scope.kinds, 'a', 'b')
  if cause == 'ratio' then scope.blamed = string.gsub(scope.recent, '0', '') end
  if cause == 'hand' or is_pause(cause) then scope.blamed = '' end
  if scope.failed == 0 then scope.since, scope.blocks = now, #scope.blamed end
  forget_streak(scope)
  if not is_pause(cause) then trip_shares(scope.shares) end
  scope.recent = ''
end

local function clear_cooldown(scope, now)
  scope.ep, scope.suf, scope.enough, scope.wary, scope.repeats = next_epoch(scope, now), 0, 0, 0, 0
  open_cooldown(scope, now)
end

-- 'open', 'cooling', 'probing' (each with the moment to ask again) or 'due': the next request is the probe.
local function phase_of(scope, now, policy)
  if scope.till == 0 then return 'open', 0 end
  if now < scope.till then return 'cooling', scope.till end
  -- A pause has a known end, so it needs no probe.
  if not policy.probe or is_pause(scope.cause) then
    open_cooldown(scope, scope.till)
    return 'open', 0
  end
  if scope.probe > 0 and now < scope.lease then return 'probing', scope.lease end
  return 'due', 0
end

local function remember(scope, times, mark, policy)
  if policy.of == 0 then return end
  scope.recent = string.sub(scope.recent .. string.rep(mark, math.min(times, policy.of)), -policy.of)
end

local function count_block(scope, report)
  scope.streak = scope.streak + report.weight
  scope.kinds = string.sub(scope.kinds .. report.kind, -CONST.KINDS)
end

-- Why the latest block trips the cooldown; nil = it does not.
local function cause_of(scope, report, policy)
  local full = scope.streak + 1e-9 >= policy.after
  if report.silent then return full and 'silence' or nil end
  if policy.respect and report.retry_after > 0 then return 'retry_after' end
  if full and not are_chance(scope.shares, scope.kinds) then return 'streak' end
  if report.answer == 'refusal' then return nil end
  if policy.of == 0 or #scope.recent < policy.of then return nil end
  local _, blocks = string.gsub(scope.recent, '[^0]', '')
  local needed = math.max(policy.share * policy.of, needed_blocks(scope.shares, policy.of))
  return blocks >= needed - 1e-9 and 'ratio' or nil
end

local function first_length(scope, draw, retry_after, policy)
  if policy.respect and retry_after > 0 then return math.min(retry_after, policy.max) end
  local drawn = policy.shortest + floor(draw * (policy.longest - policy.shortest))
  return math.min(math.max(drawn, scope.suf), policy.max)
end

-- The length of the next cooldown, as in src/limiter/cooldown/probes.rs. `grown` is the length without this adjustment.
local function aim(scope, now, grown)
  local passed = scope.since > 0 and now - scope.since or scope.len
  local planned = passed + grown
  if planned < CONST.PROBE_LONG then return grown end
  local function fits(end_) return end_ > passed and end_ <= planned * CONST.PROBE_LATER end
  if fits(scope.enough) then return scope.enough - passed end
  local sooner, later
  for _, length in ipairs(CONST.PROBE_ROUND) do
    local end_ = floor(length * CONST.PROBE_AFTER)
    if end_ <= planned then
      if end_ > passed and end_ * CONST.PROBE_LATER >= planned then sooner = end_ end
    elseif not later and fits(end_) then
      later = end_
    end
  end
  local end_ = sooner or later
  return end_ and end_ - passed or grown
end

local function next_length(scope, now, retry_after, policy)
  if scope.failed >= CONST.HOPELESS then
    return math.min(math.max(floor(scope.len * math.max(policy.grow, CONST.HOPELESS_GROW)), policy.max), CONST.DAY)
  end
  if policy.respect and retry_after > 0 then return math.min(retry_after, policy.max) end
  return math.min(math.max(aim(scope, now, floor(scope.len * policy.grow)), policy.shortest), policy.max)
end

local function settle(scope, policy)
  local lasted = scope.till - scope.since
  scope.enough = scope.since > 0 and lasted >= CONST.PROBE_LONG and lasted or 0
  local learned = scope.suf
  if scope.failed > 0 then
    if scope.repeats == 0 then scope.wary = math.min(scope.wary * 2 + 1, CONST.PROBE_WARIEST) end
    scope.repeats, learned = scope.wary, scope.len
  elseif scope.repeats > 1 then
    scope.repeats = scope.repeats - 1
  else
    scope.repeats, learned = 0, floor(scope.suf / math.max(policy.grow, 1.25))
  end
  scope.suf = learned > policy.longest and learned or 0
  if scope.suf == 0 then scope.wary, scope.repeats = 0, 0 end
end

-- Whether silence caused the latest cooldown. Then a silent probe is a failed probe.
local function is_silent(scope)
  return string.match(scope.blamed, '[gh]$') ~= nil
end

local function report_probe(scope, now, report, policy)
  if report.probe == 0 then return 'none' end
  if report.answer == 'ok' then
    settle(scope, policy)
    open_cooldown(scope, now)
    return 'opened'
  elseif report.answer == 'block' and (not report.silent or is_silent(scope)) then
    scope.failed = scope.failed + 1
    local length = next_length(scope, now, report.retry_after, policy)
    count_block(scope, report)
    trip_cooldown(scope, now, length, scope.failed < CONST.HOPELESS and 'probe' or 'hopeless')
    return 'tripped'
  elseif report.probe == scope.probe then
    end_probe(scope)
    return 'probe_lost'
  end
  return 'none'
end

-- The rate that the site announces, while it applies; nil = none.
local function named_at(scope, now)
  if scope.named > 0 and now < scope.truth then return scope.named end
end

-- The state of the cooldown that the learned rate depends on. `own`: whether the bucket has this cooldown to itself.
local function news_of(scope, own, now)
  if not own then return { opened = 0, blocked = 0, sure = false, blocks = 0, closed = false, load = LOAD.strain('') } end
  return { opened = scope.opened, blocked = scope.last, sure = scope.sure == 1, blocks = scope.blocks,
    closed = scope.till > 0, named = named_at(scope, now), load = LOAD.strain(scope.load) }
end

local function take_report(scope, now, report, policy)
  -- A report of a probe tells a store that lost its memory that the scope is closed.
  restore_cooldown(scope, report.epoch, report.probe > 0 and 'probing' or 'open', now)
  phase_of(scope, now, policy)
  if scope.till > 0 then return report_probe(scope, now, report, policy) end
  if report.answer == 'ok' then
    remember(scope, report.oks + 1, '0', policy)
    count_shares(scope.shares, report.oks + 1, scope.kinds)
    local had = scope.streak > 0
    forget_streak(scope)
    return had and 'streak' or 'none'
  elseif report.answer == 'block' or report.answer == 'refusal' then
    if now - scope.last > policy.forget_after then forget_streak(scope) end
    remember(scope, report.oks, '0', policy)
    count_shares(scope.shares, report.oks, '')
    -- `ratio` is a share of blocks. Occasional 503s and connection errors are not a wall.
    if report.answer == 'block' and not report.silent then remember(scope, 1, report.kind, policy) end
    count_block(scope, report)
    scope.last, scope.sure = now, report.sure
    local cause = cause_of(scope, report, policy)
    if not cause then return 'streak' end
    trip_cooldown(scope, now, first_length(scope, report.draw, report.retry_after, policy), cause)
    return 'tripped'
  end
  return 'none'
end

-- What the site says about its limit: `report.named` (tokens per second, nil = none), `report.lasts` and `report.hold`
-- (us, 0 = none). An error counts towards the limit of `report.most` errors in `report.window` (us). `report.most` is 0
-- if the response is not an error.
local function report_cooldown(scope, now, report, policy)
  local room = report.most > 0 and count_error(scope, now, report.most, report.window) or 0
  -- The site also counts the errors of requests that were in flight.
  if scope.till > now and scope.cause == 'errors' then scope.till = math.max(scope.till, room) end
  if report.epoch < scope.ep then return 'stale' end
  if report.load ~= '' then LOAD.count(scope, now, report.load) end
  local change = take_report(scope, now, report, policy)
  if room > now and scope.till == 0 and report.probe == 0 then
    trip_cooldown(scope, now, room - now, 'errors')
    return 'tripped'
  end
  if report.named then scope.named, scope.truth = report.named, now + report.lasts end
  if report.hold > 0 and scope.till == 0 and report.probe == 0 then
    trip_cooldown(scope, now, math.min(report.hold, policy.max), 'site_limit')
    return 'tripped'
  end
  return change
end
