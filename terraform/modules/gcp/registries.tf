# Private repositories of Artifact Registry whose images jobs may use, and the instances' permission
# to read them.

locals {
  repositories = { for name in var.registries : name =>
    regex("^(?P<location>[a-z0-9-]+)-docker\\.pkg\\.dev/(?P<project>[a-z0-9.:-]+)/(?P<name>[a-z0-9-]+)$", name)
  }
}

# Owners of repositories in other projects must grant access themselves.
resource "google_artifact_registry_repository_iam_member" "node" {
  for_each = { for name, repository in local.repositories : name => repository if repository.project == var.project }

  project    = each.value.project
  location   = each.value.location
  repository = each.value.name
  role       = google_project_iam_custom_role.this["pull"].name
  member     = local.members["node"]
}
