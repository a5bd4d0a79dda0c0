# The start of an instance: it finds out who it is. The rest is in agent.sh.

end_it() { shutdown -h now "castor: $1"; }

# Whatever fails or hangs, an instance without an agent costs money for nothing. A trap of ERR
# would not do: what fails in a function ends this script past it.
trap 'end_it "the start failed"' EXIT
shutdown -h "+$boot_minutes" "castor: no agent after $boot_minutes minutes"

# Jobs can't reach the metadata service, which resolves names, too. systemd-resolved asks it for them.
if grep -qs '^nameserver 169\.254\.169\.254' /etc/resolv.conf; then
  echo 'castor: jobs would resolve no names: use an image that has systemd-resolved do it' >&2
  exit 1
fi

instance=$(ask instance/name)
address=$(ask instance/network-interfaces/0/ip)

install -d -m 0711 /run/castor /var/lib/castor /var/lib/castor/instance /var/lib/castor/cache
# What a dataset lacks is known before minutes are spent on Castor. With support of hierarchical
# buckets, older gcsfuse asks something of the whole bucket, which the account may not do.
mounter=gcsfuse
mounting() { echo "-o ro -o allow_other --implicit-dirs --enable-hns=false ${2:+--only-dir=${2%/} }$1 $3"; } # bucket, prefix, path
mount_datasets
(umask 077 && fetch "$parcels/$instance" /run/castor/user-data)
install_castor training
# Google's word of which instance this is, which the controller checks before it lets the agent in.
# It is good for an hour, hence not before what takes long.
(umask 077 && ask "instance/service-accounts/default/identity?audience=$audience&format=full" > /run/castor/identity)

# When this instance will be taken back, in seconds since the epoch. The service answers as soon as
# that changes, and every 10 s at the latest, lest a change between two questions be missed. Of
# maintenance it does not say when: at least a minute ahead.
cat > /run/castor/watch <<'END'
#!/bin/bash
metadata=http://169.254.169.254/computeMetadata/v1/instance
look() { curl -sf -m 20 -H 'Metadata-Flavor: Google' "$metadata/$1"; }
tell() { echo $(($(date +%s) + $1)) > /run/castor/reclaim.new && mv /run/castor/reclaim.new /run/castor/reclaim; }
until [ -e /run/castor/reclaim ]; do
  if [ "$(look preempted)" = TRUE ]; then
    tell 30
  elif [ "$(look maintenance-event)" = TERMINATE_ON_HOST_MAINTENANCE ]; then
    tell 60
  else
    look 'preempted?wait_for_change=true&timeout_sec=10' > /run/castor/preempted || sleep 1
  fi
done
exec sleep infinity
END

# Compute Engine presses the power button as it preempts or ends an instance, and systemd would end
# the agent and its job at once. So the agent hears of it first, and has the time there is to leave.
cat > /run/castor/leave <<'END'
#!/bin/bash
[ -n "${MAINPID:-}" ] || exit 0
[ -e /run/castor/reclaim ] || {
  echo $(($(date +%s) + 30)) > /run/castor/reclaim.new && mv /run/castor/reclaim.new /run/castor/reclaim
}
while kill -0 "$MAINPID" 2> /dev/null; do sleep 0.2; done
END
mkdir -p /etc/systemd/system/castor-node.service.d
cat > /etc/systemd/system/castor-node.service.d/leave.conf <<'END'
[Service]
ExecStop=/bin/bash /run/castor/leave
END
