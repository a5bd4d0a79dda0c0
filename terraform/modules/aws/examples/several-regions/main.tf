# A controller in one region, and pools of GPU instances in two, whose networks are connected.

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

provider "aws" {
  alias  = "west"
  region = "us-west-2"
}

variable "image_ids" {
  description = "Images by region, each for x86-64 with NVIDIA's driver, Python 3.11 or newer with venv, nftables, and the AWS CLI."
  type        = map(string)
}

variable "wheels_directory" {
  description = "Directory with Castor's wheel (docs/aws.md, step 1), or null if the images contain Castor in /opt/castor."
  type        = string
}

module "castor" {
  source = "../../"

  deployment       = "demo"
  zones            = ["us-east-1a", "us-east-1b"]
  wheels_directory = var.wheels_directory
  max_usd_per_hour = 20
  fleet_usd        = "500"

  pools = {
    gpu = {
      image_id         = var.image_ids["us-east-1"]
      instance_types   = ["g5.xlarge", "g6.xlarge"]
      max_instances    = 8
      max_usd_per_hour = 10
    }
  }

  controller = {
    image_id = var.image_ids["us-east-1"]
  }

  other_regions = [module.west.region]
}

# The second region: its network, whose addresses differ from the first one's, and its pools.

module "west_network" {
  source    = "../../modules/network"
  providers = { aws = aws.west }

  deployment       = "demo"
  vpc_cidr         = "10.81.0.0/16"
  zones            = ["us-west-2a", "us-west-2b"]
  controller_cidrs = [module.castor.network.cidr]
}

module "west" {
  source    = "../../modules/pools"
  providers = { aws = aws.west }

  shared  = module.castor.shared
  network = module.west_network.network

  pools = {
    gpu-west = {
      image_id         = var.image_ids["us-west-2"]
      instance_types   = ["g5.xlarge", "g6.xlarge"]
      max_instances    = 8
      max_usd_per_hour = 10
    }
  }
}

# Instances of the second region reach the controller through this connection.

module "west_peering" {
  source    = "../../modules/peering"
  providers = { aws = aws, aws.other = aws.west }

  deployment = "demo"
  network    = module.castor.network
  other      = module.west_network.network
}

output "pools_source" {
  description = "Argument of castor serve --pools."
  value       = module.castor.pools_source
}

output "controller_host" {
  description = "Host for a port forward through aws ssm start-session."
  value       = module.castor.controller_host
}

output "controller_instance_id" {
  description = "Argument of aws ssm start-session --target."
  value       = module.castor.controller_instance_id
}
