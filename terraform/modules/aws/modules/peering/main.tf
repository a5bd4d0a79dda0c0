# Connection of two networks of one account, with routes on both sides.

locals {
  tags = merge(var.tags, {
    "castor:deployment" = var.deployment
    Name                = "castor-${var.deployment}-${var.other.region}"
  })
}

resource "aws_vpc_peering_connection" "this" {
  vpc_id      = var.network.vpc_id
  peer_vpc_id = var.other.vpc_id
  peer_region = var.other.region
  tags        = local.tags

  lifecycle {
    precondition {
      condition     = length(var.network.route_tables) > 0 && length(var.other.route_tables) > 0
      error_message = "network, other: a network without route tables gets no route to the other: set route_table_ids of the existing network."
    }
  }
}

resource "aws_vpc_peering_connection_accepter" "this" {
  provider = aws.other

  vpc_peering_connection_id = aws_vpc_peering_connection.this.id
  auto_accept               = true
  tags                      = local.tags
}

resource "aws_route" "to_other" {
  for_each = var.network.route_tables

  route_table_id            = each.value
  destination_cidr_block    = var.other.cidr
  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this.id
}

resource "aws_route" "from_other" {
  provider = aws.other
  for_each = var.other.route_tables

  route_table_id            = each.value
  destination_cidr_block    = var.network.cidr
  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this.id
}
