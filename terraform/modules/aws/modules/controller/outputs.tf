output "pools_source" {
  description = "Argument of `castor serve --pools`: location of the pools and their caps."
  value       = "ssm:${aws_ssm_parameter.pools.name}"
}

output "pools_json" {
  description = "Content of that location: a document of the schema in providers/aws/settings.py."
  value       = local.pools_json
}

output "role_arn" {
  description = "Role of the controller."
  value       = local.role_arn
}

output "policies" {
  description = "Policies of the controller as JSON, by name."
  value       = local.policies
}

output "instance_id" {
  description = "Instance of the controller; null if the controller runs elsewhere."
  value       = one([for instance in aws_instance.controller : instance.id])
}

output "address" {
  description = "Internal address of the controller's instance; null if the controller runs elsewhere."
  value       = one([for instance in aws_instance.controller : "https://${instance.private_ip}:${local.api_port}"])
}

output "host" {
  description = "Internal host of the controller's instance, for a port forward; null if the controller runs elsewhere."
  value       = one([for instance in aws_instance.controller : instance.private_ip])
}
