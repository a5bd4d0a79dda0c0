output "pools_source" {
  description = "What `castor serve --pools` takes: where Castor finds the pools and their bounds."
  value       = "ssm:${aws_ssm_parameter.pools.name}"
}

output "pools_json" {
  description = "What is there: a document of the schema in providers/aws/settings.py."
  value       = local.pools_json
}

output "region" {
  description = "The region of it all."
  value       = local.region
}

output "vpc_id" {
  description = "The network that instances are in."
  value       = local.vpc_id
}

output "subnets" {
  description = "Subnets of instances by zone."
  value       = local.subnets
}

output "node_security_group_id" {
  description = "The security group of instances."
  value       = aws_security_group.nodes.id
}

output "controller_security_group_id" {
  description = "The security group of the controller, wherever in the network it runs."
  value       = aws_security_group.controller.id
}

output "controller_role_arn" {
  description = "The role of the controller."
  value       = aws_iam_role.controller.arn
}

output "controller_policies" {
  description = "What the controller may do, as JSON by name of the policy."
  value       = { for name, policy in aws_iam_role_policy.controller : name => policy.policy }
}

output "controller_instance_id" {
  description = "The controller's instance; null where it runs elsewhere."
  value       = one([for instance in aws_instance.controller : instance.id])
}

output "controller_address" {
  description = "Where the controller's instance is called; null where it runs elsewhere."
  value       = one([for instance in aws_instance.controller : "http://${instance.private_ip}:${local.api_port}"])
}

output "node_role_arn" {
  description = "The role of instances."
  value       = aws_iam_role.node.arn
}

output "node_policy" {
  description = "What instances may do, as JSON."
  value       = aws_iam_role_policy.node.policy
}

output "job_role_arn" {
  description = "The role that the controller assumes to give a job leave for its files."
  value       = aws_iam_role.job.arn
}

output "job_policy" {
  description = "What jobs may do at most, as JSON; each one's leave is for its own files."
  value       = aws_iam_role_policy.job.policy
}

output "launch_templates" {
  description = "Launch templates by pool: id and version."
  value       = { for name, template in aws_launch_template.pool : name => { id = template.id, version = template.latest_version } }
}

output "bucket" {
  description = "The bucket."
  value       = aws_s3_bucket.this.bucket
}

output "kms_key_arn" {
  description = "The key of the bucket."
  value       = local.kms_key_arn
}

output "queue_url" {
  description = "The queue of events."
  value       = aws_sqs_queue.events.url
}
