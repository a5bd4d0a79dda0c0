# A subnetwork of an existing network without internet access. Google's services are reached through
# Private Google Access, packages come from the bucket, and encryption uses the owner's keys.

terraform {
  required_version = ">= 1.6"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.50, < 8"
    }
  }
}

provider "google" {
  project                     = var.project
  region                      = "europe-west4"
  impersonate_service_account = var.terraform_service_account
}

variable "terraform_service_account" {
  description = "Service account that Terraform impersonates; null uses the environment's credentials."
  type        = string
  default     = null
}

variable "project" {
  description = "The id of the project."
  type        = string
}

variable "network" {
  description = "The network."
  type        = string
}

variable "subnetwork" {
  description = "Subnetwork of the network, with Private Google Access."
  type        = string
}

variable "image" {
  description = "An image for x86-64 with NVIDIA's driver, Python 3.11 or newer with venv, curl, nftables and systemd-resolved."
  type        = string
}

variable "wheels_directory" {
  description = "Directory with Castor's wheel and all its dependencies: pip download castor_autoscaler-*.whl[server,oidc,telemetry,gcp,training]."
  type        = string
  default     = null
}

variable "kms_key" {
  description = "The key of bucket, messages and disks."
  type        = string
}

module "castor" {
  source = "../../"

  deployment   = "research"
  project      = var.project
  region       = "europe-west4"
  zones        = ["europe-west4-a", "europe-west4-b"]
  network      = var.network
  subnetwork   = var.subnetwork
  client_cidrs = ["10.0.0.0/8"]

  kms_key          = var.kms_key
  disk_kms_key     = var.kms_key
  wheels_directory = var.wheels_directory
  package_index    = false
  prices_from      = "/var/lib/castor/prices.csv"
  labels           = { team = "vision" }
  max_usd_per_hour = 250
  fleet_usd        = "500"

  pools = {
    small = {
      image            = var.image
      machine_types    = ["n1-standard-8"]
      accelerator      = { type = "nvidia-tesla-t4", count = 1 }
      max_instances    = 16
      max_usd_per_hour = 20
    }
    large = {
      image             = var.image
      machine_types     = ["a2-highgpu-8g"]
      purchases         = ["on-demand"]
      zones             = ["europe-west4-a"]
      max_instances     = 8
      max_usd_per_hour  = 250
      disk_gb           = 500
      boot              = "6m"
      compact_placement = true
    }
  }

  controller = {
    image = var.image
  }
}

output "pools_source" {
  description = "Argument of castor serve --pools."
  value       = module.castor.pools_source
}
