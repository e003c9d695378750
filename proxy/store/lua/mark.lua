-- mark: note something about one stored surface beside the record, with the record's expiry, which is
--       refreshed when it is due.
-- KEYS    1 record hash, 2 marks hash
-- ARGV    1 mark: p (proven), r (retired) or a (last applied), 2 operation id
--         3 expiry in ms, 4 refresh it where fewer ms than this are left
-- Result  1, or 0 where no such surface is stored (then nothing is written)
local record, marks = KEYS[1], KEYS[2]
if redis.call('HEXISTS', record, 'b:' .. ARGV[2]) == 0 then
  return 0
end
if redis.call('TYPE', marks).ok ~= 'hash' then -- a key of another type holds nothing of ours
  redis.call('DEL', marks)
end
redis.call('HSET', marks, ARGV[1] .. ':' .. ARGV[2], redis.call('TIME')[1])
local left = redis.call('PTTL', record)
if left < tonumber(ARGV[4]) then
  left = tonumber(ARGV[3])
  redis.call('PEXPIRE', record, left)
end
redis.call('PEXPIRE', marks, left)
return 1
