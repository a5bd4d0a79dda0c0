# Datasets that instances mount, and what their account may read for it.

locals {
  # For files/datasets.sh: a path and a place a line.
  datasets = join("\n", [for path, place in var.datasets : "${path} ${place}"])

  dataset_places  = { for path, place in var.datasets : path => regex("^gs://(?P<bucket>[^/]+)/(?P<prefix>.*)$", place) }
  dataset_buckets = toset([for place in values(local.dataset_places) : place.bucket])

  # A bucket without uniform access takes no conditions, and needs none if it is mounted as a whole.
  dataset_conditions = { for path, place in local.dataset_places : path => place.prefix == "" ? { read = null, list = null } : {
    read = "resource.name.startsWith(\"projects/_/buckets/${place.bucket}/objects/${place.prefix}\")"
    list = "api.getAttribute(\"storage.googleapis.com/objectListPrefix\", \"\").startsWith(\"${place.prefix}\")"
  } }
  # A role of this project can't be given in another one: there it is for the bucket's owner to let
  # instances in.
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
