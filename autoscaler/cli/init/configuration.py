"""Terraform configuration of a new deployment, as text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from string import Template


@dataclass(frozen=True, slots=True)
class TerraformConfiguration:
    """Contents of `main.tf`.

    Attributes:
        cloud: "aws" or "gcp".
        module: source of the Terraform module.
        deployment: name of the deployment.
        project: id of the project of Compute Engine; None on EC2.
        region: region of everything.
        types: instance types of the pool.
        max_instances: most instances of the pool.
        max_usd_per_hour: most US dollars per hour, of the pool and in all.
        fleet_usd: budget of all jobs together, in US dollars.
    """

    cloud: str
    module: str
    deployment: str
    project: str | None
    region: str
    types: tuple[str, ...]
    max_instances: int
    max_usd_per_hour: int
    fleet_usd: str


_AWS = Template("""\
# A controller on EC2, and a pool of GPU instances, in a new network. Written by castor init.

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
  region = $region
}

# AWS's image for GPUs. A newer one replaces the controller's host: pin its id to choose the day.
data "aws_ssm_parameter" "image" {
  name = "$image"
}

# Their order decides addresses: write the names out if the region gets another zone.
data "aws_availability_zones" "all" {
  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

module "castor" {
  source = $module

  deployment       = $deployment
  zones            = data.aws_availability_zones.all.names
  wheels_directory = "$${path.module}/dist"
  max_usd_per_hour = $max_usd_per_hour
  fleet_usd        = $fleet_usd

  pools = {
    gpu = {
      image_id         = data.aws_ssm_parameter.image.insecure_value
      instance_types   = $types
      max_instances    = $max_instances
      max_usd_per_hour = $max_usd_per_hour
    }
  }

  controller = {
    image_id = data.aws_ssm_parameter.image.insecure_value
  }
}

output "pools_source" {
  description = "Argument of castor check and castor serve --pools."
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
""")

_GCP = Template("""\
# A controller on Compute Engine, and a pool of GPU instances, in a new network. Written by
# castor init.

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
  project = $project
  region  = $region
}

# Ubuntu's image for GPUs. A newer one replaces the controller's host: pin its name to choose the
# day.
data "google_compute_image" "gpu" {
  family  = "ubuntu-accelerator-2404-amd64-with-nvidia-580"
  project = "ubuntu-os-accelerator-images"
}

data "google_compute_zones" "all" {
  region = $region
}

locals {
  # Without the zones for accelerators alone, such as us-central1-ai1a.
  zones = [for zone in data.google_compute_zones.all.names : zone if can(regex("-[a-z]$$", zone))]
}

module "castor" {
  source = $module

  deployment       = $deployment
  project          = $project
  region           = $region
  zones            = local.zones
  enable_services  = true
  wheels_directory = "$${path.module}/dist"
  max_usd_per_hour = $max_usd_per_hour
  fleet_usd        = $fleet_usd

  pools = {
    gpu = {
      image            = data.google_compute_image.gpu.id
      machine_types    = $types
      max_instances    = $max_instances
      max_usd_per_hour = $max_usd_per_hour
    }
  }

  controller = {
    image = data.google_compute_image.gpu.id
  }
}

output "pools_source" {
  description = "Argument of castor check and castor serve --pools."
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
""")
_TEMPLATES = {"aws": _AWS, "gcp": _GCP}
_IMAGES = "/aws/service/deeplearning/ami/x86_64"
_AWS_IMAGE = f"{_IMAGES}/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"


def rendered(configuration: TerraformConfiguration) -> str:
    """Return the text of `main.tf`."""

    def quoted(value: object) -> str:
        """Return a string or list of strings as Terraform writes it."""
        return json.dumps(value).replace("${", "$${").replace("%{", "%%{")

    return _TEMPLATES[configuration.cloud].substitute(
        image=_AWS_IMAGE,
        module=quoted(configuration.module),
        deployment=quoted(configuration.deployment),
        project=quoted(configuration.project),
        region=quoted(configuration.region),
        types=quoted(list(configuration.types)),
        max_instances=configuration.max_instances,
        max_usd_per_hour=configuration.max_usd_per_hour,
        fleet_usd=quoted(configuration.fleet_usd),
    )
