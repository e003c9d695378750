-- notes: set or remove one short-lived note of a conversation.
-- KEYS    1 notes hash
-- ARGV    1 name, 2 value ('' removes the note), 3 expiry in ms, 4 how many notes at most
-- Result  1
local notes = KEYS[1]
if redis.call('TYPE', notes).ok ~= 'hash' then -- a key of another type holds nothing of ours
  redis.call('DEL', notes)
end
if ARGV[2] == '' then
  redis.call('HDEL', notes, ARGV[1])
  return 1
end
-- Notes are hints: where they pile up, losing the old ones costs an attempt and never correctness.
if redis.call('HLEN', notes) >= tonumber(ARGV[4]) and redis.call('HEXISTS', notes, ARGV[1]) == 0 then
  redis.call('DEL', notes)
end
redis.call('HSET', notes, ARGV[1], ARGV[2])
redis.call('PEXPIRE', notes, ARGV[3])
return 1
