-- commit: store one replacement if the record is still as loaded. The only writer of a record's fields,
--         and the only place where a generation rises.
-- KEYS    1 record hash, 2 marks hash
-- ARGV    1 epoch as loaded ('' where there was no record), 2 generation as loaded (0 where there was none)
--         3 epoch for a new record, 4 operation id, 5 covered items, 6 generation of the base (0 for none)
--         7 entry (packed, see index.py), 8 blob, 9 expiry in ms, 10... operation ids of surfaces to drop
-- Result  'done' | 'mine' (this operation id is stored already) | 'moved' (not as loaded, nothing written)
--         | 'refused' (covers less than its base, or the base is unknown; nothing written)
local FORMAT = '1\n'
local record, marks = KEYS[1], KEYS[2]
local operation, covered, base = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])

if redis.call('HEXISTS', record, 'b:' .. operation) == 1 then
  return 'mine'
end

local stored = redis.call('HMGET', record, 'e', 'g', 'idx')
local epoch, generation = stored[1] or '', tonumber(stored[2] or '0')
if epoch ~= ARGV[1] or generation ~= tonumber(ARGV[2]) then
  return 'moved'
end

local dropped = {}
for i = 10, #ARGV do
  dropped[ARGV[i]] = true
end

-- The index is walked as it is stored now, not as the caller saw it: after a failover the same epoch
-- and generation may hold another index. An index of an unknown format counts as absent.
local index, least = { FORMAT }, nil
local packed = stored[3] or ''
local at = string.sub(packed, 1, #FORMAT) == FORMAT and #FORMAT + 1 or #packed + 1
while at <= #packed do
  local _, head, number, reach, name, size = string.find(packed, '^(%d+) (%d+) (%S+) (%d+)\n', at)
  if not head then
    break
  end
  local stop = head + tonumber(size)
  if tonumber(number) == base then
    least = tonumber(reach)
  end
  if not dropped[name] then
    index[#index + 1] = string.sub(packed, at, stop)
  end
  at = stop + 1
end
if base ~= 0 and (least == nil or covered < least) then
  return 'refused'
end

generation = generation + 1
index[#index + 1] = string.format('%d %d %s %d\n', generation, covered, operation, #ARGV[7]) .. ARGV[7]

-- One write holds all of it: out of memory raises here, at the first write, and leaves nothing behind.
redis.call(
  'HSET', record,
  'b:' .. operation, ARGV[8],
  'e', epoch ~= '' and epoch or ARGV[3],
  'g', string.format('%d', generation),
  'idx', table.concat(index)
)
for name in pairs(dropped) do
  redis.call('HDEL', record, 'b:' .. name)
  redis.call('HDEL', marks, 'p:' .. name, 'r:' .. name, 'a:' .. name)
end
redis.call('PEXPIRE', record, ARGV[9])
redis.call('PEXPIRE', marks, ARGV[9])
return 'done'
