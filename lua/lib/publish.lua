-- Publishes an event of a scope (open clear cooling due streak): its epoch, the rest of the cooldown (microseconds),
-- its streak, the member, and the cause, streak and blocks of the latest trip.
local function publish(scope, now, what)
  local left = what == 'cooling' and scope.till - now or 0
  push({ whole(scope.ep), what, whole(left), exact(scope.streak), ARG.member, scope.cause, exact(scope.peak),
    scope.blamed })
end
