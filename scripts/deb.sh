#!/usr/bin/env bash
# The Debian package, out of what `make dist` has left in target/dist: dendra_0.1.0_amd64.deb.
#
#   /usr/bin/dendra, its manual page, completions, SBOM     from target/dist
#   /usr/lib/systemd/system/dendra*                         from deploy/systemd; none is enabled
#   /etc/dendra/dendra.toml                                 options; upgrades keep the operator's
#   /usr/share/doc/dendra                                   alerts and dashboard, too
#
# Invariants
# 1. The packed program is the checked one of `make dist`, byte for byte.
# 2. The same archive and the same commit give the same package: times are the commit's.
#
# Needs bash, dpkg-deb and gzip. `scripts/deb.sh try` installs, upgrades, removes and purges it in a
# Debian of its own below target, as root and with debootstrap; no service of this machine is touched.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
umask 022

fail() {
  echo "deb: $1" >&2
  exit 1
}
command -v dpkg-deb > /dev/null || fail 'dpkg-deb is missing; install dpkg'
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
from=$(echo "target/dist/dendra-$version-"*-linux)
[ -x "$from/dendra" ] || fail "there is no target/dist/dendra-$version-…-linux; make dist comes first"
case $from in
  *-x86_64-linux) kind=amd64 ;;
  *-aarch64-linux) kind=arm64 ;;
  *) fail "no name of Debian is known for the machine of $from" ;;
esac
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2> /dev/null) || SOURCE_DATE_EPOCH=0
export SOURCE_DATE_EPOCH

# The package $1, of version $2.
build() {
  local stage=target/dist/stage docs
  rm -rf "$stage"
  docs=$stage/usr/share/doc/dendra
  mkdir -p "$stage/DEBIAN" "$docs"
  install -D "$from/dendra" "$stage/usr/bin/dendra"
  install -D -m 644 deploy/dendra.toml "$stage/etc/dendra/dendra.toml"
  install -D -m 644 -t "$stage/usr/lib/systemd/system" deploy/systemd/*
  install -D -m 644 "$from/dendra.1" "$stage/usr/share/man/man1/dendra.1"
  install -D -m 644 "$from/dendra.bash" "$stage/usr/share/bash-completion/completions/dendra"
  install -D -m 644 "$from/_dendra" "$stage/usr/share/zsh/vendor-completions/_dendra"
  install -D -m 644 "$from/dendra.fish" "$stage/usr/share/fish/vendor_completions.d/dendra.fish"
  install -m 644 "$from/README.md" "$from/dendra.cdx.json" "$docs/"
  install -m 644 "$from/LICENSE" "$docs/copyright"
  install -m 644 "$from/CHANGELOG.md" "$docs/changelog"
  install -D -m 644 -t "$docs/examples/prometheus" deploy/prometheus/*
  install -D -m 644 -t "$docs/examples/grafana" deploy/grafana/*
  gzip -9n "$stage/usr/share/man/man1/dendra.1" "$docs/changelog"
  install -t "$stage/DEBIAN" deploy/debian/*
  echo /etc/dendra/dendra.toml > "$stage/DEBIAN/conffiles"
  cat > "$stage/DEBIAN/control" << END
Package: dendra
Version: $2
Architecture: $kind
Maintainer: The Dendra authors <dendra@dendra.invalid>
Section: database
Priority: optional
Depends: adduser
Installed-Size: $(du -sk "$stage" | cut -f 1)
Description: replicated, durable key-value store over plain HTTP
 One static program: the node, its clients, backups and checks. Nothing is
 started by the installation: edit /etc/dendra/dendra.toml, then enable
 dendra.service.
END
  find "$stage" -exec touch --no-dereference "--date=@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zxz --build "$stage" "$1" > /dev/null
  rm -rf "$stage"
}

# Installs, upgrades, removes and purges it where there is nothing but Debian.
try() {
  local root=$PWD/target/debian next=target/dist/next.deb
  [ "$(id -u)" = 0 ] || fail 'try needs root'
  command -v debootstrap > /dev/null || fail 'debootstrap is missing; apt-get install debootstrap'
  inside() { chroot "$root" "$@"; }
  must() { inside sh -c "$1" || fail "not so: $1"; }
  [ -x "$root/usr/sbin/adduser" ] || debootstrap --variant=minbase --include=adduser bookworm "$root" > /dev/null
  build "$next" "$version+next"
  cp "$package" "$root/now.deb"
  mv "$next" "$root/next.deb"
  inside dpkg --purge dendra > /dev/null 2>&1 || true
  inside dpkg --install /now.deb > /dev/null
  must 'dendra --version && getent passwd dendra > /dev/null'
  must '[ "$(stat -c "%U:%G %a" /etc/dendra)" = "root:dendra 750" ]'
  must 'dendra config print --config /etc/dendra/dendra.toml > /dev/null'
  must 'echo "workers = 2" >> /etc/dendra/dendra.toml'
  inside dpkg --install /next.deb > /dev/null
  must 'dpkg --status dendra | grep -qx "Version: .*+next"'
  must 'grep -qx "workers = 2" /etc/dendra/dendra.toml'
  must 'mkdir -p /var/lib/dendra/data'
  inside dpkg --remove dendra > /dev/null
  must '[ ! -e /usr/bin/dendra ] && [ -e /etc/dendra/dendra.toml ]'
  inside dpkg --purge dendra | grep --quiet 'records .* stay' || fail 'a purge does not tell of the records'
  must '[ ! -e /etc/dendra ] && [ -d /var/lib/dendra/data ] && getent passwd dendra > /dev/null'
  rm -r "$root/var/lib/dendra"
  inside dpkg --install /now.deb > /dev/null
  inside dpkg --purge dendra > /dev/null
  must '[ ! -e /etc/dendra ] && ! getent passwd dendra'
  echo 'it was installed, upgraded, removed and purged: options stayed until the purge, records behind it'
}

package=target/dist/dendra_${version}_$kind.deb
build "$package" "$version"
sums=target/dist/SHA256SUMS
{ grep -v '\.deb$' "$sums" || true; (cd target/dist && sha256sum "${package##*/}"); } > "$sums.next"
mv "$sums.next" "$sums"
du --apparent-size --block-size=KiB "$package"
case ${1-} in
  '') ;;
  try) try ;;
  *) fail "no such word: $1" ;;
esac
