-- Reports what came back: counts it, trips the cooldown, draws its length, opens the scope again. One call, atomic.
--
-- KEYS  1 cooldown
-- ARGV  1 epoch of the grant  2 the probe's grant (us, 0 = no probe)  3 ok | block | silence | nothing  4 weight of the block
--       5 wait that the site asked for (us, 0 = none)  6 successes since the last report  7 a draw from [0, 1)
--       8 `1` if the block is a sure sign  9 the block's letter  10 member  11 command (PUBLISH SPUBLISH) and 12 channel
--       of the news  13 name of the scope in the news  14 rate that the site names (tokens per second, empty = none)
--       15 how long it is true (us)  16 how long it wants nothing sent (us, 0 = not at all)  17 most errors (0 = this is none)
--       18 in so long (us)  19 what the member has counted of the load (lib/load.lua, empty = nothing)  20... policy
--       (lib/cooldown.lua)
-- Reply now, change (none stale streak tripped opened probe_lost), epoch, end of the cooldown (us, 0 = open), streak
--       (after a trip, the one that tripped), length of the latest cooldown (us), cause of the latest trip, its blocks
-- An answer from an older epoch changes nothing. A streak is news when it begins, so that all report their successes, and
-- when one of more than one block ends: an isolated block is published once, and who has heard of it hears of its end in
-- the reply to its own next report.
local now = read_clock()
local policy = read_policy(ARGV, 20)
local scope = load_cooldown(KEYS[1])
observe_cooldown(scope, now)
local report = {
  epoch = tonumber(ARGV[1]),
  probe = tonumber(ARGV[2]),
  answer = ARGV[3] == 'silence' and 'block' or ARGV[3],
  silent = ARGV[3] == 'silence',
  weight = tonumber(ARGV[4]),
  retry_after = tonumber(ARGV[5]),
  oks = tonumber(ARGV[6]),
  draw = tonumber(ARGV[7]),
  sure = ARGV[8] == '1' and 1 or 0,
  kind = ARGV[9],
  named = tonumber(ARGV[14]),
  lasts = tonumber(ARGV[15]),
  hold = tonumber(ARGV[16]),
  most = tonumber(ARGV[17]),
  window = tonumber(ARGV[18]),
  load = ARGV[19],
}
local blocks = #scope.kinds
local change = report_cooldown(scope, now, report, policy)
if change ~= 'stale' or report.most > 0 then save_cooldown(KEYS[1], scope, now, policy) end
local news = { tripped = 'cooling', probe_lost = 'due', opened = 'open' }
local what = news[change]
local began, ended = report.answer == 'block' and scope.streak == report.weight, scope.streak == 0 and blocks > 1
if change == 'streak' and (began or ended) then what = 'streak' end
if what then publish(ARGV[11], ARGV[12], ARGV[13], ARGV[10], scope, now, what) end
local streak = change == 'tripped' and scope.peak or scope.streak
return { now, change, scope.ep, scope.till, exact(streak), scope.len, scope.cause, scope.blamed }
