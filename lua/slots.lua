-- Allots slots to a member: how many of its requests may be under way at once.
--
-- KEYS  1 slots (lib/slots.lua)  2 the memory of the rule (lib/memory.lua)
-- ARGV  1 member of the slots  2 most slots over the fleet  3 slots that it uses  4 slots that it could use (0 = it leaves)
--       5 members of the fleet that it knows of  6 `1` if it began requests without the store  7 the memory of the rule
--       that it knows of (us, 0 = none)  8 command (PUBLISH SPUBLISH) and 9 channel of the news  10 name of the bucket in the
--       news
-- Reply now, slots, whether others are short (1), when to ask again (us, 0 = it has all that it wants), the memory of the
--       rule (us)
-- The news `slots` name the member that can have a slot, or nobody where a member has become short.
local now = read_clock()
local most, under_way, wanted, fleet = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local memory = load_memory(KEYS[2], tonumber(ARGV[7]), fleet, now)
local shares, settled = load_slots(KEYS[1], now)
if ARGV[6] == '1' and settled <= now then
  settled = now + SETTLE
  redis.call('HSET', KEYS[1], 'settled', whole(settled))
end
if memory.before > 0 and memory.fleet > 1 then
  settled = math.max(settled, math.min(memory.since + SETTLE, now + SETTLE))
end

local own, used, contended, ends = nil, 0, false, now + SLOT_LEASE
for i = #shares, 1, -1 do
  local share = shares[i]
  if share.member == ARGV[1] then
    own = table.remove(shares, i)
  else
    used, contended, ends = used + share.slots, contended or is_short(share), math.min(ends, share.till)
  end
end
local was_short = own and is_short(own)
own = { member = ARGV[1], slots = under_way, wanted = wanted, till = now + SLOT_LEASE, served = own and own.served or 0 }
local free, goal = math.max(most - used, 0), 0
local stays = wanted > 0 or under_way > 0
if stays then shares[#shares + 1] = own end
if settled > now then
  ends = math.min(settled, ends)
elseif contended and stays then
  divide(shares, most)
  goal = math.min(own.fair, math.max(free - due_before(shares, own), 0))
elseif stays then
  goal = math.min(math.max(wanted, math.floor(most / math.max(fleet, 1))), free)
end
own.slots = math.max(under_way, goal)
if own.slots > under_way then own.served = now end
if stays then save_share(KEYS[1], own) else redis.call('HDEL', KEYS[1], ARGV[1]) end
keep(KEYS[1], SLOT_LEASE)

local function tell(member) push(ARGV[8], ARGV[9], { ARGV[10], 'slots', member }) end
if settled <= now then
  for _, member in ipairs(next_served(shares, most, math.max(free - own.slots, 0), own)) do tell(member) end
end
if is_short(own) and not was_short then tell('') end
return { now, own.slots, contended and 1 or 0, is_short(own) and ends or 0, memory.since }
