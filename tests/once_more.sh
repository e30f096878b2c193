#!/bin/sh
# once_more.sh NAME COMMAND...: run the tests that this pytest command says; those that fail run again
# afterwards, alone. NAME is that of the cache where pytest notes which failed.
#
# A few that pass alone met the load of all the others: they are listed, and do not fail the whole.
# More than MOST are no accident, and neither is one that fails alone.
set -u
MOST=3
cache=.pytest_cache/$1
shift
rm -rf "$cache"
"$@" -o cache_dir="$cache" && exit 0
status=$?
[ "$status" -eq 1 ] || exit "$status" # 1: tests failed; others: interrupted, or not even begun
failed=$cache/v/cache/lastfailed
count=$(grep -c '": true' "$failed")
if [ "$count" -gt "$MOST" ]; then
	echo "$count tests failed: too many to be run again" >&2
	exit 1
fi
cp "$failed" "$cache/first"
echo "Failed beside other tests; now alone:" >&2
grep '": true' "$cache/first" >&2
"$@" -o cache_dir="$cache" -n 0 --last-failed --last-failed-no-failures none -v || exit 1
echo "Passed alone, after having failed beside other tests:" >&2
grep '": true' "$cache/first" >&2
