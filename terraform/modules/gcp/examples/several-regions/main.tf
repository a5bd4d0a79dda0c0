# A controller on Compute Engine, and pools of GPU instances in two regions of a new network.

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
  project = var.project
  region  = "us-central1"
}

variable "project" {
  description = "The id of the project."
  type        = string
}

variable "image" {
  description = "An image for x86-64 with NVIDIA's driver, Python 3.11 or newer with venv, curl, nftables and systemd-resolved."
  type        = string
}

variable "wheels_directory" {
  description = "Directory with Castor's wheel, as built by python -m build --wheel."
  type        = string
  default     = null
}

module "castor" {
  source = "../../"

  deployment       = "demo"
  project          = var.project
  region           = "us-central1"
  zones            = ["us-central1-a", "us-central1-b"]
  wheels_directory = var.wheels_directory
  max_usd_per_hour = 20
  fleet_usd        = "500"

  other_regions = {
    europe-west4 = {
      zones                 = ["europe-west4-a", "europe-west4-b"]
      cidr                  = "10.81.0.0/16"
      disk_usd_per_gb_month = { "pd-balanced" = 0.11 }
    }
  }

  pools = {
    gpu = {
      image            = var.image
      machine_types    = ["g2-standard-4", "g2-standard-8"]
      max_instances    = 8
      max_usd_per_hour = 10
    }
    gpu-europe = {
      image            = var.image
      machine_types    = ["g2-standard-4", "g2-standard-8"]
      region           = "europe-west4"
      max_instances    = 8
      max_usd_per_hour = 10
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

output "controller_address" {
  description = "Internal address of the controller."
  value       = module.castor.controller_address
}

output "controller_instance" {
  description = "Instance for gcloud compute ssh --tunnel-through-iap."
  value       = module.castor.controller_instance
}
