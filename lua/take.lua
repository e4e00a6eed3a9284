-- Takes tickets: the moments at which requests of one scope may go. Never waits; says when to come back.
--
-- KEYS  1 bucket  2 cooldown  3 members that wait for the bucket  4 members that are back (lib/away.lua)
--       5 the memory of the rule (lib/memory.lua)  6 the bucket of the user, where users have limits of their own
-- ARGV  1 tickets wanted  2 tickets held unused  3 latest acceptable wait (us)  4 lease of a probe (us)  5 member
--       6 `1` empties the bucket first (back from an outage), `2` voids what it handed out ahead (other limits),
--       `3` does both, `0` none  7 tickets handed back (`us,us`)
--       8 epoch and 9 its state as the member knows them (`open`, `cooling:US`, `probing:US`)
--       10 `1` if the cooldown is the bucket's own  11 rate (per second, empty = none)  12 burst  13 cost  14 quotas
--       (`tokens:us,...`)  15 `1` if the rule cools down  16... its policy (lib/cooldown.lua)
--       27 the learned rate as the member knows it (`turn rate mark frozen`)  28... how it is learned (lib/learn.lua)
--       32 windows of the quotas as the member heard of them (`told at us;length:start:taken,...`, empty = none)
--       33 what the member did without the store (lib/away.lua, empty = it was there)
--       34 the latest ticket that the member knows of (`us:told at us:members`, empty = none)
--       35 the memory of the rule that it knows of (us, 0 = none)  36 members that it knows of
--       37 `1` if the member holds the probe  38 the epoch of its latest ticket
--       39 rate, 40 burst, 41 cost and 42 quotas of the user
-- Reply now, phase (open cooling probing probe), epoch, come back (us, 0 = fully served), `1` if nothing but the limits
--       of the user is in the way until then, members waiting, streak,
--       rate in force, windows (`length:start:taken,...`), what is learned (turn, rate, mark, frozen, why; zeros where nothing
--       is), the memory of the rule (us, 0 = not looked at), then the tickets (us),
--       and behind one minus how many more there are of the same moment
-- Holds grants <= burst + rate * t in every window and every quota; all of them move together or not at all.
--
-- A function of its own: the whole script has as many local variables as Lua allows in one.
local function take()
  local now = read_clock()
  local cools = ARGV[15] == '1'
  local policy = read_policy(ARGV, 16)
  local limits = read_limits(ARGV[11], ARGV[12], ARGV[13], ARGV[14], ARGV[10] == '1' and policy.ramp or 0)
  limits.closed = policy.max
  local wanted, held, bound = math.min(tonumber(ARGV[1]), BATCH), tonumber(ARGV[2]), tonumber(ARGV[3])

  local phase, come_back, scope = 'open', 0, fresh_cooldown()
  if cools then
    scope = load_cooldown(KEYS[2])
    observe_cooldown(scope, now)
    local restored = restore_cooldown(scope, tonumber(ARGV[8]), ARGV[9], now)
    local was = scope.till
    phase, come_back = phase_of(scope, now, policy)
    if restored or scope.till ~= was then save_cooldown(KEYS[2], scope, now, policy) end
  end

  -- How many members wait for this bucket, this one included, and whether it has only just come; asked only where
  -- somebody has to wait.
  local function waiting(until_)
    redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', whole(now))
    local new = redis.call('ZADD', KEYS[3], whole(until_ + 1000000), ARGV[5])
    redis.call('PEXPIRE', KEYS[3], whole(ceil((until_ - now) / 1000) + 5000))
    return redis.call('ZCARD', KEYS[3]), new == 1
  end

  -- The probe is this member's, and it does not have it: the reply that carried it was lost. It goes again, for the token
  -- that it took.
  local again = phase == 'probing' and wanted > 0 and ARGV[37] ~= '1' and is_prober(scope, ARGV[5])
  if again then phase, wanted = 'due', 0 end

  local tickets, taken, members, rate, windows, learned, since = {}, 0, 1, 0, '', load_learned(''), 0
  local over = 0
  local limited = limits.rate or #limits.quotas > 0
  if phase == 'open' or phase == 'due' then
    if phase == 'due' then wanted = math.min(wanted, 1) end
    local bucket, grace
    if limited then
      bucket = load_bucket(KEYS[1], now, limits)
      observe_bucket(bucket, now, limits)
      local own = ARGV[10] == '1'
      limits.probes = phase == 'due'
      local news = { opened = own and scope.opened or 0, blocked = own and scope.last or 0, sure = own and scope.sure == 1,
        named = own and named_at(scope, now) or nil, load = LOAD.strain(own and scope.load or '') }
      local shares = pack_shares(scope.shares)
      set_pace(bucket, now, limits, read_learn(ARGV, 28), news, read_known(ARGV[27]), scope.shares)
      if pack_shares(scope.shares) ~= shares then save_cooldown(KEYS[2], scope, now, policy) end
      local fleet = tonumber(ARGV[36])
      note_memory(bucket, KEYS[5], tonumber(ARGV[35]), fleet, now)
      since = bucket.since
      note_gap(bucket, now)
      grace = load_grace(bucket, now)
      recall_windows(bucket, ARGV[32], now, limits)
      local began, owed
      grace, began, owed = welcome(bucket, grace, KEYS[4], ARGV[5], ARGV[33], now, limits)
      leave_shares(grace, KEYS[4], limits)
      fill_by(bucket, now, limits)
      if own then restart_bucket(bucket, scope.opened) end
      rate = limits.per_second or 0
      if limits.learns then learned = bucket.learned end
      -- Tickets that others hold ahead stay theirs, but where the limits have changed.
      if ARGV[6] == '1' or ARGV[6] == '3' or began then drain_bucket(bucket, math.max(bucket.at, now)) end
      if ARGV[6] == '2' or ARGV[6] == '3' then void_bucket(bucket, now, table.concat(ARGV, '|', 11, 14)) end
      if tonumber(ARGV[38]) >= scope.ep and (ARGV[6] == '0' or ARGV[6] == '1' and bucket.recalls) then
        recall_bucket(bucket, ARGV[34], fleet, now, limits)
      end
      if ARGV[6] ~= '0' or ARGV[32] ~= '' or ARGV[34] ~= '' then bucket.doubt = nil end
      bucket.at = math.max(bucket.at, bucket.not_before or bucket.at)
      if limits.rate then bucket.tokens = bucket.tokens - owed end
      give_back(bucket, ARGV[7], now, limits)
    end
    local user, own_limits
    if KEYS[6] then
      own_limits = read_limits(ARGV[39], ARGV[40], ARGV[41], ARGV[42], 0)
      user = load_bucket(KEYS[6], now, own_limits)
      observe_bucket(user, now, own_limits)
      fill_by(user, now, own_limits)
    end
    local ahead, share = 0, nil
    while taken < wanted do
      if limited and bucket.hold > 0 then
        come_back = math.min(bucket.hold, now + HORIZON)
        break
      end
      local moment = limited and next_moment(bucket, now, limits) or now
      -- Who is over the limits of its own leaves the tokens of the rule to others. A probe goes in any case.
      local own_moment = user and phase == 'open' and next_moment(user, now, own_limits) or moment
      if own_moment > moment then
        come_back, over = own_moment, 1
        break
      end
      if limited and is_left(bucket, grace, moment, limits) then
        come_back = grace.till
        break
      end
      if limited and bucket.doubt and moment > bucket.doubt then
        come_back = bucket.doubt
        break
      end
      if moment > now then
        come_back = moment
        if moment - now > bound then break end
        if not share then
          local new
          members, new = waiting(math.min(moment, now + bound))
          share = limits.rate and math.max(1, ceil(limits.per_second * (HORIZON / 1e6) / limits.cost / members)) or 1
          -- Who has only just come may be one of many that do: it begins with little.
          if new then share = FIRST end
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
    if taken >= wanted then come_back = 0 end
    if limited then
      -- A bucket that nobody knows is full after the minute of doubt, unless it has begun to grant before.
      if taken > 0 or not bucket.doubt then
        save_grace(bucket, grace, now)
        save_bucket(KEYS[1], bucket, now, limits)
      end
      windows = tell_windows(bucket)
      if user then save_bucket(KEYS[6], user, now, own_limits) end
    end
    if phase == 'due' then
      phase = 'probing'
      if again then tickets[1] = now end
      if tickets[1] then
        phase = 'probe'
        lend_probe(scope, ARGV[5], tickets[1], tonumber(ARGV[4]))
        come_back = scope.lease
        save_cooldown(KEYS[2], scope, now, policy)
      end
    end
  end
  local reply =
    { now, phase, scope.ep, come_back, over, members, exact(scope.streak), exact(rate), windows, tell_learned(learned) }
  reply[#reply + 1] = since
  for _, moment in ipairs(tickets) do reply[#reply + 1] = moment end
  return reply
end

return take()
