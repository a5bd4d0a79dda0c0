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

  # Facts that the modules of all regions share.
  shared = {
    deployment           = var.deployment
    account              = local.account
    partition            = local.partition
    tags                 = var.tags
    region               = local.region
    bucket               = aws_s3_bucket.this.bucket
    instance_profile_arn = local.instance_profile_arn
    python               = var.python
    has_wheels           = var.wheels_directory != null
    package_index        = var.package_index
    boot_minutes         = var.boot_minutes
    datasets             = local.datasets
    registries           = var.registries
    max_usd_per_hour     = var.max_usd_per_hour
    sweep = var.sweep_schedule == null ? null : {
      role_arn      = local.sweep_role_arn
      schedule      = var.sweep_schedule
      max_run_hours = var.max_run_hours
    }
  }
}
