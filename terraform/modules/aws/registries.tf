# Private repositories of ECR whose images jobs may use, and the node role's permissions to read them.

locals {
  registry_parts = [for name in var.registries :
    regex("^(?P<account>[0-9]{12})\\.dkr\\.ecr\\.(?P<region>[a-z0-9-]+)\\.amazonaws\\.com(?:\\.cn)?(?:/(?P<path>.+))?$", name)
  ]
  # A path is one repository, and all whose names begin with it and a slash.
  repository_arns = flatten([for part in local.registry_parts : [
    for name in part.path == null ? ["*"] : [part.path, "${part.path}/*"] :
    "arn:${local.partition}:ecr:${part.region}:${part.account}:repository/${name}"
  ]])

  registry_statements = length(var.registries) == 0 ? [] : [
    {
      # A password covers no more than the role does.
      Sid      = "LogInToRegistries"
      Effect   = "Allow"
      Action   = ["ecr:GetAuthorizationToken"]
      Resource = ["*"]
    },
    {
      Sid      = "ReadImages"
      Effect   = "Allow"
      Action   = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
      Resource = local.repository_arns
    },
  ]
}
