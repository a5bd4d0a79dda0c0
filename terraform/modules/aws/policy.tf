locals {
  ec2 = "arn:${local.partition}:ec2:${local.region}:${local.account}"

  requests_ownership = { "aws:RequestTag/castor:deployment" = var.deployment }
  has_ownership      = { "aws:ResourceTag/castor:deployment" = var.deployment }
  instance_types     = sort(distinct(flatten([for pool in var.pools : pool.instance_types])))

  # Existing resources that a launch may use: only these.
  launch_inputs = concat(
    [for id in sort(distinct([for pool in var.pools : pool.image_id])) : "arn:${local.partition}:ec2:${local.region}::image/${id}"],
    ["arn:${local.partition}:ec2:${local.region}::snapshot/*", "${local.ec2}:snapshot/*"],
    [for zone in sort(keys(local.subnets)) : "${local.ec2}:subnet/${local.subnets[zone]}"],
    ["${local.ec2}:security-group/${aws_security_group.nodes.id}"],
    [for name in sort(keys(var.pools)) : aws_launch_template.pool[name].arn],
    [for name in sort(keys(aws_placement_group.pool)) : aws_placement_group.pool[name].arn],
    # A reservation's ARN has the account of its owner.
    [for id in sort(distinct(compact([for pool in var.pools : pool.reservation]))) : "arn:${local.partition}:ec2:${local.region}:*:capacity-reservation/${id}"],
  )

  launch_statements = [
    {
      Sid      = "LaunchFromGivenParts"
      Effect   = "Allow"
      Action   = ["ec2:CreateFleet", "ec2:RunInstances"]
      Resource = local.launch_inputs
    },
    {
      Sid       = "LaunchOwnInstances"
      Effect    = "Allow"
      Action    = "ec2:RunInstances"
      Resource  = "${local.ec2}:instance/*"
      Condition = { StringEquals = merge(local.requests_ownership, { "ec2:InstanceType" = local.instance_types }) }
    },
    {
      Sid       = "LaunchOwnParts"
      Effect    = "Allow"
      Action    = "ec2:RunInstances"
      Resource  = ["${local.ec2}:network-interface/*", "${local.ec2}:volume/*"]
      Condition = { StringEquals = local.requests_ownership }
    },
    {
      # A fleet can't tag its spot request. A request without an instance is harmless.
      Sid      = "RequestSpot"
      Effect   = "Allow"
      Action   = ["ec2:CreateFleet", "ec2:RunInstances"]
      Resource = "${local.ec2}:spot-instances-request/*"
    },
    {
      Sid    = "OrderOwnFleets"
      Effect = "Allow"
      Action = "ec2:CreateFleet"
      Resource = [for kind in ["fleet", "instance", "network-interface", "volume"] :
        "${local.ec2}:${kind}/*"
      ]
      Condition = { StringEquals = local.requests_ownership }
    },
    {
      Sid    = "TagWhatIsLaunched"
      Effect = "Allow"
      Action = "ec2:CreateTags"
      Resource = [for kind in ["fleet", "instance", "network-interface", "volume"] :
        "${local.ec2}:${kind}/*"
      ]
      Condition = {
        StringEquals = merge(local.requests_ownership, { "ec2:CreateAction" = ["CreateFleet", "RunInstances"] })
      }
    },
    {
      Sid       = "GiveNodesTheirRole"
      Effect    = "Allow"
      Action    = "iam:PassRole"
      Resource  = aws_iam_role.node.arn
      Condition = { StringEquals = { "iam:PassedToService" = "ec2.amazonaws.com" } }
    },
  ]

  controller_statements = [
    {
      Sid       = "EndOwnInstances"
      Effect    = "Allow"
      Action    = "ec2:TerminateInstances"
      Resource  = "${local.ec2}:instance/*"
      Condition = { StringEquals = local.has_ownership }
    },
    {
      # Why an instance did not start stands on its console only.
      Sid       = "ReadConsoles"
      Effect    = "Allow"
      Action    = "ec2:GetConsoleOutput"
      Resource  = "${local.ec2}:instance/*"
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
      Condition = { StringEquals = { "aws:RequestedRegion" = local.region } }
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
      Resource = aws_sqs_queue.events.arn
    },
    {
      Sid      = "TellInstancesWhoTheyAre"
      Effect   = "Allow"
      Action   = "s3:PutObject"
      Resource = "${aws_s3_bucket.this.arn}/${local.parcels}/*"
    },
    {
      Sid      = "GiveJobsLeaveForTheirFiles"
      Effect   = "Allow"
      Action   = "sts:AssumeRole"
      Resource = aws_iam_role.job.arn
    },
    {
      Sid      = "PutBundles"
      Effect   = "Allow"
      Action   = ["s3:GetObject", "s3:PutObject"]
      Resource = "${aws_s3_bucket.this.arn}/${local.bundles}/*"
    },
    {
      Sid      = "ReadLogsAndRemoveCheckpoints"
      Effect   = "Allow"
      Action   = ["s3:DeleteObject", "s3:GetObject"]
      Resource = "${aws_s3_bucket.this.arn}/${local.jobs}/*"
    },
    {
      Sid       = "ListFilesOfJobs"
      Effect    = "Allow"
      Action    = "s3:ListBucket"
      Resource  = aws_s3_bucket.this.arn
      Condition = { StringLike = { "s3:prefix" = ["${local.jobs}/*", "${local.bundles}/*"] } }
    },
    {
      Sid       = "EncryptWhatItTells"
      Effect    = "Allow"
      Action    = ["kms:Decrypt", "kms:GenerateDataKey"]
      Resource  = local.kms_key_arn
      Condition = { StringEquals = { "kms:ViaService" = "s3.${local.region}.amazonaws.com" } }
    },
  ]

  volume_key_statements = [for arn in compact([var.volume_kms_key_arn]) : {
    Sid      = "EncryptVolumes"
    Effect   = "Allow"
    Action   = ["kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"]
    Resource = arn
    Condition = {
      StringEquals = { "kms:ViaService" = "ec2.${local.region}.amazonaws.com" }
    }
  }]

  wheel_statements = [
    {
      Sid      = "ReadWheels"
      Effect   = "Allow"
      Action   = "s3:GetObject"
      Resource = "${aws_s3_bucket.this.arn}/wheels/*"
    },
    {
      Sid       = "ListWheels"
      Effect    = "Allow"
      Action    = "s3:ListBucket"
      Resource  = aws_s3_bucket.this.arn
      Condition = { StringLike = { "s3:prefix" = ["wheels/*"] } }
    },
  ]

  # An instance can't list other instances' start data; its tag names its own.
  node_statements = [
    {
      Sid      = "ReadWhoItIs"
      Effect   = "Allow"
      Action   = "s3:GetObject"
      Resource = "${aws_s3_bucket.this.arn}/${local.parcels}/*"
    },
    {
      Sid       = "DecryptWhatItReads"
      Effect    = "Allow"
      Action    = "kms:Decrypt"
      Resource  = local.kms_key_arn
      Condition = { StringEquals = { "kms:ViaService" = "s3.${local.region}.amazonaws.com" } }
    },
  ]

  # A job gets less: the controller assumes this role with a policy for one prefix and one bundle.
  job_statements = [
    {
      Sid      = "KeepFiles"
      Effect   = "Allow"
      Action   = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
      Resource = "${aws_s3_bucket.this.arn}/${local.jobs}/*"
    },
    {
      Sid       = "ListFiles"
      Effect    = "Allow"
      Action    = "s3:ListBucket"
      Resource  = aws_s3_bucket.this.arn
      Condition = { StringLike = { "s3:prefix" = ["${local.jobs}/*"] } }
    },
    {
      Sid      = "ReadBundles"
      Effect   = "Allow"
      Action   = "s3:GetObject"
      Resource = "${aws_s3_bucket.this.arn}/${local.bundles}/*"
    },
    {
      Sid       = "EncryptFiles"
      Effect    = "Allow"
      Action    = ["kms:Decrypt", "kms:GenerateDataKey"]
      Resource  = local.kms_key_arn
      Condition = { StringEquals = { "kms:ViaService" = "s3.${local.region}.amazonaws.com" } }
    },
  ]

  shell_statement = {
    Sid    = "LetPeopleIn"
    Effect = "Allow"
    Action = [
      "ssm:UpdateInstanceInformation",
      "ssmmessages:CreateControlChannel",
      "ssmmessages:CreateDataChannel",
      "ssmmessages:OpenControlChannel",
      "ssmmessages:OpenDataChannel",
    ]
    Resource = "*"
  }
  shell_statements      = try(var.controller.session_manager, false) ? [local.shell_statement] : []
  node_shell_statements = var.instance_shell ? [local.shell_statement] : []

  # Separate policies of one role: all together may have 10,240 characters, and each is easier to
  # read.
  controller_policies = {
    launch = local.launch_statements
    run    = concat(local.controller_statements, local.volume_key_statements, local.wheel_statements, local.shell_statements)
  }

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
  name                 = "${local.name}-controller"
  description          = "Castor ${var.deployment}: buys instances, and gives them back"
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
  for_each = local.controller_policies

  name   = each.key
  role   = aws_iam_role.controller.id
  policy = jsonencode({ Version = "2012-10-17", Statement = each.value })
}

resource "aws_iam_role" "node" {
  name                 = "${local.name}-node"
  description          = "Castor ${var.deployment}: what an instance may do: find out who it is, and read datasets"
  path                 = var.iam_path
  permissions_boundary = var.permissions_boundary_arn
  assume_role_policy   = jsonencode({ Version = "2012-10-17", Statement = [local.assumed_by_ec2] })
  tags                 = local.tags
}

resource "aws_iam_role_policy" "node" {
  name   = "start"
  role   = aws_iam_role.node.id
  policy = jsonencode({ Version = "2012-10-17", Statement = concat(local.node_statements, local.wheel_statements, local.dataset_statements, local.registry_statements, local.node_shell_statements) })
}

resource "aws_iam_role" "job" {
  name                 = "${local.name}-job"
  description          = "Castor ${var.deployment}: what jobs may do with their files; the controller hands on parts of it"
  path                 = var.iam_path
  permissions_boundary = var.permissions_boundary_arn
  max_session_duration = 3600
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "Controller"
      Effect    = "Allow"
      Principal = { AWS = aws_iam_role.controller.arn }
      Action    = "sts:AssumeRole"
    }]
  })
  tags = local.tags
}

resource "aws_iam_role_policy" "job" {
  name   = "files"
  role   = aws_iam_role.job.id
  policy = jsonencode({ Version = "2012-10-17", Statement = local.job_statements })
}

resource "aws_iam_instance_profile" "node" {
  name = aws_iam_role.node.name
  path = var.iam_path
  role = aws_iam_role.node.name
  tags = local.tags
}

resource "aws_iam_service_linked_role" "spot" {
  count = var.service_linked_roles ? 1 : 0

  aws_service_name = "spot.amazonaws.com"
}
