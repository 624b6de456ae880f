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
[ "$(stat -c '%U %G %a' /etc/millrace)" = "root millrace 750" ] || fail "/etc/millrace is not for root and the service"
[ "$(stat -c '%U %a' /etc/millrace/environment)" = "root 600" ] || fail "secrets can be read"
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
user_file=/etc/millrace/keys.yaml
millrace keys new administrator --scope admin --file $user_file >/tmp/key
[ "$(stat -c '%U %G %a' $user_file)" = "root millrace 640" ] || fail "the service cannot read keys of root"
millrace keys new second --file $user_file >/dev/null
$user millrace keys list --file $user_file | grep -q second || fail "the service cannot read keys after an edit"
url=$(sed -n 's/.* serves .* at //p' /tmp/serving)
millrace health --url "$url" || fail "the server is not healthy"
[ "$(stat -c %U /var/lib/millrace/journal)" = millrace ] || fail "the journal is not the user's"
kill -TERM $server
wait $server || fail "the server did not stop cleanly"

echo "# changed" >>"$settings"
chmod 0644 /etc/millrace/environment
dpkg --install /opt/millrace.deb
grep -q '# changed' "$settings" || fail "an upgrade lost the settings"
[ "$(stat -c %a /etc/millrace/environment)" = 600 ] || fail "an upgrade left secrets open"
apt-get remove --yes --quiet millrace
[ ! -e /usr/bin/millrace ] && [ -f "$settings" ] || fail "removed: the settings must stay, the program must not"
dpkg --purge millrace
[ ! -e "$settings" ] && [ -d /var/lib/millrace ] || fail "purged: the settings must not stay, models and journal must"
echo "package: installed, run, upgraded, removed, purged"
