-- Takes tickets: the moments at which requests of one scope may be sent. Never waits; returns when to ask again.
-- Fields: `Take` in src/store/scripts.
--
-- Keeps grants <= burst + rate * t in every window, and every quota. A ticket takes from all limits or from none.
--
-- This is a function because Lua limits the number of locals, and the libraries use nearly all of the script's.
local function take()
  local now = read_clock()
  local cools, own = ARG.cools == '1', ARG.own == '1'
  local drains, voids = ARG.drain == '1', ARG.void == '1'
  local policy = read_policy()
  local limits = read_limits(ARG.limits_rate, ARG.limits_burst, ARG.limits_cost, ARG.limits_quotas,
    own and policy.ramp or 0)
  limits.closed = policy.max
  local wanted, held, bound = math.min(tonumber(ARG.wanted), CONST.BATCH), tonumber(ARG.held), tonumber(ARG.bound)
  local away = ARG.away
  -- The call waited in a stopped server. Its member has given up and will send everything again.
  local expires = tonumber(ARG.expires)
  local late = expires > 0 and now > expires
  if late then wanted, away = 0, '' end

  local phase, come_back, scope = 'open', 0, fresh_cooldown()
  if cools then
    scope = load_cooldown(KEY.cooldown)
    observe_cooldown(scope, now)
    local restored = restore_cooldown(scope, tonumber(ARG.epoch), ARG.phase, now)
    local was = scope.till
    phase, come_back = phase_of(scope, now, policy)
    if restored or scope.till ~= was then save_cooldown(KEY.cooldown, scope, now, policy) end
  end

  -- How many members wait for this bucket, this one included, and whether this one is new. Called only if it must wait.
  local function waiting(until_)
    redis.call('ZREMRANGEBYSCORE', KEY.waiting, '-inf', whole(now))
    local new = redis.call('ZADD', KEY.waiting, whole(until_ + 1000000), ARG.member)
    redis.call('PEXPIRE', KEY.waiting, whole(ceil((until_ - now) / 1000) + 5000))
    return redis.call('ZCARD', KEY.waiting), new == 1
  end

  -- The member does not have the probe that it was granted, because the reply was lost. It gets the probe again,
  -- without another token.
  local again = phase == 'probing' and wanted > 0 and ARG.holds_probe ~= '1' and is_prober(scope, ARG.member)
  if again then phase, wanted = 'due', 0 end

  local tickets, taken, members, rate, windows, learned, since = {}, 0, 1, 0, '', load_learned(''), 0
  local over = 0
  local limited = limits.rate or #limits.quotas > 0
  if phase == 'open' or phase == 'due' then
    if phase == 'due' then wanted = math.min(wanted, 1) end
    local bucket, grace
    if limited then
      bucket = load_bucket(KEY.bucket, now, limits)
      observe_bucket(bucket, now, limits)
      limits.probes = phase == 'due'
      local shares = pack_shares(scope.shares)
      set_pace(bucket, now, limits, read_learn(), news_of(scope, own, now), read_known(ARG.learned), scope.shares)
      if pack_shares(scope.shares) ~= shares then save_cooldown(KEY.cooldown, scope, now, policy) end
      local fleet = tonumber(ARG.fleet)
      note_memory(bucket, KEY.memory, tonumber(ARG.memory), fleet, now)
      since = bucket.since
      note_gap(bucket, now)
      grace = load_grace(bucket, now)
      recover_windows(bucket, ARG.windows, now, limits)
      local began, debt
      grace, began, debt = rejoin(bucket, grace, KEY.back, ARG.member, away, now, limits)
      reserve_shares(grace, KEY.back, limits)
      fill_by(bucket, now, limits)
      if own then restart_bucket(bucket, scope.opened, limits) end
      rate = limits.per_second or 0
      if limits.learns then learned = bucket.learned end
      -- Tickets that other members hold ahead stay valid, unless the limits have changed.
      if drains or began then drain_bucket(bucket, math.max(bucket.at, now), limits) end
      -- Only its own cooldown empties the bucket.
      local voided = own and tonumber(ARG.latest_epoch) < scope.ep
      if not voided and (not drains or bucket.recovers) then
        recover_bucket(bucket, ARG.latest, fleet, now, limits)
      end
      if voids then
        local all = { ARG.limits_rate, ARG.limits_burst, ARG.limits_cost, ARG.limits_quotas }
        -- Other members use the tickets that they hold until their own reloads.
        void_bucket(bucket, fleet > 1 and now + CONST.HORIZON or now, limits, table.concat(all, '|'))
      end
      if drains or ARG.windows ~= '' or ARG.latest ~= '' then bucket.unknown_until = nil end
      bucket.at = math.max(bucket.at, bucket.not_before or bucket.at)
      if limits.rate then bucket.tokens = bucket.tokens - debt end
      -- After a change of the limits, the rate has its tokens back already.
      if voids then
        refund_all(bucket, ARG.returned, limits)
      else
        return_tickets(bucket, ARG.returned, now, limits)
      end
    end
    local user, own_limits
    if KEY.user then
      own_limits = read_limits(ARG.user_rate, ARG.user_burst, ARG.user_cost, ARG.user_quotas, 0)
      user = load_bucket(KEY.user, now, own_limits)
      observe_bucket(user, now, own_limits)
      fill_by(user, now, own_limits)
    end
    local ahead, share = 0, nil
    local pauses = limited and math.max(bucket.hold, quotas_pause(grace, limits, now)) or 0
    while taken < wanted do
      if pauses > 0 then
        come_back = math.min(pauses, now + CONST.HORIZON)
        break
      end
      local moment = limited and next_moment(bucket, now, limits) or now
      -- A user over its own limits takes no tokens of the rule. A probe is sent in any case.
      local own_moment = user and phase == 'open' and next_moment(user, now, own_limits) or moment
      if own_moment > moment then
        come_back, over = own_moment, 1
        break
      end
      if limited and bucket.unknown_until and moment > bucket.unknown_until then
        come_back = bucket.unknown_until
        break
      end
      if moment > now then
        come_back = moment
        if moment - now > bound then break end
        if not share then
          local new
          members, new = waiting(math.min(moment, now + bound))
          share = limits.rate and math.max(1, ceil(limits.per_second * (CONST.HORIZON / 1e6) / limits.cost / members)) or 1
          -- Many members may begin to wait at once, so a new one begins with little.
          if new then share = CONST.FIRST end
        end
        if held + ahead >= share then break end
        ahead = ahead + 1
      end
      if limited then take_ticket(bucket, moment, limits) end
      if user then take_ticket(user, moment, own_limits) end
      tickets[#tickets + 1], taken = moment, taken + 1
      local more = 0
      if user then
        more = 0
      elseif not limited then
        more = wanted - taken
      elseif moment == now then
        more = take_more(bucket, now, limits, wanted - taken)
      end
      if more > 0 then tickets[#tickets + 1], taken = -more, taken + more end
    end
    if taken >= wanted then come_back = late and now or 0 end
    if limited then
      -- A bucket that no member knows counts as full later, unless it grants something before.
      if taken > 0 or not bucket.unknown_until then
        save_grace(bucket, grace, now)
        save_bucket(KEY.bucket, bucket, now, limits)
      end
      windows = list_windows(bucket)
      if user then save_bucket(KEY.user, user, now, own_limits) end
    end
    if phase == 'due' then
      local lease = tonumber(ARG.lease)
      if again then
        tickets[1] = lend_again(scope, now, lease)
      elseif tickets[1] then
        lend_probe(scope, ARG.member, tickets[1], lease)
      end
      if tickets[1] then
        phase = 'probe'
        come_back = scope.lease
        save_cooldown(KEY.cooldown, scope, now, policy)
      end
    end
  end
  return REPLY {
    now = now,
    phase = phase,
    epoch = scope.ep,
    come_back = come_back,
    over = over,
    members = members,
    streak = exact(scope.streak),
    rate = exact(rate),
    windows = windows,
    learned_turn = learned.turn,
    learned_rate = exact(learned.rate),
    learned_mark = exact(learned.mark),
    learned_frozen = learned.frozen,
    learned_why = learned.why,
    learned_wall = WALL.name(learned),
    memory = since,
    tickets = tickets,
  }
end

return take()
