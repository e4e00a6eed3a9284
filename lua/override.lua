-- Trips or clears a cooldown by hand.
--
-- KEYS  1 cooldown
-- ARGV  1 trip | clear  2 length (us)  3 member  4 command (PUBLISH SPUBLISH) and 5 channel of the news  6 name of the
--       scope in the news  7... policy
-- Reply now, epoch, end of the cooldown (us, 0 = open)
local now = read_clock()
local policy = read_policy(ARGV, 7)
local scope = load_cooldown(KEYS[1])
observe_cooldown(scope, now)
if ARGV[1] == 'trip' then
  trip_cooldown(scope, now, tonumber(ARGV[2]), 'hand')
else
  clear_cooldown(scope, now)
end
save_cooldown(KEYS[1], scope, now, policy)
publish(ARGV[4], ARGV[5], ARGV[6], ARGV[3], scope, now, ARGV[1] == 'trip' and 'cooling' or 'clear')
return { now, scope.ep, scope.till }
