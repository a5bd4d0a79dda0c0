locals {
  controllers = var.controller == null ? {} : { this = var.controller }

  # Not `castor-deployment`: bills count resources with that label as instances.
  host_labels = merge(var.labels, { "castor-controller-of" = var.deployment })

  controller_zone = try(coalesce(var.controller.zone, var.zones[0]), "")

  controller_start = join("\n", concat(local.start_variables, [
    "pools='gs://${local.bucket_name}/${local.pools}'",
    "port='${local.api_port}'",
    "secrets='${try(coalesce(var.controller.secrets_directory), "")}'",
    "secret_variables='${join(",", try(var.controller.secret_variables, []))}'",
    "serve_options='--fleet-usd ${var.fleet_usd} --job-usd ${var.job_usd} --study-usd ${var.study_usd} --lease ${var.lease} --policy ${var.policy}'",
    file("${path.module}/files/install.sh"),
    file("${path.module}/files/retry.sh"),
    file("${path.module}/files/controller.sh"),
  ]))
}

# The address survives the instance, since jobs reconnect to their lighthouses at it.
resource "google_compute_address" "controller" {
  for_each = local.controllers

  project      = var.project
  region       = var.region
  name         = local.controller_name
  description  = "Castor ${var.deployment}: its controller"
  address_type = "INTERNAL"
  purpose      = "GCE_ENDPOINT"
  subnetwork   = local.subnetwork
  address      = each.value.private_ip != null ? each.value.private_ip : cidrhost(local.inner_cidr, 10)
  labels       = local.host_labels
}

# The state disk survives the instance, which a new image replaces.
resource "google_compute_disk" "state" {
  for_each = local.controllers

  project = var.project
  zone    = local.controller_zone
  name    = "${local.controller_name}-state"
  type    = "pd-balanced"
  size    = each.value.state_gb
  labels  = local.host_labels

  dynamic "disk_encryption_key" {
    for_each = compact([var.disk_kms_key])

    content {
      kms_key_self_link = disk_encryption_key.value
    }
  }

  # A controller without its state knows neither its instances nor what they have cost. Hence another
  # zone or key does not replace the disk by an empty one, and whatever deletes it takes a snapshot
  # first. `prevent_destroy` would also refuse `terraform destroy` and `terraform test`.
  create_snapshot_before_destroy = true

  lifecycle {
    ignore_changes = [zone, type, disk_encryption_key]
  }

  depends_on = [google_project_service.this]
}

# Daily snapshots of the state, which stay when the disk is deleted.
resource "google_compute_resource_policy" "state" {
  for_each = local.controllers

  project     = var.project
  name        = "${local.controller_name}-state"
  region      = var.region
  description = "Castor ${var.deployment}: snapshots of its controller's state"

  snapshot_schedule_policy {
    schedule {
      daily_schedule {
        days_in_cycle = 1
        start_time    = "03:00"
      }
    }

    retention_policy {
      max_retention_days    = 7
      on_source_disk_delete = "KEEP_AUTO_SNAPSHOTS"
    }

    snapshot_properties {
      labels = local.host_labels
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_compute_disk_resource_policy_attachment" "state" {
  for_each = local.controllers

  project = var.project
  zone    = local.controller_zone
  disk    = google_compute_disk.state[each.key].name
  name    = google_compute_resource_policy.state[each.key].name
}

resource "google_compute_instance" "controller" {
  for_each = local.controllers

  project                 = var.project
  zone                    = local.controller_zone
  name                    = local.controller_name
  description             = "Castor ${var.deployment}: its controller"
  machine_type            = each.value.machine_type
  can_ip_forward          = false
  metadata_startup_script = local.controller_start
  labels                  = local.host_labels

  metadata = {
    block-project-ssh-keys = "TRUE"
    enable-oslogin         = "TRUE"
    serial-port-enable     = "FALSE"
  }

  boot_disk {
    auto_delete       = true
    kms_key_self_link = var.disk_kms_key

    initialize_params {
      image  = each.value.image
      size   = each.value.disk_gb
      type   = "pd-balanced"
      labels = local.host_labels
    }
  }

  attached_disk {
    source            = google_compute_disk.state[each.key].id
    device_name       = "castor-state"
    kms_key_self_link = var.disk_kms_key
  }

  network_interface {
    subnetwork = local.subnetwork
    network_ip = google_compute_address.controller[each.key].address
  }

  service_account {
    email  = local.controller_account
    scopes = ["cloud-platform"]
  }

  shielded_instance_config {
    enable_secure_boot          = each.value.secure_boot
    enable_vtpm                 = true
    enable_integrity_monitoring = true
  }

  lifecycle {
    precondition {
      condition     = contains(var.zones, local.controller_zone)
      error_message = "controller.zone: the zone is not in zones: add it there."
    }
    precondition {
      condition     = endswith(google_compute_disk.state[each.key].zone, local.controller_zone)
      error_message = "controller.zone: the state disk is in ${google_compute_disk.state[each.key].zone}, and moves only by a snapshot: keep the zone, or move the disk (README.md, The controller's state)."
    }
  }

  depends_on = [
    google_compute_firewall.out,
    google_project_iam_member.controller,
    google_storage_bucket_iam_member.this,
    google_storage_bucket_object.pools,
    google_storage_bucket_object.wheel,
  ]
}
