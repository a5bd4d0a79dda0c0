data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

data "aws_default_tags" "current" {}

locals {
  # Versions 5 and 6 of the provider both have `id`; only one of them has `name` or `region`.
  region    = data.aws_region.current.id
  account   = data.aws_caller_identity.current.account_id
  partition = data.aws_partition.current.partition

  name      = "castor-${var.deployment}"
  ownership = { "castor:deployment" = var.deployment }
  tags      = merge(var.tags, local.ownership)

  # The provider adds its default tags to its own resources, but not to what Castor launches.
  given_tags  = merge(data.aws_default_tags.current.tags, var.tags)
  launch_tags = merge(local.given_tags, local.ownership)

  named = { for part in ["nodes", "controller", "endpoints", "network"] :
    part => merge(local.tags, { Name = "${local.name}-${part}" })
  }
}
