module "controller" {
  source = "./modules/controller"

  shared              = local.shared
  network             = module.network.network
  regions             = concat([module.pools.region], var.other_regions)
  given_tags          = module.pools.region.given_tags
  controller          = var.controller
  serve_options       = "--fleet-usd ${var.fleet_usd} --job-usd ${var.job_usd} --study-usd ${var.study_usd} --lease ${var.lease} --policy ${var.policy}"
  launches_per_minute = var.launches_per_minute
  prices_from         = var.prices_from
  volume_kms_key_arn  = var.volume_kms_key_arn

  bucket_arn               = aws_s3_bucket.this.arn
  bucket_kms_key_arn       = local.kms_key_arn
  node_role_arn            = local.node_role_arn
  job_role_arn             = local.job_role_arn
  existing_role            = var.existing_roles.controller
  additional_statements    = concat(local.wheel_statements, try(var.controller.session_manager, false) ? [local.shell_statement] : [])
  permissions_boundary_arn = var.permissions_boundary_arn
  iam_path                 = var.iam_path
  controller_principals    = var.controller_principals
  controller_external_id   = var.controller_external_id

  # What its host calls as it starts, and the ways to it.
  depends_on = [module.network, aws_s3_object.wheel]
}
