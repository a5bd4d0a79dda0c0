# Subnets of an existing network without internet access. Services are called through endpoints,
# packages come from the bucket, and roles have a permissions boundary.

terraform {
  required_version = ">= 1.6"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.100, < 7"
    }
  }
}

provider "aws" {
  region = "eu-west-1"

  dynamic "assume_role" {
    for_each = var.terraform_role_arn == null ? [] : [var.terraform_role_arn]

    content {
      role_arn = assume_role.value
    }
  }
}

variable "terraform_role_arn" {
  description = "Role that Terraform assumes; null uses the environment's credentials."
  type        = string
  default     = null
}

variable "vpc_id" {
  description = "The network, with DNS support and DNS host names."
  type        = string
}

variable "subnets" {
  description = "Private subnets of the network, by zone."
  type        = map(string)
}

variable "route_table_ids" {
  description = "The route tables of these subnets."
  type        = set(string)
}

variable "image_id" {
  description = "An image for x86-64 with NVIDIA's driver and EFA's, Python 3.11 or newer with venv, nftables, and the AWS CLI."
  type        = string
}

variable "wheels_directory" {
  description = "Directory with Castor's wheel and all its dependencies: pip download castor_autoscaler-*.whl[server,oidc,telemetry,aws,training]."
  type        = string
  default     = null
}

variable "permissions_boundary_arn" {
  description = "The boundary of all roles."
  type        = string
}

variable "kms_key_arn" {
  description = "The key of the bucket."
  type        = string
}

module "castor" {
  source = "../../"

  deployment          = "research"
  vpc_id              = var.vpc_id
  subnets             = var.subnets
  route_table_ids     = var.route_table_ids
  interface_endpoints = ["ec2", "sqs", "ssm", "ssmmessages", "sts"]
  egress_cidrs        = []
  client_cidrs        = ["10.0.0.0/8"]

  volume_usd_per_gb_month = 0.088 # eu-west-1's

  permissions_boundary_arn = var.permissions_boundary_arn
  kms_key_arn              = var.kms_key_arn
  wheels_directory         = var.wheels_directory
  package_index            = false
  prices_from              = "/var/lib/castor/prices.csv"
  tags                     = { team = "vision" }
  max_usd_per_hour         = 250
  fleet_usd                = "500"

  pools = {
    small = {
      image_id         = var.image_id
      instance_types   = ["g5.xlarge"]
      max_instances    = 16
      max_usd_per_hour = 20
    }
    large = {
      image_id         = var.image_id
      instance_types   = ["p4d.24xlarge"]
      purchases        = ["on-demand"]
      zones            = [keys(var.subnets)[0]]
      max_instances    = 8
      max_usd_per_hour = 250
      volume_gb        = 500
      volume_iops      = 4000
      volume_mibps     = 1000
      boot             = "6m"
      efa              = true
      network_cards    = 4
      placement_group  = true
    }
  }

  controller = {
    image_id = var.image_id
  }
}

output "pools_source" {
  description = "Argument of castor serve --pools."
  value       = module.castor.pools_source
}
