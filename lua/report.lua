-- Reports a response: counts it, trips the cooldown and draws its length, or opens the scope. One atomic call.
-- Fields: `Report` in src/store/scripts.
--
-- A response of an older epoch changes nothing. The start of a streak is news, because all members then report their
-- successes. Its end is news only if it had more than one block. Otherwise a member learns of it from the reply to its
-- next report.
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
local began, ended = report.answer ~= 'ok' and scope.streak == report.weight, scope.streak == 0 and blocks > 1
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
