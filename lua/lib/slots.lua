-- The concurrent requests of a scope, divided among members: the same operations as src/limiter/slots.rs.
--
-- Hash: for each member `slots:wanted:until:served` (slots that it may use, slots that it could use, when its lease ends, when
-- it last got one), and `settled` (no member gets another slot before this moment).

-- Returns the shares of members with current leases, when slots are allotted again, and the members with expired
-- leases.
local function read_slots(key, now)
  local shares, settled, ended = {}, 0, {}
  local fields = redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    if fields[i] == 'settled' then
      settled = math.min(tonumber(fields[i + 1]), now + CONST.SETTLE)
    else
      local slots, wanted, till, served = string.match(fields[i + 1], '^(%d+):(%d+):(%d+):(%d+)$')
      local share = { member = fields[i], slots = tonumber(slots), wanted = tonumber(wanted), served = tonumber(served) }
      share.till = math.min(tonumber(till), now + CONST.SLOT_LEASE)
      if share.till > now then
        shares[#shares + 1] = share
      else
        ended[#ended + 1] = fields[i]
      end
    end
  end
  return shares, settled, ended
end

-- The same without the expired leases.
local function load_slots(key, now)
  local shares, settled, ended = read_slots(key, now)
  for _, member in ipairs(ended) do redis.call('HDEL', key, member) end
  return shares, settled
end

-- Slots that other members than `member` use or want, as of their last calls.
local function slots_in_use(key, now, member)
  local used = 0
  for _, share in ipairs(read_slots(key, now)) do
    if share.member ~= member then used = used + math.min(share.slots, share.wanted) end
  end
  return used
end

local function save_share(key, share)
  redis.call('HSET', key, share.member,
    table.concat({ whole(share.slots), whole(share.wanted), whole(share.till), whole(share.served) }, ':'))
end

local function is_short(share) return share.wanted > share.slots end

local function waited_longer(one, other)
  if one.served ~= other.served then return one.served < other.served end
  return one.member < other.member
end

-- The members that are short of slots; the one that has waited longest comes first.
local function short_members(shares)
  local short = {}
  for _, share in ipairs(shares) do
    if is_short(share) then short[#short + 1] = share end
  end
  table.sort(short, waited_longer)
  return short
end
