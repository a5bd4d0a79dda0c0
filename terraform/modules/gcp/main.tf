locals {
  name = "castor-${var.deployment}"
  # Names of instances begin with it, and IAM knows them by it. A deployment has no hyphen in its
  # name, so that no other one's instances do.
  prefix = "${local.name}-"
  # Not the prefix: what has it, the controller may end.
  controller_name = "controller-${local.name}"

  labels = merge(var.labels, { "castor-deployment" = var.deployment })
  # What instances sign who they are for.
  audience = local.name
}
