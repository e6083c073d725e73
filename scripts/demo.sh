#!/usr/bin/env bash
# The main job on real input: load a real tree, compare every byte, kill the node, lose no record.
#
#   start ─► load ─► compare ─► delete a third ─► compare ─► scan ─► load again, SIGKILL ─►
#   start ─► every acknowledged write is there, every acknowledged delete is gone ─► stop ─► check
#
# Invariants
# 1. Every comparison is of every byte (SHA-256), through HTTP by curl, against the files themselves.
# 2. Only records in flight may be there or not after the kill: everything else is told.
# 3. Exit 0 means that every row of the table says ok. A failure keeps the node's folder.
#
# Whole folders of this machine are loaded, in order, until there are 10,000 files and 200 MB; files
# of random bytes make up for what is missing. DENDRA=FILE takes another binary than a release build.
# Needs bash, curl, GNU find and coreutils 8.31. See: README.md.
set -euo pipefail
shopt -s nullglob
export LC_ALL=C
cd "$(dirname "$0")/.."

command -v curl > /dev/null || { echo 'make demo needs curl: install it' >&2; exit 1; }

readonly FILES_MIN=10000 BYTES_MIN=200000000
# More from one folder makes the demonstration long and no better.
readonly ROOT_BYTES_MAX=400000000
# The sizes that a node stores unless told otherwise, and room for `again/` in front of a key.
readonly VALUE_BYTES_MAX=1048576 KEY_BYTES_MAX=1018
# Connections that compare: the node has two cores to itself on the smallest machine that counts.
readonly READERS=4
# An answer that takes longer is a failure. A refusal (503) is tried again, as Retry-After says.
readonly CURL=(curl --silent --max-time 30 --retry 30)

place=$PWD/target/demo
data=$place/data
acked=$place/acked
node= url= starts=0

fail() { why=$1; return 1; }

trap 'if [ -n "$node" ]; then kill -KILL "$node" || true; fi' EXIT

# Lines in which every byte but letters and digits is %XX; what is %XX already stays.
percent() {
  awk 'BEGIN {
         for (i = 1; i < 256; i++) code[sprintf("%c", i)] = sprintf("%%%02X", i)
       }
       {
         out = ""
         for (i = 1; i <= length($0); i++) {
           c = substr($0, i, 1)
           if (keep && c == "%") { out = out toupper(substr($0, i, 3)); i += 2 }
           else out = out (c ~ /[A-Za-z0-9]/ ? c : code[c])
         }
         print out
       }' keep="$1" -
}

# --- the files -------------------------------------------------------------------------------

candidates() {
  local cargo=${CARGO_HOME:-$HOME/.cargo} sysroot
  sysroot=$(rustc --print sysroot 2> /dev/null) || sysroot=/none
  printf '%s\n' /usr/share/doc
  find /usr/share "$sysroot/share/doc/rust/html" /usr/lib "$cargo/registry/src" \
    -mindepth 1 -maxdepth 1 -type d 2> /dev/null | grep -vx /usr/share/doc | sort || true
}

# Adds a folder as a whole, if all of it can be listed and no name would break a line.
add() {
  local found=$place/found size
  find "$1" -type f -printf '%s\t%p\n' > "$found" 2> /dev/null || return 0
  [ -z "$(find "$1" -name $'*[\n\t]*' -print -quit)" ] || return 0
  find "$1" -type f -size "-$((VALUE_BYTES_MAX + 1))c" -readable -printf '%s\t%p\n' 2> /dev/null |
    awk -F '\t' -v most="$KEY_BYTES_MAX" 'length($2) - 1 <= most' > "$found.fits"
  size=$(awk '{ sum += $1 } END { printf "%d", sum }' "$found.fits")
  [ -s "$found.fits" ] && [ "$size" -le "$ROOT_BYTES_MAX" ] || return 0
  printf '%s\t%d\t%d\n' "$1" "$(wc -l < "$found.fits")" "$(wc -l < "$found")" >> "$place/roots"
  cat "$found.fits" >> "$place/files"
  files=$((files + $(wc -l < "$found.fits")))
  bytes_all=$((bytes_all + size))
}

gather() {
  files=0 bytes_all=0 made=
  : > "$place/files"
  : > "$place/roots"
  while read -r folder && { [ "$files" -lt "$FILES_MIN" ] || [ "$bytes_all" -lt "$BYTES_MIN" ]; }; do
    add "$folder"
  done < <(candidates)
  if [ "$files" -lt "$FILES_MIN" ] || [ "$bytes_all" -lt "$BYTES_MIN" ]; then
    local count=$((FILES_MIN - files)) n
    [ "$count" -ge 1000 ] || count=1000
    mkdir "$place/made"
    local length=$(((BYTES_MIN - bytes_all) / count + 1))
    [ "$length" -ge 1 ] || length=1
    for ((n = 0; n < count; n++)); do head -c "$length" /dev/urandom > "$place/made/$n"; done
    add "$place/made"
    made="; this machine has too few, so $count of them are made"
  fi
  # records: number, key, SHA-256, size. The key is the path without its first slash.
  cut -f 2 "$place/files" | tr '\n' '\0' | xargs -0 sha256sum -z | tr '\0' '\n' | cut -c 1-64 > "$place/sums"
  cut -f 2 "$place/files" | cut -c 2- | percent 0 | paste - "$place/sums" |
    paste - <(cut -f 1 "$place/files") | awk '{ print NR "\t" $0 }' > "$place/records"
  echo "$files files, $bytes_all bytes, from $(wc -l < "$place/roots") folders$made"
}

# --- the node --------------------------------------------------------------------------------

start() {
  local log
  starts=$((starts + 1))
  log=$place/node-$starts.log
  "$binary" serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 --data "$data" > /dev/null 2> "$log" &
  node=$!
  until url=$(sed -n 's/^listening on \(http:[^ ]*\).*/\1/p' "$log") && [ -n "$url" ]; do
    kill -0 "$node" 2> /dev/null || fail "the node did not start: $(cat "$log")" || return 1
    sleep 0.05
  done
  export DENDRA_URL=$url
}

# Asks for lines `number TAB key` of stdin, on several connections: `number status SHA-256` each.
ask() {
  local got=$place/got pids=() pid part
  rm -rf "$got" && mkdir "$got"
  awk -F '\t' -v url="$url" -v got="$got" -v parts="$READERS" '{
    print "url = \"" url "/v0/entity?id=" $2 "\"\noutput = \"" got "/" $1 "\"" > (got "/config-" NR % parts)
  }'
  for part in "$got"/config-*; do
    # A transfer that fails has no status: the comparison says so.
    "${CURL[@]}" --config "$part" --write-out '%{http_code} %{filename_effective}\n' > "${part/config/status}" || true &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid"; done
  cat "$got"/status-* | sed "s|^\([0-9]*\) $got/|\1 |" | sort -k 2,2 > "$place/statuses"
  (cd "$got" && find . -type f -name '[0-9]*' -printf '%f\0' | xargs -0 -r sha256sum | sed 's/^\([0-9a-f]*\)  /\1 /' | sort -k 2,2) > "$place/hashes"
  join -1 2 -2 2 -a 1 "$place/statuses" "$place/hashes" | awk '{ print $1, $2, $2 == 200 ? $3 : "-" }'
}

# The answers to the lines `number TAB key TAB status and SHA-256` of `wanted` are those.
hold() {
  sort -k 1,1 -o "$place/wanted" "$place/wanted"
  records=$(wc -l < "$place/wanted")
  cut -f 1,2 "$place/wanted" | ask > "$place/answers" || fail "curl failed" || return 1
  awk -F '\t' '{ print $1, $3 }' "$place/wanted" | diff - "$place/answers" > "$place/differences" ||
    fail "number status SHA-256 differ: $(sed -n 2,3p "$place/differences")"
}

# Every record that was not deleted equals its file; every deleted one is absent.
compare() {
  awk -F '\t' -v OFS='\t' -v deleted="$place/deleted" -v unsure="$place/unsure" '
    BEGIN {
      while ((getline n < deleted) > 0) gone[n] = 1
      while ((getline n < unsure) > 0) skip[n] = 1
    }
    !($1 in skip) { print $1, $2, ($1 in gone ? "404 -" : "200 " $3), ($1 in gone ? 0 : $4) }
  ' "$place/records" > "$place/truth"
  bytes=$(awk -F '\t' '{ sum += $4 } END { printf "%d", sum }' "$place/truth")
  remark=", $(wc -l < "$place/deleted") of them gone, $(wc -l < "$place/unsure") in flight at the kill"
  cut -f 1-3 "$place/truth" > "$place/wanted"
  hold
}

# --- the steps -------------------------------------------------------------------------------

load() {
  local root count all said refused=0
  while IFS=$'\t' read -r root count all; do
    said=$("$binary" load --json --prefix "${root#/}/" "$root" < /dev/null 2> "$place/load.log") || true
    [[ $said == *"\"records\":$count,"* && $said =~ \"failed\":$((all - count))[,}] ]] ||
      fail "$root: $count records and $((all - count)) failures expected: $said $(tail -n 1 "$place/load.log")" || return 1
    refused=$((refused + all - count))
  done < "$place/roots"
  records=$files bytes=$bytes_all remark=", $refused refused: too large, or not readable"
}

# Deletes the records whose numbers are `$1` more than a multiple of three; statuses in their order.
delete_some() {
  awk -F '\t' -v rest="$1" 'NR % 3 == rest' "$place/records" > "$place/some"
  awk -F '\t' -v url="$url" '{
    print "url = \"" url "/v0/entity?id=" $2 "\"\noutput = \"/dev/null\""
  }' "$place/some" > "$place/some.config"
  "${CURL[@]}" --request DELETE --config "$place/some.config" --write-out '%{http_code}\n' > "$place/some.statuses" || true
  paste "$place/some.statuses" "$place/some" | awk -F '\t' '$1 == 202 { print $2 }' >> "$place/deleted"
}

delete_third() {
  delete_some 1
  records=$(wc -l < "$place/some")
  [ "$(grep -cx 202 "$place/some.statuses")" -eq "$records" ] ||
    fail "a DELETE was answered by $(grep -vx -m 1 202 "$place/some.statuses")"
}

# The output of `dendra scan` for the largest folder is exactly its surviving records, in order.
scan() {
  local root prefix
  root=$(sort -t $'\t' -k 2,2nr "$place/roots" | sed -n 1p | cut -f 1)
  prefix=$(printf '%s/' "${root#/}" | od -An -v -tx1 | tr -d ' \n')
  "$binary" scan --hex --prefix "$prefix" > "$place/scan" || fail "dendra scan ended with $?" || return 1
  paste "$place/records" "$place/files" | awk -F '\t' -v deleted="$place/deleted" -v root="$root/" '
    BEGIN { while ((getline n < deleted) > 0) gone[n] = 1 }
    !($1 in gone) && index($6, root) == 1 { print $6 "\t" $5 }' | sort > "$place/alive"
  records=$(wc -l < "$place/alive") bytes=$(awk -F '\t' '{ sum += $2 } END { printf "%d", sum }' "$place/alive")
  remark=", prefix ${root#/}/"
  # Keys and lengths line by line, and then the values, one behind the other.
  awk 'BEGIN { for (i = 1; i < 256; i++) hex[sprintf("%c", i)] = sprintf("%02x", i); FS = "\t" }
    { out = ""; for (i = 2; i <= length($1); i++) out = out hex[substr($1, i, 1)]; print out, $2 }' "$place/alive" |
    cmp - <(awk -F '\t' '{ print $1, length($2) / 2 }' "$place/scan") || fail "the scan has other keys or lengths" || return 1
  # `od` would take ten times as long.
  cut -f 1 "$place/alive" | tr '\n' '\0' | xargs -0 cat | basenc --base16 --wrap=0 | tr A-F a-f |
    cmp - <(cut -f 2 "$place/scan" | tr -d '\n') || fail "the scan has other values"
}

# Loads everything once more under `again/` while deleting another third, and kills the node when a
# third of the second load is acknowledged.
load_and_kill() {
  local wanted=$((files / 3)) loader deleter
  : > "$acked"
  while IFS=$'\t' read -r root _; do
    "$binary" load --retry-for 1s --acked "$acked" --prefix "again/${root#/}/" "$root" || break
  done < "$place/roots" > /dev/null 2>&1 &
  loader=$!
  delete_some 2 &
  deleter=$!
  while [ "$(wc -l < "$acked")" -lt "$wanted" ] && kill -0 "$loader" 2> /dev/null; do sleep 0.01; done
  kill -KILL "$node"
  { wait "$node" || true; } 2> /dev/null
  node=
  wait "$deleter" || true
  wait "$loader" || true
  # The first delete without an answer may have been done; those behind it were never sent.
  paste "$place/some.statuses" "$place/some" | awk -F '\t' '$1 != 202 { print $2; exit }' > "$place/unsure"
  records=$(wc -l < "$acked") remark=" (acknowledged), $(wc -l < "$place/deleted") deletes in all"
  [ "$records" -lt "$files" ] || fail "the load was over before the kill"
}

# Every key that `dendra load` wrote down as acknowledged holds its file's bytes.
acknowledged() {
  percent 1 < "$acked" | awk -F '\t' -v OFS='\t' -v records="$place/records" '
    BEGIN { while ((getline line < records) > 0) { split(line, of, "\t"); sum[of[2]] = of[3] } }
    {
      key = $1
      sub(/^again%2F/, "", key)
      print NR, $1, "200 " (key in sum ? sum[key] : "never-sent")
    }' > "$place/wanted"
  hold
}

stop() {
  kill -TERM "$node"
  wait "$node" || fail "the node ended with $?" || return 1
  node=
}

check() {
  local said
  said=$("$binary" check --json "$data" 2> /dev/null) || fail "dendra check: $said" || return 1
  records=$(sed -n 's/.*"records": *\([0-9]*\).*/\1/p' <<< "$said")
  remark=", $(sed -n 's/.*"tables": *\([0-9]*\).*/\1/p' <<< "$said") tables"
}

# Runs a step and prints its row; behind a failure the others are not run.
step() {
  local name=$1 work=$2 begun=$SECONDS result=ok
  records=0 bytes=0 remark='' why=''
  if [ -n "$failed" ]; then
    result='not run'
  else
    echo "… $name"
    "$work" || { failed=yes result="FAILED: $why" remark=''; }
  fi
  rows+=("$(printf '%-47s %9d %12d %7d  %s' "$name" "$records" "$bytes" $((SECONDS - begun)) "$result$remark")")
  printf '  %s\n' "${rows[-1]}"
}

binary=${DENDRA:-$PWD/target/release/dendra}
[ -n "${DENDRA:-}" ] || "${CARGO:-cargo}" build --release --package dendra
rm -rf "$place" && mkdir -p "$place"
: > "$place/deleted"
: > "$place/unsure"
gather
rows=() failed=
step 'start a node on an empty folder' start
step 'load the files: dendra load' load
step 'compare every byte through HTTP' compare
step 'delete a third' delete_third
step 'compare again: the deleted are 404' compare
step 'scan a prefix: dendra scan' scan
step 'load again, delete, SIGKILL in the middle' load_and_kill
step 'start again on what the kill left' start
step 'every acknowledged write is there' acknowledged
step 'every acknowledged delete is gone, the rest is' compare
step 'SIGTERM: the node ends with 0' stop
step 'check the folder: dendra check' check
printf '\n%-47s %9s %12s %7s  result\n' step records bytes seconds
printf '%s\n' "${rows[@]}"
if [ -n "$failed" ]; then
  printf '\nThe node'\''s folder and log are kept in %s.\n' "$place"
  exit 1
fi
rm -rf "$place"
