# A controller on EC2, and one pool of GPU instances, in a new network.

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
  region = "us-east-1"
}

variable "image_id" {
  description = "An image for x86-64 with NVIDIA's driver, Python 3.11 or newer with venv, nftables, and the AWS CLI."
  type        = string
}

variable "wheels_directory" {
  description = "Directory with Castor's wheel (docs/aws.md, step 1), or null if the image contains Castor in /opt/castor."
  type        = string
}

module "castor" {
  source = "../../"

  deployment       = "demo"
  zones            = ["us-east-1a", "us-east-1b"]
  wheels_directory = var.wheels_directory
  max_usd_per_hour = 10
  fleet_usd        = "500"

  pools = {
    gpu = {
      image_id         = var.image_id
      instance_types   = ["g5.xlarge", "g6.xlarge"]
      max_instances    = 8
      max_usd_per_hour = 10
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

output "controller_address" {
  description = "Internal address of the controller."
  value       = module.castor.controller_address
}

output "controller_host" {
  description = "Host for a port forward through aws ssm start-session."
  value       = module.castor.controller_host
}

output "controller_instance_id" {
  description = "Argument of aws ssm start-session --target."
  value       = module.castor.controller_instance_id
}
