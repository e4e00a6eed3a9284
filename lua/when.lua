-- When the next request of some scopes of one rule could be sent. Changes nothing.
-- Fields: `When` in src/store/scripts.
local now, found = read_clock(), {}
local policy, learn = read_policy(), read_learn()
local till = tonumber(redis.call('HMGET', KEY.memory, 'till')[1] or 0)
local hold = hold_of({ till = till }, now)
for n = 1, #KEY.scope do
  local own = ARG.scope_own[n] == '1'
  local known = read_known(ARG.scope_learned[n])
  local phase, ends, scope = 'open', 0, fresh_cooldown()
  if ARG.cools == '1' then
    scope = load_cooldown(KEY.scope_cooldown[n])
    observe_cooldown(scope, now)
    phase, ends = phase_of(scope, now, policy)
  end
  local limits = read_limits(ARG.limits_rate, ARG.limits_burst, ARG.limits_cost, ARG.limits_quotas,
    own and policy.ramp or 0)
  local moment, by_rate = now, now
  if limits.rate or #limits.quotas > 0 then
    local bucket = load_bucket(KEY.scope_bucket[n], now, limits)
    observe_bucket(bucket, now, limits)
    limits.probes = phase ~= 'open'
    set_pace(bucket, now, limits, learn, news_of(scope, own, now), known, scope.shares)
    fill_by(bucket, now, limits)
    if own then restart_bucket(bucket, scope.opened, limits) end
    -- Without a probe the scope opens by itself, with an empty bucket. A pause does not empty it.
    if own and phase == 'cooling' and not policy.probe and not is_pause(scope.cause) then
      restart_bucket(bucket, ends, limits)
    end
    moment = next_moment(bucket, now, limits)
    local quotas = limits.quotas
    limits.quotas = {}
    by_rate = next_moment(bucket, now, limits)
    limits.quotas = quotas
  end
  local user_moment = now
  local own_limits = read_limits(ARG.user_rate, ARG.user_burst, ARG.user_cost, ARG.user_quotas, 0)
  if own_limits.rate or #own_limits.quotas > 0 then
    local user = load_bucket(KEY.scope_user[n], now, own_limits)
    observe_bucket(user, now, own_limits)
    fill_by(user, now, own_limits)
    user_moment = next_moment(user, now, own_limits)
  end
  local most = tonumber(ARG.parallel)
  found[n] = REPLY {
    now = now,
    epoch = scope.ep,
    phase = phase,
    ends = ends,
    hold = hold,
    moment = moment,
    by_rate = by_rate,
    user_moment = user_moment,
    slots_left = most > 0 and math.max(most - slots_in_use(KEY.scope_slots[n], now, ARG.scope_queue[n]), 0) or 0,
    rate = exact(limits.per_second or 0),
    members = redis.call('ZCOUNT', KEY.scope_waiting[n], whole(now), '+inf'),
  }
end
return found
