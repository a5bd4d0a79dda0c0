output "pools_source" {
  description = "What `castor serve --pools` takes: where Castor finds the pools and their bounds."
  value       = "gs://${google_storage_bucket.this.name}/${google_storage_bucket_object.pools.name}"
}

output "pools_json" {
  description = "What is there: a document of the schema in providers/gcp/settings.py."
  value       = local.pools_json
}

output "project" {
  description = "The project of it all."
  value       = var.project
}

output "region" {
  description = "The region of it all."
  value       = var.region
}

output "network" {
  description = "The network that instances are in."
  value       = local.network
}

output "subnetwork" {
  description = "The subnetwork that instances are in."
  value       = local.subnetwork
}

output "prefix" {
  description = "What names of instances begin with: the controller may make and end no others."
  value       = local.prefix
}

output "audience" {
  description = "Whom the identity tokens of instances are for."
  value       = local.audience
}

output "service_accounts" {
  description = "The service accounts of instances, of the controller and of jobs, by these words."
  value       = { for name, account in google_service_account.this : name => account.email }
}

output "roles" {
  description = "Permissions by role."
  value       = local.roles
}

output "project_grants" {
  description = "What the controller is granted in the whole project: conditions by role, null for none."
  value       = local.project_grants
}

output "bucket_grants" {
  description = "What is granted in the bucket: account, role and condition."
  value       = local.bucket_grants
}

output "dataset_grants" {
  description = "What instances are granted in buckets of `datasets`: bucket, role and condition, null for none."
  value       = local.dataset_grants
}

output "controller_instance" {
  description = "The controller's instance; null where it runs elsewhere."
  value       = one([for instance in google_compute_instance.controller : instance.name])
}

output "controller_address" {
  description = "Where the controller's instance is called; null where it runs elsewhere."
  value       = one([for address in google_compute_address.controller : "http://${address.address}:${local.api_port}"])
}

output "instance_templates" {
  description = "Instance templates by pool and purchase."
  value       = { for name, template in google_compute_instance_template.pool : name => template.id }
}

output "bucket" {
  description = "The bucket."
  value       = google_storage_bucket.this.name
}

output "subscription" {
  description = "The subscription of events."
  value       = google_pubsub_subscription.events.id
}
