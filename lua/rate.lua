-- Sets, freezes, thaws or forgets a learned rate by hand.
--
-- KEYS  1 bucket  2 cooldown
-- ARGV  1 set | forget  2 rate (per second, empty = as it is)  3 `1` freezes, `0` thaws (empty = as it is)  4 member
--       5 command (PUBLISH SPUBLISH) and 6 channel of the news  7 name of the scope in the news
--       8 rate (the ceiling)  9 burst  10 cost  11 quotas (as in take.lua)  12... policy (lib/cooldown.lua)
--       23 the learned rate as the member knows it (as in take.lua)  24... how it is learned (lib/learn.lua)
-- Reply now, turn, rate, mark, frozen, why
local now = read_clock()
local policy = read_policy(ARGV, 12)
local limits = read_limits(ARGV[8], ARGV[9], ARGV[10], ARGV[11], policy.ramp)
limits.closed = policy.max
local scope = load_cooldown(KEYS[2])
observe_cooldown(scope, now)
local bucket = load_bucket(KEYS[1], now, limits)
observe_bucket(bucket, now, limits)
-- A bucket that is gone may have been lost: nothing is granted for as long as tickets of it may be out.
if bucket.fresh then bucket.at, bucket.tokens = now + HORIZON, 0 end
local news = { opened = scope.opened, blocked = scope.last, sure = scope.sure == 1, closed = scope.till > 0,
  load = LOAD.strain(scope.load) }
local hand = { forget = ARGV[1] == 'forget', rate = tonumber(ARGV[2]), frozen = tonumber(ARGV[3]) }
local learn = read_learn(ARGV, 24)
steer_learned(bucket.learned, now, news, read_known(ARGV[23]), hand, limits.ceiling, learn)
use_learned(bucket, limits, learn)
fill_by(bucket, now, limits)
save_bucket(KEYS[1], bucket, now, limits)
push(ARGV[5], ARGV[6], { ARGV[7], 'rate', ARGV[4] })
return { now, tell_learned(bucket.learned) }
