#!/bin/bash
# What decides most, on a GPU that is there for minutes and then gone, without a network or anything to install:
#   TIME=25m OUT=out bash examples/gpu_for_minutes.sh specgradfilter fedfft --scale paper
# All that `fednb verify` takes may follow. Runs that are kept with the papers are brought first, and so is what lies in
# OUT from times before, so that nothing is made twice. Every minute, and in the end, OUT gets an archive of the runs that
# are finished by then: fetch it before the machine goes. The others go on there as long as FEDNB_STORE is kept.
# Where that machine has a copy of this folder without its history, FEDNB_COMMIT=$(git rev-parse HEAD) tells the runs
# of which commit it is.
set -euo pipefail
cd "$(dirname "$0")/.."
export FEDNB_STORE=${FEDNB_STORE:-$PWD/.fednb}
fednb=${FEDNB:-python3 -m fednb} out=${OUT:-out}
mkdir -p "$out" "$FEDNB_STORE/runs"
archive=$out/$(date +%Y%m%d-%H%M%S).zip before=$(mktemp)

for runs in papers/*/runs "$out"/*.zip; do
  [ ! -e "$runs" ] || $fednb store import "$runs" | tail -n 1
done
ls "$FEDNB_STORE/runs" >"$before"

take_out() { # the archive is there whole or not at all
  local new fresh=$out/.fresh
  new=$(ls "$FEDNB_STORE/runs" | comm -13 "$before" - | sed 's/^/--key=/')
  rm -f "$fresh.zip"
  # shellcheck disable=SC2086
  [ -z "$new" ] || ! $fednb store export "$fresh.zip" --digits 6 $new >"$fresh.txt" 2>&1 || mv "$fresh.zip" "$archive"
}

$fednb verify "$@" --for "${TIME:-25m}" &
working=$!
trap 'kill $working' TERM INT # it saves what it is at, and ends
while kill -0 $working 2>/dev/null; do
  sleep "${EVERY:-60}" &
  wait -n $working $! || true
  kill $! 2>/dev/null || true
  take_out
done
wait $working && ended=0 || ended=$?
take_out
rm -f "$before" "$out/.fresh."*
[ -e "$archive" ] && echo "finished runs: $archive" || echo "no run was finished"
exit $ended
