# The controller's role.

locals {
  account   = var.shared.account
  partition = var.shared.partition
  regions   = [for region in var.regions : region.name]
  ec2       = [for name in local.regions : "arn:${local.partition}:ec2:${name}:${local.account}"]

  requests_ownership = { "aws:RequestTag/castor:deployment" = var.shared.deployment }
  has_ownership      = { "aws:ResourceTag/castor:deployment" = var.shared.deployment }
  instance_types     = sort(distinct(flatten([for region in var.regions : region.instance_types])))

  launch_statements = [
    {
      Sid      = "LaunchFromGivenParts"
      Effect   = "Allow"
      Action   = ["ec2:CreateFleet", "ec2:RunInstances"]
      Resource = flatten([for region in var.regions : region.launch_resources])
    },
    {
      Sid       = "LaunchOwnInstances"
      Effect    = "Allow"
      Action    = "ec2:RunInstances"
      Resource  = [for ec2 in local.ec2 : "${ec2}:instance/*"]
      Condition = { StringEquals = merge(local.requests_ownership, { "ec2:InstanceType" = local.instance_types }) }
    },
    {
      Sid       = "LaunchOwnParts"
      Effect    = "Allow"
      Action    = "ec2:RunInstances"
      Resource  = flatten([for ec2 in local.ec2 : ["${ec2}:network-interface/*", "${ec2}:volume/*"]])
      Condition = { StringEquals = local.requests_ownership }
    },
    {
      # A fleet can't tag its spot request. A request without an instance is harmless.
      Sid      = "RequestSpot"
      Effect   = "Allow"
      Action   = ["ec2:CreateFleet", "ec2:RunInstances"]
      Resource = [for ec2 in local.ec2 : "${ec2}:spot-instances-request/*"]
    },
    {
      Sid    = "OrderOwnFleets"
      Effect = "Allow"
      Action = "ec2:CreateFleet"
      Resource = [for pair in setproduct(local.ec2, ["fleet", "instance", "network-interface", "volume"]) :
        "${pair[0]}:${pair[1]}/*"
      ]
      Condition = { StringEquals = local.requests_ownership }
    },
    {
      Sid    = "TagWhatIsLaunched"
      Effect = "Allow"
      Action = "ec2:CreateTags"
      Resource = [for pair in setproduct(local.ec2, ["fleet", "instance", "network-interface", "volume"]) :
        "${pair[0]}:${pair[1]}/*"
      ]
      Condition = {
        StringEquals = merge(local.requests_ownership, { "ec2:CreateAction" = ["CreateFleet", "RunInstances"] })
      }
    },
    {
      Sid       = "GiveNodesTheirRole"
      Effect    = "Allow"
      Action    = "iam:PassRole"
      Resource  = var.node_role_arn
      Condition = { StringEquals = { "iam:PassedToService" = "ec2.amazonaws.com" } }
    },
  ]

  controller_statements = [
    {
      Sid       = "EndOwnInstances"
      Effect    = "Allow"
      Action    = "ec2:TerminateInstances"
      Resource  = [for ec2 in local.ec2 : "${ec2}:instance/*"]
      Condition = { StringEquals = local.has_ownership }
    },
    {
      # Why an instance did not start stands on its console only.
      Sid       = "ReadConsoles"
      Effect    = "Allow"
      Action    = "ec2:GetConsoleOutput"
      Resource  = [for ec2 in local.ec2 : "${ec2}:instance/*"]
      Condition = { StringEquals = local.has_ownership }
    },
    {
      Sid    = "LookAround"
      Effect = "Allow"
      Action = [
        "ec2:DescribeCapacityReservations",
        "ec2:DescribeInstanceTypeOfferings",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeInstances",
        "ec2:DescribeLaunchTemplateVersions",
        "ec2:DescribeSpotPriceHistory",
        "servicequotas:ListServiceQuotas",
      ]
      Resource  = "*"
      Condition = { StringEquals = { "aws:RequestedRegion" = local.regions } }
    },
    {
      # One endpoint serves the price list of all regions.
      Sid      = "LookUpPrices"
      Effect   = "Allow"
      Action   = "pricing:GetProducts"
      Resource = "*"
    },
    {
      Sid      = "ReadItsSettings"
      Effect   = "Allow"
      Action   = "ssm:GetParameter"
      Resource = "arn:${local.partition}:ssm:${local.region}:${local.account}:parameter${local.parameter}"
    },
    {
      Sid      = "HearEvents"
      Effect   = "Allow"
      Action   = ["sqs:DeleteMessage", "sqs:ReceiveMessage"]
      Resource = [for region in var.regions : region.queue_arn]
    },
    {
      Sid      = "TellInstancesWhoTheyAre"
      Effect   = "Allow"
      Action   = "s3:PutObject"
      Resource = "${var.bucket_arn}/user-data/*"
    },
    {
      Sid      = "GiveJobsLeaveForTheirFiles"
      Effect   = "Allow"
      Action   = "sts:AssumeRole"
      Resource = var.job_role_arn
    },
    {
      Sid      = "PutBundles"
      Effect   = "Allow"
      Action   = ["s3:GetObject", "s3:PutObject"]
      Resource = "${var.bucket_arn}/bundles/*"
    },
    {
      Sid      = "ReadLogsAndRemoveCheckpoints"
      Effect   = "Allow"
      Action   = ["s3:DeleteObject", "s3:GetObject"]
      Resource = "${var.bucket_arn}/jobs/*"
    },
    {
      Sid       = "ListFilesOfJobs"
      Effect    = "Allow"
      Action    = "s3:ListBucket"
      Resource  = var.bucket_arn
      Condition = { StringLike = { "s3:prefix" = ["jobs/*", "bundles/*"] } }
    },
    {
      Sid       = "EncryptWhatItTells"
      Effect    = "Allow"
      Action    = ["kms:Decrypt", "kms:GenerateDataKey"]
      Resource  = var.bucket_kms_key_arn
      Condition = { StringEquals = { "kms:ViaService" = "s3.${local.region}.amazonaws.com" } }
    },
  ]

  volume_key_statements = [for region in var.regions : {
    # An id of a statement has only letters and digits.
    Sid      = region.name == local.region ? "EncryptVolumes" : "EncryptVolumes${replace(region.name, "-", "")}"
    Effect   = "Allow"
    Action   = ["kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"]
    Resource = region.volume_kms_key_arn
    Condition = {
      StringEquals = { "kms:ViaService" = "ec2.${region.name}.amazonaws.com" }
    }
  } if region.volume_kms_key_arn != null]

  # Separate policies of one role: all together may have 10,240 characters, and each is easier to
  # read.
  controller_policies = {
    launch = local.launch_statements
    run    = concat(local.controller_statements, local.volume_key_statements, var.additional_statements)
  }

  policies = { for name, statements in local.controller_policies : name => jsonencode({ Version = "2012-10-17", Statement = statements }) }

  makes_role = var.existing_role == null
  role_arn   = local.makes_role ? aws_iam_role.controller[0].arn : var.existing_role.arn

  external_id = var.controller_external_id == null ? {} : {
    Condition = { StringEquals = { "sts:ExternalId" = var.controller_external_id } }
  }
  assumed_by_ec2 = {
    Sid       = "Ec2"
    Effect    = "Allow"
    Principal = { Service = "ec2.amazonaws.com" }
    Action    = "sts:AssumeRole"
  }
  assumed_by_principals = [for principals in [sort(var.controller_principals)] : merge({
    Sid       = "Principals"
    Effect    = "Allow"
    Principal = { AWS = principals }
    Action    = "sts:AssumeRole"
  }, local.external_id) if length(principals) > 0]
}

resource "aws_iam_role" "controller" {
  count = local.makes_role ? 1 : 0

  name                 = "${local.name}-controller"
  description          = "Castor ${var.shared.deployment}: buys instances, and gives them back"
  path                 = var.iam_path
  permissions_boundary = var.permissions_boundary_arn
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = concat([local.assumed_by_ec2], local.assumed_by_principals)
  })
  tags = local.tags

  lifecycle {
    precondition {
      condition     = var.controller != null || length(var.controller_principals) > 0
      error_message = "controller, controller_principals: no controller could run: set an instance, or principals that may assume its role."
    }
  }
}

resource "aws_iam_role_policy" "controller" {
  for_each = { for name in keys(local.controller_policies) : name => name if local.makes_role }

  name   = each.key
  role   = aws_iam_role.controller[0].id
  policy = local.policies[each.key]

  lifecycle {
    precondition {
      condition     = length(join("", values(local.policies))) <= 10240
      error_message = "pools, other_regions: the policies of the controller's role exceed IAM's 10,240 characters: use fewer pools, types, zones or regions, or a second deployment."
    }
  }
}
