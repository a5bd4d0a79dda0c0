# Network of one region: a new one, or none if subnets of an existing one are named, with endpoints.

data "aws_region" "current" {}

# The address range of an existing network, for routes and rules of other regions.
data "aws_vpc" "given" {
  count = local.makes_network ? 0 : 1

  id = var.vpc_id

  lifecycle {
    precondition {
      condition     = var.vpc_id != null
      error_message = "subnets and route_table_ids need an existing network: set its vpc_id."
    }
  }
}

locals {
  # Versions 5 and 6 of the provider both have `id`; only one of them has `name` or `region`.
  region = data.aws_region.current.id
  name   = "castor-${var.deployment}"
  tags   = merge(var.tags, { "castor:deployment" = var.deployment })
  named = { for part in ["nodes", "controller", "endpoints", "network"] :
    part => merge(local.tags, { Name = "${local.name}-${part}" })
  }

  # Not by `vpc_id`, which is unknown until its network is there.
  makes_network = length(var.subnets) == 0
  vpc_id        = local.makes_network ? aws_vpc.this[0].id : var.vpc_id
  cidr          = local.makes_network ? var.vpc_cidr : data.aws_vpc.given[0].cidr_block
  subnets       = local.makes_network ? { for zone, subnet in aws_subnet.nodes : zone => subnet.id } : var.subnets

  has_gateway = local.makes_network && var.internet_access != "none"
  has_nat     = local.makes_network && var.internet_access == "nat"
  is_closed   = local.makes_network && var.internet_access == "none"

  interface_endpoints = var.interface_endpoints != null ? var.interface_endpoints : (
    local.is_closed ? var.services : toset([])
  )
  has_s3_endpoint = local.makes_network || length(var.route_table_ids) > 0
}

resource "aws_vpc" "this" {
  count = local.makes_network ? 1 : 0

  cidr_block           = var.vpc_cidr
  enable_dns_hostnames = true
  enable_dns_support   = true
  tags                 = local.named["network"]

  lifecycle {
    precondition {
      condition     = var.vpc_id == null
      error_message = "subnets: name at least one subnet of vpc_id for instances."
    }
    precondition {
      condition     = length(var.zones) > 0
      error_message = "zones: a new network needs at least one zone; or set vpc_id and subnets."
    }
    precondition {
      condition     = alltrue([for zone in var.zones : startswith(zone, local.region)])
      error_message = "zones: ${join(", ", var.zones)}: zones of the provider's region ${local.region} are needed: change zones, or the module's provider."
    }
    precondition {
      condition     = length(var.route_table_ids) == 0
      error_message = "route_table_ids need an existing network: set vpc_id and subnets."
    }
  }
}

# The default security group, for resources without one, allows no traffic.
resource "aws_default_security_group" "this" {
  count = local.makes_network ? 1 : 0

  vpc_id = aws_vpc.this[0].id
  tags   = local.named["network"]
}

resource "aws_subnet" "nodes" {
  for_each = local.makes_network ? toset(var.zones) : toset([])

  vpc_id                  = aws_vpc.this[0].id
  availability_zone       = each.value
  cidr_block              = cidrsubnet(var.vpc_cidr, 4, index(var.zones, each.value))
  map_public_ip_on_launch = var.internet_access == "public"
  tags                    = merge(local.tags, { Name = "${local.name}-${each.value}" })
}

resource "aws_route_table" "nodes" {
  count = local.makes_network ? 1 : 0

  vpc_id = aws_vpc.this[0].id
  tags   = local.named["nodes"]
}

resource "aws_route_table_association" "nodes" {
  for_each = aws_subnet.nodes

  subnet_id      = each.value.id
  route_table_id = aws_route_table.nodes[0].id
}

resource "aws_internet_gateway" "this" {
  count = local.has_gateway ? 1 : 0

  vpc_id = aws_vpc.this[0].id
  tags   = local.named["network"]
}

resource "aws_route" "internet" {
  count = local.has_gateway ? 1 : 0

  route_table_id         = aws_route_table.nodes[0].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = local.has_nat ? null : aws_internet_gateway.this[0].id
  nat_gateway_id         = local.has_nat ? aws_nat_gateway.this[0].id : null
}

resource "aws_subnet" "nat" {
  count = local.has_nat ? 1 : 0

  vpc_id            = aws_vpc.this[0].id
  availability_zone = var.zones[0]
  cidr_block        = cidrsubnet(var.vpc_cidr, 4, 15)
  tags              = merge(local.tags, { Name = "${local.name}-nat" })
}

resource "aws_route_table" "nat" {
  count = local.has_nat ? 1 : 0

  vpc_id = aws_vpc.this[0].id
  tags   = merge(local.tags, { Name = "${local.name}-nat" })
}

resource "aws_route" "nat" {
  count = local.has_nat ? 1 : 0

  route_table_id         = aws_route_table.nat[0].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this[0].id
}

resource "aws_route_table_association" "nat" {
  count = local.has_nat ? 1 : 0

  subnet_id      = aws_subnet.nat[0].id
  route_table_id = aws_route_table.nat[0].id
}

resource "aws_eip" "nat" {
  count = local.has_nat ? 1 : 0

  domain = "vpc"
  tags   = merge(local.tags, { Name = "${local.name}-nat" })
}

resource "aws_nat_gateway" "this" {
  count = local.has_nat ? 1 : 0

  allocation_id = aws_eip.nat[0].id
  subnet_id     = aws_subnet.nat[0].id
  tags          = merge(local.tags, { Name = "${local.name}-nat" })

  depends_on = [aws_internet_gateway.this]
}

resource "aws_vpc_endpoint" "s3" {
  count = local.has_s3_endpoint ? 1 : 0

  vpc_id            = local.vpc_id
  service_name      = "com.amazonaws.${local.region}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = local.makes_network ? [aws_route_table.nodes[0].id] : var.route_table_ids
  tags              = local.named["endpoints"]
}

resource "aws_vpc_endpoint" "interface" {
  for_each = local.interface_endpoints

  vpc_id              = local.vpc_id
  service_name        = "com.amazonaws.${local.region}.${each.value}"
  vpc_endpoint_type   = "Interface"
  private_dns_enabled = true
  subnet_ids          = values(local.subnets)
  security_group_ids  = [aws_security_group.endpoints[0].id]
  tags                = merge(local.tags, { Name = "${local.name}-${each.value}" })
}
