-- When a scope cools down, and how it opens again: `CooldownPolicy` in src/limiter/policy.rs.
local function read_policy()
  return {
    after = tonumber(ARG.policy_after),
    share = tonumber(ARG.policy_share),
    of = tonumber(ARG.policy_of),
    shortest = tonumber(ARG.policy_shortest),
    longest = tonumber(ARG.policy_longest),
    forget_after = tonumber(ARG.policy_forget_after),
    probe = ARG.policy_probe == '1',
    grow = tonumber(ARG.policy_grow),
    max = tonumber(ARG.policy_max),
    respect = ARG.policy_respect_retry_after == '1',
    ramp = tonumber(ARG.policy_ramp),
  }
end
