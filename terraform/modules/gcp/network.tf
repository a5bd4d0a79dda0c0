locals {
  makes_network = var.network == null
  network       = local.makes_network ? google_compute_network.this[0].id : var.network
  subnetwork    = local.makes_network ? google_compute_subnetwork.nodes[0].id : var.subnetwork
  # A shared network belongs to another project.
  network_project = local.makes_network ? var.project : split("/", var.network)[1]
  inner_cidr      = local.makes_network ? var.cidr : one(data.google_compute_subnetwork.given[*].ip_cidr_range)
  has_nat         = local.makes_network && var.internet_access == "nat"

  # Facts of each region. One network has them all, since Google's networks are global.
  regions = merge(
    { (var.region) = { zones = var.zones, subnetwork = local.subnetwork, cidr = local.inner_cidr, disk_prices = var.disk_usd_per_gb_month } },
    { for name, region in var.other_regions : name => {
      zones       = region.zones
      subnetwork  = local.makes_network ? google_compute_subnetwork.other[name].id : region.subnetwork
      cidr        = local.makes_network ? region.cidr : data.google_compute_subnetwork.other[name].ip_cidr_range
      disk_prices = region.disk_usd_per_gb_month
    } },
  )

  # Ranges overlap if they are equal by the mask of the larger one.
  ranges = [for cidr in concat([var.cidr], values(var.other_regions)[*].cidr) : split("/", cidr) if cidr != null]
  has_overlaps = anytrue([for pair in setproduct(range(length(local.ranges)), range(length(local.ranges))) :
    pair[0] < pair[1] && length(distinct([
      for index in pair : cidrhost("${local.ranges[index][0]}/${min(local.ranges[pair[0]][1], local.ranges[pair[1]][1])}", 0)
    ])) == 1
  ])
}

data "google_compute_subnetwork" "other" {
  for_each = local.makes_network ? {} : var.other_regions

  self_link = "https://www.googleapis.com/compute/v1/${each.value.subnetwork}"

  lifecycle {
    precondition {
      condition     = try(split("/", each.value.subnetwork)[3] == each.key, false)
      error_message = "other_regions.${each.key}.subnetwork: name the subnetwork of network in that region."
    }
  }
}

data "google_compute_subnetwork" "given" {
  count = local.makes_network ? 0 : 1

  self_link = "https://www.googleapis.com/compute/v1/${var.subnetwork}"

  lifecycle {
    precondition {
      condition     = var.subnetwork != null
      error_message = "subnetwork: name the subnetwork of network for instances."
    }
    precondition {
      condition     = var.subnetwork == null ? true : split("/", var.subnetwork)[3] == var.region
      error_message = "subnetwork: the subnetwork is not in region."
    }
  }
}

resource "google_compute_network" "this" {
  count = local.makes_network ? 1 : 0

  project                 = var.project
  name                    = local.name
  description             = "Castor ${var.deployment}"
  auto_create_subnetworks = false
  routing_mode            = "REGIONAL"

  lifecycle {
    precondition {
      condition     = var.subnetwork == null
      error_message = "subnetwork needs an existing network: set network."
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_compute_subnetwork" "nodes" {
  count = local.makes_network ? 1 : 0

  project                  = var.project
  name                     = local.name
  network                  = google_compute_network.this[0].id
  region                   = var.region
  ip_cidr_range            = var.cidr
  private_ip_google_access = true
}

resource "google_compute_subnetwork" "other" {
  for_each = local.makes_network ? var.other_regions : {}

  project                  = var.project
  name                     = local.name
  network                  = google_compute_network.this[0].id
  region                   = each.key
  ip_cidr_range            = each.value.cidr
  private_ip_google_access = true

  lifecycle {
    precondition {
      condition     = each.value.cidr != null && each.value.subnetwork == null
      error_message = "other_regions.${each.key}: a new network needs cidr, and no subnetwork."
    }
    precondition {
      condition     = !local.has_overlaps
      error_message = "cidr, other_regions.*.cidr: two ranges overlap: each region needs addresses of its own."
    }
  }
}

resource "google_compute_router" "this" {
  count = local.has_nat ? 1 : 0

  project = var.project
  name    = local.name
  network = google_compute_network.this[0].id
  region  = var.region
}

resource "google_compute_router_nat" "this" {
  count = local.has_nat ? 1 : 0

  project                             = var.project
  name                                = local.name
  router                              = google_compute_router.this[0].name
  region                              = var.region
  nat_ip_allocate_option              = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat  = "LIST_OF_SUBNETWORKS"
  enable_dynamic_port_allocation      = true
  enable_endpoint_independent_mapping = false
  min_ports_per_vm                    = 64
  max_ports_per_vm                    = 4096

  subnetwork {
    name                    = google_compute_subnetwork.nodes[0].id
    source_ip_ranges_to_nat = ["PRIMARY_IP_RANGE"]
  }

  log_config {
    enable = true
    filter = "ERRORS_ONLY"
  }
}

resource "google_compute_router" "other" {
  for_each = local.has_nat ? var.other_regions : {}

  project = var.project
  name    = local.name
  network = google_compute_network.this[0].id
  region  = each.key
}

resource "google_compute_router_nat" "other" {
  for_each = google_compute_router.other

  project                             = var.project
  name                                = local.name
  router                              = each.value.name
  region                              = each.key
  nat_ip_allocate_option              = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat  = "LIST_OF_SUBNETWORKS"
  enable_dynamic_port_allocation      = true
  enable_endpoint_independent_mapping = false
  min_ports_per_vm                    = 64
  max_ports_per_vm                    = 4096

  subnetwork {
    name                    = google_compute_subnetwork.other[each.key].id
    source_ip_ranges_to_nat = ["PRIMARY_IP_RANGE"]
  }

  log_config {
    enable = true
    filter = "ERRORS_ONLY"
  }
}
