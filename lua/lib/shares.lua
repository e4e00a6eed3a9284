-- The share of blocks among the responses: the same operations as src/limiter/shares.rs, which explains them.
--
-- Kept in the cooldown's hash as one field: `tested answers;letter:blocks:base,...`, with the letters that have any.
-- Empty if nothing was counted.
local LETTERS = { 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h' }

local function load_shares(text)
  local tested, answers, list = string.match(text, '^(%d) (%S+);(.*)$')
  local shares = { tested = tested == '1', answers = tonumber(answers or 0), blocks = {}, base = {} }
  for _, letter in ipairs(LETTERS) do shares.blocks[letter], shares.base[letter] = 0, 0 end
  for letter, blocks, base in string.gmatch(list or '', '(%a):([^:]+):([^,]+)') do
    shares.blocks[letter], shares.base[letter] = tonumber(blocks), tonumber(base)
  end
  return shares
end

local function pack_shares(shares)
  local list = {}
  for _, letter in ipairs(LETTERS) do
    local blocks, base = shares.blocks[letter], shares.base[letter]
    if blocks > 0 or base > 0 then list[#list + 1] = letter .. ':' .. exact(blocks) .. ':' .. exact(base) end
  end
  if not shares.tested and shares.answers == 0 and not list[1] then return '' end
  return (shares.tested and 1 or 0) .. ' ' .. exact(shares.answers) .. ';' .. table.concat(list, ',')
end

local function total_of(counts)
  local total = 0
  for _, letter in ipairs(LETTERS) do total = total + counts[letter] end
  return total
end

local function count_shares(shares, oks, kinds)
  shares.answers = shares.answers + oks
  for letter in string.gmatch(kinds, '%a') do
    shares.answers = shares.answers + 1
    shares.blocks[letter] = (shares.blocks[letter] or 0) + 1
  end
  if shares.answers < CONST.SHARES_HALVED_FROM then return end
  for _, letter in ipairs(LETTERS) do
    local blocks = shares.blocks[letter]
    local expected = shares.base[letter] * shares.answers
    if blocks < (expected >= CONST.SHARES_MANY and expected or expected / 2) then shares.base[letter] = blocks / shares.answers end
    shares.blocks[letter] = floor(blocks / 2)
  end
  shares.answers = floor(shares.answers / 2)
end

local function restart_shares(shares)
  shares.answers = 0
  for _, letter in ipairs(LETTERS) do shares.blocks[letter] = 0 end
end

local function forget_shares(shares)
  for _, letter in ipairs(LETTERS) do shares.base[letter] = 0 end
  restart_shares(shares)
end

local function trip_shares(shares)
  local base = total_of(shares.base)
  local expected = base * shares.answers
  if base > 0 and total_of(shares.blocks) > expected + math.sqrt(expected) then return forget_shares(shares) end
  if total_of(shares.blocks) < CONST.SHARES_FREQUENT * shares.answers then restart_shares(shares) end
end

local function tolerated(shares, letter)
  if not shares.tested then return 0 end
  local blocks = shares.blocks[letter] or 0
  local seen = shares.answers >= CONST.SHARES_KNOWN_FROM and blocks > CONST.SHARES_FEW
  local share = seen and blocks / shares.answers or 0
  return math.max(shares.base[letter] or 0, share > CONST.SHARES_MOST and 0 or share)
end

local function are_chance(shares, kinds)
  local chance = 1
  for letter in string.gmatch(kinds, '%a') do
    -- A plain 503 has the verdict `ok`.
    local least = shares.tested and letter == 'a' and CONST.SHARES_REFUSED or 0
    chance = chance * math.max(tolerated(shares, letter), least)
  end
  return chance >= CONST.SHARES_CHANCE
end

local function needed_blocks(shares, of)
  local share = 0
  for _, letter in ipairs(LETTERS) do share = share + tolerated(shares, letter) end
  share = math.min(share, CONST.SHARES_MOST)
  return math.min(share * of + 6 * math.sqrt(of * share * (1 - share)), of)
end

local function exceeds_base(shares, letter)
  local expected = shares.base[letter] * shares.answers
  return shares.blocks[letter] > expected + 4 * math.sqrt(expected) + CONST.SHARES_FEW
end

local function are_explained(shares)
  for _, letter in ipairs(LETTERS) do
    if exceeds_base(shares, letter) then return false end
  end
  return total_of(shares.base) > 0
end

local function are_few(shares)
  local blocks = total_of(shares.blocks)
  return blocks > 0 and blocks < CONST.SHARES_LEAST * shares.answers
end

local function are_doubtful(shares)
  if not shares.tested then return false end
  local more = false
  for _, letter in ipairs(LETTERS) do
    more = more or exceeds_base(shares, letter) and shares.blocks[letter] >= CONST.SHARES_LEAST * shares.answers
  end
  return more and shares.answers >= CONST.SHARES_KNOWN_FROM
end

local function suspect_shares(shares)
  for _, letter in ipairs(LETTERS) do
    shares.base[letter] = math.max(shares.base[letter], shares.blocks[letter] / shares.answers)
  end
  restart_shares(shares)
end

-- Whether the share is the same at half the rate; nil = unknown.
local function outcome_of(shares, sent)
  local blocks, base = total_of(shares.blocks), total_of(shares.base)
  local expected = base * shares.answers
  if expected >= CONST.SHARES_ENOUGH then
    local most = CONST.SHARES_MOST * shares.answers
    if blocks <= most then return blocks * 3 >= expected end
    if blocks > most + math.sqrt(shares.answers) then return false end
    return nil
  end
  expected = base * sent
  if expected >= CONST.SHARES_ENOUGH_SENT and blocks * 4 < expected then return false end
end

-- The share of blocks if it is large enough to belong to a wall; else nil.
local function most_blocked(shares)
  local blocks = total_of(shares.blocks)
  local most = shares.answers >= CONST.SHARES_KNOWN_FROM and blocks > CONST.SHARES_MOST * shares.answers
  return most and blocks / shares.answers or nil
end

local function settle_shares(shares, same)
  if not same then return forget_shares(shares) end
  local answers = math.max(shares.answers, 1)
  for _, letter in ipairs(LETTERS) do
    shares.base[letter] = (shares.base[letter] + shares.blocks[letter] / answers) / 2
  end
  restart_shares(shares)
end
