-- Publishes news to the fleet: the parts of a message, separated by 1F (src/store/news.rs).
--
-- In a Cluster `command` is SPUBLISH, and only the scope's own nodes carry its news. Servers before version 7 get
-- PUBLISH instead, which reaches every node.
local function push(parts)
  redis.call(redis.REDIS_VERSION_NUM and ARG.news_command or 'PUBLISH', ARG.news_channel,
    ARG.news_name .. '\31' .. table.concat(parts, '\31'))
end
