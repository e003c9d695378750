-- commit: store one replacement if the record is still as loaded. The only writer of a record's fields,
--         and the only place where a generation rises.
-- KEYS    1 record hash, 2 marks hash
-- ARGV    1 epoch as loaded ('' where there was no record), 2 generation as loaded (0 where there was none)
--         3 epoch for a new record, 4 operation id, 5 covered items, 6 generation of the base (0 for none)
--         7 entry (packed, see index.py), 8 blob, 9 expiry in ms, 10... operation ids of surfaces to drop
-- Result  'done' | 'mine' (this operation id is stored already) | 'moved' (not as loaded, nothing written)
--         | 'refused' (covers less than its base, or the base is unknown; nothing written)
local FORMAT, CAP = '1\n', 256
local record, marks = KEYS[1], KEYS[2]
local operation, covered, base = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])

-- A record whose epoch or generation is none that this script writes (damage, another's key) counts as absent, for
-- a load as well (replies.py). Else every commit to it would be 'moved' until it expires. It gets a new epoch.
local function other(key)
  local kind = redis.call('TYPE', key).ok
  return kind ~= 'hash' and kind ~= 'none'
end
local damaged = other(record)
local stored = damaged and {} or redis.call('HMGET', record, 'e', 'g', 'idx')
local epoch, generation, packed = stored[1] or '', stored[2] or '', stored[3] or ''
if not (epoch:find('^%w+$') and #epoch <= 64 and generation:find('^%d+$') and #generation <= 15) then
  damaged = damaged or epoch ~= '' or generation ~= '' or redis.call('EXISTS', record) == 1
  epoch, generation, packed = '', '0', ''
end
generation = tonumber(generation)

if not damaged and redis.call('HEXISTS', record, 'b:' .. operation) == 1 then
  return 'mine'
end
if epoch ~= ARGV[1] or generation ~= tonumber(ARGV[2]) then
  return 'moved'
end

local dropped = {}
for i = 10, #ARGV do
  dropped[ARGV[i]] = true
end

-- The index is walked as it is stored now, not as the caller saw it: after a failover the same epoch
-- and generation may hold another index. An index of an unknown format counts as absent, and so does what is
-- behind an entry that is damaged, and all of one that is fuller than any can be (CAP is that of index.py).
local index, least, walked = { FORMAT }, nil, 0
local at = string.sub(packed, 1, #FORMAT) == FORMAT and #FORMAT + 1 or #packed + 1
while at <= #packed and walked < 2 * CAP do
  local _, head, number, reach, name, size = string.find(packed, '^(%d+) (%d+) (%S+) (%d+)\n', at)
  if not head or #number > 15 or #reach > 15 or #name > 64 or #size > 9 or head + tonumber(size) > #packed then
    break
  end
  local stop = head + tonumber(size)
  if tonumber(number) == base then
    least = tonumber(reach)
  end
  if not dropped[name] then
    index[#index + 1] = string.sub(packed, at, stop)
  end
  at, walked = stop + 1, walked + 1
end
if #index > CAP then
  index = { FORMAT }
end
if base ~= 0 and (least == nil or covered < least) then
  return 'refused'
end

generation = generation + 1
index[#index + 1] = string.format('%d %d %s %d\n', generation, covered, operation, #ARGV[7]) .. ARGV[7]

if damaged then
  redis.call('DEL', record, marks)
elseif other(marks) then
  redis.call('DEL', marks)
end
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
