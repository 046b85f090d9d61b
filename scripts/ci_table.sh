#!/usr/bin/env bash
# The table of stages at the end of .ci/run, and which took more than a third above their share.
# Usage: ci_table.sh STAGES BUDGET
# STAGES has lines of stage, seconds and processor seconds, BUDGET of stage and seconds, tabs between them.
set -euo pipefail
awk -F '\t' '
  FNR == NR {
    if ($0 !~ /^(#|$)/) share[$1] = $2
    next
  }
  FNR == 1 { printf "\n%-36s %8s %10s %8s\n", "stage", "seconds", "processor", "share" }
  {
    note = ""
    if (!($1 in share)) {
      note = "  no share in the budget"
    } else if ($2 > share[$1] * 4 / 3) {
      note = "  OVER ITS SHARE BY MORE THAN A THIRD"
      if ($3 / 2 <= share[$1]) note = note " (a core was idle or busy with other work)"
    }
    printf "%-36s %8d %10d %8s%s\n", $1, $2, $3, ($1 in share ? share[$1] : "-"), note
    seconds += $2; processor += $3
  }
  END {
    for (stage in share) total += share[stage]
    printf "%-36s %8d %10d %8d%s\n", "all", seconds, processor, total, (seconds > total ? "  OVER THE BUDGET" : "")
  }' "$2" "$1"
