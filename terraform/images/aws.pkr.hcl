# Image for instances of jobs on EC2: AWS's image with NVIDIA's driver, docker, and Castor with
# PyTorch in /opt/castor. `make image-aws` builds it (docs/images.md). Never built so far.

packer {
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = ">= 1.3, < 2"
    }
  }
}

variable "region" {
  description = "Region of the image."
  type        = string
}

variable "wheels" {
  description = "Directory that `make wheels` filled."
  type        = string
  default     = "dist"
}

variable "base" {
  description = "Public parameter with the id of the base image, which has NVIDIA's driver."
  type        = string
  default     = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
}

variable "instance_type" {
  description = "Type that builds the image. It needs no GPU."
  type        = string
  default     = "m7i.xlarge"
}

variable "subnet_id" {
  description = "Subnet with a public address and access to the internet. Null: that of the default network."
  type        = string
  default     = null
}

variable "volume_gb" {
  description = "Size of the image's volume in GB, at least that of the base image. `volume_gb` of pools is at least as much."
  type        = number
  default     = 100
}

data "amazon-parameterstore" "base" {
  name   = var.base
  region = var.region
}

locals {
  name = "castor-${formatdate("YYYYMMDD-hhmmss", timestamp())}"
}

source "amazon-ebs" "castor" {
  ami_name                = local.name
  ami_description         = "Castor: instances of jobs"
  region                  = var.region
  source_ami              = data.amazon-parameterstore.base.value
  instance_type           = var.instance_type
  subnet_id               = var.subnet_id
  ssh_username            = "ubuntu"
  temporary_key_pair_type = "ed25519"
  imds_support            = "v2.0"
  tags                    = { Name = local.name }
  run_tags                = { Name = "${local.name}-build" }

  # No instance profile: nothing on the builder has credentials.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  launch_block_device_mappings {
    device_name           = "/dev/sda1"
    volume_type           = "gp3"
    volume_size           = var.volume_gb
    throughput            = 500
    delete_on_termination = true
  }
}

build {
  sources = ["source.amazon-ebs.castor"]

  provisioner "shell" {
    inline = ["mkdir -m 0700 /tmp/castor-wheels"]
  }

  provisioner "file" {
    source      = "${var.wheels}/"
    destination = "/tmp/castor-wheels"
  }

  provisioner "shell" {
    script          = "${path.root}/prepare.sh"
    execute_command = "sudo bash {{ .Path }}"
  }
}
