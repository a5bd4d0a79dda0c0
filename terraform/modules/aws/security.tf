locals {
  api_port = 8470
  # Linux's ephemeral ports: a job's lighthouse uses any free one.
  lighthouse_ports = { from = 32768, to = 60999 }

  outside = var.egress_cidrs != null ? var.egress_cidrs : (local.is_closed ? toset([]) : toset(["0.0.0.0/0"]))
  groups  = { nodes = aws_security_group.nodes.id, controller = aws_security_group.controller.id }
  ways_out = merge(
    { for pair in setproduct(["nodes", "controller"], local.outside) :
      join(" ", pair) => { group = pair[0], cidr = pair[1], port = 443 }
    },
    { for pair in setproduct(local.outside, setsubtract(var.egress_ports, [443])) :
      join(" ", ["nodes", pair[0], pair[1]]) => { group = "nodes", cidr = pair[0], port = pair[1] }
    },
  )
}

resource "aws_security_group" "nodes" {
  name        = "${local.name}-nodes"
  description = "Castor's instances: they reach each other and their controller, and nobody else reaches them"
  vpc_id      = local.vpc_id
  tags        = local.named["nodes"]
}

resource "aws_security_group" "controller" {
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
  security_group_id            = aws_security_group.nodes.id
  referenced_security_group_id = aws_security_group.nodes.id
  ip_protocol                  = "-1"
  description                  = "Training, between instances"
  tags                         = local.tags
}

resource "aws_vpc_security_group_egress_rule" "nodes_to_nodes" {
  security_group_id            = aws_security_group.nodes.id
  referenced_security_group_id = aws_security_group.nodes.id
  ip_protocol                  = "-1"
  description                  = "Training, between instances; EFA needs it by name"
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "controller_from_nodes" {
  for_each = { api = { from = local.api_port, to = local.api_port }, lighthouses = local.lighthouse_ports }

  security_group_id            = aws_security_group.controller.id
  referenced_security_group_id = aws_security_group.nodes.id
  ip_protocol                  = "tcp"
  from_port                    = each.value.from
  to_port                      = each.value.to
  description                  = "Instances to the ${each.key}"
  tags                         = local.tags
}

resource "aws_vpc_security_group_egress_rule" "nodes_to_controller" {
  for_each = { api = { from = local.api_port, to = local.api_port }, lighthouses = local.lighthouse_ports }

  security_group_id            = aws_security_group.nodes.id
  referenced_security_group_id = aws_security_group.controller.id
  ip_protocol                  = "tcp"
  from_port                    = each.value.from
  to_port                      = each.value.to
  description                  = "Instances to the ${each.key}"
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "controller_from_clients" {
  for_each = var.client_cidrs

  security_group_id = aws_security_group.controller.id
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = local.api_port
  to_port           = local.api_port
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
  for_each = local.has_s3_endpoint ? local.groups : {}

  security_group_id = each.value
  prefix_list_id    = aws_vpc_endpoint.s3[0].prefix_list_id
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  description       = "S3, by its gateway endpoint"
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "endpoints" {
  for_each = length(local.interface_endpoints) > 0 ? local.groups : {}

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
