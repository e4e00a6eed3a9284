-- Allots slots to a member, which limit its concurrent requests.
-- Fields: `Slots` in src/store/scripts.
--
-- The news `slots` name the member that can have a slot. Without a name they mean that a member has become short of
-- slots.
local now = read_clock()
local most, under_way, wanted, fleet = tonumber(ARG.most), tonumber(ARG.under_way), tonumber(ARG.wanted), tonumber(ARG.fleet)
local memory = load_memory(KEY.memory, tonumber(ARG.memory), fleet, now)
local shares, settled = load_slots(KEY.slots, now)
if ARG.was_local == '1' and settled <= now then
  settled = now + CONST.SETTLE
  redis.call('HSET', KEY.slots, 'settled', whole(settled))
end
if memory.before > 0 and memory.fleet > 1 then
  settled = math.max(settled, math.min(memory.since + CONST.SETTLE, now + CONST.SETTLE))
end

local own, used, contended, ends = nil, 0, false, now + CONST.SLOT_LEASE
for i = #shares, 1, -1 do
  local share = shares[i]
  if share.member == ARG.member then
    own = table.remove(shares, i)
  else
    used, contended, ends = used + share.slots, contended or is_short(share), math.min(ends, share.till)
  end
end
local was_short = own and is_short(own)
own = { member = ARG.member, slots = under_way, wanted = wanted, till = now + CONST.SLOT_LEASE, served = own and own.served or 0 }
local free, goal = math.max(most - used, 0), 0
local stays = wanted > 0 or under_way > 0
if stays then shares[#shares + 1] = own end
if settled > now then
  ends = math.min(settled, ends)
elseif contended and stays then
  local before = 0
  for _, share in ipairs(short_members(shares)) do
    if share == own then break end
    before = before + 1
  end
  goal = math.min(wanted, math.max(free - before, 0))
elseif stays then
  goal = math.min(math.max(wanted, math.floor(most / math.max(fleet, 1))), free)
end
own.slots = math.max(under_way, goal)
if own.slots > under_way then own.served = now end
if stays then save_share(KEY.slots, own) else redis.call('HDEL', KEY.slots, ARG.member) end
keep(KEY.slots, CONST.SLOT_LEASE)

local function notify(member) push({ 'slots', member }) end
local left = settled <= now and math.max(free - own.slots, 0) or 0
for _, share in ipairs(short_members(shares)) do
  if share ~= own and left > 0 then
    notify(share.member)
    left = left - 1
  end
end
if is_short(own) and not was_short then notify('') end
return REPLY {
  now = now,
  slots = own.slots,
  contended = contended and 1 or 0,
  come_back = is_short(own) and ends or 0,
  memory = memory.since,
}
