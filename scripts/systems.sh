# What scripts/setup knows about this system (bash; sourced after lib.sh, never run): its row of systems.txt, its own mirror, the
# apt sources that it may lack. SYSTEM_ROOT: another root to read (tests/systems); only scripts/setup writes.
SYSTEM_ROOT=${SYSTEM_ROOT:-}

# The LLVM project's archive, or a mirror of it, and the one key that its packages are accepted from.
LLVM_APT=${LLVM_APT:-https://apt.llvm.org}
LLVM_APT_KEY=6084F3CF814B57C1CF12EFD515CF4D18AF4F7421

# Sets SYSTEM (its row's name; empty: not in systems.txt), SYSTEM_NAME (for messages), CODENAME, PYTHON_VERSION, COMPONENTS and
# LLVM_FROM. No process is started: this is part of a set-up that finds everything installed.
read_system() {
  local file=$SYSTEM_ROOT/etc/os-release name value row
  local -A release=()
  [[ -e $file ]] || file=$SYSTEM_ROOT/usr/lib/os-release
  if [[ -e $file ]]; then
    while IFS='=' read -r name value || [[ -n $name ]]; do
      value=${value%[\"\']} value=${value#[\"\']}
      [[ -z $name ]] || release[$name]=$value
    done <"$file"
  fi
  SYSTEM='' CODENAME='' PYTHON_VERSION=3 COMPONENTS='' LLVM_FROM=''
  SYSTEM_NAME=${release[PRETTY_NAME]:-${release[ID]:-a system without /etc/os-release}}
  while read -r -a row; do
    [[ ${#row[@]} -eq 5 && ${row[0]} != '#'* ]] || continue
    if [[ ${row[0]} == "${release[ID]:-}-${release[VERSION_ID]:-}" || ${row[1]} == "${release[UBUNTU_CODENAME]:-}" ||
          ${row[1]} == "${release[DEBIAN_CODENAME]:-}" ]]; then
      # shellcheck disable=SC2034  # for scripts/setup
      SYSTEM=${row[0]} CODENAME=${row[1]} PYTHON_VERSION=${row[2]} COMPONENTS=${row[3]//,/ } LLVM_FROM=${row[4]}
      return
    fi
  done <"$ROOT/scripts/systems.txt"
}

known_systems() {  # Debian 12, Debian 13, ...
  sed -n -e 's/^debian-\([^ ]*\).*/Debian \1/p' -e 's/^ubuntu-\([^ ]*\).*/Ubuntu \1/p' "$ROOT/scripts/systems.txt" | paste -sd, | sed 's/,/, /g'
}

# apt's sources as one-line entries, "deb [signed-by=...] URI SUITE COMPONENT...", from both of its formats. Keys that stand in the
# file itself have no one-line form: those entries are left out.
apt_entries() {
  local folder=$SYSTEM_ROOT/etc/apt
  cat "$folder/sources.list" "$folder"/sources.list.d/*.list 2>/dev/null | sed -n 's/^[[:space:]]*\(deb[[:space:]].*\)/\1/p' || true
  cat "$folder"/sources.list.d/*.sources /dev/null 2>/dev/null | awk '
    function flush(   i, j, uris, suites, key) {
      if (field["types"] ~ /(^| )deb( |$)/ && field["enabled"] !~ /^(no|false|0)$/ && field["signed-by"] !~ /BEGIN PGP/) {
        split(field["uris"], uris, " "); n = split(field["suites"], suites, " ")
        key = field["signed-by"] == "" ? "" : "[signed-by=" field["signed-by"] "] "
        for (i = 1; i in uris; ++i) for (j = 1; j <= n; ++j) print "deb " key uris[i] " " suites[j] " " field["components"]
      }
      split("", field)
    }
    /^#/ { next }
    /^[ \t]*$/ { flush(); next }
    /^[ \t]/ { sub(/^[ \t]+/, ""); field[name] = field[name] (field[name] == "" ? "" : " ") $0; next }
    { name = tolower($0); sub(/:.*/, "", name); value = $0; sub(/^[^:]*:[ \t]*/, "", value); field[name] = value }
    END { flush() }' || true
}

# The system's own mirror, "[OPTIONS] URI": the source of its release's suite whose address ends in /debian or /ubuntu, else the
# first one.
own_mirror() {
  local entries
  entries=$(apt_entries | sed -n "s/^deb[[:space:]]\+\(\[[^]]*\][[:space:]]*\)\?\([^[:space:]]*\)[[:space:]]\+$CODENAME[[:space:]]\(.*[[:space:]]\)\?main\([[:space:]].*\)\?$/\1\2/p")
  grep -m 1 -E '/(debian|ubuntu)/?$' <<<"$entries" || head -n 1 <<<"$entries"
}

# Sources that this system may lack, a line each, for the packages that apt does not know: what its own mirror has beside what is
# listed, then where LLVM is from. All but apt.llvm.org's (LLVM_KEYRING) are verified with the system's own keys.
LLVM_KEYRING=/etc/apt/keyrings/zefuse-llvm.gpg
extra_sources() {
  local mirror component listed
  mirror=$(own_mirror)
  if [[ -n $mirror ]]; then
    mirror=${mirror%/}
    listed=$(apt_entries | grep "[[:space:]]$CODENAME[[:space:]]" || true)
    for component in $COMPONENTS; do
      grep -q "[[:space:]]$component\([[:space:]]\|$\)" <<<"$listed" || echo "deb $mirror $CODENAME $component"
    done
    # Debian keeps that suite beside the release: the path of its mirror with "-security".
    [[ $LLVM_FROM != security ]] || echo "deb $mirror-security $CODENAME-security $COMPONENTS"
  fi
  [[ $LLVM_FROM != apt.llvm.org ]] || echo "deb [arch=amd64 signed-by=$LLVM_KEYRING] ${LLVM_APT%/}/$CODENAME/ llvm-toolchain-$CODENAME-$LLVM_VERSION main"
}
