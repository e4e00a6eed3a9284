-- Sets, freezes, unfreezes or forgets a learned rate manually.
-- Fields: `Rate` in src/store/scripts.
local now = read_clock()
local policy = read_policy()
local limits = read_limits(ARG.limits_rate, ARG.limits_burst, ARG.limits_cost, ARG.limits_quotas, policy.ramp)
limits.closed = policy.max
local scope = load_cooldown(KEY.cooldown)
observe_cooldown(scope, now)
local bucket = load_bucket(KEY.bucket, now, limits)
observe_bucket(bucket, now, limits)
-- A missing bucket may have been lost, so it grants nothing while its tickets may be outstanding.
if bucket.fresh then bucket.at, bucket.tokens = now + CONST.HORIZON, 0 end
local hand = { forget = ARG.action == 'forget', rate = tonumber(ARG.rate), frozen = tonumber(ARG.frozen) }
local learn = read_learn()
local news = news_of(scope, true, now)
override_learned(bucket.learned, now, news, read_known(ARG.learned), hand, limits.ceiling, learn)
use_learned(bucket, limits, learn)
fill_by(bucket, now, limits)
save_bucket(KEY.bucket, bucket, now, limits)
push({ 'rate', ARG.member })
local learned = bucket.learned
return REPLY {
  now = now,
  learned_turn = learned.turn,
  learned_rate = exact(learned.rate),
  learned_mark = exact(learned.mark),
  learned_frozen = learned.frozen,
  learned_why = learned.why,
  learned_wall = WALL.name(learned),
}
