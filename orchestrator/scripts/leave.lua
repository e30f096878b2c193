-- A server goes: its slots vanish, what it held waits again, not charged. ARGV: prefix, server
for _, job in ipairs(forget_server(ARGV[2])) do
  requeue(job)
end
