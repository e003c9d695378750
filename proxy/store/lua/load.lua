-- load: what is stored of one conversation, at one moment. Writes nothing.
-- KEYS    1 record hash, 2 marks hash, 3 notes hash
-- ARGV    none
-- Result  {epoch | nil, generation | nil, packed index | nil, marks, notes, ms until the record expires}
--         marks and notes are flat lists of field, value; the last number is negative where there is no record
--         A key of another type than ours holds nothing of ours.
local function read(...)
  local found = redis.pcall(...)
  if found.err and not string.find(found.err, 'WRONGTYPE', 1, true) then
    error(found.err)
  end
  return found.err and {} or found
end
local record = read('HMGET', KEYS[1], 'e', 'g', 'idx')
return {
  record[1] or false,
  record[2] or false,
  record[3] or false,
  read('HGETALL', KEYS[2]),
  read('HGETALL', KEYS[3]),
  redis.call('PTTL', KEYS[1]),
}
