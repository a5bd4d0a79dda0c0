output "network" {
  description = "Facts of the network, as modules/pools, modules/controller and modules/peering take them."
  value = {
    region               = local.region
    vpc_id               = local.vpc_id
    cidr                 = local.cidr
    subnets              = local.subnets
    subnet_cidrs         = { for zone, subnet in aws_subnet.nodes : zone => subnet.cidr_block }
    first_zone           = local.makes_network ? try(var.zones[0], "") : try(keys(var.subnets)[0], "")
    route_tables         = local.makes_network ? { nodes = aws_route_table.nodes[0].id } : { for index, id in var.route_table_ids : index => id }
    security_groups      = local.groups
    has_internet         = length(local.outside) > 0
    has_public_addresses = local.makes_network && var.internet_access == "public"
  }
}
