-- The load of a site: the same operations as `Load` in src/limiter/load.rs, which explains them.
--
-- Text: from last sent answered failed late (the open window, and its latest report), own owned (the scope's own time,
-- and when a member last reported it), then the latest closed window: at (its end, us), strained (0 or 1), and per
-- second: sent answered good.
--
-- One table, because a script may have at most 200 locals.
local LOAD = {
  FIELDS = { 'from', 'last', 'sent', 'answered', 'failed', 'late', 'own', 'owned', 'at', 'strained', 'sends',
    'answers', 'good' },
  NONE = { at = 0, strained = false, sent = 0, answered = 0, good = 0 },
}

function LOAD.read(text)
  local load, i = {}, 1
  for number in string.gmatch(text, '%S+') do
    load[LOAD.FIELDS[i]] = tonumber(number)
    i = i + 1
  end
  for _, field in ipairs(LOAD.FIELDS) do load[field] = load[field] or 0 end
  return load
end

function LOAD.pack(load)
  local numbers = {}
  for i, field in ipairs(LOAD.FIELDS) do numbers[i] = exact(load[field]) end
  return table.concat(numbers, ' ')
end

-- The latest window.
function LOAD.strain(text)
  if text == '' then return LOAD.NONE end
  local load = LOAD.read(text)
  return { at = load.at, strained = load.strained == 1, sent = load.sends, answered = load.answers, good = load.good }
end

-- Adds a member's counts: `over sent answered failed late own quickest`.
function LOAD.count(scope, now, text)
  local load, tally = LOAD.read(scope.load), {}
  for number in string.gmatch(text, '%S+') do tally[#tally + 1] = tonumber(number) end
  if now - load.last > CONST.LOAD_SILENT then
    load.from = now - math.min(math.max(tally[1], 0), CONST.LOAD_SILENT)
    load.sent, load.answered, load.failed, load.late = 0, 0, 0, 0
  end
  load.last = now
  local own, quickest = tally[6], tally[7]
  if own > 0 and (own <= load.own or now - load.owned > CONST.LOAD_REMEMBERED) then load.own, load.owned = own, now end
  if load.own > 0 and quickest > load.own * CONST.LOAD_TIMES + CONST.LOAD_GRACE then tally[5] = math.max(tally[3] - tally[4], 0) end
  for i, field in ipairs({ 'sent', 'answered', 'failed', 'late' }) do
    load[field] = math.min(load[field] + tally[i + 1], CONST.LOAD_MOST)
  end
  if now - load.from >= CONST.LOAD_WINDOW and load.answered >= CONST.LOAD_ENOUGH then
    local seconds = (now - load.from) / 1000000
    local good = math.max(load.answered - load.failed, 0)
    local fails = load.failed >= CONST.LOAD_FAILURES and load.failed >= load.answered * CONST.LOAD_FAILING
    local lags = load.late > 0 and load.late >= good * CONST.LOAD_LATE
    load.at, load.strained = now, (fails or lags) and 1 or 0
    load.sends, load.answers, load.good = load.sent / seconds, load.answered / seconds, good / seconds
    load.from, load.sent, load.answered, load.failed, load.late = now, 0, 0, 0, 0
  end
  scope.load = LOAD.pack(load)
end

function LOAD.set_back(scope, back)
  if scope.load == '' then return end
  local load = LOAD.read(scope.load)
  for _, field in ipairs({ 'from', 'last', 'owned', 'at' }) do
    load[field] = load[field] > 0 and load[field] - back or 0
  end
  scope.load = LOAD.pack(load)
end
