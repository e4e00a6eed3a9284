-- Publishes what happened to a scope (open clear cooling due streak), with its epoch, what is left of the cooldown
-- (microseconds), its streak, who says so, and of the latest trip its cause, streak and blocks.
local function publish(scope, now, what)
  local left = what == 'cooling' and scope.till - now or 0
  push({ whole(scope.ep), what, whole(left), exact(scope.streak), ARG.member, scope.cause, exact(scope.peak),
    scope.blamed })
end
