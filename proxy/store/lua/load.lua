-- load: what is stored of one conversation, at one moment. Writes nothing.
-- KEYS    1 record hash, 2 marks hash, 3 notes hash
-- ARGV    none
-- Result  {epoch | nil, generation | nil, packed index | nil, marks, notes, ms until the record expires}
--         marks and notes are flat lists of field, value; the last number is negative where there is no record
local record = redis.call('HMGET', KEYS[1], 'e', 'g', 'idx')
return {
  record[1],
  record[2],
  record[3],
  redis.call('HGETALL', KEYS[2]),
  redis.call('HGETALL', KEYS[3]),
  redis.call('PTTL', KEYS[1]),
}
