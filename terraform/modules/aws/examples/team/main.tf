# A deployment for a team: a network, a key and roles of its own in the same configuration, several
# offices as clients, a permissions boundary, monitoring on instances, and tags for the bill. The
# network's way out, such as a transit gateway, is left out here.

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
  region = "eu-central-1"

  default_tags {
    tags = { "cost-centre" = "research" }
  }
}

variable "image_id" {
  description = "An image for x86-64 with NVIDIA's driver, Castor in /opt/castor, nftables, and the AWS CLI."
  type        = string
}

variable "permissions_boundary_arn" {
  description = "The boundary of all roles."
  type        = string
}

variable "client_cidrs" {
  description = "Address ranges of the team's offices and VPN, which a transit gateway connects to the network."
  type        = set(string)
}

resource "aws_vpc" "team" {
  cidr_block           = "10.40.0.0/16"
  enable_dns_hostnames = true
  enable_dns_support   = true
}

resource "aws_subnet" "gpu" {
  for_each = { eu-central-1a = "10.40.0.0/20", eu-central-1b = "10.40.16.0/20" }

  vpc_id            = aws_vpc.team.id
  availability_zone = each.key
  cidr_block        = each.value
}

resource "aws_security_group" "monitoring" {
  name        = "monitoring"
  description = "Instances that the team's monitoring may call"
  vpc_id      = aws_vpc.team.id
}

resource "aws_kms_key" "files" {
  description         = "Files of jobs"
  enable_key_rotation = true
}

module "castor" {
  source = "../../"

  deployment      = "team"
  vpc_id          = aws_vpc.team.id
  subnets         = { for zone, subnet in aws_subnet.gpu : zone => subnet.id }
  route_table_ids = [aws_vpc.team.main_route_table_id]
  client_cidrs    = var.client_cidrs

  create_kms_key                = false
  kms_key_arn                   = aws_kms_key.files.arn
  permissions_boundary_arn      = var.permissions_boundary_arn
  iam_path                      = "/castor/"
  node_role_policies            = { logs = "arn:aws:iam::aws:policy/CloudWatchAgentServerPolicy" }
  additional_security_group_ids = [aws_security_group.monitoring.id]

  volume_usd_per_gb_month = 0.0952 # eu-central-1's

  max_usd_per_hour = 100
  fleet_usd        = "20000"
  job_usd          = "200"
  study_usd        = "1000"

  pools = {
    gpu = {
      image_id         = var.image_id
      instance_types   = ["g5.xlarge", "g5.12xlarge"]
      max_instances    = 32
      max_usd_per_hour = 100
      post_bootstrap   = "systemctl start amazon-cloudwatch-agent"
    }
  }

  controller = {
    image_id          = var.image_id
    state_snapshots   = 30
    secrets_directory = "/etc/castor/secrets"
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
