-- Publishes news for the fleet: parts of a message, separated by 1F (src/store/news.rs).
--
-- In a Cluster (`command` is SPUBLISH) only the scope's own nodes carry news, from version 7 on. Earlier versions send them
-- to every node.
local function push(parts)
  redis.call(redis.REDIS_VERSION_NUM and ARG.news_command or 'PUBLISH', ARG.news_channel,
    ARG.news_name .. '\31' .. table.concat(parts, '\31'))
end
