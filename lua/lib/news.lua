-- What the fleet tells itself: parts of a message, with 1F between them (src/store/news.rs).
--
-- Where the store is a Cluster (`command` is SPUBLISH) only the scope's own nodes carry news, from version 7 on; before
-- that every node does.
local function push(command, channel, parts)
  redis.call(redis.REDIS_VERSION_NUM and command or 'PUBLISH', channel, table.concat(parts, '\31'))
end

-- Tells every member: rule, key, epoch, what happened (open clear cooling due streak), what is left of the cooldown
-- (microseconds), streak, who says so, and of the latest trip its cause, streak and blocks.
local function publish(command, channel, name, member, scope, now, what)
  local left = what == 'cooling' and scope.till - now or 0
  push(command, channel, { name, whole(scope.ep), what, whole(left), exact(scope.streak), member, scope.cause,
    exact(scope.peak), scope.blamed })
end
