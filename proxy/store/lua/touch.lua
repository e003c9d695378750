-- touch: one write to a conversation's marks, so that a wait for durability on this connection covers all
--        that was committed before; refreshes the expiry of record and marks when it is due.
-- KEYS    1 record hash, 2 marks hash
-- ARGV    1 expiry in ms, 2 refresh it where fewer ms than this are left
-- Result  {epoch, generation} as of this write; {nil, nil} where there is no record (then nothing is written)
local record, marks = KEYS[1], KEYS[2]
local stored = redis.call('HMGET', record, 'e', 'g')
if not stored[1] then
  return stored
end
redis.call('HSET', marks, 't', redis.call('TIME')[1])
local left = redis.call('PTTL', record)
if left < tonumber(ARGV[2]) then
  left = tonumber(ARGV[1])
  redis.call('PEXPIRE', record, left)
end
redis.call('PEXPIRE', marks, left)
return stored
