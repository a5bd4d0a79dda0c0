# Needs Terraform 1.7 or newer, or OpenTofu 1.8, for mock_provider; the module itself does not.
# Mocks return random text, so attributes whose format the provider checks have values here.

mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_data "aws_region" {
    defaults = { id = "us-east-1" }
  }
  mock_data "aws_ami" {
    defaults = { root_device_name = "/dev/sda1" }
  }
  mock_resource "aws_vpc" {
    defaults = { id = "vpc-0123456789abcdef0" }
  }
  mock_resource "aws_subnet" {
    defaults = { id = "subnet-0123456789abcdef0" }
  }
  mock_resource "aws_security_group" {
    defaults = { id = "sg-0123456789abcdef0" }
  }
  mock_resource "aws_vpc_endpoint" {
    defaults = { prefix_list_id = "pl-0123456789abcdef0" }
  }
  mock_data "aws_default_tags" {
    defaults = { tags = { "cost-centre" = "ml" } }
  }
  mock_resource "aws_launch_template" {
    defaults = {
      id             = "lt-0123456789abcdef0"
      arn            = "arn:aws:ec2:us-east-1:123456789012:launch-template/lt-0123456789abcdef0"
      latest_version = 3
    }
  }
  mock_resource "aws_placement_group" {
    defaults = { arn = "arn:aws:ec2:us-east-1:123456789012:placement-group/castor" }
  }
  mock_resource "aws_iam_role" {
    defaults = { id = "castor", arn = "arn:aws:iam::123456789012:role/castor" }
  }
  mock_resource "aws_iam_instance_profile" {
    defaults = { arn = "arn:aws:iam::123456789012:instance-profile/castor" }
  }
  mock_resource "aws_sqs_queue" {
    defaults = {
      arn = "arn:aws:sqs:us-east-1:123456789012:castor"
      url = "https://sqs.us-east-1.amazonaws.com/123456789012/castor"
    }
  }
  mock_resource "aws_cloudwatch_event_rule" {
    defaults = { arn = "arn:aws:events:us-east-1:123456789012:rule/castor" }
  }
  mock_resource "aws_s3_bucket" {
    defaults = { arn = "arn:aws:s3:::castor" }
  }
  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000" }
  }
}

variables {
  deployment       = "prod"
  zones            = ["us-east-1a", "us-east-1b"]
  max_usd_per_hour = 60
  fleet_usd        = "500"
  tags             = { team = "vision" }

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

  controller = { image_id = "ami-0123456789abcdef0" }
}

run "ground" {
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
    condition = alltrue([for rule in concat(
      values(aws_vpc_security_group_ingress_rule.controller_from_nodes),
      [aws_vpc_security_group_ingress_rule.nodes_from_nodes],
    ) : rule.cidr_ipv4 == null && rule.referenced_security_group_id != null])
    error_message = "Agents and quorums are reached from inside only."
  }

  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.controller_from_clients) == 0
    error_message = "Nobody reaches the controller unless it was said who may."
  }

  assert {
    condition     = length(aws_cloudwatch_event_target.this) == 4 && aws_sqs_queue.events.sqs_managed_sse_enabled
    error_message = "Four kinds of event come to an encrypted queue."
  }

  assert {
    condition = alltrue([
      aws_s3_bucket_public_access_block.this.block_public_acls,
      aws_s3_bucket_public_access_block.this.block_public_policy,
      aws_s3_bucket_public_access_block.this.ignore_public_acls,
      aws_s3_bucket_public_access_block.this.restrict_public_buckets,
    ])
    error_message = "The bucket is private."
  }

  assert {
    condition     = length(aws_nat_gateway.this) == 0 && length(aws_vpc_endpoint.interface) == 0
    error_message = "By default the network costs nothing while it is idle."
  }

  assert {
    condition = (
      jsondecode(output.pools_json).regions["us-east-1"].jobs == "s3://castor-prod-123456789012-us-east-1/jobs" &&
      jsondecode(output.pools_json).regions["us-east-1"].job_role == output.job_role_arn
    )
    error_message = "Castor is told where jobs keep their files, and by which role."
  }

  assert {
    condition = [for statement in jsondecode(aws_iam_role.job.assume_role_policy).Statement : statement.Principal] == [
      { AWS = aws_iam_role.controller.arn }
    ]
    error_message = "The controller alone assumes the role of jobs."
  }

  assert {
    condition     = !contains(keys(aws_instance.controller["this"].tags), "castor:deployment")
    error_message = "The controller may not be able to end itself."
  }

  assert {
    condition     = jsondecode(output.pools_json).tags == { "cost-centre" = "ml", team = "vision" }
    error_message = "Castor gives what it launches the provider's default tags, too."
  }

  assert {
    condition     = alltrue([for image in data.aws_ami.pool : image.include_deprecated])
    error_message = "A pinned image that its owner has deprecated does not break plans."
  }

  assert {
    condition     = output.controller_address == "http://${output.controller_host}:8470" && can(cidrnetmask("${output.controller_host}/32"))
    error_message = "controller_host is an address without scheme and port."
  }

  assert {
    condition     = aws_ssm_parameter.pools.name == "/castor/prod/pools" && aws_ssm_parameter.pools.tier == "Standard"
    error_message = "The pools are where Castor looks for them."
  }

  assert {
    condition = alltrue([for name, minutes in { gpu = 45, near = 20 } :
      jsondecode(output.pools_json).pools[name].boot_minutes == minutes &&
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

run "closed_network" {
  command = plan

  variables {
    internet_access = "none"
  }

  assert {
    condition = alltrue([
      length(aws_internet_gateway.this) == 0,
      length(aws_nat_gateway.this) == 0,
      length(aws_vpc_security_group_egress_rule.outside) == 0,
      toset(keys(aws_vpc_endpoint.interface)) == toset(["ec2", "sqs", "ssm", "sts", "ssmmessages"]),
      length(aws_vpc_endpoint.s3) == 1,
    ])
    error_message = "Without internet the services are called by endpoints, and nothing leads outside."
  }
}

run "egress_ports" {
  command = plan

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

  variables {
    internet_access = "nat"
  }

  assert {
    condition     = length(aws_nat_gateway.this) == 1 && alltrue([for subnet in aws_subnet.nodes : !subnet.map_public_ip_on_launch])
    error_message = "Instances have no public addresses behind a NAT gateway."
  }

  assert {
    condition     = local.extras_usd_per_hour["gpu"] == "0.021918"
    error_message = "Nobody pays for addresses that are not there."
  }
}

run "network_cards" {
  command = plan

  variables {
    internet_access = "nat"
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

  variables {
    internet_access = "nat"
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

run "controller_elsewhere" {
  variables {
    controller             = null
    controller_principals  = ["arn:aws:iam::123456789012:role/people"]
    controller_external_id = "a-secret-word"
    iam_path               = "/castor/"

    permissions_boundary_arn = "arn:aws:iam::123456789012:policy/boundary"
  }

  assert {
    condition     = length(aws_instance.controller) == 0 && output.controller_address == null && output.controller_host == null
    error_message = "There is no instance of the controller."
  }

  assert {
    condition = anytrue([for statement in jsondecode(aws_iam_role.controller.assume_role_policy).Statement :
      try(statement.Condition.StringEquals["sts:ExternalId"] == "a-secret-word", false)
    ])
    error_message = "Who assumes its role from elsewhere names the external id."
  }

  assert {
    condition = alltrue([for role in [aws_iam_role.controller, aws_iam_role.job, aws_iam_role.node] :
      role.permissions_boundary == "arn:aws:iam::123456789012:policy/boundary" && role.path == "/castor/"
    ])
    error_message = "All roles keep within the boundary."
  }
}

run "datasets" {
  variables {
    datasets = {
      "/datasets/imagenet"  = "s3://my-data/vision/imagenet/"
      "/datasets/text/wiki" = "s3://my-data/wiki/date=2026-11-01/"
      "/datasets/text/all"  = "s3://texts.example.com/"
    }
    dataset_kms_key_arns = ["arn:aws:kms:us-east-1:999999999999:key/00000000-0000-0000-0000-000000000001"]
  }

  assert {
    condition     = alltrue([for template in aws_launch_template.pool : strcontains(base64decode(template.user_data), "\n/datasets/text/all s3://texts.example.com/\n")])
    error_message = "Instances of all pools are told of the datasets."
  }
}

run "registries" {
  command = plan

  variables {
    internet_access = "none"
    registries = [
      "123456789012.dkr.ecr.us-east-1.amazonaws.com",
      "999999999999.dkr.ecr.eu-west-1.amazonaws.com/team/vision",
    ]
  }

  assert {
    condition = jsonencode([for statement in local.registry_statements : statement.Resource if statement.Sid == "ReadImages"]) == jsonencode([[
      "arn:aws:ecr:us-east-1:123456789012:repository/*",
      "arn:aws:ecr:eu-west-1:999999999999:repository/team/vision",
      "arn:aws:ecr:eu-west-1:999999999999:repository/team/vision/*",
    ]])
    error_message = "Instances read images of the named repositories only."
  }

  assert {
    condition     = alltrue([for start in local.node_user_data : strcontains(start, "\nregistries='123456789012.dkr.ecr.us-east-1.amazonaws.com 999999999999.dkr.ecr.eu-west-1.amazonaws.com/team/vision'\n")])
    error_message = "Instances of all pools are told of the registries."
  }

  assert {
    condition     = length(setsubtract(["ecr.api", "ecr.dkr"], keys(aws_vpc_endpoint.interface))) == 0
    error_message = "A closed network reaches ECR by endpoints."
  }
}

run "many_pools_need_an_advanced_parameter" {
  variables {
    pools = { for number in range(18) : "pool-${number}" => {
      image_id         = "ami-0123456789abcdef0"
      instance_types   = ["g5.xlarge", "g5.12xlarge", "g6.xlarge"]
      max_instances    = 16
      max_usd_per_hour = 40
    } }
  }

  assert {
    condition     = aws_ssm_parameter.pools.tier == "Advanced"
    error_message = "More than 4 KB need an advanced parameter."
  }
}

run "example_minimal" {
  command = plan

  module {
    source = "./examples/minimal"
  }

  variables {
    image_id         = "ami-0123456789abcdef0"
    wheels_directory = null
  }
}

run "example_private_subnets" {
  command = plan

  module {
    source = "./examples/private-subnets"
  }

  variables {
    vpc_id          = "vpc-0123456789abcdef0"
    subnets         = { eu-west-1a = "subnet-0123456789abcdef0", eu-west-1b = "subnet-0123456789abcdef1" }
    route_table_ids = ["rtb-0123456789abcdef0"]
    image_id        = "ami-0123456789abcdef0"
    kms_key_arn     = "arn:aws:kms:eu-west-1:123456789012:key/00000000-0000-0000-0000-000000000000"

    permissions_boundary_arn = "arn:aws:iam::123456789012:policy/boundary"
  }
}

run "refuses_what_can_not_be" {
  command = plan

  variables {
    deployment              = "Prod"
    max_usd_per_hour        = 0
    fleet_usd               = "0"
    job_usd                 = "many"
    study_usd               = "-1"
    volume_usd_per_gb_month = -0.08
    address_usd_per_hour    = 5

    volume_usd_per_iops_month  = 2
    volume_usd_per_mibps_month = -1
    lease                      = "2d"
    policy                     = "marginal; true"
    launches_per_minute        = 0
    tags                       = { "castor:job" = "1" }
    vpc_cidr                   = "10.0.0.0/8"
    zones                      = ["us-east-1"]
    subnets                    = { a = "b" }
    route_table_ids            = ["main"]
    internet_access            = "all"
    interface_endpoints        = ["s3"]
    egress_cidrs               = ["everywhere"]
    egress_ports               = [22]
    client_cidrs               = ["0.0.0.0/0"]
    kms_key_arn                = "alias/castor"
    volume_kms_key_arn         = "alias/castor"
    bucket_name                = "Castor"
    lifecycle_days             = { "user-data/" = 3 }
    datasets                   = { "/datasets/../etc" = "s3://my-data" }
    dataset_kms_key_arns       = ["alias/data"]
    registries                 = ["123456789012.dkr.ecr.us-east-1.amazonaws.com/team:1"]
    permissions_boundary_arn   = "boundary"
    iam_path                   = "castor"
    controller_principals      = ["*"]
    controller_external_id     = " "
    wheels_directory           = "./examples"
    python                     = "python3; true"
    boot_minutes               = 1
    vpc_id                     = "castor"
    controller                 = { image_id = "ubuntu", instance_type = "large", private_ip = "here", state_gb = 0.5 }
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
    var.deployment, var.max_usd_per_hour, var.fleet_usd, var.job_usd, var.study_usd, var.lease, var.policy,
    var.launches_per_minute, var.tags, var.vpc_cidr,
    var.zones, var.subnets, var.route_table_ids, var.internet_access, var.interface_endpoints,
    var.egress_cidrs, var.egress_ports, var.client_cidrs, var.kms_key_arn, var.volume_kms_key_arn, var.bucket_name,
    var.lifecycle_days, var.permissions_boundary_arn, var.iam_path, var.controller_principals,
    var.controller_external_id, var.wheels_directory, var.python, var.boot_minutes, var.vpc_id,
    var.controller, var.pools, var.volume_usd_per_gb_month, var.address_usd_per_hour,
    var.volume_usd_per_iops_month, var.volume_usd_per_mibps_month,
    var.datasets, var.dataset_kms_key_arns, var.registries,
  ]
}

run "reserved_pools" {
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
    condition = toset([for arn in local.launch_inputs : arn if strcontains(arn, "capacity-reservation")]) == toset([
      "arn:aws:ec2:us-east-1:*:capacity-reservation/cr-0123456789abcdef0",
      "arn:aws:ec2:us-east-1:*:capacity-reservation/cr-0123456789abcdef1",
    ])
    error_message = "The controller may use these reservations and no other."
  }
}

run "refuses_a_reservation_without_its_purchase" {
  command = plan

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

run "refuses_a_volume_that_can_not_be_that_fast" {
  command = plan

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

  override_data {
    target = data.aws_default_tags.current
    values = { tags = { "cost/centre" = "ml" } }
  }

  expect_failures = [aws_launch_template.pool]
}

run "refuses_packages_without_pins" {
  command = plan

  variables {
    wheels_directory = "./tests/unpinned"
  }

  expect_failures = [aws_launch_template.pool]
}

run "refuses_bounds_that_do_not_fit" {
  command = plan

  variables {
    max_usd_per_hour = 45
  }

  expect_failures = [aws_launch_template.pool]
}

run "refuses_a_dataset_that_is_not_under_datasets" {
  command = plan

  variables {
    datasets = { "/home/imagenet" = "s3://my-data/imagenet/" }
  }

  expect_failures = [var.datasets]
}

run "refuses_a_dataset_under_another" {
  command = plan

  variables {
    datasets = { "/datasets/a" = "s3://my-data/a/", "/datasets/a/b" = "s3://my-data/b/" }
  }

  expect_failures = [var.datasets]
}

run "refuses_a_place_with_a_wildcard" {
  command = plan

  variables {
    datasets = { "/datasets/a" = "s3://my-data/*/" }
  }

  expect_failures = [var.datasets]
}

run "refuses_datasets_in_its_own_bucket" {
  command = plan

  variables {
    datasets = { "/datasets/a" = "s3://castor-prod-123456789012-us-east-1/user-data/" }
  }

  expect_failures = [aws_launch_template.pool]
}

run "refuses_a_zone_without_subnet" {
  command = plan

  variables {
    zones = ["us-east-1a"]
  }

  expect_failures = [aws_launch_template.pool]
}

run "refuses_a_network_without_zones" {
  command = plan

  variables {
    zones = []
  }

  expect_failures = [aws_vpc.this]
}

run "refuses_a_controller_that_nobody_runs" {
  command = plan

  variables {
    controller = null
  }

  expect_failures = [aws_iam_role.controller]
}
