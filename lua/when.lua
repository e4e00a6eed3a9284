-- When the next request of some scopes of one rule could go. Reads only: it takes nothing and changes nothing.
--
-- KEYS  for each scope: bucket, cooldown, members that wait for the bucket; last, the memory of the rule (lib/memory.lua)
-- ARGV  1 rate (per second, empty = none)  2 burst  3 cost  4 quotas (`tokens:us,...`)  5 `1` if the rule cools down
--       6... its policy (lib/cooldown.lua)  17... how the rate is learned (lib/learn.lua)
--       21... for each scope: `1` if the cooldown is the bucket's own, the learned rate as the member knows it
-- Reply for each scope: now, epoch, state (open cooling probing), its end (us, 0 = open), until when the store holds the
--       rule (us, 0 = not at all), the next ticket (us), the next ticket by the rate alone (us), rate in force, members
--       that wait for the bucket
local now, found = read_clock(), {}
local policy, learn = read_policy(ARGV, 6), read_learn(ARGV, 17)
local till = tonumber(redis.call('HMGET', KEYS[#KEYS], 'till')[1] or 0)
local hold = hold_of({ till = till }, now)
for i = 1, #KEYS - 1, 3 do
  local own = ARGV[21 + (i - 1) / 3 * 2] == '1'
  local known = read_known(ARGV[22 + (i - 1) / 3 * 2])
  local phase, ends, scope = 'open', 0, fresh_cooldown()
  if ARGV[5] == '1' then
    scope = load_cooldown(KEYS[i + 1])
    observe_cooldown(scope, now)
    phase, ends = phase_of(scope, now, policy)
  end
  local limits = read_limits(ARGV[1], ARGV[2], ARGV[3], ARGV[4], own and policy.ramp or 0)
  local moment, by_rate = now, now
  if limits.rate or #limits.quotas > 0 then
    local bucket = load_bucket(KEYS[i], now, limits)
    observe_bucket(bucket, now, limits)
    limits.probes = phase ~= 'open'
    local news = { opened = own and scope.opened or 0, blocked = own and scope.last or 0, sure = own and scope.sure == 1,
      named = own and named_at(scope, now) or nil, load = LOAD.strain(own and scope.load or '') }
    set_pace(bucket, now, limits, learn, news, known, scope.shares)
    fill_by(bucket, now, limits)
    if own then restart_bucket(bucket, scope.opened) end
    -- Without a probe, the scope opens by itself, and its bucket begins empty; not after a pause.
    if own and phase == 'cooling' and not policy.probe and not is_pause(scope.cause) then restart_bucket(bucket, ends) end
    moment = next_moment(bucket, now, limits)
    local quotas = limits.quotas
    limits.quotas = {}
    by_rate = next_moment(bucket, now, limits)
    limits.quotas = quotas
  end
  if phase == 'due' then phase = 'open' end
  found[#found + 1] = { now, scope.ep, phase, ends, hold, moment, by_rate, exact(limits.per_second or 0),
    redis.call('ZCOUNT', KEYS[i + 2], whole(now), '+inf') }
end
return found
