-- The learned rate: src/learn.rs, operation by operation (its head says how it works).
--
-- Kept in the bucket's hash as one field: rate mark bad changed patience minute counted before seen blocked.
local LEARNED_FIELDS = { 'rate', 'mark', 'bad', 'changed', 'patience', 'minute', 'counted', 'before', 'seen', 'blocked' }
local MINUTE = 60000000
local HOLD = MINUTE
local QUICK = 20000000
local ECHO = 5000000
local WORTH = 10
local LONGEST = 3600000000
local EASED = 0.9
local CONFIRMED = 0.97
local ABOVE = 1.01
local USED = 0.6
-- What has been learned outlives an idle week.
local LEARNED_FOR = 604800000000

local function read_learn(arguments, from)
  if arguments[from] == '' then return nil end
  return {
    start = tonumber(arguments[from]),
    floor = tonumber(arguments[from + 1]),
    back_off = tonumber(arguments[from + 2]),
    patience = tonumber(arguments[from + 3]),
  }
end

local function load_learned(text)
  local learned, i = {}, 1
  for number in string.gmatch(text or '', '%S+') do
    learned[LEARNED_FIELDS[i]] = tonumber(number)
    i = i + 1
  end
  for _, field in ipairs(LEARNED_FIELDS) do learned[field] = learned[field] or 0 end
  return learned
end

local function pack_learned(learned)
  local numbers = {}
  for i, field in ipairs(LEARNED_FIELDS) do numbers[i] = exact(learned[field]) end
  return table.concat(numbers, ' ')
end

local function set_back_learned(learned, back)
  for _, field in ipairs({ 'changed', 'minute', 'seen', 'blocked' }) do
    if learned[field] > 0 then learned[field] = learned[field] - back end
  end
end

local function count_learned(learned, moment, tokens)
  if moment >= learned.minute + 2 * MINUTE then
    learned.before, learned.counted, learned.minute = 0, 0, moment
  elseif moment >= learned.minute + MINUTE then
    learned.before, learned.counted, learned.minute = learned.counted, 0, learned.minute + MINUTE
  end
  learned.counted = learned.counted + tokens
end

local function carried(learned, moment)
  local into = math.min(math.max(moment - learned.minute, 0), MINUTE) / MINUTE
  return (learned.counted + learned.before * (1 - into)) / 60
end

local function is_trying(learned)
  return learned.mark > 0 and learned.rate > learned.mark * ABOVE
end

local function learn_trip(learned, last, news, learn)
  local at = news.blocked > learned.seen and news.blocked or last
  local worth = math.min(math.max((news.opened - at) * WORTH, learn.patience), LONGEST)
  local eased = learned.changed == learned.blocked and learned.changed > learned.seen
    and at - learned.changed < HOLD and carried(learned, at) >= learned.mark
  local known = learned.bad > 0
  if not eased then learned.bad = learned.rate end
  if eased then
    learned.mark = learned.mark * CONFIRMED
    learned.patience = math.max(learned.patience, worth)
  elseif is_trying(learned) then
    learned.mark = learned.mark * CONFIRMED
    learned.patience = math.min(math.max(learned.patience * 2, worth), LONGEST)
  else
    local least = learned.mark > 0 and 0.5 or 0.25
    local estimate = math.min(math.max(carried(learned, at), learned.rate * least), learned.rate)
    learned.mark = estimate * (news.sure and learn.back_off or math.sqrt(learn.back_off))
    learned.patience = (news.sure or known) and worth or learn.patience
  end
  learned.rate = learned.mark
  learned.changed, learned.seen = news.opened, news.opened
  learned.blocked = math.max(learned.blocked, news.opened)
  learned.minute = 0
end

local function learn_ease(learned, blocked, learn)
  learned.bad = learned.rate
  if is_trying(learned) then
    learned.rate = learned.mark
    learned.patience = math.min(learned.patience * 2, LONGEST)
  else
    learned.rate = learned.rate * EASED
    learned.mark = learned.rate
    learned.patience = math.max(learned.patience, learn.patience)
  end
  learned.blocked, learned.changed = blocked, blocked
end

local function learn_grow(learned, now, ceiling, learn)
  if learned.mark <= 0 and learned.rate < learn.start then
    -- No limit has been met, and the rule file allows more than it did.
    learned.rate, learned.changed = learn.start, now
    return
  end
  local trying = is_trying(learned)
  local wait = trying and HOLD or learned.mark <= 0 and QUICK or learned.patience
  if now - learned.changed < wait or learned.rate >= ceiling then return end
  learned.changed = now
  if learned.mark > 0 and carried(learned, now) < learned.rate * USED then return end
  if trying then
    learned.mark = learned.rate
    learned.patience = math.max(math.floor(learned.patience / 2), learn.patience)
  end
  if learned.rate > learned.bad then learned.bad = 0 end
  if learned.mark <= 0 then
    learned.rate = learned.rate * 1.4
  elseif learned.bad == 0 then
    learned.rate = learned.rate * 1.25
  elseif learned.rate < learned.bad * 0.85 then
    learned.rate = learned.rate + (learned.bad - learned.rate) * 0.15
  else
    learned.rate = learned.rate * 1.05
  end
end

local function observe_learned(learned, now, last, news, known, ceiling, learn)
  if learned.rate <= 0 then
    learned.rate = known > 0 and known or learn.start
    learned.mark, learned.changed, learned.patience = known, now, learn.patience
    learned.seen, learned.blocked = news.opened, news.blocked
  elseif news.opened > learned.seen then
    learn_trip(learned, last, news, learn)
  elseif news.sure and news.blocked > learned.blocked + ECHO and news.blocked > learned.seen then
    learn_ease(learned, news.blocked, learn)
  else
    learn_grow(learned, now, ceiling, learn)
  end
  learned.rate = math.min(math.max(learned.rate, learn.floor), ceiling)
end
