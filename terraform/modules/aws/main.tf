data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

locals {
  # Both 5 and 6 of the provider have this attribute; `name` and `region` are in one of them each.
  region    = data.aws_region.current.id
  account   = data.aws_caller_identity.current.account_id
  partition = data.aws_partition.current.partition

  name      = "castor-${var.deployment}"
  ownership = { "castor:deployment" = var.deployment }
  tags      = merge(var.tags, local.ownership)

  # No provider-wide default tags: with launch templates they are a difference that never ends.
  named = { for part in ["nodes", "controller", "endpoints", "network"] :
    part => merge(local.tags, { Name = "${local.name}-${part}" })
  }
}
