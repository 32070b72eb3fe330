#!/usr/bin/env bash
# Prints the home of a Java 17, which Spark 4.0 needs: JAVA_HOME, else the java on PATH, else the usual places, else
# (root on Debian or Ubuntu) installs openjdk-17-jre-headless. Anything it has to say goes to stderr.
#
#   export JAVA_HOME="$(scripts/java_home.sh)"
#   scripts/java_home.sh DIR…      looks in these folders instead of the usual places
set -euo pipefail
shopt -s nullglob

is_java_17() {
    [ -x "$1/bin/java" ] && "$1/bin/java" -version 2>&1 | grep -q 'version "17[."]'
}

java_on_path() {
    local java
    java="$(command -v java)" || return 0
    dirname "$(dirname "$(readlink -f "$java")")"
}

find_java_17() {
    local home
    for home in "${JAVA_HOME:-}" "$(java_on_path)" "$@"; do
        if [ -n "$home" ] && is_java_17 "$home"; then
            echo "$home"
            return 0
        fi
    done
    return 1
}

if [ "$#" -gt 0 ]; then
    places=("$@")
else
    places=(/usr/lib/jvm/*17* /usr/lib/jvm/* /opt/java/* /opt/*jdk*17* "$HOME"/.sdkman/candidates/java/17*
        /Library/Java/JavaVirtualMachines/*17*/Contents/Home /opt/homebrew/opt/openjdk@17)
fi

if find_java_17 "${places[@]}"; then
    exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    echo "no Java 17 found: installing openjdk-17-jre-headless with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless; } >&2 || true
    if find_java_17 /usr/lib/jvm/*17*; then
        exit 0
    fi
fi
echo "Java 17 is missing: install it (Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless) or set JAVA_HOME to one." >&2
exit 1
