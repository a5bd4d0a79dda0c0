locals {
  bucket_name = var.bucket_name != null ? var.bucket_name : "castor-${var.deployment}-${local.account}-${local.region}"
  makes_key   = var.create_kms_key != null ? var.create_kms_key : var.kms_key_arn == null
  kms_key_arn = local.makes_key ? aws_kms_key.bucket[0].arn : var.kms_key_arn
  parcels     = "user-data"
  jobs        = "jobs"
  bundles     = "bundles"
  wheels      = var.wheels_directory == null ? toset([]) : fileset(var.wheels_directory, "{*.whl,requirements-*.txt}")
  expiries    = merge(var.lifecycle_days, { "${local.parcels}/" = 1 })
}

resource "aws_kms_key" "bucket" {
  count = local.makes_key ? 1 : 0

  description             = "Castor ${var.deployment}: the bucket"
  enable_key_rotation     = true
  deletion_window_in_days = 30
  tags                    = local.tags
}

resource "aws_s3_bucket" "this" {
  bucket        = local.bucket_name
  force_destroy = var.bucket_force_destroy
  tags          = local.tags

  lifecycle {
    precondition {
      condition     = var.wheels_directory == null ? true : !var.package_index || fileexists("${var.wheels_directory}/requirements-node.txt")
      error_message = "wheels_directory: no requirements-node.txt, so that instances could train one job with different packages: run make wheels, or set package_index = false and add all wheels."
    }
    precondition {
      condition     = !contains(keys(local.dataset_prefixes), local.bucket_name)
      error_message = "datasets: Castor's own bucket holds join tokens and all jobs' files, which no job may read: use another bucket."
    }
    precondition {
      condition     = local.partition != "aws-cn"
      error_message = "provider: regions of China are not supported: their prices are in yuan, and their services have other names in policies."
    }
  }
}

resource "aws_s3_bucket_public_access_block" "this" {
  bucket = aws_s3_bucket.this.id

  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "this" {
  bucket = aws_s3_bucket.this.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  bucket = aws_s3_bucket.this.id

  rule {
    bucket_key_enabled = true

    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = local.kms_key_arn
    }
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  bucket = aws_s3_bucket.this.id

  rule {
    id     = "unfinished-uploads"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 3
    }
  }

  dynamic "rule" {
    for_each = local.expiries

    content {
      id     = "expire-${trimsuffix(replace(rule.key, "/", "-"), "-")}"
      status = "Enabled"

      filter {
        prefix = rule.key
      }

      expiration {
        days = rule.value
      }
    }
  }
}

resource "aws_s3_bucket_policy" "this" {
  bucket = aws_s3_bucket.this.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "EncryptedConnectionsOnly"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:*"
        Resource  = [aws_s3_bucket.this.arn, "${aws_s3_bucket.this.arn}/*"]
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
      {
        # The prefix holds the join tokens of instances.
        Sid       = "InstancesAloneReadWhoTheyAre"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:GetObject"
        Resource  = "${aws_s3_bucket.this.arn}/${local.parcels}/*"
        Condition = { ArnNotEquals = { "aws:PrincipalArn" = local.node_role_arn } }
      },
    ]
  })

  depends_on = [aws_s3_bucket_public_access_block.this]
}

resource "aws_s3_object" "wheel" {
  for_each = local.wheels

  bucket      = aws_s3_bucket.this.id
  key         = "wheels/${each.value}"
  source      = "${var.wheels_directory}/${each.value}"
  source_hash = filemd5("${var.wheels_directory}/${each.value}")

  depends_on = [aws_s3_bucket_server_side_encryption_configuration.this]
}
