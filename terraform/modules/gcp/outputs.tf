output "pools_source" {
  description = "Argument of `castor serve --pools`: location of the pools and their caps."
  value       = "gs://${google_storage_bucket.this.name}/${google_storage_bucket_object.pools.name}"
}

output "pools_json" {
  description = "Content of that location: a document of the schema in providers/gcp/settings.py."
  value       = local.pools_json
}

output "project" {
  description = "Project of all resources."
  value       = var.project
}

output "services" {
  description = "Services of Google Cloud that must be enabled in the project."
  value       = local.services
}

output "region" {
  description = "Region of the controller and the bucket."
  value       = var.region
}

output "network" {
  description = "Network of instances."
  value       = local.network
}

output "subnetwork" {
  description = "Subnetwork of instances in `region`."
  value       = local.subnetwork
}

output "subnetworks" {
  description = "Subnetworks of instances, by region."
  value       = { for name, region in local.regions : name => region.subnetwork }
}

output "prefix" {
  description = "Prefix of instances' names; the controller may create and end no other instances."
  value       = local.prefix
}

output "audience" {
  description = "Audience of instances' identity tokens."
  value       = local.audience
}

output "service_accounts" {
  description = "Service accounts of instances, controller and jobs, by these words."
  value       = { for name, account in google_service_account.this : name => account.email }
}

output "roles" {
  description = "Permissions by role."
  value       = local.roles
}

output "project_grants" {
  description = "Roles granted to the controller in the whole project, with their conditions; null for none."
  value       = local.project_grants
}

output "bucket_grants" {
  description = "Grants in the bucket: account, role and condition."
  value       = local.bucket_grants
}

output "dataset_grants" {
  description = "Grants to instances in buckets of `datasets`: bucket, role and condition; null for none."
  value       = local.dataset_grants
}

output "controller_instance" {
  description = "Instance of the controller; null if the controller runs elsewhere."
  value       = one([for instance in google_compute_instance.controller : instance.name])
}

output "controller_address" {
  description = "Internal address of the controller's instance; null if the controller runs elsewhere."
  value       = one([for address in google_compute_address.controller : "https://${address.address}:${local.api_port}"])
}

output "instance_templates" {
  description = "Instance templates by pool and purchase."
  value       = { for name, template in google_compute_instance_template.pool : name => template.id }
}

output "bucket" {
  description = "Name of the bucket."
  value       = google_storage_bucket.this.name
}

output "subscription" {
  description = "Subscription to the events."
  value       = google_pubsub_subscription.events.id
}
