# Pools of one region: a launch template of each, the queue of its events, and a sweep.

data "aws_default_tags" "current" {}

locals {
  region = var.network.region
  name   = "castor-${var.shared.deployment}"

  ownership = { "castor:deployment" = var.shared.deployment }
  tags      = merge(var.shared.tags, local.ownership)

  # The provider adds its default tags to its own resources, but not to what Castor launches.
  given_tags  = merge(data.aws_default_tags.current.tags, var.shared.tags)
  launch_tags = merge(local.given_tags, local.ownership)

  security_groups = concat([var.network.security_groups["nodes"]], var.additional_security_group_ids)

  hours_a_month = 730 # as AWS counts them

  address_usd_per_hour = var.address_usd_per_hour != null ? var.address_usd_per_hour : (
    var.network.has_public_addresses ? 0.005 : 0
  )

  # One limit for joining: of the instance itself, of the controller and of the join token.
  boot_minutes = { for name, pool in var.pools : name => coalesce(pool.boot_minutes, var.shared.boot_minutes) }

  # gp3 includes 3,000 IOPS and 125 MiB/s.
  volume_usd_per_month = { for name, pool in var.pools : name =>
    pool.volume_gb * var.volume_usd_per_gb_month +
    (pool.volume_iops - 3000) * var.volume_usd_per_iops_month +
    (pool.volume_mibps - 125) * var.volume_usd_per_mibps_month
  }

  # Hourly charges in addition to an instance's price; a string, since it is a decimal amount.
  extras_usd_per_hour = { for name in keys(var.pools) : name =>
    format("%.6f", local.volume_usd_per_month[name] / local.hours_a_month + local.address_usd_per_hour)
  }

  # Entries of the document whose schema is in providers/aws/settings.py.
  settings = merge(
    {
      subnets   = var.network.subnets
      user_data = "s3://${var.shared.bucket}/user-data"
      queue_url = aws_sqs_queue.events.url
    },
    var.identity_certificate == null ? {} : { identity_certificate = var.identity_certificate },
  )
  pools = { for name, pool in var.pools : name => merge(
    {
      region              = local.region
      launch_template     = { id = aws_launch_template.pool[name].id, version = aws_launch_template.pool[name].latest_version }
      instance_types      = pool.instance_types
      purchases           = pool.purchases
      max_instances       = pool.max_instances
      max_usd_per_hour    = pool.max_usd_per_hour
      boot                = pool.boot
      boot_minutes        = local.boot_minutes[name]
      network_cards       = pool.network_cards
      extras_usd_per_hour = local.extras_usd_per_hour[name]
    },
    pool.zones == null ? {} : { zones = pool.zones },
    pool.reservation == null ? {} : { reservation = pool.reservation, capacity_block = pool.capacity_block },
  ) }

  # Existing resources that a launch may use: only these.
  arn = "arn:${var.shared.partition}:ec2:${local.region}"
  ec2 = "${local.arn}:${var.shared.account}"
  launch_resources = concat(
    [for id in sort(distinct([for pool in var.pools : pool.image_id])) : "${local.arn}::image/${id}"],
    ["${local.arn}::snapshot/*", "${local.ec2}:snapshot/*"],
    [for zone in sort(keys(var.network.subnets)) : "${local.ec2}:subnet/${var.network.subnets[zone]}"],
    [for id in local.security_groups : "${local.ec2}:security-group/${id}"],
    [for name in sort(keys(var.pools)) : aws_launch_template.pool[name].arn],
    [for name in sort(keys(aws_placement_group.pool)) : aws_placement_group.pool[name].arn],
    # A reservation's ARN has the account of its owner.
    [for id in sort(distinct(compact([for pool in var.pools : pool.reservation]))) : "${local.arn}:*:capacity-reservation/${id}"],
  )

  node_user_data = { for name, pool in var.pools : name => join("\n", [
    "#!/bin/bash",
    "region='${var.shared.region}'",
    "bucket='${var.shared.bucket}'",
    "parcels='user-data'",
    "python='${var.shared.python}'",
    "has_wheels='${var.shared.has_wheels}'",
    "has_index='${var.shared.package_index}'",
    "boot_minutes='${local.boot_minutes[name]}'",
    "datasets='${var.shared.datasets}'",
    "registries='${join(" ", var.shared.registries)}'",
    "pre_bootstrap='${base64encode(pool.pre_bootstrap)}'",
    "post_bootstrap='${base64encode(pool.post_bootstrap)}'",
    file("${path.module}/../../files/install.sh"),
    file("${path.module}/../../files/first_boot.sh"),
    file("${path.module}/../../files/datasets.sh"),
    file("${path.module}/../../files/node.sh"),
    file("${path.module}/../../files/agent.sh"),
  ]) }
}

data "aws_ami" "pool" {
  for_each = toset([for pool in var.pools : pool.image_id])

  # Public images are deprecated after two years: pinned ones must not break plans by then.
  include_deprecated = true

  filter {
    name   = "image-id"
    values = [each.value]
  }
}

resource "aws_placement_group" "pool" {
  for_each = { for name, pool in var.pools : name => pool if pool.placement_group }

  name     = "${local.name}-${each.key}"
  strategy = "cluster"
  tags     = local.tags

  lifecycle {
    precondition {
      condition     = length(each.value.zones == null ? keys(var.network.subnets) : each.value.zones) == 1
      error_message = "pools.${each.key}.zones: a placement group is in one zone: name exactly one zone."
    }
  }
}

resource "aws_launch_template" "pool" {
  for_each = var.pools

  name                                 = "${local.name}-${each.key}"
  description                          = "Castor ${var.shared.deployment}: instances of the pool ${each.key}"
  update_default_version               = true
  image_id                             = each.value.image_id
  instance_initiated_shutdown_behavior = "terminate"
  user_data                            = base64encode(local.node_user_data[each.key])
  vpc_security_group_ids               = each.value.efa ? null : local.security_groups
  tags                                 = local.tags

  iam_instance_profile {
    arn = var.shared.instance_profile_arn
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
    instance_metadata_tags      = "enabled"
  }

  # A recovered instance would boot without its agent.
  maintenance_options {
    auto_recovery = "disabled"
  }

  block_device_mappings {
    device_name = data.aws_ami.pool[each.value.image_id].root_device_name

    ebs {
      encrypted             = true
      kms_key_id            = var.volume_kms_key_arn
      volume_size           = each.value.volume_gb
      volume_type           = "gp3"
      iops                  = each.value.volume_iops
      throughput            = each.value.volume_mibps
      delete_on_termination = true
    }
  }

  dynamic "network_interfaces" {
    for_each = each.value.efa ? range(each.value.network_cards) : []

    content {
      network_card_index    = network_interfaces.value
      device_index          = network_interfaces.value == 0 ? 0 : 1
      interface_type        = "efa"
      security_groups       = local.security_groups
      delete_on_termination = true
    }
  }

  dynamic "placement" {
    for_each = each.value.placement_group ? [aws_placement_group.pool[each.key].name] : []

    content {
      group_name = placement.value
    }
  }

  # Without room in its reservation a launch fails, and buys nothing on demand.
  dynamic "capacity_reservation_specification" {
    for_each = each.value.reservation[*]

    content {
      capacity_reservation_target {
        capacity_reservation_id = capacity_reservation_specification.value
      }
    }
  }

  dynamic "instance_market_options" {
    for_each = each.value.capacity_block ? ["capacity-block"] : []

    content {
      market_type = instance_market_options.value
    }
  }

  # Castor sets the same tags at each launch, with those of the order.
  dynamic "tag_specifications" {
    for_each = ["instance", "network-interface", "volume"]

    content {
      resource_type = tag_specifications.value
      tags          = merge(local.launch_tags, { Name = "${local.name}-${each.key}" })
    }
  }

  lifecycle {
    precondition {
      condition     = length(setsubtract(each.value.zones == null ? [] : each.value.zones, keys(var.network.subnets))) == 0
      error_message = "pools.${each.key}.zones: a zone has no subnet: add it to zones or subnets."
    }
    precondition {
      condition     = each.value.network_cards == 1 || !var.network.has_public_addresses
      error_message = "pools.${each.key}.network_cards: EC2 gives an instance with several interfaces no public address, its only way out: set internet_access to nat or none."
    }
    precondition {
      condition     = length(local.given_tags) <= 40 && alltrue([for key in keys(local.given_tags) : can(regex("^[A-Za-z0-9+=.,_:@-]{1,128}$", key)) && !startswith(lower(key), "castor:")])
      error_message = "tags and the provider's default_tags: at most 40 together; instances can read the keys, which may contain no spaces or slashes and not begin with castor:."
    }
    precondition {
      condition     = each.value.max_usd_per_hour <= var.shared.max_usd_per_hour
      error_message = "pools.${each.key}.max_usd_per_hour: exceeds max_usd_per_hour, the cap of all pools together."
    }
    precondition {
      # Its bytes: Base64 makes four characters of three.
      condition     = length(base64encode(local.node_user_data[each.key])) <= 21848
      error_message = "pools.${each.key}: user data exceeds its limit of 16 KB: shorten pre_bootstrap and post_bootstrap, or fetch their programs there."
    }
    precondition {
      condition     = var.network.has_internet || local.region == var.shared.region
      error_message = "pools.${each.key}: jobs' files are in ${var.shared.region}, which instances of another region reach over the internet only: set internet_access of the network to public or nat."
    }
  }
}
