set -euo pipefail

fetch() { # an object of the bucket, to a file
  aws s3 cp --region "$region" --only-show-errors "s3://$bucket/$1" "$2"
}

# Without wheels the image contains Castor. The list of packages is the deployment's: instances that
# start on either side of a release must not train one job with different packages.
install_castor() { # into /opt/castor: the packages of a role (node, controller), or these extras
  [ ! -e /opt/castor/installed ] || return 0
  if [ "$has_wheels" != true ]; then
    [ -x /opt/castor/bin/castor ] && return 0
    echo 'castor: the image has no /opt/castor/bin/castor: set wheels_directory, or use an image that has it' >&2
    exit 1
  fi
  local from=(--find-links /opt/castor/wheels) wheel
  [ "$has_index" = true ] || from+=(--no-index)
  "$python" -m venv /opt/castor
  aws s3 cp --region "$region" --only-show-errors --recursive "s3://$bucket/wheels/" /opt/castor/wheels
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
