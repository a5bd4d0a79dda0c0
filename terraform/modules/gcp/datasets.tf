# Datasets that instances mount, and their account's permissions to read them.

locals {
  # Input of files/datasets.sh: a path and a location in each line.
  datasets = join("\n", [for path, place in var.datasets : "${path} ${place}"])

  dataset_places  = { for path, place in var.datasets : path => regex("^gs://(?P<bucket>[^/]+)/(?P<prefix>.*)$", place) }
  dataset_buckets = toset([for place in values(local.dataset_places) : place.bucket])

  # A bucket without uniform access accepts no conditions; it needs none if mounted as a whole.
  dataset_conditions = { for path, place in local.dataset_places : path => place.prefix == "" ? { read = null, list = null } : {
    read = "resource.name.startsWith(\"projects/_/buckets/${place.bucket}/objects/${place.prefix}\")"
    list = "api.getAttribute(\"storage.googleapis.com/objectListPrefix\", \"\").startsWith(\"${place.prefix}\")"
  } }
  # A role of this project can't be granted in another project: there the bucket's owner grants
  # instances access.
  dataset_grants = { for pair in setproduct(keys(var.datasets), ["read", "list"]) : "${pair[1]} ${pair[0]}" => {
    bucket    = local.dataset_places[pair[0]].bucket
    role      = pair[1]
    condition = local.dataset_conditions[pair[0]][pair[1]]
  } if !contains(var.foreign_buckets, local.dataset_places[pair[0]].bucket) }
}

resource "google_storage_bucket_iam_member" "dataset" {
  for_each = local.dataset_grants

  bucket = each.value.bucket
  role   = google_project_iam_custom_role.this[each.value.role].name
  member = local.members["node"]

  dynamic "condition" {
    for_each = compact([each.value.condition])

    content {
      title      = each.key
      expression = condition.value
    }
  }
}
