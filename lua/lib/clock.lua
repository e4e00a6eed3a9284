-- Time is the server's, in microseconds since the epoch. A double counts them exactly until the year 2255.
local function read_clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- The stored form of numbers: whole ones without an exponent, others with all their digits.
local function whole(number) return string.format('%.0f', number) end
local function exact(number) return string.format('%.17g', number) end

-- Moments far in the future stay within the whole numbers of a double.
local FAR = 9007199254740992
local function ceil(number) return math.min(math.ceil(number), FAR) end
local function floor(number) return math.min(math.floor(number), FAR) end

-- Deletes a key. The ACL user of a member may lack permission to call DEL.
local function forget(key) redis.call('PEXPIRE', key, '0') end

-- A key lives until its content no longer matters. The minute is slack for slow members.
local function keep(key, micros)
  redis.call('PEXPIRE', key, whole(math.min(ceil(micros / 1000) + 60000, 31536000000)))
end
