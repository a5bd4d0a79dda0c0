# Needs Terraform 1.7 or newer, or OpenTofu 1.8, for mock_provider; the module itself does not.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  deployment = "prod"
  zones      = ["us-east-1a", "us-east-1b"]
  tags       = { team = "vision" }
}

run "ground" {
  module {
    source = "./modules/network"
  }

  assert {
    condition = alltrue([for rule in concat(
      values(aws_vpc_security_group_ingress_rule.controller_from_nodes),
      aws_vpc_security_group_ingress_rule.nodes_from_nodes,
    ) : rule.cidr_ipv4 == null && rule.referenced_security_group_id != null])
    error_message = "Agents and quorums are reached from inside only."
  }

  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.controller_from_clients) == 0
    error_message = "Nobody reaches the controller unless it was said who may."
  }

  assert {
    condition     = length(aws_nat_gateway.this) == 0 && length(aws_vpc_endpoint.interface) == 0
    error_message = "By default the network costs nothing while it is idle."
  }
}

run "closed_network" {
  command = plan

  module {
    source = "./modules/network"
  }

  variables {
    internet_access = "none"
  }

  assert {
    condition = alltrue([
      length(aws_internet_gateway.this) == 0,
      length(aws_nat_gateway.this) == 0,
      length(aws_vpc_security_group_egress_rule.outside) == 0,
      toset(keys(aws_vpc_endpoint.interface)) == toset(["ec2", "sqs", "ssm", "sts"]),
      length(aws_vpc_endpoint.s3) == 1,
    ])
    error_message = "Without internet the services are called by endpoints, and nothing leads outside."
  }
}

run "egress_ports" {
  command = plan

  module {
    source = "./modules/network"
  }

  variables {
    egress_ports = [443, 2049]
  }

  assert {
    condition = { for key, rule in aws_vpc_security_group_egress_rule.outside : key => rule.from_port } == {
      "controller 0.0.0.0/0" = 443
      "nodes 0.0.0.0/0"      = 443
      "nodes 0.0.0.0/0 2049" = 2049
    }
    error_message = "Instances reach the named ports, and the controller 443 alone."
  }
}

run "nat_network" {
  command = plan

  module {
    source = "./modules/network"
  }

  variables {
    internet_access = "nat"
  }

  assert {
    condition     = length(aws_nat_gateway.this) == 1 && alltrue([for subnet in aws_subnet.nodes : !subnet.map_public_ip_on_launch])
    error_message = "Instances have no public addresses behind a NAT gateway."
  }
}

run "existing_network" {
  command = plan

  module {
    source = "./modules/network"
  }

  variables {
    vpc_id          = "vpc-0123456789abcdef0"
    subnets         = { us-east-1a = "subnet-0123456789abcdef0" }
    route_table_ids = ["rtb-0123456789abcdef0"]
  }

  assert {
    condition     = length(aws_vpc.this) == 0 && output.network.cidr == "10.90.0.0/16" && output.network.first_zone == "us-east-1a"
    error_message = "Nothing of an existing network is made anew."
  }
}

run "controller_in_another_network" {
  module {
    source = "./modules/network"
  }

  variables {
    controller_cidrs = ["10.80.0.0/16"]
  }

  assert {
    condition = { for key, rule in aws_vpc_security_group_egress_rule.nodes_to_remote_controller : key => [rule.cidr_ipv4, rule.from_port, rule.to_port] } == {
      "api 0"         = ["10.80.0.0/16", 8470, 8470]
      "lighthouses 0" = ["10.80.0.0/16", 32768, 60999]
    }
    error_message = "Instances reach a controller in another network by its addresses."
  }

  assert {
    condition     = length(aws_security_group.controller) == 0 && keys(output.network.security_groups) == ["nodes"]
    error_message = "A network without the controller has no security group for it."
  }
}

run "instances_in_other_networks" {
  module {
    source = "./modules/network"
  }

  variables {
    remote_cidrs = { us-west-2 = "10.81.0.0/16" }
  }

  assert {
    condition = { for key, rule in aws_vpc_security_group_ingress_rule.controller_from_remote_nodes : key => [rule.cidr_ipv4, rule.from_port, rule.to_port] } == {
      "api us-west-2"         = ["10.81.0.0/16", 8470, 8470]
      "lighthouses us-west-2" = ["10.81.0.0/16", 32768, 60999]
    }
    error_message = "The controller is reached from other regions by their addresses."
  }
}

run "existing_security_groups" {
  module {
    source = "./modules/network"
  }

  variables {
    internet_access          = "none"
    existing_security_groups = { nodes = "sg-0123456789abcdef1" }
  }

  assert {
    condition     = output.network.security_groups["nodes"] == "sg-0123456789abcdef1" && length(aws_security_group.nodes) == 0
    error_message = "The given group takes the place of a new one."
  }

  assert {
    condition = alltrue([for rule in concat(
      values(aws_vpc_security_group_egress_rule.outside),
      values(aws_vpc_security_group_egress_rule.s3),
      values(aws_vpc_security_group_egress_rule.endpoints),
      values(aws_vpc_security_group_egress_rule.nodes_to_controller),
      aws_vpc_security_group_egress_rule.nodes_to_nodes,
    ) : rule.security_group_id != "sg-0123456789abcdef1"])
    error_message = "A given group gets no rules."
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.controller_from_nodes["api"].referenced_security_group_id == "sg-0123456789abcdef1" && aws_vpc_security_group_ingress_rule.endpoints["nodes"].referenced_security_group_id == "sg-0123456789abcdef1"
    error_message = "Instances of a given group reach the controller and the endpoints."
  }
}

run "refuses_what_can_not_be" {
  command = plan

  module {
    source = "./modules/network"
  }

  variables {
    deployment               = "Prod"
    vpc_cidr                 = "10.0.0.0/8"
    zones                    = ["us-east-1"]
    subnets                  = { a = "b" }
    route_table_ids          = ["main"]
    internet_access          = "all"
    interface_endpoints      = ["s3"]
    egress_cidrs             = ["everywhere"]
    egress_ports             = [22]
    client_cidrs             = ["0.0.0.0/0"]
    controller_cidrs         = ["here"]
    vpc_id                   = "castor"
    existing_security_groups = { pods = "sg-0123456789abcdef0" }
  }

  expect_failures = [
    var.deployment, var.vpc_cidr, var.zones, var.subnets, var.route_table_ids, var.internet_access,
    var.interface_endpoints, var.egress_cidrs, var.egress_ports, var.client_cidrs,
    var.controller_cidrs, var.vpc_id, var.existing_security_groups,
  ]
}

run "refuses_a_network_without_zones" {
  command = plan

  module {
    source = "./modules/network"
  }

  variables {
    zones = []
  }

  expect_failures = [aws_vpc.this]
}

run "refuses_zones_of_another_region" {
  command = plan

  module {
    source = "./modules/network"
  }

  variables {
    zones = ["us-west-2a"]
  }

  expect_failures = [aws_vpc.this]
}

run "refuses_an_existing_network_without_subnets" {
  command = plan

  module {
    source = "./modules/network"
  }

  variables {
    vpc_id = "vpc-0123456789abcdef0"
  }

  expect_failures = [aws_vpc.this]
}

run "refuses_subnets_without_their_network" {
  command = plan

  module {
    source = "./modules/network"
  }

  variables {
    subnets = { us-east-1a = "subnet-0123456789abcdef0" }
  }

  expect_failures = [data.aws_vpc.given]
}
