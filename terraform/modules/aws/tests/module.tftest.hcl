# Needs Terraform 1.7 or newer, or OpenTofu 1.8, for mock_provider; the module itself does not.

mock_provider "aws" {
  source = "./tests/mocks"
}

mock_provider "aws" {
  alias  = "west"
  source = "./tests/mocks"
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
    condition = alltrue([
      aws_s3_bucket_public_access_block.this.block_public_acls,
      aws_s3_bucket_public_access_block.this.block_public_policy,
      aws_s3_bucket_public_access_block.this.ignore_public_acls,
      aws_s3_bucket_public_access_block.this.restrict_public_buckets,
    ])
    error_message = "The bucket is private."
  }

  assert {
    condition = (
      jsondecode(output.pools_json).regions["us-east-1"].jobs == "s3://castor-prod-123456789012-us-east-1/jobs" &&
      jsondecode(output.pools_json).regions["us-east-1"].job_role == output.job_role_arn
    )
    error_message = "Castor is told where jobs keep their files, and by which role."
  }

  assert {
    condition = [for statement in jsondecode(aws_iam_role.job[0].assume_role_policy).Statement : statement.Principal] == [
      { AWS = output.controller_role_arn }
    ]
    error_message = "The controller alone assumes the role of jobs."
  }

  assert {
    condition     = jsondecode(output.pools_json).tags == { "cost-centre" = "ml", team = "vision" }
    error_message = "Castor gives what it launches the provider's default tags, too."
  }

  assert {
    condition     = output.controller_address == "https://${output.controller_host}:8470" && can(cidrnetmask("${output.controller_host}/32"))
    error_message = "controller_host is an address without scheme and port."
  }

  assert {
    condition     = output.pools_source == "ssm:/castor/prod/pools"
    error_message = "The pools are where Castor looks for them."
  }

  assert {
    condition     = output.shared.sweep == { role_arn = aws_iam_role.sweep[0].arn, schedule = "rate(6 hours)", max_run_hours = 168 }
    error_message = "The pools of every region are swept."
  }

  assert {
    condition = [for statement in jsondecode(aws_iam_role.sweep[0].assume_role_policy).Statement : statement.Condition] == [
      { StringEquals = { "aws:SourceAccount" = "123456789012" } }
    ]
    error_message = "Schedules and state machines of other accounts can't assume the sweep's role."
  }
}

run "no_sweep" {
  command = plan

  variables {
    sweep_schedule = null
  }

  assert {
    condition     = length(aws_iam_role.sweep) == 0 && output.shared.sweep == null
    error_message = "Without a schedule there is no sweep, and no role for it."
  }
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
    condition     = output.controller_address == null && output.controller_host == null
    error_message = "There is no instance of the controller."
  }

  assert {
    condition = alltrue([for role in [aws_iam_role.job[0], aws_iam_role.node[0], aws_iam_role.sweep[0]] :
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
    condition     = strcontains("\n${output.shared.datasets}\n", "\n/datasets/text/all s3://texts.example.com/\n")
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
    condition     = length(setsubtract(["ecr.api", "ecr.dkr"], local.called_services)) == 0
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
    condition     = length(output.pools_json) > 4096
    error_message = "More than 4 KB need an advanced parameter."
  }
}

run "existing_roles" {
  variables {
    existing_roles = {
      node       = { arn = "arn:aws:iam::123456789012:role/given-node", instance_profile_arn = "arn:aws:iam::123456789012:instance-profile/given-node" }
      controller = { arn = "arn:aws:iam::123456789012:role/given-controller", instance_profile = "given-controller" }
      job        = { arn = "arn:aws:iam::123456789012:role/given-job" }
      sweep      = { arn = "arn:aws:iam::123456789012:role/given-sweep" }
    }
  }

  assert {
    condition = length(concat(aws_iam_role.node, aws_iam_role.job, aws_iam_role.sweep, aws_iam_instance_profile.node)) == 0 && [
      output.node_role_arn, output.controller_role_arn, output.job_role_arn, output.shared.instance_profile_arn, output.shared.sweep.role_arn
      ] == [
      "arn:aws:iam::123456789012:role/given-node", "arn:aws:iam::123456789012:role/given-controller",
      "arn:aws:iam::123456789012:role/given-job", "arn:aws:iam::123456789012:instance-profile/given-node",
      "arn:aws:iam::123456789012:role/given-sweep",
    ]
    error_message = "Given roles take the place of new ones."
  }

  assert {
    condition     = length(output.controller_policies) == 2 && strcontains(output.controller_policies.launch, "role/given-node") && strcontains(aws_s3_bucket_policy.this.policy, "role/given-node")
    error_message = "The permissions that given roles need are outputs, and the bucket's policy names the given role."
  }
}

run "policies_of_the_node_role" {
  command = plan

  variables {
    node_role_policies = { logs = "arn:aws:iam::aws:policy/CloudWatchAgentServerPolicy" }
  }

  assert {
    condition     = aws_iam_role_policy_attachment.node["logs"].policy_arn == "arn:aws:iam::aws:policy/CloudWatchAgentServerPolicy"
    error_message = "The node role has the additional policy."
  }
}

run "several_regions" {
  variables {
    other_regions = [{
      name               = "us-west-2"
      cidr               = "10.81.0.0/16"
      settings           = { subnets = { us-west-2a = "subnet-0123456789abcdef2" }, user_data = "s3://castor-prod-123456789012-us-east-1/user-data", queue_url = "https://sqs.us-west-2.amazonaws.com/123456789012/castor" }
      pools              = { west = { region = "us-west-2", launch_template = { id = "lt-0123456789abcdef1", version = 1 }, instance_types = ["g6.xlarge"], purchases = ["spot"], max_instances = 2, max_usd_per_hour = 10, extras_usd_per_hour = "0.02" } }
      instance_types     = ["g6.xlarge"]
      launch_resources   = ["arn:aws:ec2:us-west-2:123456789012:launch-template/lt-0123456789abcdef1"]
      queue_arn          = "arn:aws:sqs:us-west-2:123456789012:castor"
      volume_kms_key_arn = null
      given_tags         = {}
    }]
  }

  assert {
    condition     = keys(jsondecode(output.pools_json).regions) == ["us-east-1", "us-west-2"] && keys(jsondecode(output.pools_json).pools) == ["gpu", "near", "west"]
    error_message = "One document has the pools of all regions."
  }

  assert {
    condition     = [for region in jsondecode(output.pools_json).regions : can(region.jobs)] == [true, false]
    error_message = "Jobs' files are in the controller's region."
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

run "example_several_regions" {
  module {
    source = "./examples/several-regions"
  }

  variables {
    image_ids        = { us-east-1 = "ami-0123456789abcdef0", us-west-2 = "ami-0123456789abcdef1" }
    wheels_directory = null
  }

  override_data {
    target = module.west_network.data.aws_region.current
    values = { id = "us-west-2" }
  }

  assert {
    condition     = module.castor.shared.region == "us-east-1" && module.west.region.name == "us-west-2"
    error_message = "Each module works in the region of its provider."
  }

  assert {
    condition = { for name, pool in jsondecode(module.castor.pools_json).pools : name => pool.region } == {
      gpu      = "us-east-1"
      gpu-west = "us-west-2"
    }
    error_message = "The controller buys in both regions."
  }
}

run "example_team" {
  command = plan

  module {
    source = "./examples/team"
  }

  variables {
    image_id                 = "ami-0123456789abcdef0"
    client_cidrs             = ["10.0.0.0/16", "10.1.0.0/16"]
    permissions_boundary_arn = "arn:aws:iam::123456789012:policy/boundary"
  }
}

run "refuses_what_can_not_be" {
  command = plan

  variables {
    deployment               = "Prod"
    max_usd_per_hour         = 0
    fleet_usd                = "0"
    job_usd                  = "many"
    study_usd                = "-1"
    lease                    = "2d"
    policy                   = "marginal; true"
    launches_per_minute      = 0
    tags                     = { "castor:job" = "1" }
    client_cidrs             = ["0.0.0.0/0"]
    kms_key_arn              = "alias/castor"
    bucket_name              = "Castor"
    lifecycle_days           = { "user-data/" = 3 }
    datasets                 = { "/datasets/../etc" = "s3://my-data" }
    dataset_kms_key_arns     = ["alias/data"]
    registries               = ["123456789012.dkr.ecr.us-east-1.amazonaws.com/team:1"]
    permissions_boundary_arn = "boundary"
    iam_path                 = "castor"
    wheels_directory         = "./examples"
    python                   = "python3; true"
    boot_minutes             = 1
    existing_roles           = { job = { arn = "castor" } }
    node_role_policies       = { logs = "CloudWatchAgentServerPolicy" }
    other_regions            = ["us-west-2"]
    sweep_schedule           = "6 hours"
    max_run_hours            = 0
  }

  expect_failures = [
    var.deployment, var.max_usd_per_hour, var.fleet_usd, var.job_usd, var.study_usd, var.lease, var.policy,
    var.launches_per_minute, var.tags, var.client_cidrs, var.kms_key_arn, var.bucket_name,
    var.lifecycle_days, var.datasets, var.dataset_kms_key_arns, var.registries,
    var.permissions_boundary_arn, var.iam_path, var.wheels_directory, var.python, var.boot_minutes,
    var.existing_roles, var.node_role_policies, var.other_regions, var.sweep_schedule, var.max_run_hours,
  ]
}

run "refuses_regions_of_china" {
  command = plan

  override_data {
    target = data.aws_partition.current
    values = { partition = "aws-cn" }
  }

  expect_failures = [aws_s3_bucket.this]
}

run "refuses_packages_without_pins" {
  command = plan

  variables {
    wheels_directory = "./tests/unpinned"
  }

  expect_failures = [aws_s3_bucket.this]
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

  expect_failures = [aws_s3_bucket.this]
}
