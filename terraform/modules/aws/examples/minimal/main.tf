# A controller on EC2, and one pool of GPU instances, in a network of their own.

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
  description = "An image for x86-64 with NVIDIA's driver, Python 3.11 or newer with venv, and the AWS CLI."
  type        = string
}

variable "wheels_directory" {
  description = "Where python -m build --wheel has put Castor's wheel."
  type        = string
  default     = null
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
  description = "What castor serve --pools takes."
  value       = module.castor.pools_source
}

output "controller_address" {
  description = "Where the controller is called from inside."
  value       = module.castor.controller_address
}

output "controller_instance_id" {
  description = "What aws ssm start-session --target takes."
  value       = module.castor.controller_instance_id
}
