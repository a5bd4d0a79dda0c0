# Addresses of releases before the sub-modules: nothing is destroyed or replaced (../../UPGRADING.md).

moved {
  from = aws_vpc.this
  to   = module.network.aws_vpc.this
}

moved {
  from = aws_default_security_group.this
  to   = module.network.aws_default_security_group.this
}

moved {
  from = aws_subnet.nodes
  to   = module.network.aws_subnet.nodes
}

moved {
  from = aws_route_table.nodes
  to   = module.network.aws_route_table.nodes
}

moved {
  from = aws_route_table_association.nodes
  to   = module.network.aws_route_table_association.nodes
}

moved {
  from = aws_internet_gateway.this
  to   = module.network.aws_internet_gateway.this
}

moved {
  from = aws_route.internet
  to   = module.network.aws_route.internet
}

moved {
  from = aws_subnet.nat
  to   = module.network.aws_subnet.nat
}

moved {
  from = aws_route_table.nat
  to   = module.network.aws_route_table.nat
}

moved {
  from = aws_route.nat
  to   = module.network.aws_route.nat
}

moved {
  from = aws_route_table_association.nat
  to   = module.network.aws_route_table_association.nat
}

moved {
  from = aws_eip.nat
  to   = module.network.aws_eip.nat
}

moved {
  from = aws_nat_gateway.this
  to   = module.network.aws_nat_gateway.this
}

moved {
  from = aws_vpc_endpoint.s3
  to   = module.network.aws_vpc_endpoint.s3
}

moved {
  from = aws_vpc_endpoint.interface
  to   = module.network.aws_vpc_endpoint.interface
}

moved {
  from = aws_security_group.nodes
  to   = module.network.aws_security_group.nodes[0]
}

moved {
  from = aws_security_group.controller
  to   = module.network.aws_security_group.controller[0]
}

moved {
  from = aws_security_group.endpoints
  to   = module.network.aws_security_group.endpoints
}

moved {
  from = aws_vpc_security_group_ingress_rule.nodes_from_nodes
  to   = module.network.aws_vpc_security_group_ingress_rule.nodes_from_nodes[0]
}

moved {
  from = aws_vpc_security_group_egress_rule.nodes_to_nodes
  to   = module.network.aws_vpc_security_group_egress_rule.nodes_to_nodes[0]
}

moved {
  from = aws_vpc_security_group_ingress_rule.controller_from_nodes
  to   = module.network.aws_vpc_security_group_ingress_rule.controller_from_nodes
}

moved {
  from = aws_vpc_security_group_egress_rule.nodes_to_controller
  to   = module.network.aws_vpc_security_group_egress_rule.nodes_to_controller
}

moved {
  from = aws_vpc_security_group_ingress_rule.controller_from_clients
  to   = module.network.aws_vpc_security_group_ingress_rule.controller_from_clients
}

moved {
  from = aws_vpc_security_group_egress_rule.outside
  to   = module.network.aws_vpc_security_group_egress_rule.outside
}

moved {
  from = aws_vpc_security_group_egress_rule.s3
  to   = module.network.aws_vpc_security_group_egress_rule.s3
}

moved {
  from = aws_vpc_security_group_egress_rule.endpoints
  to   = module.network.aws_vpc_security_group_egress_rule.endpoints
}

moved {
  from = aws_vpc_security_group_ingress_rule.endpoints
  to   = module.network.aws_vpc_security_group_ingress_rule.endpoints
}

moved {
  from = aws_placement_group.pool
  to   = module.pools.aws_placement_group.pool
}

moved {
  from = aws_launch_template.pool
  to   = module.pools.aws_launch_template.pool
}

moved {
  from = aws_sqs_queue.events
  to   = module.pools.aws_sqs_queue.events
}

moved {
  from = aws_sqs_queue_policy.events
  to   = module.pools.aws_sqs_queue_policy.events
}

moved {
  from = aws_cloudwatch_event_rule.this
  to   = module.pools.aws_cloudwatch_event_rule.this
}

moved {
  from = aws_cloudwatch_event_target.this
  to   = module.pools.aws_cloudwatch_event_target.this
}

moved {
  from = aws_ssm_parameter.pools
  to   = module.controller.aws_ssm_parameter.pools
}

moved {
  from = aws_iam_role.controller
  to   = module.controller.aws_iam_role.controller[0]
}

moved {
  from = aws_iam_role_policy.controller
  to   = module.controller.aws_iam_role_policy.controller
}

moved {
  from = aws_iam_instance_profile.controller
  to   = module.controller.aws_iam_instance_profile.controller
}

moved {
  from = aws_ebs_volume.state
  to   = module.controller.aws_ebs_volume.state
}

moved {
  from = aws_volume_attachment.state
  to   = module.controller.aws_volume_attachment.state
}

moved {
  from = aws_instance.controller
  to   = module.controller.aws_instance.controller
}
