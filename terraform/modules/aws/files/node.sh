# The start of an instance: it finds out who it is, runs the agent, and ends when the agent does.

end_it() { shutdown -h now "castor: $1"; }

# Whatever fails or hangs, an instance without an agent costs money for nothing. A trap of ERR
# would not do: what fails in a function ends this script past it.
trap 'end_it "the start failed"' EXIT
shutdown -h "+$boot_minutes" "castor: no agent after $boot_minutes minutes"

metadata=http://169.254.169.254/latest
session=$(curl -sf --retry 10 --retry-connrefused -X PUT \
  -H 'X-aws-ec2-metadata-token-ttl-seconds: 21600' "$metadata/api/token")
ask() { curl -sf --retry 5 -H "X-aws-ec2-metadata-token: $session" "$metadata/$1"; }

instance=$(ask meta-data/instance-id)
address=$(ask meta-data/local-ipv4)
order=$(ask meta-data/tags/instance/castor:token)

install -d -m 0711 /run/castor /var/lib/castor /var/lib/castor/instance /var/lib/castor/cache
(umask 077 && fetch "$parcels/$order" /run/castor/user-data)
# AWS's word of which instance this is, which the controller checks before it lets the agent in.
(umask 077 && ask dynamic/instance-identity/rsa2048 > /run/castor/identity)
install_castor training

# One rank a GPU; an instance without is one for its processors.
count=$(nvidia-smi --list-gpus 2>/dev/null | wc -l) || count=0
[ "$count" -gt 0 ] || count=$(nproc)

cat > /run/castor/environment <<END
CASTOR_INSTANCE=$instance
CASTOR_DEVICES=$(seq -s, 0 $((count - 1)))
CASTOR_INSTANCE_DIRECTORY=/var/lib/castor/instance
CASTOR_CACHE_DIRECTORY=/var/lib/castor/cache
CASTOR_BIND_ADDRESS=$address
CASTOR_RECLAIM_NOTICE=/run/castor/reclaim
CASTOR_IDENTITY=/run/castor/identity
END

# The agent presses the power button by SIGTERM to its parent: this program.
cat > /run/castor/machine <<'END'
#!/bin/bash
trap 'kill -TERM $!; wait $!; exit 0' TERM
/opt/castor/bin/castor node --user-data /run/castor/user-data &
wait $!
END

# When this instance will be taken back, in seconds since the epoch.
cat > /run/castor/watch <<'END'
#!/bin/bash
metadata=http://169.254.169.254/latest
while sleep 5; do
  session=$(curl -sf -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$metadata/api/token") || continue
  notice=$(curl -sf -m 5 -H "X-aws-ec2-metadata-token: $session" "$metadata/meta-data/spot/instance-action") || continue
  moment=$(sed -n 's/.*"time" *: *"\([^"]*\)".*/\1/p' <<< "$notice")
  date -d "$moment" +%s > /run/castor/reclaim.new && mv /run/castor/reclaim.new /run/castor/reclaim
done
END
chmod 0700 /run/castor/machine /run/castor/watch

# Jobs run inside the agent's unit, from which the metadata service, and with it the role of this
# instance, can't be reached. The watch is outside of it. /run may not execute: hence by bash.
# The unit has started when the agent has joined. From then on it says every 10 s that it is at
# work; one that is silent for five minutes hangs, and ends as one that has died does.
cat > /etc/systemd/system/castor-node.service <<'END'
[Unit]
Description=Castor's agent
After=network-online.target
Wants=castor-watch.service

[Service]
Type=notify
NotifyAccess=all
WatchdogSec=300
TimeoutStartSec=infinity
EnvironmentFile=/run/castor/environment
ExecStart=/bin/bash /run/castor/machine
ExecStopPost=/bin/systemctl --no-block poweroff
IPAddressDeny=169.254.169.254/32
TimeoutStopSec=110
LimitNOFILE=1048576
LimitMEMLOCK=infinity
END
cat > /etc/systemd/system/castor-watch.service <<'END'
[Unit]
Description=Looks out for the notice of a reclaim

[Service]
ExecStart=/bin/bash /run/castor/watch
Restart=always
END
systemctl daemon-reload
systemctl start castor-node.service
shutdown -c
trap - EXIT
