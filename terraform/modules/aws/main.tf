data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

locals {
  # Versions 5 and 6 of the provider both have `id`; only one of them has `name` or `region`.
  region    = data.aws_region.current.id
  account   = data.aws_caller_identity.current.account_id
  partition = data.aws_partition.current.partition

  name      = "castor-${var.deployment}"
  ownership = { "castor:deployment" = var.deployment }
  tags      = merge(var.tags, local.ownership)

  # No provider-wide default tags: with launch templates they cause a permanent difference.
  named = { for part in ["nodes", "controller", "endpoints", "network"] :
    part => merge(local.tags, { Name = "${local.name}-${part}" })
  }
}
