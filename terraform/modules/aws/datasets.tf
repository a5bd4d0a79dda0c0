# Datasets that instances mount, and their role's permissions to read them.

locals {
  # Input of files/datasets.sh: a path and a location in each line.
  datasets = join("\n", [for path, place in var.datasets : "${path} ${place}"])

  dataset_places = [for place in distinct(values(var.datasets)) : regex("^s3://(?P<bucket>[^/]+)/(?P<prefix>.*)$", place)]
  # Prefixes by bucket. No name contains * or ?, which are wildcards in a policy.
  dataset_prefixes = { for place in local.dataset_places : place.bucket => place.prefix... }

  dataset_statements = concat(
    [for bucket, prefixes in local.dataset_prefixes : {
      Effect   = "Allow"
      Action   = "s3:GetObject"
      Resource = [for prefix in prefixes : "arn:${local.partition}:s3:::${bucket}/${prefix}*"]
    }],
    [for bucket, prefixes in local.dataset_prefixes : merge(
      {
        Effect   = "Allow"
        Action   = "s3:ListBucket"
        Resource = "arn:${local.partition}:s3:::${bucket}"
      },
      contains(prefixes, "") ? {} : { Condition = { StringLike = { "s3:prefix" = [for prefix in prefixes : "${prefix}*"] } } },
    )],
    length(var.dataset_kms_key_arns) == 0 ? [] : [{
      Sid       = "DecryptDatasets"
      Effect    = "Allow"
      Action    = "kms:Decrypt"
      Resource  = sort(var.dataset_kms_key_arns)
      Condition = { StringLike = { "kms:ViaService" = "s3.*.amazonaws.com" } }
    }],
  )
}
