-- A server goes: its slots vanish, what it held waits again, not charged. ARGV: prefix, server
for _, lost in ipairs(forget_server(ARGV[2])) do
  local job, slot, attempt = unpack(lost)
  note(job, slot, attempt, 'given_back', 'agent server ' .. ARGV[2] .. ' left')
  requeue(job)
end
