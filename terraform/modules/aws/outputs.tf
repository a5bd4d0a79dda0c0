output "pools_source" {
  description = "Argument of `castor serve --pools`: location of the pools and their caps."
  value       = "ssm:${aws_ssm_parameter.pools.name}"
}

output "pools_json" {
  description = "Content of that location: a document of the schema in providers/aws/settings.py."
  value       = local.pools_json
}

output "region" {
  description = "Region of all resources."
  value       = local.region
}

output "vpc_id" {
  description = "Network of instances."
  value       = local.vpc_id
}

output "subnets" {
  description = "Subnets of instances, by zone."
  value       = local.subnets
}

output "node_security_group_id" {
  description = "Security group of instances."
  value       = aws_security_group.nodes.id
}

output "controller_security_group_id" {
  description = "Security group of the controller, whether or not it is an instance of this module."
  value       = aws_security_group.controller.id
}

output "controller_role_arn" {
  description = "Role of the controller."
  value       = aws_iam_role.controller.arn
}

output "controller_policies" {
  description = "Policies of the controller as JSON, by name."
  value       = { for name, policy in aws_iam_role_policy.controller : name => policy.policy }
}

output "controller_instance_id" {
  description = "Instance of the controller; null if the controller runs elsewhere."
  value       = one([for instance in aws_instance.controller : instance.id])
}

output "controller_address" {
  description = "Internal address of the controller's instance; null if the controller runs elsewhere."
  value       = one([for instance in aws_instance.controller : "http://${instance.private_ip}:${local.api_port}"])
}

output "controller_host" {
  description = "Internal host of the controller's instance, for a port forward; null if the controller runs elsewhere."
  value       = one([for instance in aws_instance.controller : instance.private_ip])
}

output "node_role_arn" {
  description = "Role of instances."
  value       = aws_iam_role.node.arn
}

output "node_policy" {
  description = "Policy of instances, as JSON."
  value       = aws_iam_role_policy.node.policy
}

output "job_role_arn" {
  description = "Role that the controller assumes to grant a job access to its files."
  value       = aws_iam_role.job.arn
}

output "job_policy" {
  description = "Maximum permissions of jobs, as JSON; each job's grant covers only its own files."
  value       = aws_iam_role_policy.job.policy
}

output "launch_templates" {
  description = "Launch templates by pool: id and version."
  value       = { for name, template in aws_launch_template.pool : name => { id = template.id, version = template.latest_version } }
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
  value       = aws_sqs_queue.events.url
}
