# Roles of instances and jobs, the same in all regions.

locals {
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
  node_shell_statements = var.instance_shell ? [local.shell_statement] : []

  # The tag castor:controller is on what Castor launches, and not on the controller's host.
  sweep_statements = [
    {
      Sid      = "LookForInstances"
      Effect   = "Allow"
      Action   = "ec2:DescribeInstances"
      Resource = "*"
    },
    {
      Sid      = "EndOwnInstances"
      Effect   = "Allow"
      Action   = "ec2:TerminateInstances"
      Resource = "arn:${local.partition}:ec2:*:${local.account}:instance/*"
      Condition = {
        StringEquals = { "aws:ResourceTag/castor:deployment" = var.deployment }
        Null         = { "aws:ResourceTag/castor:controller" = "false" }
      }
    },
    {
      Sid      = "StartTheSweep"
      Effect   = "Allow"
      Action   = "states:StartExecution"
      Resource = "arn:${local.partition}:states:*:${local.account}:stateMachine:${local.name}-sweep"
    },
  ]

  node_policy  = jsonencode({ Version = "2012-10-17", Statement = concat(local.node_statements, local.wheel_statements, local.dataset_statements, local.registry_statements, local.node_shell_statements) })
  job_policy   = jsonencode({ Version = "2012-10-17", Statement = local.job_statements })
  sweep_policy = jsonencode({ Version = "2012-10-17", Statement = local.sweep_statements })

  given_roles          = var.existing_roles
  makes_node_role      = local.given_roles.node == null
  node_role_arn        = local.makes_node_role ? aws_iam_role.node[0].arn : local.given_roles.node.arn
  instance_profile_arn = local.makes_node_role ? aws_iam_instance_profile.node[0].arn : local.given_roles.node.instance_profile_arn
  makes_job_role       = local.given_roles.job == null
  job_role_arn         = local.makes_job_role ? aws_iam_role.job[0].arn : local.given_roles.job.arn
  makes_sweep_role     = local.given_roles.sweep == null && var.sweep_schedule != null
  sweep_role_arn       = local.makes_sweep_role ? aws_iam_role.sweep[0].arn : try(local.given_roles.sweep.arn, null)

  assumed_by_ec2 = {
    Sid       = "Ec2"
    Effect    = "Allow"
    Principal = { Service = "ec2.amazonaws.com" }
    Action    = "sts:AssumeRole"
  }
}

resource "aws_iam_role" "node" {
  count = local.makes_node_role ? 1 : 0

  name                 = "${local.name}-node"
  description          = "Castor ${var.deployment}: what an instance may do: find out who it is, and read datasets"
  path                 = var.iam_path
  permissions_boundary = var.permissions_boundary_arn
  assume_role_policy   = jsonencode({ Version = "2012-10-17", Statement = [local.assumed_by_ec2] })
  tags                 = local.tags
}

resource "aws_iam_role_policy" "node" {
  count = local.makes_node_role ? 1 : 0

  name   = "start"
  role   = aws_iam_role.node[0].id
  policy = local.node_policy
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each = local.makes_node_role ? var.node_role_policies : {}

  role       = aws_iam_role.node[0].name
  policy_arn = each.value
}

resource "aws_iam_role" "job" {
  count = local.makes_job_role ? 1 : 0

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
      Principal = { AWS = module.controller.role_arn }
      Action    = "sts:AssumeRole"
    }]
  })
  tags = local.tags
}

resource "aws_iam_role_policy" "job" {
  count = local.makes_job_role ? 1 : 0

  name   = "files"
  role   = aws_iam_role.job[0].id
  policy = local.job_policy
}

resource "aws_iam_role" "sweep" {
  count = local.makes_sweep_role ? 1 : 0

  name                 = "${local.name}-sweep"
  description          = "Castor ${var.deployment}: ends left-over instances, without a controller"
  path                 = var.iam_path
  permissions_boundary = var.permissions_boundary_arn
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "ScheduleAndSweep"
      Effect    = "Allow"
      Principal = { Service = ["scheduler.amazonaws.com", "states.amazonaws.com"] }
      Action    = "sts:AssumeRole"
      Condition = { StringEquals = { "aws:SourceAccount" = local.account } }
    }]
  })
  tags = local.tags
}

resource "aws_iam_role_policy" "sweep" {
  count = local.makes_sweep_role ? 1 : 0

  name   = "sweep"
  role   = aws_iam_role.sweep[0].id
  policy = local.sweep_policy
}

resource "aws_iam_instance_profile" "node" {
  count = local.makes_node_role ? 1 : 0

  name = aws_iam_role.node[0].name
  path = var.iam_path
  role = aws_iam_role.node[0].name
  tags = local.tags
}

resource "aws_iam_service_linked_role" "spot" {
  count = var.service_linked_roles ? 1 : 0

  aws_service_name = "spot.amazonaws.com"
}
