-- Counts error responses: the same operations as src/limiter/errors.rs.
--
-- Text: `moment:count,...`, oldest first: the latest error of each slot of the window, and the slot's number of errors.
local function read_errors(text)
  local entries = {}
  for at, count in string.gmatch(text, '(-?%d+):(%d+)') do
    entries[#entries + 1] = { at = tonumber(at), count = tonumber(count) }
  end
  return entries
end

local function pack_errors(entries)
  local packed = {}
  for i, entry in ipairs(entries) do packed[i] = whole(entry.at) .. ':' .. whole(entry.count) end
  return table.concat(packed, ',')
end

-- Counts an error. Returns the moment at which another one is allowed; 0 = now.
local function count_error(scope, now, most, window)
  local slot, entries = math.max(floor(window / CONST.ERROR_SLOTS), 1), {}
  for _, entry in ipairs(read_errors(scope.errors)) do
    if entry.at + window > now then entries[#entries + 1] = entry end
  end
  local last = entries[#entries]
  if last and floor(last.at / slot) == floor(now / slot) then
    last.at, last.count = now, last.count + 1
  else
    entries[#entries + 1] = { at = now, count = 1 }
  end
  scope.errors, scope.erring = pack_errors(entries), now + window
  local left, room = 0, 0
  for _, entry in ipairs(entries) do left = left + entry.count end
  for _, entry in ipairs(entries) do
    if left < most then break end
    left, room = left - entry.count, entry.at + window
  end
  return room
end

local function set_back_errors(scope, back)
  local entries = read_errors(scope.errors)
  for _, entry in ipairs(entries) do entry.at = entry.at - back end
  scope.errors = pack_errors(entries)
end
