locals {
  controller_ports = {
    api = { from = 8470, to = 8470 }
    # Linux's ephemeral ports: a job's lighthouse uses any free one.
    lighthouses = { from = 32768, to = 60999 }
  }

  # Another network has the controller if its address ranges are given.
  is_remote = length(var.controller_cidrs) > 0
  given     = var.existing_security_groups
  owned     = setsubtract(local.is_remote ? ["nodes"] : ["nodes", "controller"], keys(local.given))
  groups = merge(
    { nodes = local.has_nodes ? aws_security_group.nodes[0].id : local.given.nodes },
    local.is_remote ? {} : { controller = local.has_controller ? aws_security_group.controller[0].id : local.given.controller },
  )
  owned_groups = { for part in local.owned : part => local.groups[part] }

  outside = var.egress_cidrs != null ? var.egress_cidrs : (local.is_closed ? toset([]) : toset(["0.0.0.0/0"]))
  ways_out = { for key, way in merge(
    { for pair in setproduct(["nodes", "controller"], local.outside) :
      join(" ", pair) => { group = pair[0], cidr = pair[1], port = 443 }
    },
    { for pair in setproduct(local.outside, setsubtract(var.egress_ports, [443])) :
      join(" ", ["nodes", pair[0], pair[1]]) => { group = "nodes", cidr = pair[0], port = pair[1] }
    },
  ) : key => way if contains(local.owned, way.group) }
  has_nodes      = contains(local.owned, "nodes")
  has_controller = contains(local.owned, "controller")
}

resource "aws_security_group" "nodes" {
  count = local.has_nodes ? 1 : 0

  name        = "${local.name}-nodes"
  description = "Castor's instances: they reach each other and their controller, and nobody else reaches them"
  vpc_id      = local.vpc_id
  tags        = local.named["nodes"]
}

resource "aws_security_group" "controller" {
  count = local.has_controller ? 1 : 0

  name        = "${local.name}-controller"
  description = "Castor's controller and the lighthouses of its jobs"
  vpc_id      = local.vpc_id
  tags        = local.named["controller"]
}

resource "aws_security_group" "endpoints" {
  count = length(local.interface_endpoints) > 0 ? 1 : 0

  name        = "${local.name}-endpoints"
  description = "Endpoints of the services that Castor calls"
  vpc_id      = local.vpc_id
  tags        = local.named["endpoints"]
}

resource "aws_vpc_security_group_ingress_rule" "nodes_from_nodes" {
  count = local.has_nodes ? 1 : 0

  security_group_id            = local.groups.nodes
  referenced_security_group_id = local.groups.nodes
  ip_protocol                  = "-1"
  description                  = "Training, between instances"
  tags                         = local.tags
}

resource "aws_vpc_security_group_egress_rule" "nodes_to_nodes" {
  count = local.has_nodes ? 1 : 0

  security_group_id            = local.groups.nodes
  referenced_security_group_id = local.groups.nodes
  ip_protocol                  = "-1"
  description                  = "Training, between instances; EFA needs it by name"
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "controller_from_nodes" {
  for_each = local.has_controller ? local.controller_ports : {}

  security_group_id            = local.groups.controller
  referenced_security_group_id = local.groups.nodes
  ip_protocol                  = "tcp"
  from_port                    = each.value.from
  to_port                      = each.value.to
  description                  = "Instances to the ${each.key}"
  tags                         = local.tags
}

resource "aws_vpc_security_group_egress_rule" "nodes_to_controller" {
  for_each = local.has_nodes && !local.is_remote ? local.controller_ports : {}

  security_group_id            = local.groups.nodes
  referenced_security_group_id = local.groups.controller
  ip_protocol                  = "tcp"
  from_port                    = each.value.from
  to_port                      = each.value.to
  description                  = "Instances to the ${each.key}"
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "controller_from_clients" {
  for_each = local.has_controller ? var.client_cidrs : toset([])

  security_group_id = local.groups.controller
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = local.controller_ports.api.from
  to_port           = local.controller_ports.api.from
  description       = "People, from inside"
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "outside" {
  for_each = local.ways_out

  security_group_id = local.groups[each.value.group]
  cidr_ipv4         = each.value.cidr
  ip_protocol       = "tcp"
  from_port         = each.value.port
  to_port           = each.value.port
  description       = each.value.port == 443 ? "AWS, packages and images" : "Port of egress_ports"
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "s3" {
  for_each = local.has_s3_endpoint ? local.owned_groups : {}

  security_group_id = each.value
  prefix_list_id    = aws_vpc_endpoint.s3[0].prefix_list_id
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  description       = "S3, by its gateway endpoint"
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "endpoints" {
  for_each = length(local.interface_endpoints) > 0 ? local.owned_groups : {}

  security_group_id            = each.value
  referenced_security_group_id = aws_security_group.endpoints[0].id
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
  description                  = "AWS, by interface endpoints"
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "endpoints" {
  for_each = length(local.interface_endpoints) > 0 ? local.groups : {}

  security_group_id            = aws_security_group.endpoints[0].id
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
  description                  = "Castor's instances and controller"
  tags                         = local.tags
}

# Between regions a rule can't name a security group, hence the address ranges.
resource "aws_vpc_security_group_egress_rule" "nodes_to_remote_controller" {
  for_each = local.has_nodes ? { for pair in setproduct(keys(local.controller_ports), range(length(var.controller_cidrs))) :
    join(" ", pair) => { part = pair[0], cidr = var.controller_cidrs[pair[1]] }
  } : {}

  security_group_id = local.groups.nodes
  cidr_ipv4         = each.value.cidr
  ip_protocol       = "tcp"
  from_port         = local.controller_ports[each.value.part].from
  to_port           = local.controller_ports[each.value.part].to
  description       = "Instances to the ${each.value.part}, in another network"
  tags              = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "controller_from_remote_nodes" {
  for_each = local.has_controller ? { for pair in setproduct(keys(local.controller_ports), keys(var.remote_cidrs)) :
    join(" ", pair) => { part = pair[0], place = pair[1] }
  } : {}

  security_group_id = local.groups.controller
  cidr_ipv4         = var.remote_cidrs[each.value.place]
  ip_protocol       = "tcp"
  from_port         = local.controller_ports[each.value.part].from
  to_port           = local.controller_ports[each.value.part].to
  description       = "Instances of ${each.value.place} to the ${each.value.part}"
  tags              = local.tags
}
