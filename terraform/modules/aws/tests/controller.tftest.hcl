# Needs Terraform 1.7 or newer, or OpenTofu 1.8, for mock_provider; the module itself does not.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  shared = {
    deployment       = "prod"
    account          = "123456789012"
    partition        = "aws"
    tags             = { team = "vision" }
    region           = "us-east-1"
    bucket           = "castor-prod"
    python           = "python3"
    has_wheels       = false
    package_index    = true
    max_usd_per_hour = 60
  }

  network = {
    subnets         = { us-east-1a = "subnet-0123456789abcdef0" }
    subnet_cidrs    = { us-east-1a = "10.80.0.0/20" }
    first_zone      = "us-east-1a"
    security_groups = { controller = "sg-0123456789abcdef0" }
    has_internet    = true
  }

  regions = [{
    name               = "us-east-1"
    cidr               = "10.80.0.0/16"
    settings           = { subnets = { us-east-1a = "subnet-0123456789abcdef0" }, user_data = "s3://castor-prod/user-data", queue_url = "https://sqs.us-east-1.amazonaws.com/123456789012/castor" }
    pools              = { gpu = { region = "us-east-1" } }
    instance_types     = ["g5.xlarge"]
    launch_resources   = ["arn:aws:ec2:us-east-1:123456789012:launch-template/lt-0123456789abcdef0"]
    queue_arn          = "arn:aws:sqs:us-east-1:123456789012:castor"
    volume_kms_key_arn = null
  }]

  controller         = { image_id = "ami-0123456789abcdef0" }
  serve_options      = "--fleet-usd 500"
  bucket_arn         = "arn:aws:s3:::castor-prod"
  bucket_kms_key_arn = "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000"
  node_role_arn      = "arn:aws:iam::123456789012:role/node"
  job_role_arn       = "arn:aws:iam::123456789012:role/job"
}

run "without_snapshots" {
  command = plan

  module {
    source = "./modules/controller"
  }

  variables {
    controller = { image_id = "ami-0123456789abcdef0", state_snapshots = 0, state_snapshot_id = "snap-0123456789abcdef0" }
  }

  assert {
    condition     = length(aws_dlm_lifecycle_policy.state) + length(aws_iam_role.snapshots) == 0 && aws_ebs_volume.state["this"].snapshot_id == "snap-0123456789abcdef0"
    error_message = "There are no snapshots of each day, and the state is that of the given one."
  }
}

run "ground" {
  module {
    source = "./modules/controller"
  }

  assert {
    condition     = !contains(keys(aws_instance.controller["this"].tags), "castor:deployment")
    error_message = "The controller may not be able to end itself."
  }

  assert {
    condition     = aws_ssm_parameter.pools.name == "/castor/prod/pools" && aws_ssm_parameter.pools.tier == "Standard"
    error_message = "The pools are where Castor looks for them."
  }

  assert {
    condition = (
      aws_ebs_volume.state["this"].final_snapshot &&
      [for tag, value in one(aws_dlm_lifecycle_policy.state["this"].policy_details[*]).target_tags : value] == [aws_ebs_volume.state["this"].tags.Name] &&
      aws_dlm_lifecycle_policy.state["this"].policy_details[0].schedule[0].retain_rule[0].count == 7
    )
    error_message = "The state volume has a snapshot of each day for a week, and one before it is deleted."
  }
}

run "elsewhere" {
  module {
    source = "./modules/controller"
  }

  variables {
    controller             = null
    controller_principals  = ["arn:aws:iam::123456789012:role/people"]
    controller_external_id = "a-secret-word"
    iam_path               = "/castor/"

    permissions_boundary_arn = "arn:aws:iam::123456789012:policy/boundary"
  }

  assert {
    condition     = length(aws_instance.controller) == 0 && output.address == null && output.host == null
    error_message = "There is no instance of the controller."
  }

  assert {
    condition = anytrue([for statement in jsondecode(aws_iam_role.controller[0].assume_role_policy).Statement :
      try(statement.Condition.StringEquals["sts:ExternalId"] == "a-secret-word", false)
    ])
    error_message = "Who assumes its role from elsewhere names the external id."
  }

  assert {
    condition     = aws_iam_role.controller[0].permissions_boundary == "arn:aws:iam::123456789012:policy/boundary" && aws_iam_role.controller[0].path == "/castor/"
    error_message = "The role keeps within the boundary."
  }
}

run "two_regions" {
  command = plan

  module {
    source = "./modules/controller"
  }

  variables {
    regions = concat(var.regions, [merge(var.regions[0], {
      name  = "us-west-2"
      cidr  = "10.81.0.0/16"
      pools = { west = { region = "us-west-2" } }
    })])
  }

  assert {
    condition = [for statement in jsondecode(output.policies.run).Statement :
      statement.Condition.StringEquals["aws:RequestedRegion"] if statement.Sid == "LookAround"
    ] == [["us-east-1", "us-west-2"]]
    error_message = "The controller describes what is in its regions."
  }

  assert {
    condition = alltrue([for sid in ["LaunchOwnInstances", "EndOwnInstances"] :
      toset(flatten([for statement in concat(jsondecode(output.policies.launch).Statement, jsondecode(output.policies.run).Statement) : statement.Resource if statement.Sid == sid])) ==
      toset(["arn:aws:ec2:us-east-1:123456789012:instance/*", "arn:aws:ec2:us-west-2:123456789012:instance/*"])
    ])
    error_message = "The controller launches and ends instances in its regions."
  }
}

run "refuses_ranges_of_which_one_contains_the_other" {
  command = plan

  module {
    source = "./modules/controller"
  }

  variables {
    regions = concat(var.regions, [merge(var.regions[0], {
      name  = "us-west-2"
      cidr  = "10.80.64.0/18"
      pools = { west = { region = "us-west-2" } }
    })])
  }

  expect_failures = [aws_ssm_parameter.pools]
}

run "refuses_a_region_twice" {
  command = plan

  module {
    source = "./modules/controller"
  }

  variables {
    regions = concat(var.regions, [merge(var.regions[0], {
      name  = "us-east-1"
      cidr  = "10.81.0.0/16"
      pools = { west = { region = "us-east-1" } }
    })])
  }

  expect_failures = [aws_ssm_parameter.pools]
}

run "refuses_a_pool_twice" {
  command = plan

  module {
    source = "./modules/controller"
  }

  variables {
    regions = concat(var.regions, [merge(var.regions[0], {
      name  = "us-west-2"
      cidr  = "10.81.0.0/16"
      pools = { gpu = { region = "us-west-2" } }
    })])
  }

  expect_failures = [aws_ssm_parameter.pools]
}

run "refuses_other_regions_without_internet" {
  command = plan

  module {
    source = "./modules/controller"
  }

  variables {
    regions = concat(var.regions, [merge(var.regions[0], {
      name  = "us-west-2"
      cidr  = "10.81.0.0/16"
      pools = { west = { region = "us-west-2" } }
    })])
    network = merge(var.network, { has_internet = false })
  }

  expect_failures = [aws_ssm_parameter.pools]
}

run "refuses_policies_that_are_too_long" {
  command = plan

  module {
    source = "./modules/controller"
  }

  variables {
    regions = concat(var.regions, [merge(var.regions[0], {
      name             = "us-west-2"
      cidr             = "10.81.0.0/16"
      pools            = { west = { region = "us-west-2" } }
      launch_resources = [for number in range(150) : "arn:aws:ec2:us-west-2:123456789012:launch-template/lt-${number}"]
    })])
  }

  expect_failures = [aws_iam_role_policy.controller]
}

run "refuses_a_controller_that_nobody_runs" {
  command = plan

  module {
    source = "./modules/controller"
  }

  variables {
    controller = null
  }

  expect_failures = [aws_iam_role.controller]
}

run "refuses_what_can_not_be" {
  command = plan

  module {
    source = "./modules/controller"
  }

  variables {
    controller             = { image_id = "ubuntu", instance_type = "large", private_ip = "here", state_gb = 0.5, state_snapshots = -1, state_snapshot_id = "newest" }
    controller_principals  = ["*"]
    controller_external_id = " "
  }

  expect_failures = [var.controller, var.controller_principals, var.controller_external_id]
}

run "refuses_a_host_without_a_profile" {
  command = plan

  module {
    source = "./modules/controller"
  }

  variables {
    existing_role = { arn = "arn:aws:iam::123456789012:role/given-controller" }
  }

  expect_failures = [aws_instance.controller]
}
