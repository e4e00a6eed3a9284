-- What the fleet tells itself: parts of a message, with 1F between them (src/store/news.rs).
--
-- Where the store is a Cluster (`command` is SPUBLISH) only the scope's own nodes carry news, from version 7 on; before
-- that every node does.
local function push(parts)
  redis.call(redis.REDIS_VERSION_NUM and ARG.news_command or 'PUBLISH', ARG.news_channel,
    ARG.news_name .. '\31' .. table.concat(parts, '\31'))
end
