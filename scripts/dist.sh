#!/usr/bin/env bash
# The release as files that run on any Linux of the machine's kind, in target/dist.
#
#   dendra-0.1.0-x86_64-linux.tar.gz     dendra, README, LICENSE, CHANGELOG, SBOM, man page, completions
#   dendra-0.1.0-x86_64-linux.debug      its debug symbols; a debugger finds them by name and checksum
#   SHA256SUMS                           of both
#
# The program is linked statically against the C library of the building machine (glibc). So the
# machine needs no further target, and the program runs where there is no C library at all.
# DIST_TARGET=x86_64-unknown-linux-musl builds with another one, if its C compiler is there. Names of
# functions stay in the program: profiles of a running node need them.
#
# Invariants
# 1. The packed program was started with no file beside it, unless the machine allows no empty root;
#    then the last line says so.
# 2. No file of it holds a path of the machine that built it.
# 3. The same commit on the same machine gives the same archive: times are the commit's.
# 4. The SBOM names every package that is built into the program; tools of the build and of tests it
#    does not. Equal trees give equal bytes.
#
# Needs bash, jq and binutils. Tags and signatures: docs/releasing.md.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

fail() {
  echo "dist: $1" >&2
  exit 1
}
for tool in jq objcopy readelf sha256sum; do
  command -v "$tool" > /dev/null || fail "$tool is missing; install it first"
done

cargo=${CARGO:-cargo}
root=$PWD
home=${CARGO_HOME:-$HOME/.cargo}
target=${DIST_TARGET:-$(rustc -vV | sed -n 's/^host: //p')}
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
name=dendra-$version-${target%%-*}-linux
place=$root/target/dist
program=$place/$name/dendra
symbols=$place/$name.debug

# Flags of every build (.cargo/config.toml) that the environment's replace, and other words for the
# folders of this machine.
build() {
  local flags=(-Cforce-frame-pointers=yes -Ctarget-feature=+crt-static
    "--remap-path-prefix=$root=dendra" "--remap-path-prefix=$home=cargo")
  (
    IFS=$'\x1f'
    export CARGO_ENCODED_RUSTFLAGS="${flags[*]}"
    export CFLAGS="-ffile-prefix-map=$root=dendra -ffile-prefix-map=$home=cargo"
    "$cargo" build --release --locked --package dendra --target "$target"
  ) || fail "the build for $target failed. It needs the target (rustup target add $target), and a C \
compiler with a static C library for it (libc.a: libc6-dev; musl-gcc: musl-tools)"
}

# A longer name that begins so is another folder.
check_paths() {
  local file from
  for file in "$program" "$symbols"; do
    for from in "$root" "$home"; do
      ! grep --quiet --text --fixed-strings "$from/" "$file" || fail "$file holds the path $from"
    done
  done
}

# No loader and no library is asked for.
check_static() {
  local asked
  asked=$(readelf -l -d -W "$program")
  ! grep -e INTERP -e '(NEEDED)' <<< "$asked" || fail 'the program is not static'
}

# CycloneDX 1.5: what `dendra` reaches by normal dependencies, with the checksums of Cargo.lock.
sbom() {
  awk '{ gsub(/"/, "") } $1 == "name" { name = $3 } $1 == "version" { version = $3 }
       $1 == "checksum" { print name "@" version, $3 }' Cargo.lock > "$place/checksums"
  "$cargo" metadata --format-version 1 --locked --filter-platform "$target" |
    jq --sort-keys --rawfile checksums "$place/checksums" '
      def reference: "pkg:cargo/\(.name)@\(.version)";
      ([$checksums | split("\n")[] | select(. != "") | split(" ") | {key: .[0], value: .[1]}]
        | from_entries) as $sums
      | INDEX(.packages[]; .id) as $package
      | ([.resolve.nodes[] | {key: .id, value:
            ([.deps[] | select(any(.dep_kinds[]; .kind == null)) | .pkg] | unique)}]
        | from_entries) as $needs
      | (.packages[] | select(.name == "dendra") | .id) as $root
      | ({reached: {}, next: [$root]}
        | until(.next == []; .next[0] as $id | .next |= .[1:]
            | if .reached[$id] then . else .reached[$id] = true | .next += $needs[$id] end)
        | .reached | keys) as $reached
      | def component: $package[.]
          | {type: "library", "bom-ref": reference, name, version, purl: reference}
            # Older packages write `MIT/Apache-2.0`.
            + if .license then {licenses: [{expression: (.license | gsub("/"; " OR "))}]} else {} end
            + ($sums["\(.name)@\(.version)"]
              | if . then {hashes: [{alg: "SHA-256", content: .}]} else {} end);
        {
          bomFormat: "CycloneDX", specVersion: "1.5", version: 1,
          metadata: {component: ($root | component | .type = "application")},
          components: [$reached[] | select(. != $root) | component],
          dependencies: [$reached[] | {
            ref: ($package[.] | reference),
            dependsOn: [$needs[.][] | $package[.] | reference]
          }]
        }'
  rm "$place/checksums"
}

# Does the program serve where there is no file but itself? Its root has `dendra`, `etc/hosts` and
# `data`, in namespaces of its own: a library that is missing is missed here.
bare() {
  local bare=$place/bare why node port value
  mkdir -p "$bare/etc" "$bare/data"
  cp "$program" "$bare/dendra"
  echo '127.0.0.1 the-node' > "$bare/etc/hosts"
  if ! why=$(unshare --user --map-root-user true 2>&1); then
    echo "not tried in an empty root: $why"
    return
  fi
  inside=(env -i PATH=/usr/bin:/bin unshare --user --map-root-user "--root=$bare" /dendra)
  [[ $("${inside[@]}" --version) == *"$version"* ]] || fail 'the program says another version than the release'
  "${inside[@]}" serve --listen 127.0.0.1:0 --admin off --allowed-hosts the-node --data /data/one \
    > /dev/null 2> "$place/bare.log" &
  node=$!
  trap "kill -KILL $node 2> /dev/null || true" EXIT
  until port=$(sed -n 's|^listening on http://127.0.0.1:\([0-9]*\).*|\1|p' "$place/bare.log") && [ -n "$port" ]; do
    kill -0 "$node" 2> /dev/null || fail "it does not serve in an empty root: $(cat "$place/bare.log")"
    sleep 0.05
  done
  "${inside[@]}" put a bare --url "http://the-node:$port" > /dev/null
  value=$("${inside[@]}" get a --url "http://the-node:$port")
  [ "$value" = bare ] || fail "it answers $value"
  kill -TERM "$node"
  wait "$node" || fail "it ended with $? in an empty root"
  trap - EXIT
  echo 'it serves in an empty root: no library, no shell, no /proc'
}

echo "building $name for $target"
build
rm -rf "$place" && mkdir -p "$place/$name"
built=target/$target/release/dendra
objcopy --only-keep-debug "$built" "$symbols"
objcopy --strip-debug "$built" "$program"
objcopy "--add-gnu-debuglink=$symbols" "$program"
check_static
check_paths
cp README.md LICENSE CHANGELOG.md "$place/$name/"
sbom > "$place/$name/dendra.cdx.json"
"$program" man > "$place/$name/dendra.1"
"$program" completions bash > "$place/$name/dendra.bash"
"$program" completions zsh > "$place/$name/_dendra"
"$program" completions fish > "$place/$name/dendra.fish"
# Without git, as from an archive of the source: a fixed time.
time=$(git log -1 --format=%ct 2> /dev/null) || time=0
cd "$place"
tar --sort=name --owner=0 --group=0 --numeric-owner "--mtime=@$time" \
  --use-compress-program 'gzip -9n' -cf "$name.tar.gz" "$name"
sha256sum "$name.tar.gz" "$name.debug" > SHA256SUMS
cd "$root"
du --apparent-size --block-size=KiB "$place/$name.tar.gz" "$program" "$symbols" "$place/SHA256SUMS"
echo "its SBOM names $(jq '.components | length' "$place/$name/dendra.cdx.json") packages"
bare
