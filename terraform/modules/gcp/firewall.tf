locals {
  api_port = 8470
  # Linux's ephemeral ports: a job's lighthouse uses any free one.
  controller_ports = [tostring(local.api_port), "32768-60999"]

  node_account       = google_service_account.this["node"].email
  controller_account = google_service_account.this["controller"].email

  # Ingress. Rules name service accounts, not tags: more principals may set tags than use accounts.
  ways_in = merge(
    {
      nodes-from-nodes = {
        description = "Training, between instances"
        target      = local.node_account
        accounts    = [local.node_account]
        cidrs       = null
        protocol    = "all"
        ports       = null
      }
      controller-from-nodes = {
        description = "Instances to the controller and the lighthouses of its jobs"
        target      = local.controller_account
        accounts    = [local.node_account]
        cidrs       = null
        protocol    = "tcp"
        ports       = local.controller_ports
      }
    },
    length(var.client_cidrs) == 0 ? {} : {
      controller-from-clients = {
        description = "People, from inside"
        target      = local.controller_account
        accounts    = null
        cidrs       = sort(var.client_cidrs)
        protocol    = "tcp"
        ports       = [tostring(local.api_port)]
      }
    },
    try(var.controller.shell, false) ? {
      controller-from-iap = {
        description = "Shells through Identity-Aware Proxy, which asks who it is first"
        target      = local.controller_account
        accounts    = null
        cidrs       = ["35.235.240.0/20"]
        protocol    = "tcp"
        ports       = ["22"]
      }
    } : {},
    var.instance_shell ? {
      nodes-from-iap = {
        description = "Shells through Identity-Aware Proxy, which asks who it is first"
        target      = local.node_account
        accounts    = null
        cidrs       = ["35.235.240.0/20"]
        protocol    = "tcp"
        ports       = ["22"]
      }
    } : {},
  )

  # Egress; all else is denied. The metadata server, which also resolves names, is always
  # reachable.
  ways_out = merge(
    {
      nodes-to-inside = {
        description = "Training, and the controller"
        targets     = [local.node_account]
        cidrs       = sort(values(local.regions)[*].cidr)
        protocol    = "all"
        ports       = null
      }
    },
    length(var.egress_cidrs) == 0 ? {} : {
      all-to-outside = {
        description = "Google's services, packages and images"
        targets     = [local.node_account, local.controller_account]
        cidrs       = sort(var.egress_cidrs)
        protocol    = "tcp"
        ports       = ["443"]
      }
    },
    length(var.controller_cidrs) == 0 ? {} : {
      nodes-to-controller = {
        description = "A controller elsewhere"
        targets     = [local.node_account]
        cidrs       = sort(var.controller_cidrs)
        protocol    = "tcp"
        ports       = local.controller_ports
      }
    },
  )
}

resource "google_compute_firewall" "in" {
  for_each = local.ways_in

  project                 = local.network_project
  name                    = "${local.name}-${each.key}"
  description             = "Castor ${var.deployment}: ${each.value.description}"
  network                 = local.network
  direction               = "INGRESS"
  priority                = 900
  source_service_accounts = each.value.accounts
  source_ranges           = each.value.cidrs
  target_service_accounts = [each.value.target]

  allow {
    protocol = each.value.protocol
    ports    = each.value.ports
  }
}

resource "google_compute_firewall" "out" {
  for_each = local.ways_out

  project                 = local.network_project
  name                    = "${local.name}-${each.key}"
  description             = "Castor ${var.deployment}: ${each.value.description}"
  network                 = local.network
  direction               = "EGRESS"
  priority                = 900
  destination_ranges      = each.value.cidrs
  target_service_accounts = each.value.targets

  allow {
    protocol = each.value.protocol
    ports    = each.value.ports
  }
}

# Priority below the rules above, but above rules of an existing network with default priority.
resource "google_compute_firewall" "otherwise" {
  for_each = { in = "INGRESS", out = "EGRESS" }

  project                 = local.network_project
  name                    = "${local.name}-nothing-else-${each.key}"
  description             = "Castor ${var.deployment}: nothing else"
  network                 = local.network
  direction               = each.value
  priority                = 910
  source_ranges           = each.key == "in" ? ["0.0.0.0/0"] : null
  destination_ranges      = each.key == "out" ? ["0.0.0.0/0"] : null
  target_service_accounts = [local.node_account, local.controller_account]

  deny {
    protocol = "all"
  }
}
