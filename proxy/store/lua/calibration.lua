-- calibration: fold one observed ratio into a model's calibration (exponential smoothing, clamped).
-- KEYS    1 calibration string
-- ARGV    1 ratio, 2 weight of the new ratio, 3 least, 4 most, 5 expiry in ms
-- Result  the calibration that holds now, as text
local least, most = tonumber(ARGV[3]), tonumber(ARGV[4])
local ratio = math.max(least, math.min(most, tonumber(ARGV[1])))
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then -- a key of another type holds nothing of ours
  redis.call('DEL', KEYS[1])
end
local old = tonumber(redis.call('GET', KEYS[1]) or '') or ratio
local value = string.format('%.6f', math.max(least, math.min(most, old + tonumber(ARGV[2]) * (ratio - old))))
redis.call('SET', KEYS[1], value, 'PX', ARGV[5])
return value
