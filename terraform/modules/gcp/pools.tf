locals {
  # One template for each purchase, since they differ in scheduling: a launch only names the
  # template.
  templates = merge([for name, pool in var.pools : {
    for purchase in pool.purchases : "${name}/${purchase}" => { pool = name, purchase = purchase }
  }]...)

  provisioning_models = { "spot" = "SPOT", "on-demand" = "STANDARD", "flex-start" = "FLEX_START", "reserved" = "STANDARD" }

  # Facts of machine series (providers/gcp/series.py): the longest beginning of a type counts.
  series = jsondecode(file("${path.module}/files/machine_series.json"))
  series_of = { for type in distinct(flatten([for pool in var.pools : pool.machine_types])) :
    type => try(local.series[reverse(sort([for prefix in keys(local.series) : prefix if startswith(type, prefix)]))[0]], null)
  }

  hours_a_month = 730 # as Google counts them

  # Prices of us-central1, used unless the region's own are given.
  disk_usd_per_gb_month = { for name, region in local.regions : name => merge(
    { "hyperdisk-balanced" = 0.08, "pd-balanced" = 0.1, "pd-ssd" = 0.17, "pd-standard" = 0.04 },
    region.disk_prices,
  ) }
  # Google charges for at most 32 instances.
  nat_usd_per_hour = local.has_nat ? 0.0014 : 0

  # A region that is not there is refused below.
  region_of = { for name, pool in var.pools : name => coalesce(pool.region, var.region) }
  zones_of  = { for name, region in local.region_of : name => try(local.regions[region].zones, []) }

  # One limit for joining: of the instance itself, of the controller and of the join token.
  boot_minutes = { for name, pool in var.pools : name => coalesce(pool.boot_minutes, var.boot_minutes) }

  # Hourly charges in addition to an instance's price; a string, since it is a decimal amount.
  extras_usd_per_hour = { for name, pool in var.pools : name =>
    format("%.6f", pool.disk_gb * try(local.disk_usd_per_gb_month[local.region_of[name]][pool.disk_type], 0) / local.hours_a_month + local.nat_usd_per_hour)
  }

  # Document of the schema in providers/gcp/settings.py.
  pools_document = merge(
    {
      schema     = 1
      cloud      = "gcp"
      deployment = var.deployment
      project    = var.project
      audience   = local.audience
      # The bucket, and the events of all regions, belong to the first region.
      regions = { for name, region in local.regions : name => merge(
        {
          zones     = region.zones
          user_data = "gs://${local.bucket_name}/${local.parcels}"
        },
        name != var.region ? {} : {
          subscription = google_pubsub_subscription.events.id
          jobs         = "gs://${local.bucket_name}/${local.jobs}"
          job_account  = google_service_account.this["job"].email
        },
      ) }
      pools = { for name, pool in var.pools : name => merge(
        {
          region              = local.region_of[name]
          templates           = { for purchase in pool.purchases : purchase => google_compute_instance_template.pool["${name}/${purchase}"].id }
          machine_types       = pool.machine_types
          purchases           = pool.purchases
          max_instances       = pool.max_instances
          max_usd_per_hour    = pool.max_usd_per_hour
          boot                = pool.boot
          boot_minutes        = local.boot_minutes[name]
          extras_usd_per_hour = local.extras_usd_per_hour[name]
        },
        pool.accelerator == null ? {} : { accelerator = pool.accelerator },
        pool.zones == null ? {} : { zones = pool.zones },
        pool.reservation == null ? {} : { reservation = pool.reservation },
      ) }
      max_usd_per_hour    = var.max_usd_per_hour
      launches_per_minute = var.launches_per_minute
      labels              = var.labels
    },
    var.prices_from == null ? {} : { prices_from = var.prices_from },
  )
  pools_json = jsonencode(local.pools_document)

  start_variables = [
    "#!/bin/bash",
    "bucket='${local.bucket_name}'",
    "python='${var.python}'",
    "wheels='${join(" ", local.wheels)}'",
    "has_index='${var.package_index}'",
  ]
  node_start = { for name, pool in var.pools : name => join("\n", concat(local.start_variables, [
    "parcels='${local.parcels}'",
    "audience='${local.audience}'",
    "boot_minutes='${local.boot_minutes[name]}'",
    "datasets='${local.datasets}'",
    "registries='${join(" ", var.registries)}'",
    file("${path.module}/files/install.sh"),
    file("${path.module}/files/first_boot.sh"),
    file("${path.module}/files/datasets.sh"),
    file("${path.module}/files/node.sh"),
    file("${path.module}/files/agent.sh"),
  ])) }
}

resource "google_compute_resource_policy" "pool" {
  for_each = { for name, pool in var.pools : name => pool if pool.compact_placement }

  project     = var.project
  name        = "${local.prefix}${each.key}"
  region      = local.region_of[each.key]
  description = "Castor ${var.deployment}: instances of the pool ${each.key} are close together"

  group_placement_policy {
    collocation = "COLLOCATED"
  }

  lifecycle {
    precondition {
      condition     = length(each.value.zones == null ? local.zones_of[each.key] : each.value.zones) == 1
      error_message = "pools.${each.key}.zones: a compact placement is in one zone: name exactly one zone."
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_compute_instance_template" "pool" {
  for_each = local.templates

  project              = var.project
  region               = local.region_of[each.value.pool]
  name_prefix          = "${local.prefix}${each.value.pool}-${each.value.purchase}-"
  description          = "Castor ${var.deployment}: instances of the pool ${each.value.pool}, ${each.value.purchase}"
  instance_description = "Castor ${var.deployment}"
  # A launch names one of the pool's machine types.
  machine_type      = var.pools[each.value.pool].machine_types[0]
  can_ip_forward    = false
  labels            = local.labels
  resource_policies = [for policy in values(google_compute_resource_policy.pool)[*] : policy.id if policy.name == "${local.prefix}${each.value.pool}"]

  metadata = {
    block-project-ssh-keys = "TRUE"
    enable-oslogin         = "TRUE"
    serial-port-enable     = "FALSE"
    startup-script         = local.node_start[each.value.pool]
  }

  disk {
    boot         = true
    auto_delete  = true
    source_image = var.pools[each.value.pool].image
    disk_type    = var.pools[each.value.pool].disk_type
    disk_size_gb = var.pools[each.value.pool].disk_gb
    labels       = local.labels
    # The price of a GB includes so much; Compute Engine's defaults grow with the disk and cost more.
    provisioned_iops       = var.pools[each.value.pool].disk_type == "hyperdisk-balanced" ? 3000 : null
    provisioned_throughput = var.pools[each.value.pool].disk_type == "hyperdisk-balanced" ? 140 : null

    dynamic "disk_encryption_key" {
      for_each = compact([var.disk_kms_key])

      content {
        kms_key_self_link = disk_encryption_key.value
      }
    }
  }

  # No access_config: no external address.
  network_interface {
    subnetwork = try(local.regions[local.region_of[each.value.pool]].subnetwork, null)
    nic_type   = var.pools[each.value.pool].nic_type
  }

  dynamic "guest_accelerator" {
    for_each = var.pools[each.value.pool].accelerator == null ? [] : [var.pools[each.value.pool].accelerator]

    content {
      type  = guest_accelerator.value.type
      count = guest_accelerator.value.count
    }
  }

  # Compute Engine deletes an instance after this time, even without a controller. In a reservation
  # it is paid for in any case; a bound one ends with the reservation.
  scheduling {
    automatic_restart           = false
    on_host_maintenance         = "TERMINATE"
    preemptible                 = each.value.purchase == "spot"
    provisioning_model          = var.pools[each.value.pool].reservation_bound ? "RESERVATION_BOUND" : local.provisioning_models[each.value.purchase]
    instance_termination_action = each.value.purchase == "reserved" && !var.pools[each.value.pool].reservation_bound ? null : "DELETE"

    dynamic "max_run_duration" {
      for_each = each.value.purchase == "reserved" ? [] : [var.pools[each.value.pool].max_run_hours * 3600]

      content {
        seconds = max_run_duration.value
      }
    }
  }

  # Queued capacity never comes from a reservation, and reserved capacity from nowhere else.
  dynamic "reservation_affinity" {
    for_each = compact([lookup({ "flex-start" = "NO_RESERVATION", "reserved" = "SPECIFIC_RESERVATION" }, each.value.purchase, "")])

    content {
      type = reservation_affinity.value

      dynamic "specific_reservation" {
        for_each = var.pools[each.value.pool].reservation[*]

        content {
          key    = "compute.googleapis.com/reservation-name"
          values = [specific_reservation.value]
        }
      }
    }
  }

  service_account {
    email = local.node_account
    # Additional bound; IAM grants the permissions.
    scopes = ["https://www.googleapis.com/auth/devstorage.read_only"]
  }

  shielded_instance_config {
    enable_secure_boot          = var.pools[each.value.pool].secure_boot
    enable_vtpm                 = true
    enable_integrity_monitoring = true
  }

  lifecycle {
    create_before_destroy = true

    precondition {
      condition     = contains(keys(local.regions), local.region_of[each.value.pool])
      error_message = "pools.${each.value.pool}.region: neither region nor in other_regions: add it there."
    }
    precondition {
      condition     = length(setsubtract(var.pools[each.value.pool].zones == null ? [] : var.pools[each.value.pool].zones, local.zones_of[each.value.pool])) == 0
      error_message = "pools.${each.value.pool}.zones: a zone is not in zones of the pool's region: add it there."
    }
    # A type that the table lacks may take any disk, and may be sold.
    precondition {
      condition = alltrue([for type in var.pools[each.value.pool].machine_types : try(contains(local.series_of[type].disks, var.pools[each.value.pool].disk_type), true)])
      error_message = "pools.${each.value.pool}.disk_type: not every one of machine_types takes ${var.pools[each.value.pool].disk_type}: ${join("; ", [
        for type in var.pools[each.value.pool].machine_types : "${type} takes ${join(", ", local.series_of[type].disks)}" if local.series_of[type] != null
      ])}."
    }
    precondition {
      condition     = each.value.purchase == "reserved" || anytrue([for type in var.pools[each.value.pool].machine_types : try(contains(local.series_of[type].purchases, each.value.purchase), true)])
      error_message = "pools.${each.value.pool}.purchases: Google sells none of machine_types on ${each.value.purchase}: leave it out."
    }
    precondition {
      condition     = alltrue([for zone in var.zones : startswith(zone, "${var.region}-")])
      error_message = "zones: a zone is not in region."
    }
    precondition {
      condition     = !contains(keys(var.other_regions), var.region)
      error_message = "other_regions: ${var.region} is region itself: leave it out, and put its zones in zones."
    }
    precondition {
      condition     = var.pools[each.value.pool].max_usd_per_hour <= var.max_usd_per_hour
      error_message = "pools.${each.value.pool}.max_usd_per_hour: exceeds max_usd_per_hour, the cap of all pools together."
    }
    precondition {
      condition     = var.wheels_directory == null ? true : !var.package_index || fileexists("${var.wheels_directory}/requirements-node.txt")
      error_message = "wheels_directory: no requirements-node.txt, so that instances could train one job with different packages: run make wheels, or set package_index = false and add all wheels."
    }
    precondition {
      condition     = !contains(local.dataset_buckets, local.bucket_name)
      error_message = "datasets: Castor's own bucket holds join tokens and all jobs' files, which no job may read: use another bucket."
    }
    precondition {
      condition     = length(setsubtract(var.foreign_buckets, local.dataset_buckets)) == 0
      error_message = "foreign_buckets: a bucket has no dataset: use the bucket's name in datasets."
    }
    precondition {
      condition     = length(local.node_start[each.value.pool]) <= 262144
      error_message = "wheels_directory: the list of wheels exceeds the metadata limit of 256 KB: use fewer wheels."
    }
  }
}

resource "google_storage_bucket_object" "pools" {
  bucket        = google_storage_bucket.this.name
  name          = local.pools
  content       = local.pools_json
  content_type  = "application/json"
  cache_control = "no-store"
}
