-- Reports what came back: counts it, trips the cooldown, draws its length, opens the scope again. One call, atomic.
-- Fields: `Report` in src/store/scripts.
--
-- An answer from an older epoch changes nothing. A streak is news when it begins, so that all report their successes, and
-- when one of more than one block ends: an isolated block is published once, and who has heard of it hears of its end in
-- the reply to its own next report.
local now = read_clock()
local policy = read_policy()
local scope = load_cooldown(KEY.cooldown)
observe_cooldown(scope, now)
local report = {
  epoch = tonumber(ARG.epoch),
  probe = tonumber(ARG.probe),
  answer = ARG.answer == 'silence' and 'block' or ARG.answer,
  silent = ARG.answer == 'silence',
  weight = tonumber(ARG.weight),
  retry_after = tonumber(ARG.retry_after),
  oks = tonumber(ARG.oks),
  draw = tonumber(ARG.draw),
  sure = ARG.sure == '1' and 1 or 0,
  kind = ARG.kind,
  named = tonumber(ARG.named),
  lasts = tonumber(ARG.lasts),
  hold = tonumber(ARG.hold),
  most = tonumber(ARG.most_errors),
  window = tonumber(ARG.error_window),
  load = ARG.load,
}
local blocks = #scope.kinds
local change = report_cooldown(scope, now, report, policy)
if change ~= 'stale' or report.most > 0 then save_cooldown(KEY.cooldown, scope, now, policy) end
local news = { tripped = 'cooling', probe_lost = 'due', opened = 'open' }
local what = news[change]
local began, ended = report.answer == 'block' and scope.streak == report.weight, scope.streak == 0 and blocks > 1
if change == 'streak' and (began or ended) then what = 'streak' end
if what then publish(scope, now, what) end
return REPLY {
  now = now,
  change = change,
  epoch = scope.ep,
  till = scope.till,
  streak = exact(change == 'tripped' and scope.peak or scope.streak),
  length = scope.len,
  cause = scope.cause,
  blamed = scope.blamed,
}
