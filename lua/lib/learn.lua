-- The learned rate: the same operations as src/limiter/learn.rs, which explains them.
--
-- Kept in the bucket's hash as one field: rate mark bad changed patience minute counted before seen blocked turn why
-- frozen excused (these two 0 or 1). Then the state before scattered blocks came: old_rate old_mark old_bad testing (0
-- or 1) sent again untripped tripped. Then the state of an overloaded site: heard answers calm_rate calm_mark calm_bad
-- spared. Zeros at the end are left out.
-- A second field (`w`) has what is known of the site's limit per window: flowed, or flowed most window ban trips
-- guessed (0 or 1).
local LEARNED_FIELDS = { 'rate', 'mark', 'bad', 'changed', 'patience', 'minute', 'counted', 'before', 'seen', 'blocked',
  'turn', 'why', 'frozen', 'excused', 'old_rate', 'old_mark', 'old_bad', 'testing', 'sent', 'again', 'untripped',
  'tripped', 'heard', 'answers', 'calm_rate', 'calm_mark', 'calm_bad', 'spared' }
local WHY = CONST.LEARN_WHY
local WALL = { FIELDS = { 'flowed', 'most', 'window', 'ban', 'trips', 'guessed' }, ROUND = CONST.WALL_ROUND }

function WALL.load(learned, text)
  local numbers = {}
  for number in string.gmatch(text, '%S+') do numbers[#numbers + 1] = tonumber(number) end
  for i, field in ipairs(WALL.FIELDS) do learned[field] = numbers[i] or 0 end
end

function WALL.pack(learned)
  if learned.most <= 0 then return learned.flowed > 0 and exact(learned.flowed) or '' end
  local numbers = {}
  for i, field in ipairs(WALL.FIELDS) do numbers[i] = exact(learned[field]) end
  return table.concat(numbers, ' ')
end

-- The limit that the rate follows: `most window ban trips`; empty = none.
function WALL.name(learned)
  if learned.most <= 0 or learned.ban < CONST.WALL_LONG then return '' end
  return table.concat({ exact(learned.most), whole(learned.window), whole(learned.ban), whole(learned.trips) }, ' ')
end

local function load_learned(text, wall)
  local learned, i = {}, 1
  for number in string.gmatch(text or '', '%S+') do
    learned[LEARNED_FIELDS[i]] = tonumber(number)
    i = i + 1
  end
  for _, field in ipairs(LEARNED_FIELDS) do learned[field] = learned[field] or 0 end
  WALL.load(learned, wall or '')
  return learned
end

local function pack_learned(learned)
  local numbers, last = {}, 0
  for i, field in ipairs(LEARNED_FIELDS) do
    numbers[i] = exact(learned[field])
    if learned[field] ~= 0 then last = i end
  end
  return table.concat(numbers, ' ', 1, last)
end

local function set_back_learned(learned, back)
  for _, field in ipairs({ 'changed', 'minute', 'seen', 'blocked', 'again', 'tripped', 'heard', 'spared' }) do
    learned[field] = learned[field] > 0 and learned[field] - back or 0
  end
end

local function count_learned(learned, moment, tokens)
  if moment >= learned.minute + 2 * CONST.LEARN_MINUTE then
    learned.before, learned.counted, learned.minute = 0, 0, moment
  elseif moment >= learned.minute + CONST.LEARN_MINUTE then
    learned.before, learned.counted, learned.minute = learned.counted, 0, learned.minute + CONST.LEARN_MINUTE
  end
  learned.counted = learned.counted + tokens
  if learned.flowed > 0 then learned.flowed = learned.flowed + tokens end
  if learned.testing == 1 then learned.sent = learned.sent + tokens end
end

local function carried(learned, moment)
  local into = math.max(moment - learned.minute, 0) / CONST.LEARN_MINUTE
  if into <= 1 then return (learned.counted + learned.before * (1 - into)) / 60 end
  return learned.counted * math.max(2 - into, 0) / 60
end

local function is_trying(learned)
  return learned.mark > 0 and learned.rate > learned.mark * CONST.LEARN_ABOVE
end

local function forget_test(learned)
  learned.old_rate, learned.old_mark, learned.old_bad, learned.testing, learned.sent = 0, 0, 0, 0, 0
end

function WALL.drop(learned)
  learned.most, learned.window, learned.ban, learned.trips, learned.guessed = 0, 0, 0, 0, 0
end

function WALL.forget(learned)
  learned.flowed = 1
  WALL.drop(learned)
end

function WALL.limit(learned)
  return learned.most / (learned.window / 1e6)
end

function WALL.observe(learned, rose)
  if rose or learned.flowed > learned.rate * WALL.ROUND[#WALL.ROUND] / 1e6 then learned.flowed = 0 end
end

-- The next round window; nil = there is none.
function WALL.next(least)
  for _, round in ipairs(WALL.ROUND) do
    if round >= least then return round end
  end
end

-- The window after a failed guess: the next round one if it is near.
function WALL.further(took)
  local near = WALL.next(took * CONST.WALL_LONGER)
  if near and near <= took * CONST.WALL_FURTHER * CONST.WALL_LONGER then return near end
  return floor(took * CONST.WALL_FURTHER)
end

-- The limit after a ban, in tokens per second; nil = the ban was short, or the counts show no limit.
function WALL.trip(learned, blocks, ban, rate, first)
  local sent, most, trips, window = learned.flowed, learned.most, learned.trips, nil
  learned.flowed = 1
  if sent <= 0 then return nil end
  local passed = math.max(sent - 1 - blocks - rate * CONST.WALL_IN_FLIGHT, sent / 2)
  local took = passed / rate * 1e6
  local known = most > 0 and passed <= most * CONST.WALL_LONGER
  local failed = learned.guessed == 1 and took <= learned.window * CONST.WALL_FURTHER
  local guessed = failed or ban >= CONST.WALL_LONG and first
  if known and took <= learned.window and not (failed and passed * CONST.WALL_LONGER >= most) then
    window = learned.window
  elseif failed then
    window = WALL.further(took)
  elseif guessed or known or most <= 0 then
    window = WALL.next(took * CONST.WALL_LONGER)
  end
  WALL.drop(learned)
  if not window then return nil end
  learned.most, learned.window = known and math.min(most, passed) or passed, window
  learned.ban, learned.trips, learned.guessed = ban, known and trips + 1 or 1, guessed and 1 or 0
  return (ban >= CONST.WALL_LONG or failed) and WALL.limit(learned) or nil
end

function WALL.bears(learned, rate)
  if learned.most > 0 and rate > WALL.limit(learned) * CONST.WALL_LONGER then WALL.drop(learned) end
end

local function learn_trip(learned, last, news, shares, learn)
  if learned.testing == 1 then
    -- More blocks than scattered ones came, so this is a wall.
    forget_shares(shares)
    learned.again = news.opened + CONST.LEARN_LONGEST
  end
  -- The rate and the mark before the first of the blocks that tripped the cooldown.
  local rate, mark = learned.rate, learned.mark
  if learned.changed == learned.blocked and news.blocked - learned.changed < CONST.LEARN_HOLD and learned.testing == 0
    and learned.old_rate > rate then
    rate, mark = learned.old_rate, learned.old_mark
  end
  forget_test(learned)
  learned.answers = 0
  if learned.untripped <= 0 or news.opened - learned.tripped > CONST.LEARN_RECENT then
    learned.untripped, learned.tripped = learned.rate, news.opened
  end
  local at = news.blocked > learned.seen and news.blocked or last
  local length = news.opened - at
  local long = length >= CONST.WALL_LONG
  local longest = long and CONST.WALL_LONGEST or CONST.LEARN_LONGEST
  local worth = math.min(math.max(length * (long and CONST.WALL_WORTH or CONST.LEARN_WORTH), learn.patience), longest)
  local limit = WALL.trip(learned, news.blocks, length, rate, mark <= 0)
  if news.blocked <= learned.seen then limit = nil end
  local eased = learned.changed == learned.blocked and learned.changed > learned.seen
    and at - learned.changed < CONST.LEARN_HOLD and carried(learned, at) >= learned.mark
  local known = learned.bad > 0 and learned.rate <= learned.bad
  if not eased then learned.bad = learned.rate end
  if limit then
    learned.why = news.sure and WHY.sure_trip or WHY.doubtful_trip
    learned.bad, learned.mark, learned.patience = limit, limit * CONST.WALL_KEPT, worth
  elseif eased then
    learned.mark = learned.mark * CONST.LEARN_CONFIRMED
    learned.patience = math.max(learned.patience, worth)
  elseif is_trying(learned) then
    learned.why = WHY.try_failed
    learned.mark = learned.mark * CONST.LEARN_CONFIRMED
    learned.patience = math.min(math.max(learned.patience * 2, worth), longest)
  else
    learned.why = news.sure and WHY.sure_trip or WHY.doubtful_trip
    local least = learned.mark > 0 and 0.5 or 0.25
    local flowed = carried(learned, at)
    local idle = not news.sure and at - learned.changed >= CONST.LEARN_MINUTE
      and flowed < learned.rate * CONST.LEARN_USED
    local estimate = idle and learned.rate or math.min(math.max(flowed, learned.rate * least), learned.rate)
    learned.mark = estimate * ((news.sure or known) and learn.back_off or math.sqrt(learn.back_off))
    learned.patience = (news.sure or known or longest > CONST.LEARN_LONGEST) and worth or learn.patience
  end
  learned.rate = learned.mark
  learned.changed, learned.seen = news.opened, news.opened
  learned.blocked = math.max(learned.blocked, news.opened)
  learned.minute = 0
end

local function remember_level(learned)
  if learned.old_rate < learned.rate then
    learned.old_rate, learned.old_mark, learned.old_bad = learned.rate, learned.mark, learned.bad
    learned.testing, learned.sent = 0, 0
  end
end

local function may_test(learned, news, learn)
  local eased = learned.rate < learned.old_rate * CONST.LEARN_TESTED_BELOW
  return learned.rate * CONST.LEARN_HALF >= learn.floor and (eased or not news.sure)
end

local function part_to_test(shares)
  local base = total_of(shares.base)
  return base > CONST.SHARES_MOST and math.max(1 - base, CONST.SHARES_LEAST) * CONST.LEARN_NEAR or CONST.LEARN_HALF
end

local function begin_test(learned, now, news, shares)
  remember_level(learned)
  suspect_shares(shares)
  learned.testing, learned.sent = 1, 0
  learned.rate = learned.rate * part_to_test(shares)
  learned.changed, learned.blocked, learned.why = now, news.blocked, WHY.test
end

local function learn_test(learned, now, news, shares, learn)
  learned.blocked = news.blocked
  local same = outcome_of(shares, learned.sent)
  if same == nil then return end
  local rate, mark, bad = learned.old_rate, learned.old_mark, learned.old_bad
  local tested, good = learned.rate / part_to_test(shares), 1 - total_of(shares.base)
  local most = most_blocked(shares)
  settle_shares(shares, same)
  forget_test(learned)
  if same then
    learned.why = WHY.no_wall
    learned.rate, learned.mark, learned.bad = rate, mark, bad
    local recent = learned.untripped > rate and now - learned.tripped < CONST.LEARN_RECENT
    if total_of(shares.base) >= CONST.SHARES_FREQUENT and recent then
      learned.rate, learned.mark, learned.bad = learned.untripped, 0, 0
    end
    learned.untripped = 0
  else
    learned.why = WHY.eased
    learned.bad = tested
    learned.rate = most and learned.rate * (1 - most) * CONST.LEARN_NEAR
      or math.max(learned.rate, tested * good * CONST.LEARN_NEAR)
    learned.mark = learned.rate
    learned.again = now + CONST.LEARN_LONGEST
  end
  learned.patience = learn.patience
  learned.changed = now
end

local function learn_ease(learned, blocked, shares, learn)
  -- The share of blocks rose, so it is measured again.
  if total_of(shares.base) > 0 and learned.old_rate < learned.rate then restart_shares(shares) end
  remember_level(learned)
  learned.bad = learned.rate
  if is_trying(learned) then
    learned.why = WHY.try_failed
    learned.rate = learned.mark
    learned.patience = math.max(math.min(learned.patience * 2, CONST.LEARN_LONGEST), learned.patience)
    if blocked < learned.again then
      forget_test(learned)
      learned.again = blocked + CONST.LEARN_LONGEST + learned.patience
    end
  else
    learned.why = WHY.eased
    learned.rate = learned.rate * CONST.LEARN_EASED
    learned.mark = learned.rate
    learned.patience = math.max(learned.patience, learn.patience)
    if learned.rate < learned.old_rate * CONST.LEARN_HALF then learned.again = math.min(learned.again, blocked) end
  end
  learned.blocked, learned.changed = blocked, blocked
end

local function learn_grow(learned, now, ceiling, learn)
  if learned.mark <= 0 and learned.rate < learn.start then
    -- No limit has been met, and the rule file now allows a higher initial rate.
    learned.rate, learned.changed, learned.why = learn.start, now, WHY.start
    return
  end
  local trying = is_trying(learned)
  local near = learned.bad * CONST.LEARN_NEAR
  local below = learned.mark > 0 and learned.rate < near * 0.99
  local wait = learned.patience
  if trying then
    -- If a step exceeds a limit, that shows within the limit's window.
    local window = learned.patience > CONST.LEARN_LONGEST and learned.window or 0
    wait = below and learned.patience >= CONST.LEARN_LONGEST and CONST.LEARN_LONG_HOLD
      or math.max(window, CONST.LEARN_HOLD)
  elseif learned.mark <= 0 then
    wait = CONST.LEARN_QUICK
  elseif below then
    local part = learned.rate / learned.bad
    -- After a long ban every step risks more.
    if learned.patience < CONST.LEARN_LONGEST then part = part * part * part end
    wait = math.max(floor(math.min(learned.patience, CONST.LEARN_LONGEST) * part), learn.patience)
  end
  if now - learned.changed < wait or learned.rate >= ceiling then return end
  learned.changed = now
  if learned.mark > 0 and carried(learned, now) < learned.rate * CONST.LEARN_USED then return end
  if trying then
    learned.mark = learned.rate
    WALL.bears(learned, learned.rate)
    -- The climb has reached its goal and waits there.
    if not below and learned.rate <= learned.bad then return end
  end
  learned.why = learned.mark > 0 and not below and WHY.try or WHY.climb
  if learned.mark <= 0 then
    learned.rate = learned.rate * CONST.LEARN_CLIMB
  elseif below then
    local step = math.max((learned.bad - learned.rate) * CONST.LEARN_APPROACH, learned.rate * CONST.LEARN_LEAST)
    learned.rate = math.min(learned.rate + step, near)
  else
    local gained = learned.bad > 0 and learned.rate / learned.bad - 1 or 0
    learned.rate = learned.rate * (1 + math.min(math.max(gained, CONST.LEARN_STEP), CONST.LEARN_STRIDE))
  end
end

local function pass_over(learned, news)
  learned.seen, learned.blocked, learned.heard = news.opened, news.blocked, news.load.at
end

function LOAD.forget(learned)
  learned.answers, learned.calm_rate, learned.calm_mark, learned.calm_bad, learned.spared = 0, 0, 0, 0, 0
end

local function begin_learned(learned, now, rate, news, why, learn)
  learned.rate, learned.mark, learned.bad, learned.changed = rate, 0, 0, now
  learned.patience, learned.why = learn.patience, why
  forget_test(learned)
  learned.again, learned.untripped, learned.tripped = 0, 0, 0
  LOAD.forget(learned)
  WALL.forget(learned)
  pass_over(learned, news)
end

-- New information about the load that requires a change, as in src/limiter/learn/overload.rs; nil = none.
function LOAD.hear(learned, now, news)
  local load, strains = news.load, learned.answers > 0
  if load.at <= learned.heard then
    if strains and now - learned.heard > CONST.LEARN_MINUTE then return { strained = false } end
    return nil
  end
  learned.heard = load.at
  local counts = load.strained and (now >= learned.spared or load.good < load.answered * CONST.LEARN_HALF)
  if not counts and not strains then return nil end
  return { strained = counts, sent = load.sent, answered = load.answered, good = load.good }
end

function LOAD.relieve(learned, now, learn)
  local answers = learned.answers
  local tried = learned.calm_mark > 0 and learned.calm_rate > learned.calm_mark * CONST.LEARN_ABOVE
  -- A failed try confirms the mark.
  local least = tried and learned.calm_mark * CONST.LEARN_CONFIRMED or 0
  -- A try costs the time until the queue has drained.
  learned.patience = math.max(math.min(now - learned.changed, CONST.LEARN_MINUTE) * CONST.LEARN_WORTH, learn.patience)
  learned.answers, learned.why, learned.changed = 0, WHY.relieved, now
  learned.rate = math.max(math.min(math.max(answers * CONST.LEARN_NEAR, least), learned.calm_rate), learned.rate)
  learned.mark = learned.rate
  learned.bad = math.min(learned.bad, math.max(answers, learned.rate))
end

function LOAD.excuse(learned, now)
  learned.rate, learned.mark, learned.bad = learned.calm_rate, learned.calm_mark, learned.calm_bad
  LOAD.forget(learned)
  learned.spared, learned.why, learned.changed = now + CONST.LEARN_EXCUSED, WHY.no_relief, now
end

function LOAD.bear(learned, now, load, learn)
  if not load.strained then return LOAD.relieve(learned, now, learn) end
  local used = load.sent >= learned.rate * CONST.LEARN_USED
  if learned.answers > 0 then
    local known, fails = learned.answers, load.good < load.answered * CONST.LEARN_HALF
    local keeps_up = load.answered >= load.sent * CONST.LEARN_GROWS and load.answered <= load.sent * CONST.LEARN_DRAINS
    if not fails and keeps_up and learned.rate <= known * CONST.LEARN_HALF * CONST.LEARN_ABOVE then
      if now - learned.changed >= CONST.LEARN_MINUTE then LOAD.excuse(learned, now) end
      return
    end
    local new = known > CONST.LEARN_LITTLE and known + (load.good - known) * CONST.LEARN_NEW or load.good
    if used or known > CONST.LEARN_LITTLE then learned.answers = math.max(new, CONST.LEARN_LITTLE) end
    if not fails and load.answered > load.sent * CONST.LEARN_DRAINS then
      learned.changed = now
      return
    end
  else
    learned.answers = used and math.max(load.good, CONST.LEARN_LITTLE) or CONST.LEARN_LITTLE
    learned.calm_rate, learned.calm_mark, learned.calm_bad = learned.rate, learned.mark, learned.bad
  end
  learned.why, learned.changed, learned.bad = WHY.overload, now, learned.rate
  if used then
    learned.rate = math.max(learned.answers * CONST.LEARN_HALF, learned.rate * CONST.LEARN_HALF)
  else
    learned.rate = learned.rate * CONST.LEARN_EASED
  end
  learned.mark = learned.rate
end

-- A member's copy: `turn rate mark frozen`.
local function read_known(text)
  local numbers = {}
  for number in string.gmatch(text, '%S+') do numbers[#numbers + 1] = tonumber(number) end
  return { turn = numbers[1], rate = numbers[2], mark = numbers[3], frozen = numbers[4] }
end

-- Takes over a member's copy, because the store lost its memory.
local function restore_learned(learned, now, news, known, learn)
  local taught = known.mark > 0 or known.frozen == 1 or known.rate ~= learn.start
  begin_learned(learned, now, known.rate, news, taught and WHY.recalled or WHY.start, learn)
  learned.mark, learned.frozen, learned.turn = known.mark, known.frozen, known.turn
end

local function within_bounds(learned, ceiling, learn)
  return math.min(math.max(learned.rate, learn.floor), ceiling)
end

-- Whether it contains anything that a new scope would not know.
local function has_taught(learned, ceiling, learn)
  local first = math.min(math.max(learn.start, learn.floor), ceiling)
  local met = learned.mark > 0 or learned.bad > 0 or learned.spared > 0
  met = met or learned.frozen == 1 or learned.excused == 1
  return met or learned.rate > 0 and learned.rate ~= first
end

local function observe_learned(learned, now, last, news, known, shares, ceiling, learn)
  local rate, mark = learned.rate, learned.mark
  local most = math.min(news.named or ceiling, ceiling)
  if shares.answers > 0 then shares.tested = learned.frozen == 0 and now >= learned.again end
  local load = LOAD.hear(learned, now, news)
  if known.turn > learned.turn then
    restore_learned(learned, now, news, known, learn)
  elseif learned.rate <= 0 then
    begin_learned(learned, now, learn.start, news, WHY.start, learn)
  elseif learned.frozen == 1 then
    pass_over(learned, news)
  elseif news.opened > learned.seen and learned.excused == 1 then
    pass_over(learned, news)
    learned.changed, learned.excused = news.opened, 0
  elseif news.opened > learned.seen then
    learn_trip(learned, last, news, shares, learn)
  elseif learned.testing == 1 then
    learn_test(learned, now, news, shares, learn)
  elseif load then
    LOAD.bear(learned, now, load, learn)
  elseif may_test(learned, news, learn) and are_doubtful(shares) then
    begin_test(learned, now, news, shares)
  elseif are_explained(shares) or are_few(shares) then
    learned.blocked = math.max(learned.blocked, news.blocked)
    learn_grow(learned, now, most, learn)
  elseif (news.sure or now < learned.again) and news.blocked > learned.blocked + CONST.LEARN_ECHO
    and news.blocked > learned.seen then
    learn_ease(learned, news.blocked, shares, learn)
  else
    learn_grow(learned, now, most, learn)
  end
  local unbound = learned.rate
  learned.rate = within_bounds(learned, ceiling, learn)
  if learned.rate ~= rate and unbound == rate then learned.why = WHY.bounds end
  WALL.observe(learned, learned.rate > rate and rate > 0)
  if learned.rate ~= rate or learned.mark ~= mark then learned.turn = learned.turn + 1 end
end

-- Applies a manual change: `hand.forget`, or `hand.rate` and `hand.frozen` (nil = unchanged).
local function override_learned(learned, now, news, known, hand, ceiling, learn)
  if known.turn > learned.turn then
    restore_learned(learned, now, news, known, learn)
  elseif learned.rate <= 0 then
    begin_learned(learned, now, learn.start, news, WHY.start, learn)
  end
  if hand.forget then
    begin_learned(learned, now, learn.start, news, WHY.forgotten, learn)
    learned.frozen = 0
  else
    if hand.rate then
      begin_learned(learned, now, hand.rate, news, WHY.hand, learn)
      learned.mark = hand.rate
    elseif learned.frozen == 1 and hand.frozen == 0 then
      pass_over(learned, news)
      learned.changed = now
    end
    learned.frozen = hand.frozen or learned.frozen
  end
  learned.excused = news.closed and 1 or 0
  learned.rate = within_bounds(learned, ceiling, learn)
  learned.turn = learned.turn + 1
end
