-- limit: learn a model's limit from a refusal. It only falls; falling by more than half below what holds (the
--        learned limit and the window known without it, the lesser) waits for a second sighting of the same
--        number, so that one garbled refusal harms nothing.
-- KEYS    1 learned limit hash: `limit`, and `seen`, the number that waits
-- ARGV    1 limit in tokens, 2 expiry in ms, 3 known window in tokens, 0 for none
-- Result  the learned limit that holds now, 0 for none
local key, seen, window = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[3])
if redis.call('TYPE', key).ok ~= 'hash' then -- a key of another type holds nothing of ours
  redis.call('DEL', key)
end
local stored = redis.call('HMGET', key, 'limit', 'seen')
local limit = tonumber(stored[1] or '')
if limit and seen > limit then
  return limit
end
local holds = limit
if window > 0 and (not holds or window < holds) then
  holds = window
end
if holds and seen * 2 < holds and tonumber(stored[2] or '') ~= seen then
  redis.call('HSET', key, 'seen', ARGV[1])
  if redis.call('PTTL', key) < 0 then
    redis.call('PEXPIRE', key, ARGV[2])
  end
  return limit or 0
end
redis.call('HSET', key, 'limit', ARGV[1])
redis.call('HDEL', key, 'seen')
redis.call('PEXPIRE', key, ARGV[2])
return seen
