-- Trips or clears a cooldown manually.
-- Fields: `Set` in src/store/scripts.
local now = read_clock()
local policy = read_policy()
local scope = load_cooldown(KEY.cooldown)
observe_cooldown(scope, now)
if ARG.action == 'trip' then
  trip_cooldown(scope, now, tonumber(ARG.length), 'hand')
else
  clear_cooldown(scope, now)
end
save_cooldown(KEY.cooldown, scope, now, policy)
publish(scope, now, ARG.action == 'trip' and 'cooling' or 'clear')
return REPLY { now = now, epoch = scope.ep, till = scope.till }
