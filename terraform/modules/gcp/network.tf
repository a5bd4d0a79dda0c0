locals {
  makes_network = var.network == null
  network       = local.makes_network ? google_compute_network.this[0].id : var.network
  subnetwork    = local.makes_network ? google_compute_subnetwork.nodes[0].id : var.subnetwork
  # A shared network belongs to another project.
  network_project = local.makes_network ? var.project : split("/", var.network)[1]
  inner_cidr      = local.makes_network ? var.cidr : one(data.google_compute_subnetwork.given[*].ip_cidr_range)
  has_nat         = local.makes_network && var.internet_access == "nat"
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
