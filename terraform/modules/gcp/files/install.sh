set -euo pipefail

metadata=http://169.254.169.254/computeMetadata/v1
ask() { curl -sf --retry 10 --retry-connrefused -H 'Metadata-Flavor: Google' "$metadata/$1"; }

fetch() { # an object of the bucket, to a file
  local token name
  token=$(ask instance/service-accounts/default/token | sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p')
  name=$("$python" -c 'import sys, urllib.parse; print(urllib.parse.quote(sys.argv[1], safe=""))' "$1")
  curl -sf --retry 5 -H @- -o "$2" "https://storage.googleapis.com/storage/v1/b/$bucket/o/$name?alt=media" \
    <<< "Authorization: Bearer $token"
}

# Without wheels the image contains Castor. The list of packages is the deployment's: instances that
# start on either side of a release must not train one job with different packages.
install_castor() { # into /opt/castor: the packages of a role (node, controller), or these extras
  [ ! -e /opt/castor/installed ] || return 0
  if [ -z "$wheels" ]; then
    [ -x /opt/castor/bin/castor ] && return 0
    echo 'castor: the image has no /opt/castor/bin/castor: set wheels_directory, or use an image that has it' >&2
    exit 1
  fi
  local from=(--find-links /opt/castor/wheels) wheel
  [ "$has_index" = true ] || from+=(--no-index)
  "$python" -m venv /opt/castor
  mkdir -p /opt/castor/wheels
  for wheel in $wheels; do
    fetch "wheels/$wheel" "/opt/castor/wheels/$wheel"
  done
  wheel=$(ls /opt/castor/wheels/castor_autoscaler-*.whl | sort -V | tail -n 1)
  local pip=(/opt/castor/bin/pip install --quiet --disable-pip-version-check)
  local pins=/opt/castor/wheels/requirements-$1.txt
  if [ -e "$pins" ]; then
    "${pip[@]}" "${from[@]}" --no-deps --require-hashes --only-binary :all: -r "$pins"
    "${pip[@]}" --no-deps --no-index "$wheel"
  else
    "${pip[@]}" "${from[@]}" "${wheel}[$2]"
  fi
  touch /opt/castor/installed
}
