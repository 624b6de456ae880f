# In a new Debian, as root: what an administrator does with the package, and what must hold after each step.
set -eu
version=$1
settings=/etc/millrace/millrace.yaml
unit=/usr/lib/systemd/system/millrace.service

fail() {
    echo "package: $*" >&2
    exit 1
}

apt-get install --yes --quiet /opt/millrace.deb
[ "$(millrace version)" = "millrace $version" ] || fail "not the version $version"
getent passwd millrace >/dev/null || fail "no user millrace"
[ "$(stat -c '%U %a' /var/lib/millrace)" = "millrace 700" ] || fail "/var/lib/millrace is not the user's"
[ -f /usr/share/man/man1/millrace.1.gz ] || [ -f /etc/dpkg/dpkg.cfg.d/docker ] || fail "no manual page"
systemd-analyze verify --man=no "$unit" 2>&1 | grep millrace && fail "the unit is not valid"
systemd-analyze security --offline=yes --no-pager --threshold=20 "$unit" >/dev/null || fail "the unit is exposed"

# As the service does it, without systemd running: its user, its settings, another port.
user="setpriv --reuid=millrace --regid=millrace --clear-groups --no-new-privs env HOME=/var/lib/millrace"
$user millrace run "Hello" -n 4 --config "$settings"
$user millrace serve --config "$settings" --port 0 >/tmp/serving 2>/tmp/log &
server=$!
for _ in $(seq 600); do
    grep -q ' serves ' /tmp/serving && break
    kill -0 $server || { cat /tmp/log; fail "the server ended"; }
    sleep 0.1
done
url=$(sed -n 's/.* serves .* at //p' /tmp/serving)
millrace health --url "$url" || fail "the server is not healthy"
[ "$(stat -c %U /var/lib/millrace/journal)" = millrace ] || fail "the journal is not the user's"
kill -TERM $server
wait $server || fail "the server did not stop cleanly"

echo "# changed" >>"$settings"
dpkg --install /opt/millrace.deb
grep -q '# changed' "$settings" || fail "an upgrade lost the settings"
apt-get remove --yes --quiet millrace
[ ! -e /usr/bin/millrace ] && [ -f "$settings" ] || fail "removed: the settings must stay, the program must not"
dpkg --purge millrace
[ ! -e "$settings" ] && [ -d /var/lib/millrace ] || fail "purged: the settings must not stay, models and journal must"
echo "package: installed, run, upgraded, removed, purged"
