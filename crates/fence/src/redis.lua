-- The fence of Tenure for Redis: looks at the token, raises the floor and runs the commands, as one step.
--
-- KEYS[1]   the floor, a hash. KEYS[2..] whatever the commands touch.
-- ARGV[1]   the token, 19 digits with leading zeros. Texts of one length are ordered like the numbers; numbers of
--           Lua are doubles, in which two tokens can look alike.
-- ARGV[2]   'exclusive' or 'shared'      ARGV[3]  'many' or 'once'
-- ARGV[4]   'write' or 'raise'           ARGV[5]  incarnation, 16 hexadecimal digits, or ''
-- ARGV[6..] commands: how many words, then the words; again and again.
-- Answer:   {1, answers...}, or {0, exclusive, shared, used, incarnation} if the floor refuses the token.

local token, mode, times, touch, incarnation = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ZERO = '0000000000000000000'

-- Long division by 2^48, digit by digit: every step stays below 2^53 and is exact.
local function split(text)
  local epoch, counter = 0, 0
  for i = 1, 19 do
    counter = counter * 10 + tonumber(string.sub(text, i, i))
    epoch = epoch * 10 + math.floor(counter / 281474976710656)
    counter = counter % 281474976710656
  end
  return epoch, counter
end

local function later(a, b)
  if a > b then return a end
  return b
end

if #KEYS < 1 or not token or #token ~= 19 or string.find(token, '%D') then
  return redis.error_reply('FENCE a token is 19 digits')
end
if (mode ~= 'exclusive' and mode ~= 'shared') or (times ~= 'many' and times ~= 'once')
    or (touch ~= 'write' and touch ~= 'raise') or not incarnation then
  return redis.error_reply('FENCE mode, times, touch or incarnation is none')
end
local epoch, counter = split(token)
if epoch > 32767 or counter == 0 then
  return redis.error_reply('FENCE no cluster gives this token')
end

local kept = redis.call('HMGET', KEYS[1], 'exclusive', 'shared', 'used', 'incarnation')
local exclusive, shared, used, known = kept[1] or ZERO, kept[2] or ZERO, kept[3] or ZERO, kept[4] or ''
local newest = later(exclusive, shared)
local newest_epoch = split(newest)

local refused
if mode == 'exclusive' then
  refused = token < newest
else
  refused = token < exclusive or (newest ~= ZERO and epoch < newest_epoch)
end
local same_epoch = newest ~= ZERO and epoch == newest_epoch
if same_epoch and known ~= '' and incarnation ~= '' and known ~= incarnation then refused = true end
if touch == 'write' and times == 'once' and token <= used then refused = true end
if refused then return {0, exclusive, shared, used, known} end

if mode == 'exclusive' then exclusive = token else shared = later(shared, token) end
if touch == 'write' then used = later(used, token) end
if incarnation == '' and same_epoch then incarnation = known end
-- The floor first: should a command fail, nothing older may come after what the others did.
redis.call('HSET', KEYS[1], 'exclusive', exclusive, 'shared', shared, 'used', used, 'incarnation', incarnation)

local answers = {1}
local at = 6
while ARGV[at] do
  local words = tonumber(ARGV[at])
  answers[#answers + 1] = redis.call(unpack(ARGV, at + 1, at + words))
  at = at + words + 1
end
return answers
