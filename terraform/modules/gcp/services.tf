locals {
  # Services that the module and Castor call. docs/gcp.md lists the same.
  services = concat([
    "cloudbilling.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "compute.googleapis.com",
    "iam.googleapis.com",
    "iamcredentials.googleapis.com",
    "iap.googleapis.com",
    "logging.googleapis.com",
    "pubsub.googleapis.com",
    "storage.googleapis.com",
    "sts.googleapis.com",
    ], var.sweep_schedule == null ? [] : [
    "cloudscheduler.googleapis.com",
    "workflowexecutions.googleapis.com",
    "workflows.googleapis.com",
  ], length(var.registries) == 0 ? [] : ["artifactregistry.googleapis.com"])
}

# Others may use these services too: destroying the deployment leaves them enabled.
resource "google_project_service" "this" {
  for_each = toset(var.enable_services ? local.services : [])

  project            = var.project
  service            = each.value
  disable_on_destroy = false
}
