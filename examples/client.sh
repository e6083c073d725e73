#!/bin/sh
# Put, get, and add to a list by compare-and-set, with curl.
#
#   examples/client.sh http://127.0.0.1:8080 apples
#
# DENDRA_TOKEN_FILE or DENDRA_TOKEN has a token, and DENDRA_CA names the CA of https://.
set -eu
url=$1 item=$2 attempts=20
head=$(mktemp) body=$(mktemp) next=$(mktemp) access=$(mktemp)
trap 'rm -f "$head" "$body" "$next" "$access"' EXIT

# In a file, as other users see arguments.
token=${DENDRA_TOKEN:-}
if [ "${DENDRA_TOKEN_FILE:-}" ]; then token=$(cat "$DENDRA_TOKEN_FILE"); fi
if [ "$token" ]; then echo "Authorization: Bearer $token" > "$access"; fi

fail() { echo "status $status: $(cat "$body")" >&2; exit 1; }

header() { tr -d '\r' < "$head" | awk -F ': ' -v name="$1" 'tolower($1) == name { print $2 }'; }

# request METHOD KEY [CURL OPTION...] sets $status, $head and $body. Status 000: no answer came.
# A refusal that changed nothing is sent again, after the pause that the node asks for.
request() {
  method=$1 key=$2; shift 2
  for _ in $(seq $attempts); do
    : > "$head"; : > "$body"
    status=$(curl -s -X "$method" -D "$head" -o "$body" -w '%{http_code}' --max-time 10 -H @"$access" \
      ${DENDRA_CA:+--cacert "$DENDRA_CA"} "$@" \
      "$url/v0/entity?id=$key") || status=000
    case $status in 503 | 504 | 507) ;; *) return 0 ;; esac
    case $(header dendra-receipt) in *outcome=not-applied*) ;; *) return 0 ;; esac
    pause=$(header retry-after)
    sleep "${pause:-1}"
  done
  fail
}

# add KEY LINE: the key's value is a list of lines, and LINE is in it once when this returns.
add() {
  for _ in $(seq $attempts); do
    request GET "$1"
    case $status in
      200) if grep -qxF "$2" "$body"; then return 0; fi
           condition="If-Match: $(header etag)" ;;
      404) : > "$body"
           condition='If-None-Match: *' ;;
      000 | 504) continue ;;
      *) fail ;;
    esac
    { cat "$body"; echo "$2"; } > "$next"
    request PUT "$1" --data-binary @"$next" -H "$condition"
    case $status in
      201) return 0 ;;
      412) ;;       # Another client was faster: read again.
      000 | 504) ;; # Unknown: read again. Both writes have the condition, so only one can apply.
      *) fail ;;
    esac
  done
  fail
}

request PUT greeting --data-binary hello
[ "$status" = 201 ] || fail
request GET greeting
echo "greeting: $(cat "$body")"

add cart "$item"
request GET cart
echo "cart: $(tr '\n' ' ' < "$body")"
