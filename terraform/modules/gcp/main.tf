locals {
  name = "castor-${var.deployment}"
  # Prefix of instances' names, by which IAM recognises them. Deployments' names have no hyphen, so
  # no deployment's prefix begins another's.
  prefix = "${local.name}-"
  # Not the prefix, since the controller may end instances with the prefix.
  controller_name = "controller-${local.name}"

  labels = merge(var.labels, { "castor-deployment" = var.deployment })
  # Audience of instances' identity tokens.
  audience = local.name
}
