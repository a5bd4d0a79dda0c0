locals {
  bucket_name = var.bucket_name != null ? var.bucket_name : "castor-${var.deployment}-${var.project}"
  parcels     = "user-data"
  jobs        = "jobs"
  bundles     = "bundles"
  pools       = "pools.json"
  wheels      = var.wheels_directory == null ? toset([]) : fileset(var.wheels_directory, "{*.whl,requirements-*.txt}")
  expiries    = merge(var.lifecycle_days, { "${local.parcels}/" = 1 })
}

resource "google_storage_bucket" "this" {
  project                     = var.project
  name                        = local.bucket_name
  location                    = var.region
  force_destroy               = var.bucket_force_destroy
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  labels                      = local.labels

  dynamic "encryption" {
    for_each = compact([var.kms_key])

    content {
      default_kms_key_name = encryption.value
    }
  }

  # Jobs delete checkpoints frequently, and restorable objects are billed as before.
  soft_delete_policy {
    retention_duration_seconds = var.soft_delete_days * 86400
  }

  lifecycle_rule {
    condition {
      age = 3
    }
    action {
      type = "AbortIncompleteMultipartUpload"
    }
  }

  dynamic "lifecycle_rule" {
    for_each = local.expiries

    content {
      condition {
        age            = lifecycle_rule.value
        matches_prefix = [lifecycle_rule.key]
      }
      action {
        type = "Delete"
      }
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_storage_bucket_object" "wheel" {
  for_each = local.wheels

  bucket = google_storage_bucket.this.name
  name   = "wheels/${each.value}"
  source = "${var.wheels_directory}/${each.value}"
}
