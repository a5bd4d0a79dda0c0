# Needs Terraform 1.7 or newer, or OpenTofu 1.8, for mock_provider; the module itself does not.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  shared = {
    deployment           = "prod"
    account              = "123456789012"
    partition            = "aws"
    tags                 = { team = "vision" }
    region               = "us-east-1"
    bucket               = "castor-prod"
    instance_profile_arn = "arn:aws:iam::123456789012:instance-profile/castor"
    python               = "python3"
    has_wheels           = false
    package_index        = true
    boot_minutes         = 20
    datasets             = ""
    registries           = []
    max_usd_per_hour     = 60
  }

  network = {
    region               = "us-east-1"
    cidr                 = "10.80.0.0/16"
    subnets              = { us-east-1a = "subnet-0123456789abcdef0", us-east-1b = "subnet-0123456789abcdef1" }
    security_groups      = { nodes = "sg-0123456789abcdef0" }
    has_internet         = true
    has_public_addresses = true
  }

  pools = {
    gpu = {
      image_id         = "ami-0123456789abcdef0"
      instance_types   = ["g5.xlarge", "g5.12xlarge"]
      max_instances    = 16
      max_usd_per_hour = 40
      boot_minutes     = 45
    }
    near = {
      image_id         = "ami-0123456789abcdef1"
      instance_types   = ["p4d.24xlarge"]
      purchases        = ["on-demand"]
      zones            = ["us-east-1b"]
      max_instances    = 2
      max_usd_per_hour = 50
      volume_iops      = 4000
      volume_mibps     = 1000
      efa              = true
      placement_group  = true
    }
  }
}

run "ground" {
  module {
    source = "./modules/pools"
  }

  assert {
    condition = alltrue([for template in aws_launch_template.pool : alltrue([
      template.metadata_options[0].http_tokens == "required",
      template.metadata_options[0].http_put_response_hop_limit == 1,
      template.instance_initiated_shutdown_behavior == "terminate",
      template.maintenance_options[0].auto_recovery == "disabled",
      alltrue([for device in template.block_device_mappings : tobool(device.ebs[0].encrypted)]),
      length(template.tag_specifications) == 3,
      alltrue([for specification in template.tag_specifications : specification.tags["castor:deployment"] == "prod"]),
      alltrue([for specification in template.tag_specifications : specification.tags["cost-centre"] == "ml"]),
    ])])
    error_message = "Instances answer IMDSv2 alone, one hop away, end when they shut down, are encrypted and say whose they are."
  }

  assert {
    condition     = aws_launch_template.pool["near"].network_interfaces[0].interface_type == "efa" && length(aws_placement_group.pool) == 1
    error_message = "A pool with EFA has its interface, and a placement group where it is asked for."
  }

  assert {
    condition     = length(aws_cloudwatch_event_target.this) == 4 && aws_sqs_queue.events.sqs_managed_sse_enabled
    error_message = "Four kinds of event come to an encrypted queue."
  }

  assert {
    condition     = length(aws_sfn_state_machine.sweep) == 0 && length(aws_scheduler_schedule.sweep) == 0
    error_message = "Facts of an earlier release, which name no sweep, make none."
  }

  assert {
    condition     = alltrue([for image in data.aws_ami.pool : image.include_deprecated])
    error_message = "A pinned image that its owner has deprecated does not break plans."
  }

  assert {
    condition = alltrue([for name, minutes in { gpu = 45, near = 20 } :
      output.region.pools[name].boot_minutes == minutes &&
      strcontains(base64decode(aws_launch_template.pool[name].user_data), "\nboot_minutes='${minutes}'\n")
    ])
    error_message = "An instance and the controller have the same limit for joining, which a pool may set."
  }

  assert {
    condition = alltrue([for name, speed in { gpu = [3000, 125], near = [4000, 1000] } : [for device in aws_launch_template.pool[name].block_device_mappings :
      [device.ebs[0].iops, device.ebs[0].throughput]
    ] == [speed]])
    error_message = "Volumes have the speed that their pool states."
  }

  assert {
    condition     = local.extras_usd_per_hour["near"] == format("%.6f", (200 * 0.08 + 1000 * 0.005 + 875 * 0.04) / 730 + 0.005)
    error_message = "The speed of a volume is part of what an instance costs."
  }

  assert {
    condition     = local.extras_usd_per_hour["gpu"] == "0.026918"
    error_message = "200 GB of gp3 and a public address are part of what an instance costs an hour."
  }
}

run "sweep" {
  command = apply

  module {
    source = "./modules/pools"
  }

  variables {
    shared = merge(var.shared, {
      partition = "aws-us-gov"
      sweep     = { role_arn = "arn:aws-us-gov:iam::123456789012:role/castor-prod-sweep", schedule = "rate(1 day)", max_run_hours = 24 }
    })
  }

  assert {
    condition = (
      aws_scheduler_schedule.sweep[0].schedule_expression == "rate(1 day)" &&
      aws_scheduler_schedule.sweep[0].target[0].arn == aws_sfn_state_machine.sweep[0].arn &&
      jsondecode(aws_scheduler_schedule.sweep[0].target[0].input) == { deployment = "prod", max_run_hours = 24 }
    )
    error_message = "The schedule starts the sweep of this deployment."
  }

  assert {
    condition = toset([for state in jsondecode(aws_sfn_state_machine.sweep[0].definition).States : state.Resource if try(state.Resource, null) != null]) == toset([
      "arn:aws-us-gov:states:::aws-sdk:ec2:describeInstances",
    ])
    error_message = "Calls have the partition of the account."
  }
}

run "no_public_addresses" {
  command = plan

  module {
    source = "./modules/pools"
  }

  variables {
    network = merge(var.network, { has_public_addresses = false })
  }

  assert {
    condition     = local.extras_usd_per_hour["gpu"] == "0.021918"
    error_message = "Nobody pays for addresses that are not there."
  }
}

run "network_cards" {
  command = plan

  module {
    source = "./modules/pools"
  }

  variables {
    network = merge(var.network, { has_public_addresses = false })
    pools = {
      fast = {
        image_id         = "ami-0123456789abcdef0"
        instance_types   = ["p4d.24xlarge"]
        zones            = ["us-east-1a"]
        max_instances    = 2
        max_usd_per_hour = 50
        efa              = true
        network_cards    = 4
        placement_group  = true
      }
    }
  }

  assert {
    condition = [for interface in aws_launch_template.pool["fast"].network_interfaces :
      [interface.network_card_index, interface.device_index, interface.interface_type]
    ] == [[0, 0, "efa"], [1, 1, "efa"], [2, 1, "efa"], [3, 1, "efa"]]
    error_message = "Each card has an EFA interface: of device 0 on the first card, of device 1 on all others."
  }
}

run "refuses_network_cards_without_a_way_out" {
  command = plan

  module {
    source = "./modules/pools"
  }

  variables {
    pools = {
      fast = {
        image_id         = "ami-0123456789abcdef0"
        instance_types   = ["p4d.24xlarge"]
        max_instances    = 2
        max_usd_per_hour = 50
        efa              = true
        network_cards    = 4
      }
    }
  }

  expect_failures = [aws_launch_template.pool]
}

run "refuses_network_cards_without_efa" {
  command = plan

  module {
    source = "./modules/pools"
  }

  variables {
    pools = {
      fast = {
        image_id         = "ami-0123456789abcdef0"
        instance_types   = ["p4d.24xlarge"]
        max_instances    = 2
        max_usd_per_hour = 50
        network_cards    = 4
      }
    }
  }

  expect_failures = [var.pools]
}

run "refuses_a_volume_that_can_not_be_that_fast" {
  command = plan

  module {
    source = "./modules/pools"
  }

  variables {
    pools = {
      gpu = {
        image_id         = "ami-0123456789abcdef0"
        instance_types   = ["g5.xlarge"]
        max_instances    = 16
        max_usd_per_hour = 40
        volume_mibps     = 1000
      }
    }
  }

  expect_failures = [var.pools]
}

run "refuses_default_tags_that_instances_can_not_have" {
  command = plan

  module {
    source = "./modules/pools"
  }

  override_data {
    target = data.aws_default_tags.current
    values = { tags = { "cost/centre" = "ml" } }
  }

  expect_failures = [aws_launch_template.pool]
}

run "refuses_bounds_that_do_not_fit" {
  command = plan

  module {
    source = "./modules/pools"
  }

  variables {
    shared = merge(var.shared, { max_usd_per_hour = 45 })
  }

  expect_failures = [aws_launch_template.pool]
}

run "refuses_a_zone_without_subnet" {
  command = plan

  module {
    source = "./modules/pools"
  }

  variables {
    network = merge(var.network, { subnets = { us-east-1a = "subnet-0123456789abcdef0" } })
  }

  expect_failures = [aws_launch_template.pool]
}

run "refuses_another_region_without_internet" {
  command = plan

  module {
    source = "./modules/pools"
  }

  variables {
    network = merge(var.network, { region = "us-west-2", has_internet = false })
  }

  expect_failures = [aws_launch_template.pool]
}

run "reserved_pools" {
  module {
    source = "./modules/pools"
  }

  variables {
    pools = {
      own = {
        image_id         = "ami-0123456789abcdef0"
        instance_types   = ["g5.xlarge"]
        purchases        = ["reserved"]
        reservation      = "cr-0123456789abcdef0"
        zones            = ["us-east-1a"]
        max_instances    = 4
        max_usd_per_hour = 1
      }
      block = {
        image_id         = "ami-0123456789abcdef0"
        instance_types   = ["p5.48xlarge"]
        purchases        = ["reserved"]
        reservation      = "cr-0123456789abcdef1"
        capacity_block   = true
        zones            = ["us-east-1b"]
        max_instances    = 2
        max_usd_per_hour = 1
      }
    }
  }

  assert {
    condition = alltrue([for name, id in { own = "cr-0123456789abcdef0", block = "cr-0123456789abcdef1" } :
      aws_launch_template.pool[name].capacity_reservation_specification[0].capacity_reservation_target[0].capacity_reservation_id == id
    ])
    error_message = "A reserved pool launches into its reservation and nowhere else."
  }

  assert {
    condition = (
      length(aws_launch_template.pool["own"].instance_market_options) == 0 &&
      aws_launch_template.pool["block"].instance_market_options[0].market_type == "capacity-block"
    )
    error_message = "A Capacity Block needs its market type, and an on-demand reservation has none."
  }

  assert {
    condition = toset([for arn in local.launch_resources : arn if strcontains(arn, "capacity-reservation")]) == toset([
      "arn:aws:ec2:us-east-1:*:capacity-reservation/cr-0123456789abcdef0",
      "arn:aws:ec2:us-east-1:*:capacity-reservation/cr-0123456789abcdef1",
    ])
    error_message = "The controller may use these reservations and no other."
  }
}

run "refuses_a_reservation_without_its_purchase" {
  command = plan

  module {
    source = "./modules/pools"
  }

  variables {
    pools = {
      gpu = {
        image_id         = "ami-0123456789abcdef0"
        instance_types   = ["g5.xlarge"]
        reservation      = "cr-0123456789abcdef0"
        zones            = ["us-east-1a"]
        max_instances    = 4
        max_usd_per_hour = 1
      }
    }
  }

  expect_failures = [var.pools]
}

run "own_programs" {
  module {
    source = "./modules/pools"
  }

  variables {
    additional_security_group_ids = ["sg-0123456789abcdef1"]
    pools = {
      gpu = {
        image_id         = "ami-0123456789abcdef0"
        instance_types   = ["g5.xlarge"]
        max_instances    = 2
        max_usd_per_hour = 10
        pre_bootstrap    = "echo 'before'"
        post_bootstrap   = "echo after"
      }
    }
  }

  assert {
    condition = alltrue([for name, text in { pre_bootstrap = "echo 'before'", post_bootstrap = "echo after" } :
      strcontains(base64decode(aws_launch_template.pool["gpu"].user_data), "\n${name}='${base64encode(text)}'\n")
    ])
    error_message = "The pool's own programs are part of the start."
  }

  assert {
    condition = (
      aws_launch_template.pool["gpu"].vpc_security_group_ids == toset(["sg-0123456789abcdef0", "sg-0123456789abcdef1"]) &&
      contains(output.region.launch_resources, "arn:aws:ec2:us-east-1:123456789012:security-group/sg-0123456789abcdef1")
    )
    error_message = "Instances have the additional security group, and the controller may launch with it."
  }
}

run "refuses_programs_that_are_too_long" {
  command = plan

  module {
    source = "./modules/pools"
  }

  variables {
    pools = {
      gpu = {
        image_id         = "ami-0123456789abcdef0"
        instance_types   = ["g5.xlarge"]
        max_instances    = 2
        max_usd_per_hour = 10
        pre_bootstrap    = "# ${join("", [for number in range(1000) : "\u00e9\u00e9"])}"
      }
    }
  }

  expect_failures = [aws_launch_template.pool]
}

run "refuses_what_can_not_be" {
  command = plan

  module {
    source = "./modules/pools"
  }

  variables {
    volume_usd_per_gb_month       = -0.08
    address_usd_per_hour          = 5
    volume_usd_per_iops_month     = 2
    volume_usd_per_mibps_month    = -1
    volume_kms_key_arn            = "alias/castor"
    identity_certificate          = "here"
    additional_security_group_ids = ["default"]
    pools = {
      GPU = {
        image_id         = "ubuntu"
        instance_types   = []
        purchases        = ["reserved"]
        zones            = []
        max_instances    = 0
        max_usd_per_hour = 0
        boot             = "soon"
        boot_minutes     = 2
        volume_gb        = 1
      }
    }
  }

  expect_failures = [
    var.pools, var.volume_usd_per_gb_month, var.address_usd_per_hour, var.volume_usd_per_iops_month,
    var.volume_usd_per_mibps_month, var.volume_kms_key_arn, var.identity_certificate,
    var.additional_security_group_ids,
  ]
}
