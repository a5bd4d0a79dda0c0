# Start of an instance: find its id and fetch its user data. agent.sh does the rest.

end_it() { shutdown -h now "castor: $1"; }

# Shut down if the start fails or hangs: an instance without an agent is useless and costs money. A
# trap of ERR is not enough, since a failure in a function ends the script without it.
trap 'end_it "the start failed"' EXIT
shutdown -h "+$boot_minutes" "castor: no agent after $boot_minutes minutes"
require_first_boot
require_nft

# Jobs can't reach the metadata service, which also resolves names; systemd-resolved does it.
if grep -qs '^nameserver 169\.254\.169\.254' /etc/resolv.conf; then
  echo 'castor: jobs could not resolve names: use an image with systemd-resolved' >&2
  exit 1
fi

instance=$(ask instance/name)
address=$(ask instance/network-interfaces/0/ip)

install -d -m 0711 /run/castor /var/lib/castor /var/lib/castor/instance /var/lib/castor/cache
# Errors of datasets show before minutes are spent on installing Castor. With support of
# hierarchical buckets, older versions of gcsfuse need permissions on the whole bucket.
mounter=gcsfuse
mounting() { echo "-o ro -o allow_other --implicit-dirs --enable-hns=false ${2:+--only-dir=${2%/} }$1 $3"; } # bucket, prefix, path
mount_datasets
(umask 077 && fetch "$parcels/$instance" /run/castor/user-data)
install_castor node training
# Identity token signed by Google, which the controller verifies when the agent joins. The token is
# valid for an hour, so it is requested after the slow steps.
(umask 077 && ask "instance/service-accounts/default/identity?audience=$audience&format=full" > /run/castor/identity)

# Prints a password for Artifact Registry: a token of the instances' account.
registry_user=oauth2accesstoken
cat > /run/castor/registry-password <<'END'
#!/bin/bash
set -o pipefail
curl -sSf --retry 5 -H 'Metadata-Flavor: Google' \
  http://169.254.169.254/computeMetadata/v1/instance/service-accounts/default/token |
  sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p'
END

# Writes the time of a reclaim, in seconds since the epoch. The service answers when
# the value changes, and after 10 s at the latest, in case a change between two requests was missed.
# It does not report the time of maintenance, which is an hour ahead for instances with GPUs.
cat > /run/castor/watch <<'END'
#!/bin/bash
metadata=http://169.254.169.254/computeMetadata/v1/instance
look() { curl -sf -m 20 -H 'Metadata-Flavor: Google' "$metadata/$1"; }
tell() { echo $(($(date +%s) + $1)) > /run/castor/reclaim.new && mv /run/castor/reclaim.new /run/castor/reclaim; }
until [ -e /run/castor/reclaim ]; do
  if [ "$(look preempted)" = TRUE ]; then
    tell 30
  elif [ "$(look maintenance-event)" = TERMINATE_ON_HOST_MAINTENANCE ]; then
    tell 3600
  else
    look 'preempted?wait_for_change=true&timeout_sec=10' > /run/castor/preempted || sleep 1
  fi
done
exec sleep infinity
END

# Compute Engine presses the power button when it preempts or ends an instance; systemd would end
# the agent and its job at once. ExecStop therefore writes the notice first and waits for the agent.
# Compute Engine then waits 30 s for spot and 120 s for others; the unit has 110 s to stop.
cat > /run/castor/leave <<'END'
#!/bin/bash
[ -n "${MAINPID:-}" ] || exit 0
[ -e /run/castor/reclaim ] || {
  preemptible=http://169.254.169.254/computeMetadata/v1/instance/scheduling/preemptible
  left=30
  [ "$(curl -sf -m 2 -H 'Metadata-Flavor: Google' "$preemptible")" != FALSE ] || left=100
  echo $(($(date +%s) + left)) > /run/castor/reclaim.new && mv /run/castor/reclaim.new /run/castor/reclaim
}
while kill -0 "$MAINPID" 2> /dev/null; do sleep 0.2; done
END
