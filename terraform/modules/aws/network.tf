locals {
  called_services = setunion(
    ["ec2", "sqs", "ssm", "sts"],
    try(var.controller.session_manager, false) || var.instance_shell ? ["ssmmessages"] : [],
    length(var.registries) > 0 ? ["ecr.api", "ecr.dkr"] : [],
  )
}

module "network" {
  source = "./modules/network"

  deployment               = var.deployment
  tags                     = var.tags
  vpc_id                   = var.vpc_id
  subnets                  = var.subnets
  route_table_ids          = var.route_table_ids
  vpc_cidr                 = var.vpc_cidr
  zones                    = var.zones
  internet_access          = var.internet_access
  interface_endpoints      = var.interface_endpoints
  services                 = local.called_services
  egress_cidrs             = var.egress_cidrs
  egress_ports             = var.egress_ports
  client_cidrs             = var.client_cidrs
  remote_cidrs             = { for region in var.other_regions : region.name => region.cidr }
  existing_security_groups = var.existing_security_groups
}
