output "region" {
  description = "Facts of the region, for the root module's `other_regions` and for modules/controller."
  value = {
    name               = local.region
    cidr               = var.network.cidr
    settings           = local.settings
    pools              = local.pools
    instance_types     = sort(distinct(flatten([for pool in var.pools : pool.instance_types])))
    launch_resources   = local.launch_resources
    queue_arn          = aws_sqs_queue.events.arn
    volume_kms_key_arn = var.volume_kms_key_arn
    given_tags         = local.given_tags
  }
}

output "launch_templates" {
  description = "Launch templates by pool: id and version."
  value       = { for name, template in aws_launch_template.pool : name => { id = template.id, version = template.latest_version } }
}
