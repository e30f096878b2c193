-- A trainer publishes weights: written down before any LLM server hears of them.
-- ARGV: prefix, version, path, furthest step from one version to the next, run and the trainer's
-- epoch or '' and '' of an operator
-- Returns {'published'}, also for what is published already; else {'used' or 'far', version}, or
-- {'not driven'} if another trainer has taken the run over, or there is no such run.
local run = ARGV[5]
if run ~= '' and redis.call('SISMEMBER', key('runs'), run) == 0 then return {'not driven'} end
if is_superseded(run, ARGV[6]) then return {'not driven'} end
local wanted, path = tonumber(ARGV[2]), ARGV[3]
local version, path_before = published()
if wanted == version and path == path_before then return {'published'} end
if wanted <= version then return {'used', version} end
if wanted > version + tonumber(ARGV[4]) then return {'far', version} end
set_published(wanted, path)
redis.call('HSET', key('published'), 'before', string.format('%d %s', version, path_before))
return {'published'}
