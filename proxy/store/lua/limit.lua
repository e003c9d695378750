-- limit: learn a model's limit from a refusal. It only falls; falling by more than half waits for a second
--        sighting of the same number, so that one garbled refusal harms nothing.
-- KEYS    1 learned limit hash: `limit`, and `seen`, the number that waits
-- ARGV    1 limit in tokens, 2 expiry in ms
-- Result  the limit that holds now
local key, seen = KEYS[1], tonumber(ARGV[1])
local stored = redis.call('HMGET', key, 'limit', 'seen')
local limit = tonumber(stored[1] or '')
if limit and seen > limit then
  return limit
end
if limit and seen * 2 < limit and tonumber(stored[2] or '') ~= seen then
  redis.call('HSET', key, 'seen', ARGV[1])
  return limit
end
redis.call('HSET', key, 'limit', ARGV[1])
redis.call('HDEL', key, 'seen')
redis.call('PEXPIRE', key, ARGV[2])
return seen
