# The controller: the document of its pools, its host with a state volume, and its role (policy.tf).

locals {
  region      = var.shared.region
  name        = "castor-${var.shared.deployment}"
  tags        = merge(var.shared.tags, { "castor:deployment" = var.shared.deployment })
  parameter   = "/castor/${var.shared.deployment}/pools"
  api_port    = 8470
  controllers = var.controller == null ? {} : { this = var.controller }

  # Not `castor:deployment`: the controller may end instances with that tag, and bills count them.
  host_tags = merge(var.shared.tags, { "castor:controller-of" = var.shared.deployment })

  controller_zone  = try(coalesce(var.controller.zone, var.network.first_zone), "")
  controller_inner = try(cidrhost(var.network.subnet_cidrs[local.controller_zone], 10), null)

  # Document of the schema in providers/aws/settings.py. Jobs' files of all regions are in the home
  # region's bucket.
  pools_document = merge(
    {
      schema     = 1
      deployment = var.shared.deployment
      account    = var.shared.account
      # A region that occurs twice is refused below.
      regions = merge([for region in var.regions : { (region.name) = merge(
        region.settings,
        region.name == local.region ? { jobs = "s3://${var.shared.bucket}/jobs", job_role = var.job_role_arn } : {},
      ) }]...)
      pools               = merge([for region in var.regions : region.pools]...)
      max_usd_per_hour    = var.shared.max_usd_per_hour
      launches_per_minute = var.launches_per_minute
      has_internet        = var.network.has_internet
      tags                = var.given_tags
    },
    var.prices_from == null ? {} : { prices_from = var.prices_from },
    try(var.shared.sweep.max_run_hours, null) == null ? {} : { max_run_hours = var.shared.sweep.max_run_hours },
  )
  pools_json = jsonencode(local.pools_document)

  # Ranges overlap if they are equal by the mask of the larger one.
  cidrs = [for region in var.regions : split("/", region.cidr)]
  overlaps = [for pair in setproduct(range(length(local.cidrs)), range(length(local.cidrs))) :
    "${local.regions[pair[0]]} and ${local.regions[pair[1]]}" if pair[0] < pair[1] && length(distinct([
      for index in pair : cidrhost("${local.cidrs[index][0]}/${min(local.cidrs[pair[0]][1], local.cidrs[pair[1]][1])}", 0)
    ])) == 1
  ]
  pool_names = flatten([for region in var.regions : keys(region.pools)])

  controller_user_data = join("\n", [
    "#!/bin/bash",
    "region='${local.region}'",
    "bucket='${var.shared.bucket}'",
    "python='${var.shared.python}'",
    "has_wheels='${var.shared.has_wheels}'",
    "has_index='${var.shared.package_index}'",
    "parameter='${local.parameter}'",
    "port='${local.api_port}'",
    "secrets='${try(coalesce(var.controller.secrets_directory), "")}'",
    "secret_variables='${join(",", try(var.controller.secret_variables, []))}'",
    "serve_options='${var.serve_options}'",
    "volume='${join("", [for volume in aws_ebs_volume.state : volume.id])}'",
    file("${path.module}/../../files/install.sh"),
    file("${path.module}/../../files/retry.sh"),
    file("${path.module}/../../files/controller.sh"),
  ])
}

resource "aws_iam_instance_profile" "controller" {
  for_each = local.makes_role ? local.controllers : {}

  name = aws_iam_role.controller[0].name
  path = var.iam_path
  role = aws_iam_role.controller[0].name
  tags = local.tags
}

# The state volume survives the instance, which a new image replaces.
resource "aws_ebs_volume" "state" {
  for_each = local.controllers

  availability_zone = local.controller_zone
  encrypted         = true
  kms_key_id        = var.volume_kms_key_arn
  size              = each.value.state_gb
  snapshot_id       = each.value.state_snapshot_id
  type              = "gp3"
  tags              = merge(local.host_tags, { Name = "${local.name}-state" })

  # Whatever deletes the volume takes a snapshot first. `prevent_destroy` would also refuse
  # `terraform destroy` and `terraform test`.
  final_snapshot = true

  lifecycle {
    # Another first zone or key would replace the volume, and so delete the controller's state. EC2
    # refuses an update of `final_snapshot` alone, so volumes of earlier releases keep theirs.
    ignore_changes = [availability_zone, final_snapshot, kms_key_id, snapshot_id]
  }
}

resource "aws_volume_attachment" "state" {
  for_each = local.controllers

  device_name                    = "/dev/sdf"
  instance_id                    = aws_instance.controller[each.key].id
  volume_id                      = aws_ebs_volume.state[each.key].id
  stop_instance_before_detaching = true
}

locals {
  snapshots = { for name, controller in local.controllers : name => controller if controller.state_snapshots > 0 }
}

resource "aws_iam_role" "snapshots" {
  for_each = local.snapshots

  name                 = "${local.name}-snapshots"
  description          = "Castor ${var.shared.deployment}: takes and deletes snapshots of the controller's state"
  path                 = var.iam_path
  permissions_boundary = var.permissions_boundary_arn
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "dlm.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
  tags = local.tags
}

resource "aws_iam_role_policy_attachment" "snapshots" {
  for_each = local.snapshots

  role       = aws_iam_role.snapshots[each.key].name
  policy_arn = "arn:${local.partition}:iam::aws:policy/service-role/AWSDataLifecycleManagerServiceRole"
}

# Daily snapshots of the state. They stay when the volume or this policy is deleted.
resource "aws_dlm_lifecycle_policy" "state" {
  for_each = local.snapshots

  description        = "Castor ${var.shared.deployment} - snapshots of the state of its controller"
  execution_role_arn = aws_iam_role.snapshots[each.key].arn
  tags               = local.host_tags

  policy_details {
    resource_types = ["VOLUME"]
    # A volume with any of these tags is meant; its name is no other volume's.
    target_tags = { Name = "${local.name}-state" }

    schedule {
      name      = "daily"
      copy_tags = true

      create_rule {
        interval      = 24
        interval_unit = "HOURS"
        times         = ["03:00"]
      }

      retain_rule {
        count = each.value.state_snapshots
      }
    }
  }

  depends_on = [aws_iam_role_policy_attachment.snapshots]
}

resource "aws_instance" "controller" {
  for_each = local.controllers

  ami                                  = each.value.image_id
  instance_type                        = each.value.instance_type
  iam_instance_profile                 = local.makes_role ? aws_iam_instance_profile.controller[each.key].name : var.existing_role.instance_profile
  subnet_id                            = var.network.subnets[local.controller_zone]
  private_ip                           = each.value.private_ip != null ? each.value.private_ip : local.controller_inner
  vpc_security_group_ids               = [var.network.security_groups["controller"]]
  ebs_optimized                        = true
  instance_initiated_shutdown_behavior = "stop"
  user_data                            = local.controller_user_data
  user_data_replace_on_change          = true
  tags                                 = merge(local.host_tags, { Name = "${local.name}-controller" })

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
    tags        = merge(local.host_tags, { Name = "${local.name}-controller" })
  }

  lifecycle {
    precondition {
      condition     = contains(keys(var.network.subnets), local.controller_zone)
      error_message = "controller.zone: the zone has no subnet: add it to zones or subnets."
    }
    precondition {
      condition     = local.makes_role || try(var.existing_role.instance_profile, null) != null
      error_message = "existing_roles.controller.instance_profile: the controller's host needs the instance profile of its role."
    }
  }

  depends_on = [aws_iam_role_policy.controller, aws_ssm_parameter.pools]
}

resource "aws_ssm_parameter" "pools" {
  name        = local.parameter
  description = "Castor ${var.shared.deployment}: pools and their bounds"
  type        = "String"
  tier        = length(local.pools_json) > 4096 ? "Advanced" : "Standard"
  value       = local.pools_json
  tags        = local.tags

  # The controller may launch into a new pool before it hears of the pool.
  depends_on = [aws_iam_role_policy.controller]

  lifecycle {
    precondition {
      condition     = length(local.pools_json) <= 8192
      error_message = "pools: the SSM parameter exceeds its limit of 8 KB: use fewer pools, or a second deployment."
    }
    precondition {
      condition     = length(distinct(local.regions)) == length(local.regions)
      error_message = "other_regions: a region occurs twice (${join(", ", local.regions)}): call modules/pools once for each, with another provider."
    }
    precondition {
      condition     = length(distinct(local.pool_names)) == length(local.pool_names)
      error_message = "other_regions: a pool's name occurs twice (${join(", ", sort(local.pool_names))}): rename the pool of one region."
    }
    precondition {
      condition     = length(local.overlaps) == 0
      error_message = "other_regions: the address ranges of ${join(", of ", local.overlaps)} overlap, so that no route could lead to the other: set another vpc_cidr."
    }
    precondition {
      condition     = length(var.regions) == 1 || var.network.has_internet
      error_message = "other_regions: the controller calls the services of other regions over the internet: set internet_access to public or nat, or egress_cidrs."
    }
  }
}
