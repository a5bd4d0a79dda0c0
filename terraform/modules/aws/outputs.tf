output "pools_source" {
  description = "Argument of `castor serve --pools`: location of the pools and their caps."
  value       = module.controller.pools_source
}

output "pools_json" {
  description = "Content of that location: a document of the schema in providers/aws/settings.py."
  value       = module.controller.pools_json
}

output "region" {
  description = "Region of all resources."
  value       = local.region
}

output "vpc_id" {
  description = "Network of instances."
  value       = module.network.network.vpc_id
}

output "subnets" {
  description = "Subnets of instances, by zone."
  value       = module.network.network.subnets
}

output "node_security_group_id" {
  description = "Security group of instances."
  value       = module.network.network.security_groups["nodes"]
}

output "controller_security_group_id" {
  description = "Security group of the controller, whether or not it is an instance of this module."
  value       = module.network.network.security_groups["controller"]
}

output "controller_role_arn" {
  description = "Role of the controller."
  value       = module.controller.role_arn
}

output "controller_policies" {
  description = "Policies of the controller as JSON, by name."
  value       = module.controller.policies
}

output "controller_instance_id" {
  description = "Instance of the controller; null if the controller runs elsewhere."
  value       = module.controller.instance_id
}

output "controller_address" {
  description = "Internal address of the controller's instance; null if the controller runs elsewhere."
  value       = module.controller.address
}

output "controller_host" {
  description = "Internal host of the controller's instance, for a port forward; null if the controller runs elsewhere."
  value       = module.controller.host
}

output "node_role_arn" {
  description = "Role of instances."
  value       = local.node_role_arn
}

output "node_policy" {
  description = "Policy of instances, as JSON."
  value       = local.node_policy
}

output "job_role_arn" {
  description = "Role that the controller assumes to grant a job access to its files."
  value       = local.job_role_arn
}

output "job_policy" {
  description = "Maximum permissions of jobs, as JSON; each job's grant covers only its own files."
  value       = local.job_policy
}

output "sweep_policy" {
  description = "Permissions of the sweep, as JSON."
  value       = local.sweep_policy
}

output "launch_templates" {
  description = "Launch templates by pool: id and version."
  value       = module.pools.launch_templates
}

output "bucket" {
  description = "Name of the bucket."
  value       = aws_s3_bucket.this.bucket
}

output "kms_key_arn" {
  description = "Key of the bucket."
  value       = local.kms_key_arn
}

output "queue_url" {
  description = "URL of the event queue."
  value       = module.pools.region.settings.queue_url
}

output "shared" {
  description = "Facts that pools of other regions need: input of modules/pools."
  value       = local.shared
}

output "network" {
  description = "Facts of the network: input of modules/peering."
  value       = module.network.network
}
