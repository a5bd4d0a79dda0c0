locals {
  controllers = var.controller == null ? {} : { this = var.controller }

  # Not `castor:deployment`: the controller may end instances with that tag, and bills count them.
  host_tags = merge(var.tags, { "castor:controller-of" = var.deployment })

  controller_zone  = try(coalesce(var.controller.zone, local.first_zone), "")
  controller_inner = try(cidrhost(aws_subnet.nodes[local.controller_zone].cidr_block, 10), null)

  controller_user_data = join("\n", [
    "#!/bin/bash",
    "region='${local.region}'",
    "bucket='${local.bucket_name}'",
    "python='${var.python}'",
    "has_wheels='${var.wheels_directory != null}'",
    "has_index='${var.package_index}'",
    "parameter='${local.parameter}'",
    "port='${local.api_port}'",
    "secrets='${try(coalesce(var.controller.secrets_directory), "")}'",
    "secret_variables='${join(",", try(var.controller.secret_variables, []))}'",
    "serve_options='--fleet-usd ${var.fleet_usd} --job-usd ${var.job_usd} --study-usd ${var.study_usd} --lease ${var.lease} --policy ${var.policy}'",
    "volume='${join("", [for volume in aws_ebs_volume.state : volume.id])}'",
    file("${path.module}/files/install.sh"),
    file("${path.module}/files/retry.sh"),
    file("${path.module}/files/controller.sh"),
  ])
}

resource "aws_iam_instance_profile" "controller" {
  for_each = local.controllers

  name = aws_iam_role.controller.name
  path = var.iam_path
  role = aws_iam_role.controller.name
  tags = local.tags
}

# The state volume survives the instance, which a new image replaces.
resource "aws_ebs_volume" "state" {
  for_each = local.controllers

  availability_zone = local.controller_zone
  encrypted         = true
  kms_key_id        = var.volume_kms_key_arn
  size              = each.value.state_gb
  type              = "gp3"
  tags              = merge(local.host_tags, { Name = "${local.name}-state" })

  lifecycle {
    # Another first zone would replace the volume, and so delete the controller's state.
    ignore_changes = [availability_zone]
  }
}

resource "aws_volume_attachment" "state" {
  for_each = local.controllers

  device_name                    = "/dev/sdf"
  instance_id                    = aws_instance.controller[each.key].id
  volume_id                      = aws_ebs_volume.state[each.key].id
  stop_instance_before_detaching = true
}

resource "aws_instance" "controller" {
  for_each = local.controllers

  ami                                  = each.value.image_id
  instance_type                        = each.value.instance_type
  iam_instance_profile                 = aws_iam_instance_profile.controller[each.key].name
  subnet_id                            = local.subnets[local.controller_zone]
  private_ip                           = each.value.private_ip != null ? each.value.private_ip : local.controller_inner
  vpc_security_group_ids               = [aws_security_group.controller.id]
  ebs_optimized                        = true
  instance_initiated_shutdown_behavior = "stop"
  user_data                            = local.controller_user_data
  user_data_replace_on_change          = true
  tags                                 = merge(local.host_tags, { Name = local.named["controller"].Name })

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    encrypted   = true
    kms_key_id  = var.volume_kms_key_arn
    volume_size = each.value.volume_gb
    volume_type = "gp3"
    tags        = merge(local.host_tags, { Name = local.named["controller"].Name })
  }

  lifecycle {
    precondition {
      condition     = contains(keys(local.subnets), local.controller_zone)
      error_message = "controller.zone: the zone has no subnet: add it to zones or subnets."
    }
  }

  # What its start calls, and the ways to it.
  depends_on = [
    aws_iam_role_policy.controller,
    aws_route.internet,
    aws_route.nat,
    aws_route_table_association.nat,
    aws_route_table_association.nodes,
    aws_s3_object.wheel,
    aws_ssm_parameter.pools,
    aws_vpc_endpoint.interface,
    aws_vpc_endpoint.s3,
    aws_vpc_security_group_egress_rule.endpoints,
    aws_vpc_security_group_egress_rule.outside,
    aws_vpc_security_group_egress_rule.s3,
    aws_vpc_security_group_ingress_rule.endpoints,
  ]
}
