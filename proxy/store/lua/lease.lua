-- lease: take the right to do something that should be done once, among the notes of a conversation.
--        It saves money and decides nothing: only the compare-and-set of `commit` does.
-- KEYS    1 notes hash
-- ARGV    1 name, 2 owner, 3 seconds it is held, 4 expiry of the notes in ms, 5 how many notes at most
-- Result  1 where it is the owner's now, 0 where another holds it
local notes, name, owner = KEYS[1], ARGV[1], ARGV[2]
local now = tonumber(redis.call('TIME')[1])
if redis.call('TYPE', notes).ok ~= 'hash' then -- a key of another type holds nothing of ours
  redis.call('DEL', notes)
end
local held = redis.call('HGET', notes, name)
if held then
  local holder, till = held:match('^(.*):(%d+)$')
  if holder and holder ~= owner and tonumber(till) > now then
    return 0
  end
elseif redis.call('HLEN', notes) >= tonumber(ARGV[5]) then
  redis.call('DEL', notes)
end
redis.call('HSET', notes, name, owner .. ':' .. string.format('%d', now + math.ceil(tonumber(ARGV[3]))))
redis.call('PEXPIRE', notes, ARGV[4])
return 1
